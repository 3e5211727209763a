//! Sections of the report: each turns an analysis into blocks. None queries.

pub mod causes;
pub mod chains;
pub mod comparison;
pub mod culprits;
pub mod devices;
pub mod functions;
pub mod gaps;
pub mod headline;
pub mod leaks;
pub mod memory;
pub mod nccl;
pub mod next_steps;
pub mod phases;
pub mod provenance;
pub mod strata;
pub mod timeline;

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
