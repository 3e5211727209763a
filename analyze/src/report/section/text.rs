//! Times, sizes and shares as text.

use trace_schema::{Bytes, Nanos};

/// Formats a time in nanoseconds.
pub(crate) fn time(ns: f64) -> String {
    Nanos(ns.round() as i64).to_string()
}

/// Formats a ratio in percent.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// Formats a size in bytes.
pub(crate) fn size(bytes: i64) -> String {
    Bytes(bytes).to_string()
}

/// Formats a table cell; a dash if the value is not known.
pub(crate) fn if_known(is_known: bool, words: impl ToString) -> String {
    if is_known { words.to_string() } else { "–".to_owned() }
}
