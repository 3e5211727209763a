//! Times, sizes and shares as text.

use trace_schema::{Bytes, Nanos};

/// Formats a time in nanoseconds.
pub(crate) fn time(ns: f64) -> String {
    Nanos(ns.round() as i64).to_string()
}

/// Marks a percentile of few values, see [`is_few`].
pub(crate) const FEW: &str = "*";
/// Explains the mark; it is shown once below a table or figure that has any.
pub(crate) const FEW_NOTE: &str = "* So few calls that the percentile is the longest of them or nearly so: fewer than 2 for p50, 10 for p90, 100 for p99, 1000 for p99.9.";

/// Returns whether `count` values are too few for more than the largest of them to lie above the quantile `q`.
pub(crate) fn is_few(q: f64, count: i64) -> bool {
    // In thousandths, which are whole for every quantile that is shown.
    count.saturating_mul((1000.0 * (1.0 - q)).round() as i64) < 1000
}

/// Formats the quantile `q` of `count` durations in nanoseconds, with a mark if they are few; a dash if there are none.
pub(crate) fn percentile(q: f64, ns: f64, count: i64) -> String {
    match count {
        0 => "–".to_owned(),
        _ => time(ns) + if is_few(q, count) { FEW } else { "" },
    }
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

/// Formats a figure of calls; as a lower bound if only a part of the calls is on record.
pub(crate) fn at_least(is_partial: bool, figure: impl ToString) -> String {
    let figure = figure.to_string();
    if is_partial { format!("≥ {figure}") } else { figure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values_are_marked() {
        let least = |q: f64| (1..2_000).find(|count| !is_few(q, *count)).unwrap();
        assert_eq!([0.5, 0.9, 0.99, 0.999].map(least), [2, 10, 100, 1_000]);
        assert_eq!(percentile(0.99, 1_500.0, 99), "1.50 µs*");
        assert_eq!(percentile(0.99, 1_500.0, 100), "1.50 µs");
        assert_eq!(percentile(0.5, f64::NAN, 0), "–");
    }
}
