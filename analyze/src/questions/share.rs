//! Shares of the causes in excess latency.

use analyze_verdict::causes::{Cause, Division};
use serde::Serialize;

/// Maximum share of the excess latency of a cause that is not a factor.
pub const NOT_A_FACTOR_RATIO: f64 = 0.01;

/// The share of one cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Share {
    /// The cause.
    pub cause: Cause,
    /// Its part of the excess latency in nanoseconds.
    pub total_ns: f64,
    /// Its part divided by the whole, from 0 to 1.
    pub share_ratio: f64,
}

/// Returns the share of each cause that has any part of `division`; `excess` is the whole in nanoseconds.
pub fn shares(division: Division, excess: f64) -> Vec<Share> {
    let ratio = |ns: f64| if excess > 0.0 { ns / excess } else { 0.0 };
    let all = Cause::ALL.into_iter().zip(division).filter(|(_, ns)| *ns > 0.0);
    all.map(|(cause, total_ns)| Share { cause, total_ns, share_ratio: ratio(total_ns) }).collect()
}

/// Returns the share of one cause, or 0 if it is not in the list.
pub fn share_of(shares: &[Share], cause: Cause) -> f64 {
    shares.iter().find(|share| share.cause == cause).map_or(0.0, |share| share.share_ratio)
}
