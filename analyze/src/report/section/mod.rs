//! Sections of the report: each turns an analysis into what the template shows. None queries.

pub(crate) mod memory;
pub(crate) mod phases;
pub(crate) mod provenance;
pub(crate) mod strata;
pub(crate) mod timeline;
pub(crate) mod verdict;

use trace_schema::Nanos;

/// A time for reading.
fn time(ns: f64) -> String {
    Nanos(ns.round() as i64).to_string()
}

/// A share for reading.
fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}
