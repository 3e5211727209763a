//! Sections of the report: each turns an analysis into blocks. None queries.

pub(crate) mod causes;
pub(crate) mod chains;
pub(crate) mod comparison;
pub(crate) mod culprits;
pub(crate) mod devices;
pub(crate) mod functions;
pub(crate) mod gaps;
pub(crate) mod headline;
pub(crate) mod leaks;
pub(crate) mod memory;
pub(crate) mod nccl;
pub(crate) mod next_steps;
pub(crate) mod phases;
pub(crate) mod provenance;
pub(crate) mod strata;
pub(crate) mod timeline;

use trace_schema::{Bytes, Nanos};

/// A time for reading.
pub(super) fn time(ns: f64) -> String {
    Nanos(ns.round() as i64).to_string()
}

/// A share for reading.
pub(super) fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// A size for reading.
pub(super) fn size(bytes: i64) -> String {
    Bytes(bytes).to_string()
}

/// Words for a table; a dash if the record does not tell.
pub(super) fn if_known(is_known: bool, words: impl ToString) -> String {
    if is_known { words.to_string() } else { "–".to_owned() }
}
