//! What the allocator decides by what another process does not have: the addresses of segments, which the driver chooses
//! anew in each process, and calls that are not on record.

use std::collections::HashMap;

use analyze_run::random::Random;

use super::{
    super::{event::PoolId, settings::SMALL_BYTES},
    policy::{Block, Policy, Rank, Space},
};

/// The number of equally good blocks that are looked at.
const MAX_TIED: usize = 16;

impl Policy {
    /// Returns whether a free block is large enough for a request.
    pub(super) fn has_room(&self, bytes: u64, stream: u64, pool: PoolId) -> bool {
        let size = self.settings.round(bytes);
        self.best_fit((pool, size <= SMALL_BYTES), stream, size).is_some()
    }

    /// Limits the reserved bytes.
    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.capacity_bytes = bytes;
    }

    /// Returns whether another segment for a request would reserve more bytes in all.
    pub(super) fn needs_more_than(&self, room_bytes: u64, bytes: u64) -> bool {
        let segment = self.settings.segment_bytes(self.settings.round(bytes));
        self.counts.reserved_bytes.saturating_add(segment) > room_bytes
    }

    /// Returns the rank of a free block. Segments are numbered in the order in which they are reserved.
    pub(super) fn rank(&self, addr: u64, block: &Block) -> Rank {
        let age = if self.orders_by_age { block.space } else { 0 };
        (self.spaces[block.space].stream, block.size_bytes, age, addr)
    }

    /// Returns whether the order of segments' addresses decides which block serves a request, and the choice
    /// makes a difference: two of the smallest blocks that are large enough have the same size, lie in
    /// different segments, and are not both whole segments, which can stand for each other.
    pub(super) fn has_tie(&self, bytes: u64, stream: u64, pool: PoolId) -> bool {
        let size = self.settings.round(bytes);
        let class = (pool, size <= SMALL_BYTES);
        if self.settings.orders_by_age == Some(true) {
            return false;
        }
        let is_expandable = self.settings.expandable_segments;
        let of_class = || self.spaces.iter().filter(|space| (space.class, space.stream) == (class, stream));
        if is_expandable && of_class().count() < 2 {
            return false;
        }
        let Some(free) = self.free.get(&class) else { return false };
        let mut fitting = free.range((stream, size, 0, 0)..).take_while(|(of, ..)| *of == stream);
        let Some((_, least, _, first)) = fitting.next() else { return false };
        let space = |addr: &u64| self.blocks.get(addr).map(|block| block.space);
        let is_whole = |addr: &u64| space(addr).is_some_and(|space| self.spaces[space].size_bytes == *least);
        let is_aged = self.collects_over_bytes.is_some();
        let mut tied = fitting.take_while(|(_, size, ..)| is_expandable || size == least);
        let is_other =
            |addr: &u64| space(addr) != space(first) && (is_aged || !is_whole(addr) || !is_whole(first));
        // Where many blocks are alike, one of them is taken to be in another segment.
        tied.by_ref().take(MAX_TIED).any(|(.., addr)| is_other(addr)) || tied.next().is_some()
    }

    /// Moves every segment to a random address, and draws those of later segments, and whether their age counts if
    /// that is not known; returns the new address of each block by the old one.
    pub(super) fn shuffle(&mut self, mut random: Random) -> HashMap<u64, u64> {
        self.orders_by_age = self.settings.orders_by_age.unwrap_or_else(|| random.unit() < 0.5);
        self.random = Some(random);
        let blocks = std::mem::take(&mut self.blocks);
        let mut moved = HashMap::with_capacity(blocks.len());
        let mut starts: Vec<(usize, u64)> = Vec::new();
        for (addr, block) in blocks {
            let Space { addr: old_start, size_bytes, .. } = self.spaces[block.space];
            let start = match starts.last() {
                Some((space, start)) if *space == block.space => *start,
                _ => {
                    let start = self.new_addr(size_bytes);
                    starts.push((block.space, start));
                    start
                }
            };
            moved.insert(addr, start + (addr - old_start));
            self.blocks.insert(start + (addr - old_start), block);
        }
        starts.into_iter().for_each(|(space, start)| self.spaces[space].addr = start);
        let new = |addr: &u64| moved.get(addr).copied().unwrap_or(*addr);
        for (class, free) in std::mem::take(&mut self.free) {
            let addrs = free.iter().map(|(.., addr)| new(addr));
            let ranks = addrs.filter_map(|addr| Some(self.rank(addr, self.blocks.get(&addr)?))).collect();
            self.free.insert(class, ranks);
        }
        for unmapped in self.unmapped.values_mut() {
            *unmapped = unmapped.iter().map(|(stream, addr)| (*stream, new(addr))).collect();
        }
        self.pending = self.pending.iter().map(new).collect();
        moved
    }
}
