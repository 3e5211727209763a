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
    /// The events describe segments, not only blocks.
    pub has_segments: bool,
    /// Whether each private pool of the program splits blocks; pools that are not listed split.
    pub split_policies: BTreeMap<PoolId, SplitPolicy>,
    /// Events are being lost until this time (ns, trace clock).
    pub lost_until_ts: i64,
    /// The number of events lost so far.
    pub lost_count: u64,
    /// A listener needs free memory by pool, so that the allocator keeps `Pools`.
    pub wants_pools: bool,
    /// The process may have used memory before its first recorded event.
    pub begins_late: bool,
    /// The run records all calls of `emptyCache`.
    pub records_empty_cache: bool,
    /// The run records all calls that reserve memory, also those that failed.
    pub records_refusals: bool,
    /// The run records all calls of `ipc_collect()`.
    pub records_ipc_collect: bool,
    /// The run records all calls that close CUDA IPC handles.
    pub records_closed_handles: bool,
    /// The events of the allocator itself are recorded: every request shows as its allocation or its failure.
    pub records_requests: bool,
}

impl Default for Knowledge {
    fn default() -> Self {
        Self {
            is_partial: false,
            has_blocks: true,
            has_segments: true,
            split_policies: BTreeMap::new(),
            lost_until_ts: BEFORE,
            lost_count: 0,
            wants_pools: false,
            begins_late: false,
            records_empty_cache: false,
            records_refusals: false,
            records_ipc_collect: false,
            records_closed_handles: false,
            records_requests: false,
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
