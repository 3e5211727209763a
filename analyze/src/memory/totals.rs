//! Sums over an allocator's blocks and segments, updated as they change.

use super::{
    event::PoolId,
    span::{Block, Segment, State},
};

/// Current byte and block counts, as `torch.cuda.memory_stats` defines them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Reserved bytes: the size of all segments.
    pub reserved_bytes: i64,
    /// Bytes in allocated blocks.
    pub allocated_bytes: i64,
    /// Bytes in active blocks: allocated ones, and freed ones that other streams may still use.
    pub active_bytes: i64,
    /// The requested bytes of the active blocks.
    pub requested_bytes: i64,
    /// Bytes in free blocks of segments that are partly in use; expandable segments are not counted.
    pub inactive_split_bytes: i64,
    /// Bytes that `empty_cache()` would release: unused segments and unused pages of the default pool.
    pub releasable_bytes: i64,
    /// Bytes in unused segments and pages of private pools, which keep them as long as a graph may run.
    pub private_releasable_bytes: i64,
    /// Bytes in blocks whose state is not known.
    pub unknown_bytes: i64,
    /// The number of segments; expandable ones are not counted.
    pub segments_count: i64,
    /// The number of allocated blocks.
    pub allocated_count: i64,
    /// The number of free blocks.
    pub inactive_count: i64,
}

/// The id of the default pool.
pub const DEFAULT_POOL: PoolId = (0, 0);

/// Returns how many bytes of a free block can be released to the driver: the whole block if it is a whole
/// segment, or the whole pages within it if the segment is expandable.
pub fn releasable_bytes(block: &Block, segment: &Segment) -> u64 {
    if !segment.is_expandable {
        return if block.size_bytes == segment.size_bytes { block.size_bytes } else { 0 };
    }
    // Pages are counted from the start of the range, which is the start of a page.
    let page = segment.page_bytes.max(1);
    let first = (block.addr - segment.addr).next_multiple_of(page);
    let last = (block.end() - segment.addr) / page * page;
    last.saturating_sub(first)
}

impl Totals {
    /// Adds a block to the sums, or removes it if `sign` is -1.
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

    /// Adds a segment to the sums, or removes it if `sign` is -1.
    pub(super) fn add_segment(&mut self, segment: &Segment, sign: i64) {
        self.reserved_bytes += sign * segment.size_bytes as i64;
        self.segments_count += if segment.is_expandable { 0 } else { sign };
    }
}
