//! The allocator of one device of one process, replayed.
//!
//! Blocks tile their segment without gap or overlap; free neighbours are one block. An allocation takes the
//! front of the free block at its address, and what is left is split off or goes with it, by the allocator's own
//! rule. Memory in the middle of which a block appears, or that is given back without having been taken, shows
//! that events are missing: see [`Fault`]; what lay there is `Unknown` from then on.

use std::collections::{BTreeMap, HashSet};

use super::{
    beginning::Seed,
    event::{Action, Event, PoolId},
    fault::{Fault, Faults},
    pools::Pools,
    rests::Rest,
    settings::{SMALL_BYTES, Settings},
    span::{BEFORE, Block, NO_SEGMENT, Observer, Segment, State},
    totals::Totals,
};

/// Its state.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    pub(super) settings: Settings,
    pub(super) knowledge: Knowledge,
    pub(super) blocks: BTreeMap<u64, Block>,
    /// Segments by place; a place is used again.
    pub(super) segments: Vec<Segment>,
    pub(super) free_places: Vec<u32>,
    pub(super) places: BTreeMap<u64, u32>,
    /// Unknown blocks that are free when the block before them is: either they belong to it, or they are free.
    tails: HashSet<u64>,
    pub(super) totals: Totals,
    faults: Faults,
    /// Kept only if somebody asks: it takes time.
    pools: Option<Box<Pools>>,
}

/// More than any device has: sums of such sizes stay numbers.
const MAX_BYTES: u64 = 1 << 48;

/// What the events can tell.
#[derive(Clone, Debug)]
pub struct Knowledge {
    /// Recording began in the middle, or events were lost: what is not known for that is no fault.
    pub is_partial: bool,
    /// Blocks are told of, and not segments alone.
    pub has_blocks: bool,
    /// What the pools that a program made do with rests; the others split them off.
    pub rests: BTreeMap<PoolId, Rest>,
    /// Events are being lost until then.
    pub lost_until_ts: i64,
    /// Events that were lost so far.
    pub lost_count: u64,
    /// Somebody asks for free memory by pool.
    pub wants_pools: bool,
}

impl Default for Knowledge {
    fn default() -> Self {
        Self {
            is_partial: false,
            has_blocks: true,
            rests: BTreeMap::new(),
            lost_until_ts: BEFORE,
            lost_count: 0,
            wants_pools: false,
        }
    }
}

impl Allocator {
    /// With nothing allocated.
    pub fn new(settings: Settings, knowledge: Knowledge) -> Self {
        let pools = knowledge.wants_pools.then(Box::default);
        Self { settings, knowledge, pools, ..Self::default() }
    }

    /// With what was there when recording began.
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

    /// What its events can tell.
    pub fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Events were lost in `[from, to)`: what its segments hold is not known until later events tell.
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

    /// Counts what the state at the end has otherwise.
    pub fn add_faults(&mut self, fault: Fault, count: u64) {
        if count > 0 {
            *self.faults.entry(fault).or_default() += count;
        }
    }

    /// Its free memory by pool, if it was to know.
    pub fn pools(&self) -> Option<&Pools> {
        self.pools.as_deref()
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sums.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What did not fit.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Blocks by address.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values()
    }

    /// Segments by address.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.places.values().map(|place| &self.segments[*place as usize])
    }

    /// The segment that an address lies in.
    pub fn segment_at(&self, addr: u64) -> Option<&Segment> {
        let (_, place) = self.places.range(..=addr).next_back()?;
        self.segment(*place).filter(|segment| segment.end() > addr)
    }

    /// Segments by address, from that of `addr` on.
    pub fn segments_from(&self, addr: u64) -> impl Iterator<Item = &Segment> {
        self.places.range(addr..).map(|(_, place)| &self.segments[*place as usize])
    }

    /// Blocks that reach into `[addr, addr + bytes)`.
    pub fn blocks_within(&self, addr: u64, bytes: u64) -> impl Iterator<Item = &Block> + Clone {
        let first = self.block_at(addr).map_or(addr, |block| block.addr);
        self.blocks.range(first..addr.saturating_add(bytes).max(first)).map(|(_, block)| block)
    }

    /// Blocks of a segment.
    pub fn blocks_in(&self, segment: &Segment) -> impl Iterator<Item = &Block> {
        self.blocks.range(segment.addr..segment.end()).map(|(_, block)| block)
    }

    /// The segment at a place that a block names.
    pub fn segment(&self, place: u32) -> Option<&Segment> {
        self.segments.get(place as usize)
    }

    /// The block that an address lies in.
    pub fn block_at(&self, addr: u64) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=addr).next_back()?;
        (block.end() > addr).then_some(block)
    }

    /// Replays one event.
    pub fn apply(&mut self, event: &Event, observer: &mut impl Observer) {
        let is_of_segment = matches!(
            event.action,
            Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap
        );
        if event.action == Action::Oom || event.ts < self.knowledge.lost_until_ts && !is_of_segment {
            return;
        }
        let is_sized = event.size_bytes <= MAX_BYTES && event.addr <= u64::MAX - 2 * MAX_BYTES;
        // cudaFree tells no size.
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

    /// Tells of everything that is still there.
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

    /// Events that are missing explain it, if any are.
    pub(super) fn fault_if_whole(&mut self, fault: Fault) {
        if !self.knowledge.is_partial {
            self.fault(fault);
        }
    }

    /// Adds a block to the sums, or with `sign` -1 takes it away.
    fn count(&mut self, block: &Block, sign: i64) {
        let segment = self.segments.get(block.segment as usize);
        self.totals.add_block(block, segment, sign);
        if let Some(pools) = &mut self.pools {
            pools.add_block(block, segment, sign > 0);
        }
    }

    /// The same with a segment.
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

    /// Takes a block away without a word.
    pub(super) fn remove(&mut self, addr: u64) -> Option<Block> {
        let block = self.blocks.remove(&addr)?;
        self.count(&block, -1);
        Some(block)
    }

    /// Takes a block away, which ends.
    pub(super) fn end(&mut self, addr: u64, ts: i64, observer: &mut impl Observer) -> Option<Block> {
        let block = self.remove(addr)?;
        observer.block(&block, self.segments.get(block.segment as usize), Some(ts));
        Some(block)
    }

    fn alloc(&mut self, event: &Event, wanted: u64, requested: Option<u64>, observer: &mut impl Observer) {
        let Some(space) = self.space_at(event, observer) else {
            // Nothing is known of its segment. It counts as allocated, in no segment.
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
        // What is left comes from here: from `space`, or the last block taken into it.
        let mut rest_of = space;
        let mut is_partial = space.state == State::Unknown;
        while wanted > room {
            let Some(next) = self.taken_in(event.addr + room, &rest_of, is_partial, event.ts, observer)
            else {
                if self.segment(space.segment).is_some_and(|segment| segment.is_stale) {
                    // It goes on in memory that came unseen.
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
        let rest = self.knowledge.rests.get(&pool).copied().unwrap_or_default();
        if !is_exact && would_split && rest == Rest::NotKnown {
            // Free, or part of the block: free in any case when the block is.
            rest_of.state = State::Unknown;
            self.tails.insert(event.addr + size);
        } else if !is_exact && (!would_split || rest == Rest::Kept) {
            match is_partial || self.is_open(event.addr + room, space.segment) {
                // Whether the rest came with it depends on how much more is free.
                true => rest_of.state = State::Unknown,
                false => size = room,
            }
        }
        if head > 0 {
            // A usage report does not tell what is still in use by other streams, so there may be a gap.
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

    /// Nothing is known any more of free memory in `[addr, addr + bytes)`.
    fn doubt(&mut self, addr: u64, bytes: u64, ts: i64, observer: &mut impl Observer) {
        let free: Vec<u64> =
            self.blocks_within(addr, bytes).filter(|b| !b.is_active()).map(|b| b.addr).collect();
        for addr in free {
            if let Some(block) = self.end(addr, ts, observer) {
                self.insert(Block { state: State::Unknown, ts, ..block });
            }
        }
    }

    /// Takes the block at `addr` away if the memory before it, which ends there, may go on in it: neither is in use, and
    /// one of them is not known.
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

    /// Whether memory that ends at `addr` may go on there, for all that is known.
    fn is_open(&self, addr: u64, segment: u32) -> bool {
        match self.blocks.get(&addr).filter(|next| next.segment == segment) {
            Some(next) => next.state == State::Unknown,
            None => self.segment(segment).is_none_or(|segment| segment.is_stale),
        }
    }

    /// Why a block begins `head` bytes into a free one.
    fn gap_fault(&self, space: &Block, head: u64) -> Fault {
        let before = self.blocks.range(..space.addr).next_back().map(|(_, block)| block);
        let before = before.filter(|block| block.is_active() && block.end() == space.addr);
        // No rounding makes a size larger than the next power of two.
        let is_of_rounding = before.is_some_and(|block| {
            let most = block.size_bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
            block.size_bytes.saturating_add(head) <= most
        });
        if is_of_rounding { Fault::OtherRounding } else { Fault::AllocMissed }
    }

    /// The address of the free or unknown block that an allocation falls into, made free if it was in use.
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
            // The request for it has been met with already.
            Some(block) if block.state == State::Inactive && event.action == Action::FreeCompleted => (),
            None if event.action == Action::FreeCompleted && !self.is_unknown_at(event.addr) => (),
            _ => self.unknown_free(event, observer),
        }
    }

    fn is_unknown_at(&self, addr: u64) -> bool {
        self.block_at(addr).is_some_and(|block| block.state == State::Unknown)
    }

    /// A block is given back that is not known to be in use.
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
        // So it was in use, at least that much of it.
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

    /// Makes a block free and joins it with its free neighbours.
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

    /// Ends every block that reaches into `[addr, addr + bytes)`; how many of them were in use.
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
