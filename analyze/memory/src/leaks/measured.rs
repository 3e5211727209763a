//! The growth of one allocator as it was measured, and its class.

use serde::Serialize;

use super::{
    account::{Account, LiveSite, Suspect},
    epochs::Epochs,
    trend::Trend,
};

/// The class of an allocator's growth; the table of [`super::verdict`] gives the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// A site leaks.
    #[serde(rename = "leak")]
    Leak,
    /// Memory grew once and was kept by sites that do not keep growing.
    #[serde(rename = "one-off growth")]
    OneOffGrowth,
    /// Reserved memory grows because active blocks hold free memory.
    #[serde(rename = "fragmentation")]
    Fragmentation,
    /// The allocator holds reclaimable memory.
    #[serde(rename = "caching")]
    Caching,
    /// Nothing grows.
    #[serde(rename = "none")]
    None,
    /// The data do not allow a verdict.
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

impl Verdict {
    /// Returns the name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::OneOffGrowth => "one-off growth",
            Self::Fragmentation => "fragmentation",
            Self::Caching => "caching",
            Self::None => "none",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// An allocator's totals at one epoch bound.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// The time of the bound (ns, trace clock).
    pub ts_ns: i64,
    /// Allocated bytes.
    pub live_bytes: i64,
    /// Bytes in blocks that the program freed but other streams may still use.
    pub pending_bytes: i64,
    /// Reserved bytes.
    pub reserved_bytes: i64,
    /// Free bytes that `empty_cache()` would release, and those that it would if no private pool kept them.
    pub releasable_bytes: i64,
    /// Free bytes in segments that are in use; reduced by active bytes outside of known segments.
    pub pinned_bytes: i64,
    /// Bytes in blocks whose state is not known.
    pub unknown_bytes: i64,
    /// The number of blocks allocated since the previous bound that are live at the last one.
    pub survived_count: u64,
    /// The bytes in these blocks.
    pub survived_bytes: i64,
}

/// One bin of a histogram of blocks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bin {
    /// The smallest age in epochs, or the smallest size in bytes, of the bin.
    pub from: u64,
    /// The first value above the bin.
    pub to: u64,
    /// The number of blocks.
    pub count: u64,
    /// The bytes in these blocks.
    pub bytes: i64,
}

/// The growth of one allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// The name of the run.
    pub run: String,
    /// The process.
    pub pid: u32,
    /// The device, by CUDA's index.
    pub device: i32,
    /// The class of the growth.
    pub verdict: Verdict,
    /// The reasons for the verdict; may be empty.
    pub reasons: Vec<String>,
    /// The epochs over which the growth was measured.
    pub epochs: Epochs,
    /// The number of epochs.
    pub epochs_count: usize,
    /// The number of warm-up epochs among them.
    pub warm_up_count: usize,
    /// The account of the growth.
    pub account: Account,
    /// The trend of the allocated bytes, from the end of the warm-up.
    pub live_trend: Option<Trend>,
    /// The trend of the reserved bytes, from the end of the warm-up.
    pub reserved_trend: Option<Trend>,
    /// The sites with old blocks: leaks first, then by bytes.
    pub sites: Vec<Suspect>,
    /// Blocks allocated after the warm-up that are live at the end of the last epoch, by age in epochs.
    pub ages: Vec<Bin>,
    /// The blocks of [`Self::ages`], by size in bytes.
    pub sizes: Vec<Bin>,
    /// The totals at each epoch bound.
    pub points: Vec<Point>,
    /// The bytes that are live at the end of the run.
    pub end_bytes: i64,
    /// These bytes by call stack, those with most first; only if the verdict is inconclusive.
    pub live_sites: Vec<LiveSite>,
    /// The number of requests that failed.
    pub failed_count: u64,
}
