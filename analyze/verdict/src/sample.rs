//! What one call adds to the samples that baselines are computed from.

use crate::{missing::Missing, thread_state::BlockedNs};

/// One call as the baseline sees it. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Duration.
    pub dur: i64,
    /// Time on CPU.
    pub on_cpu: i64,
    /// Own time.
    pub own: i64,
    /// True if nothing was taken from the call, so that its own time is its duration.
    pub is_whole: bool,
    /// Time in nested calls of another class.
    pub nested: i64,
    /// Time blocked, by class; `None` if the call was never blocked.
    pub blocked: Option<&'a BlockedNs>,
    /// What may be missing, so that these times are one end of what they may be.
    pub missing: Missing,
}
