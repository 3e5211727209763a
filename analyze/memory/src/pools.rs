//! An allocator's memory by pool, stream and size class. A request is served from exactly one of these and
//! never from another, so fragmentation is a figure of each of them, not of their sum.

use std::collections::BTreeMap;

use super::{
    event::PoolId,
    span::{Block, Segment, State},
    totals::releasable_bytes,
};

/// The pool, stream and size class that memory belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    /// The memory pool.
    pub pool: PoolId,
    /// The CUDA stream; 0 is the default stream.
    pub stream: u64,
    /// Whether it is the small pool, of blocks up to 1 MiB.
    pub is_small: bool,
}

impl PoolKey {
    /// Returns the key of a segment.
    pub fn of(segment: &Segment) -> Self {
        Self { pool: segment.pool, stream: segment.stream, is_small: segment.is_small }
    }
}

/// The memory of one pool, stream and size class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// Reserved bytes.
    pub reserved_bytes: u64,
    /// The largest value that [`Self::reserved_bytes`] has had.
    pub peak_bytes: u64,
    /// Bytes in active blocks: allocated, or freed and possibly still used by other streams.
    pub active_bytes: u64,
    /// The part of the active bytes that was not requested: rounding, and remainders too small to split off.
    pub rounding_bytes: u64,
    /// Bytes in free blocks.
    pub free_bytes: u64,
    /// The part of the free bytes that can be released to the driver.
    pub releasable_bytes: u64,
    /// The sum of the squares of the free blocks' sizes, in bytes².
    pub squares: u128,
    /// The number of free blocks of each size.
    sizes: BTreeMap<u64, u32>,
}

impl Pool {
    /// Returns the size of the largest free block in bytes, or 0 if there is none.
    pub fn largest_free_bytes(&self) -> u64 {
        self.sizes.last_key_value().map_or(0, |(size, _)| *size)
    }

    /// Returns the number of free blocks.
    pub fn free_count(&self) -> u64 {
        self.sizes.values().map(|count| u64::from(*count)).sum()
    }

    /// Returns the external fragmentation: the share (0 to 1) of the free bytes that lies outside the largest
    /// free block, or `None` if nothing is free.
    pub fn external_ratio(&self) -> Option<f64> {
        (self.free_bytes > 0).then(|| 1.0 - self.largest_free_bytes() as f64 / self.free_bytes as f64)
    }

    /// Returns Σ size² / (Σ size)² over the free blocks: 1 if all free memory is one block, 1/n for n equal
    /// blocks, and `None` if nothing is free.
    pub fn concentration_ratio(&self) -> Option<f64> {
        let free = self.free_bytes as f64;
        (self.free_bytes > 0).then(|| self.squares as f64 / (free * free))
    }

    fn count_free(&mut self, size_bytes: u64, is_added: bool) {
        let square = u128::from(size_bytes) * u128::from(size_bytes);
        if is_added {
            self.squares += square;
            *self.sizes.entry(size_bytes).or_default() += 1;
            return;
        }
        self.squares = self.squares.saturating_sub(square);
        if let Some(count) = self.sizes.get_mut(&size_bytes) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&size_bytes);
            }
        }
    }
}

/// All pools of one allocator.
#[derive(Clone, Debug, Default)]
pub struct Pools(BTreeMap<PoolKey, Pool>);

impl Pools {
    /// Returns one pool, or `None` if it never had memory.
    pub fn get(&self, key: &PoolKey) -> Option<&Pool> {
        self.0.get(key)
    }

    /// Returns every pool that ever had memory, in order of its key.
    pub fn iter(&self) -> impl Iterator<Item = (&PoolKey, &Pool)> {
        self.0.iter()
    }

    /// Returns the free bytes of all pools that cannot be released to the driver because of active blocks in
    /// the same segment or page.
    pub fn pinned_bytes(&self) -> u64 {
        self.0.values().map(|pool| pool.free_bytes.saturating_sub(pool.releasable_bytes)).sum()
    }

    pub(super) fn add_block(&mut self, block: &Block, segment: Option<&Segment>, is_added: bool) {
        let Some(segment) = segment else { return };
        let pool = self.0.entry(PoolKey::of(segment)).or_default();
        let change = |sum: &mut u64, bytes: u64| {
            *sum = if is_added { *sum + bytes } else { sum.saturating_sub(bytes) };
        };
        match block.state {
            State::Active | State::PendingFree => {
                change(&mut pool.active_bytes, block.size_bytes);
                let asked = block.requested_bytes.unwrap_or(block.size_bytes);
                change(&mut pool.rounding_bytes, block.size_bytes.saturating_sub(asked));
            }
            State::Inactive => {
                change(&mut pool.free_bytes, block.size_bytes);
                change(&mut pool.releasable_bytes, releasable_bytes(block, segment));
                pool.count_free(block.size_bytes, is_added);
            }
            State::Unknown => (),
        }
    }

    pub(super) fn add_segment(&mut self, segment: &Segment, is_added: bool) {
        let pool = self.0.entry(PoolKey::of(segment)).or_default();
        pool.reserved_bytes = match is_added {
            true => pool.reserved_bytes + segment.size_bytes,
            false => pool.reserved_bytes.saturating_sub(segment.size_bytes),
        };
        pool.peak_bytes = pool.peak_bytes.max(pool.reserved_bytes);
    }
}

/// What one pool, stream and size class held at a moment, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolState {
    /// Reserved bytes.
    pub reserved_bytes: u64,
    /// The largest number of reserved bytes until then.
    pub peak_bytes: u64,
    /// Bytes in free blocks.
    pub free_bytes: u64,
    /// The size of the largest free block.
    pub largest_free_bytes: u64,
    /// The size of the largest free block of the same pool and size class that belongs to another stream.
    pub other_stream_bytes: u64,
}

impl PoolState {
    /// Returns the state of one pool; all of it is 0 if the pool never had memory.
    pub fn of(pools: Option<&Pools>, key: &PoolKey) -> Self {
        let pool = pools.and_then(|pools| pools.get(key));
        let like = |other: &PoolKey| PoolKey { stream: key.stream, ..*other } == *key && other != key;
        let others = pools.into_iter().flat_map(Pools::iter).filter(|(other, _)| like(other));
        Self {
            reserved_bytes: pool.map_or(0, |pool| pool.reserved_bytes),
            peak_bytes: pool.map_or(0, |pool| pool.peak_bytes),
            free_bytes: pool.map_or(0, |pool| pool.free_bytes),
            largest_free_bytes: pool.map_or(0, Pool::largest_free_bytes),
            other_stream_bytes: others.map(|(_, pool)| pool.largest_free_bytes()).max().unwrap_or(0),
        }
    }
}
