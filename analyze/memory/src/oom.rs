//! Describes requests that failed, and what would have served them.

use super::{
    allocator::Allocator,
    event::Event,
    input::Key,
    pools::{PoolKey, PoolState, Pools},
    settings::{SMALL_BYTES, SMALL_SEGMENT_BYTES},
    span::State,
    totals::Totals,
};

/// A request that failed with an out-of-memory error.
#[derive(Clone, Debug)]
pub struct Oom {
    /// The allocator.
    pub key: Key,
    /// The time at which the request failed (ns, trace clock).
    pub ts: i64,
    /// The thread that made the request.
    pub tid: u32,
    /// The requested size in bytes.
    pub requested_bytes: u64,
    /// The size in bytes of the smallest block that would have served it.
    pub block_bytes: u64,
    /// The number of bytes that the driver reported as free on the device.
    pub device_free_bytes: u64,
    /// The size in bytes of the segment that the allocator would have reserved.
    pub segment_bytes: u64,
    /// The pool, stream and size class of the request.
    pub pool: PoolKey,
    /// The state of that pool at the failure.
    pub before: PoolState,
    /// The allocator's totals at the failure.
    pub totals: Totals,
    /// Free bytes in segments held by active blocks, over all pools.
    pub pinned_bytes: u64,
    /// Whether expandable segments were on.
    pub is_expandable: bool,
    /// Whether expandable segments would have served the request; `None` if they were on, or if it depends on
    /// where the blocks would have been placed.
    pub expandable_helps: Option<bool>,
    /// The neighbouring blocks in one segment with the fewest active bytes which, if they were free, would
    /// have served the request.
    pub hole: Option<Hole>,
    /// The segments, those with the smallest active share first, which, if they were unused, would have made
    /// room on the device.
    pub segments: Option<Emptied>,
}

impl Oom {
    /// Describes the failure of a request that a block of `block_bytes` would have served.
    pub(super) fn of(key: Key, allocator: &Allocator, event: &Event, block_bytes: u64) -> Self {
        let settings = allocator.settings();
        let pool = PoolKey { pool: event.pool, stream: event.stream, is_small: block_bytes <= SMALL_BYTES };
        let segment_bytes = settings.segment_bytes(block_bytes);
        let device_free_bytes = event.addr;
        // The segment was not available: less than that was free, and under a limit of the process possibly
        // nothing.
        let missing_bytes = match segment_bytes.checked_sub(device_free_bytes) {
            None | Some(0) => segment_bytes,
            Some(missing) => missing,
        };
        Self {
            key,
            ts: event.ts,
            tid: event.tid,
            requested_bytes: event.size_bytes,
            block_bytes,
            device_free_bytes,
            segment_bytes,
            pool,
            before: PoolState::of(allocator.pools(), &pool),
            totals: *allocator.totals(),
            pinned_bytes: allocator.pools().map_or(0, Pools::pinned_bytes),
            is_expandable: settings.expandable_segments,
            expandable_helps: match settings.expandable_segments {
                true => None,
                false => {
                    expandable_helps(allocator, &pool, block_bytes, segment_bytes.min(device_free_bytes))
                }
            },
            hole: hole(allocator, &pool, block_bytes),
            segments: emptied(allocator, missing_bytes),
        }
    }

    /// Returns whether the device had room for the segment, so that a limit of the process
    /// (`set_per_process_memory_fraction`) forbade it.
    pub fn is_limited(&self) -> bool {
        self.device_free_bytes >= self.segment_bytes
    }
}

/// Neighbouring blocks of one segment which, if they were free, would serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The address of the first block.
    pub addr: u64,
    /// The size of all blocks in bytes.
    pub size_bytes: u64,
    /// The part of the size that is not free, in bytes.
    pub in_use_bytes: u64,
    /// The number of blocks that are not free.
    pub in_use_count: u64,
}

/// Segments which, if all of their blocks were free, would make room on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// The number of segments.
    pub segments_count: u64,
    /// The size of all segments in bytes.
    pub size_bytes: u64,
    /// The part of the size that is not free, in bytes.
    pub in_use_bytes: u64,
    /// The number of blocks that are not free.
    pub in_use_count: u64,
}

/// Returns the segments with the smallest active share, as many as make up for the missing bytes; `None` if
/// all of them are not enough.
fn emptied(allocator: &Allocator, missing_bytes: u64) -> Option<Emptied> {
    let mut segments: Vec<Emptied> = allocator
        .segments()
        .filter(|segment| !segment.is_expandable)
        .map(|segment| {
            let in_use = allocator.blocks_in(segment).filter(|block| block.state != State::Inactive);
            let (in_use_bytes, in_use_count) =
                in_use.fold((0, 0), |(bytes, count), block| (bytes + block.size_bytes, count + 1));
            Emptied { segments_count: 1, size_bytes: segment.size_bytes, in_use_bytes, in_use_count }
        })
        .collect();
    let share = |of: &Emptied| of.in_use_bytes as f64 / of.size_bytes.max(1) as f64;
    segments.sort_by(|a, b| share(a).total_cmp(&share(b)).then(a.in_use_count.cmp(&b.in_use_count)));
    let mut sum = Emptied::default();
    for segment in segments {
        sum.segments_count += 1;
        sum.size_bytes += segment.size_bytes;
        sum.in_use_bytes += segment.in_use_bytes;
        sum.in_use_count += segment.in_use_count;
        if sum.size_bytes >= missing_bytes {
            return Some(sum);
        }
    }
    None
}

/// Returns whether expandable segments would have served a request. With them, a pool's free memory consists
/// of whole pages that may lie anywhere, and pages without active blocks can be released for other pools.
/// They help for certain if the pages that the pool's active blocks hold at worst (each block begins and ends
/// within a page) leave room. They cannot help if all free memory together is not enough. In between the
/// answer is `None`.
fn expandable_helps(
    allocator: &Allocator,
    pool: &PoolKey,
    block_bytes: u64,
    more_bytes: u64,
) -> Option<bool> {
    let large = allocator.settings().large_segment_bytes.max(1);
    let page = if pool.is_small { SMALL_SEGMENT_BYTES } else { large };
    let (mut reserved, mut at_worst, mut free) = (0_u64, 0_u64, 0_u64);
    for block in allocator.blocks() {
        let is_free = block.state == State::Inactive;
        free += if is_free { block.size_bytes } else { 0 };
        let segment = allocator.segment(block.segment);
        if segment.is_some_and(|segment| PoolKey::of(segment) == *pool) {
            reserved += block.size_bytes;
            let pages = (block.size_bytes + page).saturating_sub(2) / page + 1;
            at_worst += if is_free { 0 } else { pages.saturating_mul(page) };
        }
    }
    let wanted = block_bytes.checked_next_multiple_of(page)?;
    if at_worst.saturating_add(wanted) <= reserved {
        Some(true)
    } else if free.saturating_add(more_bytes) < block_bytes {
        Some(false)
    } else {
        None
    }
}

/// Returns the neighbouring blocks in one segment of the pool that make room for a block with the fewest
/// active bytes.
fn hole(allocator: &Allocator, pool: &PoolKey, block_bytes: u64) -> Option<Hole> {
    let mut best: Option<Hole> = None;
    for segment in allocator.segments().filter(|segment| PoolKey::of(segment) == *pool) {
        let blocks: Vec<_> = allocator.blocks_in(segment).collect();
        let (mut first, mut hole) = (0, Hole { addr: 0, size_bytes: 0, in_use_bytes: 0, in_use_count: 0 });
        for block in &blocks {
            hole.size_bytes += block.size_bytes;
            if block.state != State::Inactive {
                hole.in_use_bytes += block.size_bytes;
                hole.in_use_count += 1;
            }
            while let Some(left) = blocks.get(first).filter(|b| hole.size_bytes - b.size_bytes >= block_bytes)
            {
                hole.size_bytes -= left.size_bytes;
                if left.state != State::Inactive {
                    hole.in_use_bytes -= left.size_bytes;
                    hole.in_use_count -= 1;
                }
                first += 1;
            }
            let is_better =
                |best: Hole| (hole.in_use_bytes, hole.in_use_count) < (best.in_use_bytes, best.in_use_count);
            if hole.size_bytes >= block_bytes && best.is_none_or(is_better) {
                best = Some(Hole { addr: blocks[first].addr, ..hole });
            }
        }
    }
    best
}
