//! One release of memory by an allocator: what it returned to the driver, what the thread freed before it, and what stayed.

use crate::{allocator::Allocator, cause::Cause, decode::Key, frees::Frees, pools::Pools, totals::Totals};

/// What one allocator released for one cause: one call of `empty_cache()` or `ipc_collect()`, or one request that needed
/// room.
#[derive(Clone, Debug)]
pub struct Release {
    /// The allocator.
    pub key: Key,
    /// The time at which the release began (ns, trace clock).
    pub ts: i64,
    /// The thread that released the memory.
    pub tid: u32,
    /// [`Cause::EmptyCache`], [`Cause::IpcCollect`], [`Cause::MakeRoom`] or [`Cause::NotKnown`].
    pub cause: Cause,
    /// Whether the run records all calls of `emptyCache`.
    pub records_empty_cache: bool,
    /// The time at which the last segment or range was released, or at which `ipc_collect()` returned (ns, trace clock).
    pub last_ts: i64,
    /// Released bytes.
    pub given_back_bytes: u64,
    /// The number of released segments and ranges.
    pub segments_count: u64,
    /// The allocator's totals before the release.
    pub before: Totals,
    /// The allocator's totals after the last segment was released.
    pub after: Totals,
    /// Bytes that were free after the release in segments held by active blocks.
    pub pinned_bytes: u64,
    /// The bytes of the blocks that the thread freed since its last allocation or release; `None` if the record does not
    /// tell.
    pub freed_before_bytes: Option<u64>,
    /// The bytes of the blocks that `ipc_collect()` freed: 0 for another cause, and `None` if the record does not tell.
    pub ipc_freed_bytes: Option<u64>,
    /// The number of CUDA IPC handles of all devices that the thread closed since its last allocation or release, until
    /// the end of this one; `None` if the record does not tell.
    pub closed_handles_count: Option<u64>,
}

impl Release {
    /// Creates a release that begins now.
    pub(crate) fn new(
        key: Key,
        allocator: &Allocator,
        ts: i64,
        tid: u32,
        cause: Cause,
        frees: &mut Frees,
    ) -> Self {
        let (totals, knowledge) = (*allocator.totals(), allocator.knowledge());
        let (freed_before_bytes, closed_handles_count) = frees.take(key, tid, knowledge);
        let records_ipc_collect = match cause {
            Cause::IpcCollect => knowledge.has_blocks,
            _ => knowledge.records_ipc_collect,
        };
        Self {
            key,
            ts,
            tid,
            cause,
            records_empty_cache: knowledge.records_empty_cache,
            last_ts: ts,
            given_back_bytes: 0,
            segments_count: 0,
            before: totals,
            after: totals,
            pinned_bytes: allocator.pools().map_or(0, Pools::pinned_bytes),
            freed_before_bytes,
            ipc_freed_bytes: records_ipc_collect.then_some(0),
            closed_handles_count,
        }
    }

    /// Notes the state of the allocator after an event of the release.
    pub(crate) fn passed(&mut self, allocator: &Allocator) {
        self.after = *allocator.totals();
        self.pinned_bytes = allocator.pools().map_or(0, Pools::pinned_bytes);
    }

    /// Returns a sentence that says why the cause is not known; `None` if it is known.
    pub fn why_not_known(&self) -> Option<&'static str> {
        (self.cause == Cause::NotKnown).then_some(match self.records_empty_cache {
            true => {
                "no recorded call of emptyCache encloses the release, and the thread requested no segment right after it"
            }
            false => {
                "the record does not have the calls of emptyCache (capture needs its probe, a snapshot its call stacks), and does not show a request around the release"
            }
        })
    }

    /// Returns the bytes that were active after the release in the remaining segments.
    pub fn in_use_bytes(&self) -> i64 {
        let free =
            self.pinned_bytes as i64 + self.after.private_releasable_bytes + self.after.releasable_bytes;
        self.after.reserved_bytes - free - self.after.unknown_bytes
    }
}
