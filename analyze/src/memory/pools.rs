//! The free memory of an allocator by who may have it: a pool, a stream, small blocks or large ones. A request is
//! served from one of these and no other, so fragmentation is a number of each, never of all together.

use std::collections::BTreeMap;

use super::{
    event::PoolId,
    span::{Block, Segment, State},
    totals::releasable_bytes,
};

/// Who may have the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    pub pool: PoolId,
    /// 0: the default stream.
    pub stream: u64,
    /// Blocks up to 1 MiB.
    pub is_small: bool,
}

impl PoolKey {
    /// Of a segment.
    pub fn of(segment: &Segment) -> Self {
        Self { pool: segment.pool, stream: segment.stream, is_small: segment.is_small }
    }
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// Had from the driver.
    pub reserved_bytes: u64,
    /// The most it has had.
    pub peak_bytes: u64,
    /// In use, or given back and still in use by other streams.
    pub active_bytes: u64,
    /// Of that, what nobody asked for: rounding, and rests too small to split off.
    pub rounding_bytes: u64,
    /// Free.
    pub free_bytes: u64,
    /// Of that, what could be given back to the driver.
    pub releasable_bytes: u64,
    /// Sum of the squares of the free blocks' sizes.
    pub squares: u128,
    /// Free blocks by size.
    sizes: BTreeMap<u64, u32>,
}

impl Pool {
    /// The largest free block.
    pub fn largest_free_bytes(&self) -> u64 {
        self.sizes.last_key_value().map_or(0, |(size, _)| *size)
    }

    /// Free blocks.
    pub fn free_count(&self) -> u64 {
        self.sizes.values().map(|count| u64::from(*count)).sum()
    }

    /// The share of free memory that the largest free block does not have; `None`: nothing is free.
    pub fn external_ratio(&self) -> Option<f64> {
        (self.free_bytes > 0).then(|| 1.0 - self.largest_free_bytes() as f64 / self.free_bytes as f64)
    }

    /// Σ size² / (Σ size)²: 1 if all free memory is one block, 1/n if it is n equal ones; `None`: nothing is free.
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

/// All of an allocator's.
#[derive(Clone, Debug, Default)]
pub struct Pools(BTreeMap<PoolKey, Pool>);

impl Pools {
    /// One of them, if it ever had memory.
    pub fn get(&self, key: &PoolKey) -> Option<&Pool> {
        self.0.get(key)
    }

    /// Every one that ever had memory.
    pub fn iter(&self) -> impl Iterator<Item = (&PoolKey, &Pool)> {
        self.0.iter()
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
