//! Sums over an allocator's blocks and segments, kept as they change.

use super::{
    event::PoolId,
    span::{Block, Segment, State},
};

/// Bytes by what they are, as `torch.cuda.memory_stats` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Had from the driver.
    pub reserved_bytes: i64,
    /// In blocks that are handed out.
    pub allocated_bytes: i64,
    /// In those, and in blocks given back that other streams may still use.
    pub active_bytes: i64,
    /// Of the active ones, what was asked for.
    pub requested_bytes: i64,
    /// Free blocks of segments that are in use elsewhere, but for expandable ones.
    pub inactive_split_bytes: i64,
    /// What `empty_cache` would give back: unused segments and unused pages of the default pools.
    pub releasable_bytes: i64,
    /// The same of private pools, which keep it while a graph may run.
    pub private_releasable_bytes: i64,
    /// Not known to be free or in use.
    pub unknown_bytes: i64,
    /// Segments, but for expandable ones.
    pub segments_count: i64,
    /// Blocks handed out.
    pub allocated_count: i64,
    /// Free blocks.
    pub inactive_count: i64,
}

/// The default pool's id.
pub const DEFAULT_POOL: PoolId = (0, 0);

/// Bytes of a free block that can be given back to the driver.
pub fn releasable_bytes(block: &Block, segment: &Segment) -> u64 {
    if !segment.is_expandable {
        return if block.size_bytes == segment.size_bytes { block.size_bytes } else { 0 };
    }
    // Pages are counted from where the range began, which is where a page began.
    let page = segment.page_bytes.max(1);
    let first = (block.addr - segment.addr).next_multiple_of(page);
    let last = (block.end() - segment.addr) / page * page;
    last.saturating_sub(first)
}

impl Totals {
    /// Adds a block, or with `sign` -1 takes it away.
    pub(super) fn add_block(&mut self, block: &Block, segment: Option<&Segment>, sign: i64) {
        let size = sign * block.size_bytes as i64;
        match block.state {
            State::Active => {
                self.allocated_bytes += size;
                self.active_bytes += size;
                self.allocated_count += sign;
            }
            State::PendingFree => self.active_bytes += size,
            State::Unknown => self.unknown_bytes += size,
            State::Inactive => {
                self.inactive_count += sign;
                let Some(segment) = segment else { return };
                if !segment.is_expandable && block.size_bytes < segment.size_bytes {
                    self.inactive_split_bytes += size;
                }
                let releasable = sign * releasable_bytes(block, segment) as i64;
                match segment.pool == DEFAULT_POOL {
                    true => self.releasable_bytes += releasable,
                    false => self.private_releasable_bytes += releasable,
                }
            }
        }
        if block.is_active() {
            self.requested_bytes += sign * block.requested_bytes.unwrap_or_default() as i64;
        }
    }

    /// Adds a segment, or with `sign` -1 takes it away.
    pub(super) fn add_segment(&mut self, segment: &Segment, sign: i64) {
        self.reserved_bytes += sign * segment.size_bytes as i64;
        self.segments_count += if segment.is_expandable { 0 } else { sign };
    }
}
