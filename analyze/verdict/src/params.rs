//! The definition of a slow call.

use serde::Serialize;

use crate::groups::{Baseline, MIN_CALLS};

/// The definition of a slow call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Params {
    /// A slow call takes more than this multiple of its baseline.
    pub slow_factor: f64,
    /// Minimum excess of a slow call above the baseline, in nanoseconds.
    pub slow_by_ns: i64,
}

impl Default for Params {
    fn default() -> Self {
        Self { slow_factor: 3.0, slow_by_ns: 0 }
    }
}

impl Params {
    /// Returns the duration in nanoseconds above which a call is slow, given its baseline in nanoseconds.
    pub fn limit_ns(&self, expected_ns: f64) -> f64 {
        (self.slow_factor * expected_ns).max(expected_ns + self.slow_by_ns as f64)
    }

    /// Returns whether a call of this duration in nanoseconds is slow. A kind with too few calls has no slow ones.
    pub(super) fn is_slow(&self, dur: i64, baseline: &Baseline) -> bool {
        let expected = baseline.expected();
        let excess = dur as f64 - expected;
        baseline.kind.calls_count >= MIN_CALLS
            && dur as f64 > self.slow_factor * expected
            && excess >= self.slow_by_ns as f64
            && excess > 0.0
    }
}
