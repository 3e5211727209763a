//! Sections of the report. Each turns the results of an analysis into blocks, and none runs a query.

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

/// Formats a time in nanoseconds.
pub(super) fn time(ns: f64) -> String {
    Nanos(ns.round() as i64).to_string()
}

/// Formats a ratio in percent.
pub(super) fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// Formats a size in bytes.
pub(super) fn size(bytes: i64) -> String {
    Bytes(bytes).to_string()
}

/// Formats a table cell; a dash if the value is not known.
pub(super) fn if_known(is_known: bool, words: impl ToString) -> String {
    if is_known { words.to_string() } else { "–".to_owned() }
}
