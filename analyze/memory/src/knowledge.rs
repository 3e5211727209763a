//! What the recorded events can tell about an allocator.

use std::collections::BTreeMap;

use crate::{event::PoolId, span::BEFORE};

/// Limits of what the recorded events can tell about an allocator.
#[derive(Clone, Debug)]
pub struct Knowledge {
    /// Recording began while the process ran, or events were lost; a contradiction that missing events
    /// explain is then not a fault.
    pub is_partial: bool,
    /// The events describe blocks, not only segments.
    pub has_blocks: bool,
    /// Whether each private pool of the program splits blocks; pools that are not listed split.
    pub split_policies: BTreeMap<PoolId, SplitPolicy>,
    /// Events are being lost until this time (ns, trace clock).
    pub lost_until_ts: i64,
    /// The number of events lost so far.
    pub lost_count: u64,
    /// A listener needs free memory by pool, so that the allocator keeps `Pools`.
    pub wants_pools: bool,
    /// The run records all calls of `emptyCache`.
    pub records_empty_cache: bool,
}

impl Default for Knowledge {
    fn default() -> Self {
        Self {
            is_partial: false,
            has_blocks: true,
            split_policies: BTreeMap::new(),
            lost_until_ts: BEFORE,
            lost_count: 0,
            wants_pools: false,
            records_empty_cache: false,
        }
    }
}

/// What a pool does with the remainder of a block that is larger than a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitPolicy {
    /// The remainder is split off as a free block.
    #[default]
    Split,
    /// The remainder stays with the allocated block.
    Kept,
    /// The events do not show which.
    NotKnown,
}
