//! The replayed state of one caching allocator: one device of one process.
//!
//! Blocks tile their segment without gaps or overlaps, and neighbouring free blocks are merged. An allocation
//! takes the front of the free block at its address; the remainder is split off or stays with the block, by
//! the allocator's own rule ([`Settings::splits`]). A block that appears in the middle of free memory, and a
//! free of a block that was never allocated, show that events are missing (see [`Fault`]); the memory in
//! question is [`State::Unknown`] from then on.

use std::collections::{BTreeMap, HashSet};

use crate::{
    event::{Action, Event},
    fault::{Fault, Faults},
    initial_state::Seed,
    knowledge::{Knowledge, SplitPolicy},
    pools::Pools,
    settings::{SMALL_BYTES, Settings},
    span::{BEFORE, Block, NO_SEGMENT, Observer, Segment, State},
    totals::Totals,
};

/// The replayed state of one allocator: its blocks, segments, totals and faults.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    pub(super) settings: Settings,
    pub(super) knowledge: Knowledge,
    pub(super) blocks: BTreeMap<u64, Block>,
    /// Segments by slot index; the slot of a removed segment is reused.
    pub(super) segments: Vec<Segment>,
    pub(super) free_places: Vec<u32>,
    pub(super) places: BTreeMap<u64, u32>,
    /// Addresses of unknown blocks that become free when the block before them does: each is either the tail
    /// of that block or already free.
    tails: HashSet<u64>,
    pub(super) totals: Totals,
    faults: Faults,
    /// Free memory by pool; kept only on request ([`Knowledge::wants_pools`]), because it takes time.
    pools: Option<Box<Pools>>,
}

/// The largest accepted size in bytes, more than any device has, so that sums of sizes do not overflow.
const MAX_BYTES: u64 = 1 << 48;

impl Allocator {
    /// Creates an allocator without segments.
    pub fn new(settings: Settings, knowledge: Knowledge) -> Self {
        let pools = knowledge.wants_pools.then(Box::default);
        Self { settings, knowledge, pools, ..Self::default() }
    }

    /// Creates an allocator with the segments and blocks that existed when recording began.
    pub fn seeded(settings: Settings, knowledge: Knowledge, seed: &Seed) -> Self {
        let mut allocator = Self::new(settings, knowledge);
        for segment in &seed.segments {
            let place = allocator.add_segment(*segment);
            let mut at = segment.addr;
            for block in seed.blocks.range(segment.addr..segment.end()).map(|(_, block)| block) {
                if at < block.addr {
                    let free = free_block(at, block.addr - at, place, segment.stream, BEFORE);
                    allocator.insert(free);
                }
                if block.state == State::Unknown {
                    allocator.tails.insert(block.addr);
                }
                allocator.insert(Block { segment: place, ..*block });
                at = block.end();
            }
            if at < segment.end() {
                allocator.insert(free_block(at, segment.end() - at, place, segment.stream, BEFORE));
            }
        }
        if seed.contradictions_count > 0 {
            allocator.faults.insert(Fault::Contradiction, seed.contradictions_count);
        }
        allocator
    }

    /// Returns the limits of what its events can tell.
    pub fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Marks all memory as unknown because `count` events were lost in `[from, to)` (ns): the content of a
    /// segment is known again only as later events tell it.
    pub fn lose(&mut self, from: i64, to: i64, count: u64, observer: &mut impl Observer) {
        self.knowledge.is_partial = true;
        self.knowledge.lost_until_ts = self.knowledge.lost_until_ts.max(to);
        self.knowledge.lost_count += count;
        let blocks: Vec<u64> = self.blocks.keys().copied().collect();
        for addr in blocks {
            self.end(addr, from, observer);
        }
        self.tails.clear();
        let places: Vec<u32> = self.places.values().copied().collect();
        for place in places {
            let segment = &mut self.segments[place as usize];
            segment.is_stale = true;
            let Segment { addr, size_bytes, stream, .. } = *segment;
            let state = State::Unknown;
            self.insert(Block { state, ..free_block(addr, size_bytes, place, stream, from) });
        }
    }

    /// Adds faults found by comparing the replayed final state with the recorded one.
    pub fn add_faults(&mut self, fault: Fault, count: u64) {
        if count > 0 {
            *self.faults.entry(fault).or_default() += count;
        }
    }

    /// Returns free memory by pool, or `None` unless [`Knowledge::wants_pools`] is set.
    pub fn pools(&self) -> Option<&Pools> {
        self.pools.as_deref()
    }

    /// Returns the allocator's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the current sums over blocks and segments.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the contradictions found so far, with their counts.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns all blocks, by address.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values()
    }

    /// Returns all segments, by address.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.places.values().map(|place| &self.segments[*place as usize])
    }

    /// Returns the segment that contains `addr`.
    pub fn segment_at(&self, addr: u64) -> Option<&Segment> {
        let (_, place) = self.places.range(..=addr).next_back()?;
        self.segment(*place).filter(|segment| segment.end() > addr)
    }

    /// Returns the segments that start at `addr` or later, by address.
    pub fn segments_from(&self, addr: u64) -> impl Iterator<Item = &Segment> {
        self.places.range(addr..).map(|(_, place)| &self.segments[*place as usize])
    }

    /// Returns the blocks that overlap `[addr, addr + bytes)`, by address.
    pub fn blocks_within(&self, addr: u64, bytes: u64) -> impl Iterator<Item = &Block> + Clone {
        let first = self.block_at(addr).map_or(addr, |block| block.addr);
        self.blocks.range(first..addr.saturating_add(bytes).max(first)).map(|(_, block)| block)
    }

    /// Returns the blocks of a segment, by address.
    pub fn blocks_in(&self, segment: &Segment) -> impl Iterator<Item = &Block> {
        self.blocks.range(segment.addr..segment.end()).map(|(_, block)| block)
    }

    /// Returns the segment in a slot, as named by [`Block::segment`].
    pub fn segment(&self, place: u32) -> Option<&Segment> {
        self.segments.get(place as usize)
    }

    /// Returns the block that contains `addr`.
    pub fn block_at(&self, addr: u64) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=addr).next_back()?;
        (block.end() > addr).then_some(block)
    }

    /// Replays one event and reports the ended block states and segment extents to `observer`.
    pub fn apply(&mut self, event: &Event, observer: &mut impl Observer) {
        let is_of_segment = matches!(
            event.action,
            Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap
        );
        if event.action == Action::Oom || event.ts < self.knowledge.lost_until_ts && !is_of_segment {
            return;
        }
        let is_sized = event.size_bytes <= MAX_BYTES && event.addr <= u64::MAX - 2 * MAX_BYTES;
        // cudaFree does not report a size.
        let is_new = matches!(event.action, Action::SegmentAlloc | Action::SegmentMap);
        if !is_sized || (is_new && event.size_bytes == 0) {
            self.fault(Fault::NoSize);
            return;
        }
        match event.action {
            Action::Alloc => {
                let wanted = self.settings.round(event.size_bytes);
                self.alloc(event, wanted, Some(event.size_bytes), observer);
            }
            Action::UsageAlloc => self.alloc(event, event.size_bytes, None, observer),
            Action::FreeRequested => self.free_requested(event, observer),
            Action::FreeCompleted | Action::UsageFree => self.free_completed(event, observer),
            Action::SegmentAlloc => self.segment_alloc(event, observer),
            Action::SegmentFree => self.segment_free(event, observer),
            Action::SegmentMap => self.segment_map(event, observer),
            Action::SegmentUnmap => self.segment_unmap(event, observer),
            Action::Oom => (),
        }
    }

    /// Reports everything that still exists to `observer`, without an end time.
    pub fn finish(&self, observer: &mut impl Observer) {
        for block in self.blocks.values() {
            observer.block(block, self.segment(block.segment), None);
        }
        for segment in self.segments() {
            observer.segment(segment, None);
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Counts a fault unless events are known to be missing, which then explain it.
    pub(super) fn fault_if_whole(&mut self, fault: Fault) {
        if !self.knowledge.is_partial {
            self.fault(fault);
        }
    }

    /// Adds a block to the sums, or removes it if `sign` is -1.
    fn count(&mut self, block: &Block, sign: i64) {
        let segment = self.segments.get(block.segment as usize);
        self.totals.add_block(block, segment, sign);
        if let Some(pools) = &mut self.pools {
            pools.add_block(block, segment, sign > 0);
        }
    }

    /// Adds a segment to the sums, or removes it if `sign` is -1.
    pub(super) fn count_segment(&mut self, segment: &Segment, sign: i64) {
        self.totals.add_segment(segment, sign);
        if let Some(pools) = &mut self.pools {
            pools.add_segment(segment, sign > 0);
        }
    }

    pub(super) fn insert(&mut self, block: Block) {
        self.count(&block, 1);
        self.blocks.insert(block.addr, block);
    }

    /// Removes a block without reporting it to an observer.
    pub(super) fn remove(&mut self, addr: u64) -> Option<Block> {
        let block = self.blocks.remove(&addr)?;
        self.count(&block, -1);
        Some(block)
    }

    /// Ends a block's current state at `ts`: removes the block and reports it to the observer.
    pub(super) fn end(&mut self, addr: u64, ts: i64, observer: &mut impl Observer) -> Option<Block> {
        let block = self.remove(addr)?;
        observer.block(&block, self.segments.get(block.segment as usize), Some(ts));
        Some(block)
    }

    fn alloc(&mut self, event: &Event, wanted: u64, requested: Option<u64>, observer: &mut impl Observer) {
        let Some(space) = self.space_at(event, observer) else {
            // Its segment is not known: the block counts as allocated, outside of all segments.
            self.fault_if_whole(Fault::NoSegment);
            let next = self.segments_from(event.addr).next().map_or(u64::MAX, |segment| segment.addr);
            let size = wanted.min(next - event.addr);
            self.take_all_within(event.addr, size, event.ts, observer);
            self.doubt(next, wanted - size, event.ts, observer);
            self.insert(handed_out(event, size, requested, NO_SEGMENT));
            return;
        };
        let Some(space) = self.end(space, event.ts, observer) else { return };
        let (is_small, is_expandable, pool) = match self.segment(space.segment) {
            Some(segment) => (segment.is_small, segment.is_expandable, segment.pool),
            None => (wanted <= SMALL_BYTES, false, event.pool),
        };
        let head = event.addr - space.addr;
        let mut room = space.size_bytes - head;
        // The remainder is cut from here: from `space`, or from the last block that was merged into it.
        let mut rest_of = space;
        let mut is_partial = space.state == State::Unknown;
        while wanted > room {
            let Some(next) = self.taken_in(event.addr + room, &rest_of, is_partial, event.ts, observer)
            else {
                if self.segment(space.segment).is_some_and(|segment| segment.is_stale) {
                    // The block continues in memory whose arrival was not recorded.
                    self.doubt(event.addr + room, wanted - room, event.ts, observer);
                } else {
                    self.fault(Fault::TooSmall);
                }
                break;
            };
            is_partial = true;
            room += next.size_bytes;
            rest_of = next;
        }
        let mut size = wanted.min(room);
        let is_exact = event.action == Action::UsageAlloc;
        let would_split = self.settings.splits(wanted, room - size, is_small, is_expandable);
        let rest = self.knowledge.split_policies.get(&pool).copied().unwrap_or_default();
        if !is_exact && would_split && rest == SplitPolicy::NotKnown {
            // The remainder is free or part of the block; in either case it is free once the block is.
            rest_of.state = State::Unknown;
            self.tails.insert(event.addr + size);
        } else if !is_exact && (!would_split || rest == SplitPolicy::Kept) {
            match is_partial || self.is_open(event.addr + room, space.segment) {
                // Whether the remainder belongs to the block depends on how much more memory is free.
                true => rest_of.state = State::Unknown,
                false => size = room,
            }
        }
        if head > 0 {
            // Usage reports do not tell about pending frees, so a gap before the block may be legitimate.
            let state = if event.action == Action::UsageAlloc { space.state } else { State::Unknown };
            if event.action != Action::UsageAlloc && space.state == State::Inactive {
                let fault = self.gap_fault(&space, head);
                self.fault(fault);
            }
            self.insert(Block { size_bytes: head, state, ts: event.ts, ..space });
        }
        self.insert(handed_out(event, size, requested, space.segment));
        if size < room {
            let rest = Block { addr: event.addr + size, size_bytes: room - size, ts: event.ts, ..rest_of };
            self.insert(rest);
        }
    }

    /// Marks free memory in `[addr, addr + bytes)` as unknown.
    fn doubt(&mut self, addr: u64, bytes: u64, ts: i64, observer: &mut impl Observer) {
        let free: Vec<u64> =
            self.blocks_within(addr, bytes).filter(|b| !b.is_active()).map(|b| b.addr).collect();
        for addr in free {
            if let Some(block) = self.end(addr, ts, observer) {
                self.insert(Block { state: State::Unknown, ts, ..block });
            }
        }
    }

    /// Removes the block at `addr` and returns it if the memory that ends there may continue in it: neither
    /// is active, and at least one of them is unknown.
    fn taken_in(
        &mut self,
        addr: u64,
        before: &Block,
        is_unknown: bool,
        ts: i64,
        observer: &mut impl Observer,
    ) -> Option<Block> {
        let next = *self.blocks.get(&addr)?;
        let is_unknown = is_unknown || next.state == State::Unknown;
        if next.segment != before.segment || next.is_active() || !is_unknown {
            return None;
        }
        self.end(addr, ts, observer)
    }

    /// Returns whether memory that ends at `addr` may continue there, given what is known.
    fn is_open(&self, addr: u64, segment: u32) -> bool {
        match self.blocks.get(&addr).filter(|next| next.segment == segment) {
            Some(next) => next.state == State::Unknown,
            None => self.segment(segment).is_none_or(|segment| segment.is_stale),
        }
    }

    /// Returns the fault that explains why a block begins `head` bytes into a free block.
    fn gap_fault(&self, space: &Block, head: u64) -> Fault {
        let before = self.blocks.range(..space.addr).next_back().map(|(_, block)| block);
        let before = before.filter(|block| block.is_active() && block.end() == space.addr);
        // Rounding never makes a size larger than the next power of two.
        let is_of_rounding = before.is_some_and(|block| {
            let most = block.size_bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
            block.size_bytes.saturating_add(head) <= most
        });
        if is_of_rounding { Fault::OtherRounding } else { Fault::AllocMissed }
    }

    /// Returns the address of the free or unknown block that an allocation falls into; an active block there
    /// is released first.
    fn space_at(&mut self, event: &Event, observer: &mut impl Observer) -> Option<u64> {
        let block = *self.block_at(event.addr)?;
        if !block.is_active() {
            return Some(block.addr);
        }
        self.fault(Fault::FreeMissed);
        self.release(block.addr, event.ts, observer);
        self.block_at(event.addr).map(|block| block.addr)
    }

    fn free_requested(&mut self, event: &Event, observer: &mut impl Observer) {
        match self.blocks.get(&event.addr).copied() {
            Some(block) if block.state == State::Active => {
                if block.requested_bytes.is_some_and(|bytes| bytes != event.size_bytes) {
                    self.fault(Fault::OtherSize);
                }
                self.end(event.addr, event.ts, observer);
                self.insert(Block { state: State::PendingFree, ts: event.ts, ..block });
            }
            _ => self.unknown_free(event, observer),
        }
    }

    fn free_completed(&mut self, event: &Event, observer: &mut impl Observer) {
        match self.blocks.get(&event.addr) {
            Some(block) if block.is_active() => {
                let is_silent = block.state == State::Active && event.action == Action::FreeCompleted;
                if is_silent {
                    self.fault(Fault::UnknownFree);
                }
                self.release(event.addr, event.ts, observer);
            }
            // The free was already completed: the request for it has been replayed.
            Some(block) if block.state == State::Inactive && event.action == Action::FreeCompleted => (),
            None if event.action == Action::FreeCompleted && !self.is_unknown_at(event.addr) => (),
            _ => self.unknown_free(event, observer),
        }
    }

    fn is_unknown_at(&self, addr: u64) -> bool {
        self.block_at(addr).is_some_and(|block| block.state == State::Unknown)
    }

    /// Replays the free of a block that is not known to be active.
    fn unknown_free(&mut self, event: &Event, observer: &mut impl Observer) {
        let wanted = match event.action {
            Action::UsageFree => event.size_bytes,
            _ => self.settings.round(event.size_bytes),
        };
        let Some(space) = self.block_at(event.addr).copied() else {
            self.fault_if_whole(Fault::UnknownFree);
            return;
        };
        if space.state != State::Unknown {
            self.fault(Fault::UnknownFree);
            return;
        }
        self.fault_if_whole(Fault::UnknownFree);
        // So at least that much of it was active.
        self.end(space.addr, event.ts, observer);
        let end = event.addr.saturating_add(wanted).min(space.end());
        if space.addr < event.addr {
            self.insert(Block { size_bytes: event.addr - space.addr, ts: event.ts, ..space });
        }
        if end < space.end() {
            self.insert(Block { addr: end, size_bytes: space.end() - end, ts: event.ts, ..space });
        }
        let mut block = handed_out(event, end - event.addr, Some(event.size_bytes), space.segment);
        (block.alloc_ts, block.tid, block.stack) = (BEFORE, 0, None);
        block.requested_bytes = block.requested_bytes.filter(|_| event.action != Action::UsageFree);
        self.insert(Block { state: State::PendingFree, ..block });
        if event.action != Action::FreeRequested {
            self.release(event.addr, event.ts, observer);
        }
    }

    /// Frees a block and merges it with its free neighbours.
    pub(super) fn release(&mut self, addr: u64, ts: i64, observer: &mut impl Observer) {
        let Some(block) = self.end(addr, ts, observer) else { return };
        if block.segment == NO_SEGMENT {
            return;
        }
        let (mut start, mut end) = (block.addr, block.end());
        let before = self.blocks.range(..start).next_back().map(|(_, block)| *block);
        if let Some(before) = before.filter(|other| joins(other, &block) && other.end() == start) {
            self.end(before.addr, ts, observer);
            start = before.addr;
        }
        if !self.tails.is_empty() && self.tails.remove(&end) && self.is_unknown_at(end) {
            end = self.end(end, ts, observer).map_or(end, |tail| tail.end());
        }
        let after = self.blocks.get(&end).copied();
        if let Some(after) = after.filter(|other| joins(other, &block)) {
            self.end(after.addr, ts, observer);
            end = after.end();
        }
        self.insert(free_block(start, end - start, block.segment, block.stream, ts));
    }

    /// Ends every block that overlaps `[addr, addr + bytes)`, and returns how many of them were active.
    pub(super) fn take_all_within(
        &mut self,
        addr: u64,
        bytes: u64,
        ts: i64,
        observer: &mut impl Observer,
    ) -> u64 {
        let first = self.block_at(addr).map_or(addr, |block| block.addr);
        let within: Vec<u64> =
            self.blocks.range(first..addr.saturating_add(bytes)).map(|(addr, _)| *addr).collect();
        let ended = within.into_iter().filter_map(|addr| self.end(addr, ts, observer));
        ended.filter(Block::is_active).count() as u64
    }
}

fn joins(other: &Block, block: &Block) -> bool {
    other.state == State::Inactive && other.segment == block.segment
}

pub(super) fn free_block(addr: u64, size_bytes: u64, segment: u32, stream: u64, ts: i64) -> Block {
    Block {
        addr,
        size_bytes,
        requested_bytes: Some(0),
        state: State::Inactive,
        ts,
        alloc_ts: ts,
        tid: 0,
        stack: None,
        stream,
        segment,
    }
}

fn handed_out(event: &Event, size_bytes: u64, requested_bytes: Option<u64>, segment: u32) -> Block {
    Block {
        addr: event.addr,
        size_bytes,
        requested_bytes,
        state: State::Active,
        ts: event.ts,
        alloc_ts: event.ts,
        tid: event.tid,
        stack: event.stack,
        stream: event.stream,
        segment,
    }
}

#[cfg(test)]
mod tests;
