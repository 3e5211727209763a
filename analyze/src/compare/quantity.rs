//! Numbers in gates and in the headers of metrics.

use trace_schema::{Bytes, Nanos};

/// Parses a non-negative number: plain, a time (to ns) or a size (to bytes).
pub(super) fn quantity(text: &str) -> Option<f64> {
    let plain = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    let time = || text.parse().ok().map(|Nanos(ns)| ns as f64);
    plain.or_else(time).or_else(|| text.parse().ok().map(|Bytes(bytes)| bytes as f64))
}
