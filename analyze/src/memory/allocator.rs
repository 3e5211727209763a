//! The allocator of one device of one process, replayed.
//!
//! Blocks tile their segment without gap or overlap; free neighbours are one block. An allocation takes the
//! front of the free block at its address, and what is left is split off or goes with it, by the allocator's own
//! rule. Memory in the middle of which a block appears, or that is given back without having been taken, shows
//! that events are missing: see [`Fault`]; what lay there is `Unknown` from then on.

use std::collections::BTreeMap;

use super::{
    event::{Action, Event},
    fault::{Fault, Faults},
    pools::Pools,
    settings::{SMALL_BYTES, SMALL_SEGMENT_BYTES, Settings},
    span::{Block, NO_SEGMENT, Observer, Segment, State},
    totals::Totals,
};

/// Its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocator {
    settings: Settings,
    /// Recording began in the middle: what was there before is not known, and not a fault.
    joined_running: bool,
    blocks: BTreeMap<u64, Block>,
    /// Segments by place; a place is used again.
    segments: Vec<Segment>,
    free_places: Vec<u32>,
    places: BTreeMap<u64, u32>,
    totals: Totals,
    faults: Faults,
    /// Kept only if somebody asks: it takes time.
    pools: Option<Box<Pools>>,
}

impl Allocator {
    /// With nothing allocated.
    pub(crate) fn new(settings: Settings, joined_running: bool) -> Self {
        Self { settings, joined_running, ..Self::default() }
    }

    /// One that also knows its free memory by pool.
    pub(crate) fn with_pools(self) -> Self {
        Self { pools: Some(Box::default()), ..self }
    }

    /// Its free memory by pool, if it was to know.
    pub(crate) fn pools(&self) -> Option<&Pools> {
        self.pools.as_deref()
    }

    /// Its settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sums.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What did not fit.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Blocks by address.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values()
    }

    /// Segments by address.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.places.values().map(|place| &self.segments[*place as usize])
    }

    /// Blocks of a segment.
    pub(crate) fn blocks_in(&self, segment: &Segment) -> impl Iterator<Item = &Block> {
        self.blocks.range(segment.addr..segment.end()).map(|(_, block)| block)
    }

    /// The segment at a place that a block names.
    pub(crate) fn segment(&self, place: u32) -> Option<&Segment> {
        self.segments.get(place as usize)
    }

    /// The block that an address lies in.
    pub(crate) fn block_at(&self, addr: u64) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=addr).next_back()?;
        (block.end() > addr).then_some(block)
    }

    /// Replays one event.
    pub(crate) fn apply(&mut self, event: &Event, observer: &mut impl Observer) {
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
    pub(crate) fn finish(&self, observer: &mut impl Observer) {
        for block in self.blocks.values() {
            observer.block(block, self.segment(block.segment), None);
        }
        for segment in self.segments() {
            observer.segment(segment, None);
        }
    }

    fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
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
    fn count_segment(&mut self, segment: &Segment, sign: i64) {
        self.totals.add_segment(segment, sign);
        if let Some(pools) = &mut self.pools {
            pools.add_segment(segment, sign > 0);
        }
    }

    fn insert(&mut self, block: Block) {
        self.count(&block, 1);
        self.blocks.insert(block.addr, block);
    }

    /// Takes a block away without a word.
    fn remove(&mut self, addr: u64) -> Option<Block> {
        let block = self.blocks.remove(&addr)?;
        self.count(&block, -1);
        Some(block)
    }

    /// Takes a block away, which ends.
    fn end(&mut self, addr: u64, ts: i64, observer: &mut impl Observer) -> Option<Block> {
        let block = self.remove(addr)?;
        observer.block(&block, self.segments.get(block.segment as usize), Some(ts));
        Some(block)
    }

    fn alloc(&mut self, event: &Event, wanted: u64, requested: Option<u64>, observer: &mut impl Observer) {
        let Some(space) = self.space_at(event, observer) else {
            // Nothing is known of its segment. It counts as allocated, in no segment.
            if !self.joined_running {
                self.fault(Fault::NoSegment);
            }
            self.take_all_within(event.addr, wanted, event.ts, observer);
            self.insert(handed_out(event, wanted, requested, NO_SEGMENT));
            return;
        };
        let Some(space) = self.end(space, event.ts, observer) else { return };
        let (is_small, is_expandable) = match self.segment(space.segment) {
            Some(segment) => (segment.is_small, segment.is_expandable),
            None => (wanted <= SMALL_BYTES, false),
        };
        let head = event.addr - space.addr;
        let room = space.size_bytes - head;
        let is_exact = event.action == Action::UsageAlloc || space.state == State::Unknown;
        let size = if wanted > room {
            self.fault(Fault::TooSmall);
            room
        } else if is_exact || self.settings.splits(wanted, room - wanted, is_small, is_expandable) {
            wanted
        } else {
            room
        };
        if head > 0 {
            // A usage report does not tell what is still in use by other streams, so there may be a gap.
            let state = if event.action == Action::UsageAlloc { space.state } else { State::Unknown };
            if event.action != Action::UsageAlloc && space.state == State::Inactive {
                self.fault(Fault::AllocMissed);
            }
            self.insert(Block { size_bytes: head, state, ts: event.ts, ..space });
        }
        self.insert(handed_out(event, size, requested, space.segment));
        if size < room {
            self.insert(Block { addr: event.addr + size, size_bytes: room - size, ts: event.ts, ..space });
        }
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
            _ if event.action == Action::FreeCompleted => (),
            _ => self.unknown_free(event, observer),
        }
    }

    /// A block is given back that is not known to be in use.
    fn unknown_free(&mut self, event: &Event, observer: &mut impl Observer) {
        let wanted = match event.action {
            Action::UsageFree => event.size_bytes,
            _ => self.settings.round(event.size_bytes),
        };
        let Some(space) = self.block_at(event.addr).copied() else {
            if !self.joined_running {
                self.fault(Fault::UnknownFree);
            }
            return;
        };
        if !(space.state == State::Unknown && self.joined_running) {
            self.fault(Fault::UnknownFree);
        }
        if space.state == State::Unknown {
            // So it was in use, at least that much of it; now it is free.
            self.end(space.addr, event.ts, observer);
            let end = event.addr.saturating_add(wanted).min(space.end());
            if space.addr < event.addr {
                self.insert(Block { size_bytes: event.addr - space.addr, ts: event.ts, ..space });
            }
            if end < space.end() {
                self.insert(Block { addr: end, size_bytes: space.end() - end, ts: event.ts, ..space });
            }
            let block = Block { addr: event.addr, size_bytes: end - event.addr, ts: event.ts, ..space };
            self.insert(block);
            self.release(event.addr, event.ts, observer);
        }
    }

    /// Makes a block free and joins it with its free neighbours.
    fn release(&mut self, addr: u64, ts: i64, observer: &mut impl Observer) {
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
        let after = self.blocks.get(&end).copied();
        if let Some(after) = after.filter(|other| joins(other, &block)) {
            self.end(after.addr, ts, observer);
            end = after.end();
        }
        self.insert(free_block(start, end - start, block.segment, block.stream, ts));
    }

    /// Ends every block that reaches into `[addr, addr + bytes)`; how many of them were in use.
    fn take_all_within(&mut self, addr: u64, bytes: u64, ts: i64, observer: &mut impl Observer) -> u64 {
        let first = self.block_at(addr).map_or(addr, |block| block.addr);
        let within: Vec<u64> =
            self.blocks.range(first..addr.saturating_add(bytes)).map(|(addr, _)| *addr).collect();
        let ended = within.into_iter().filter_map(|addr| self.end(addr, ts, observer));
        ended.filter(Block::is_active).count() as u64
    }

    fn segment_alloc(&mut self, event: &Event, observer: &mut impl Observer) {
        self.clear_segments(event, Fault::SegmentFreeMissed, observer);
        self.take_all_within(event.addr, event.size_bytes, event.ts, observer);
        let is_small = event.size_bytes <= SMALL_SEGMENT_BYTES;
        let place =
            self.add_segment(Segment { is_expandable: false, is_small, page_bytes: 0, ..came(event) });
        self.insert(free_block(event.addr, event.size_bytes, place, event.stream, event.ts));
    }

    /// Ends segments that overlap a new one.
    fn clear_segments(&mut self, event: &Event, fault: Fault, observer: &mut impl Observer) {
        let end = event.addr.saturating_add(event.size_bytes);
        while let Some((addr, place)) = self.places.range(..end).next_back().map(|(a, p)| (*a, *p)) {
            let segment = self.segments[place as usize];
            if segment.end() <= event.addr {
                return;
            }
            self.fault(fault);
            self.take_all_within(addr, segment.size_bytes, event.ts, observer);
            self.remove_segment(addr, event.ts, observer);
        }
    }

    fn add_segment(&mut self, segment: Segment) -> u32 {
        self.count_segment(&segment, 1);
        let place = match self.free_places.pop() {
            Some(place) => {
                self.segments[place as usize] = segment;
                place
            }
            None => {
                self.segments.push(segment);
                self.segments.len() as u32 - 1
            }
        };
        self.places.insert(segment.addr, place);
        place
    }

    /// Takes an empty segment away, which ends.
    fn remove_segment(&mut self, addr: u64, ts: i64, observer: &mut impl Observer) {
        let Some(place) = self.places.remove(&addr) else { return };
        let segment = self.segments[place as usize];
        self.count_segment(&segment, -1);
        observer.segment(&segment, Some(ts));
        self.free_places.push(place);
    }

    fn segment_free(&mut self, event: &Event, observer: &mut impl Observer) {
        let known = self.places.get(&event.addr).map(|place| self.segments[*place as usize]);
        let Some(segment) = known else {
            if !self.joined_running {
                self.fault(Fault::UnknownSegment);
            }
            self.take_all_within(event.addr, event.size_bytes, event.ts, observer);
            return;
        };
        if self.take_all_within(segment.addr, segment.size_bytes, event.ts, observer) > 0 {
            self.fault(Fault::SegmentInUse);
        }
        self.remove_segment(segment.addr, event.ts, observer);
    }

    fn segment_map(&mut self, event: &Event, observer: &mut impl Observer) {
        self.clear_segments(event, Fault::SegmentFreeMissed, observer);
        self.take_all_within(event.addr, event.size_bytes, event.ts, observer);
        // Small blocks need one page at a time; large ones have larger pages.
        let is_small = event.size_bytes <= SMALL_SEGMENT_BYTES;
        let page_bytes = if is_small { SMALL_SEGMENT_BYTES } else { self.settings.large_segment_bytes };
        let mut range = Segment { is_expandable: true, is_small, page_bytes, ..came(event) };
        let end = range.end();
        let of_same = |other: &Segment| {
            other.is_expandable
                && (other.stream, other.pool, other.is_small) == (event.stream, event.pool, is_small)
        };
        let before = self.places.range(..event.addr).next_back().map(|(addr, _)| *addr);
        let touching = [before, Some(end)];
        let mut joined = Vec::new();
        for addr in touching.into_iter().flatten() {
            let Some(other) = self.places.get(&addr).map(|place| self.segments[*place as usize]) else {
                continue;
            };
            if of_same(&other) && (other.end() == event.addr || other.addr == end) {
                range.addr = range.addr.min(other.addr);
                range.size_bytes += other.size_bytes;
                range.alloc_ts = range.alloc_ts.min(other.alloc_ts);
                joined.push(other);
            }
        }
        // The blocks move to the new range; what they are does not change.
        let mut moved = Vec::new();
        for other in &joined {
            let within: Vec<u64> =
                self.blocks.range(other.addr..other.end()).map(|(addr, _)| *addr).collect();
            moved.extend(within.into_iter().filter_map(|addr| self.remove(addr)));
            self.remove_segment(other.addr, event.ts, observer);
        }
        let place = self.add_segment(range);
        moved.into_iter().for_each(|block| self.insert(Block { segment: place, ..block }));
        let new = Block {
            state: State::PendingFree,
            ..free_block(event.addr, event.size_bytes, place, event.stream, event.ts)
        };
        self.insert(new);
        self.join_new(event, observer);
    }

    /// Makes new pages a free block.
    fn join_new(&mut self, event: &Event, observer: &mut impl Observer) {
        struct Others<'a, O>(&'a mut O, u64);
        impl<O: Observer> Observer for Others<'_, O> {
            fn block(&mut self, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
                // The new pages have been nothing before.
                if block.addr != self.1 || block.state == State::Inactive {
                    self.0.block(block, segment, end);
                }
            }
        }
        self.release(event.addr, event.ts, &mut Others(observer, event.addr));
    }

    fn segment_unmap(&mut self, event: &Event, observer: &mut impl Observer) {
        let range = self.places.range(..=event.addr).next_back();
        let range = range.map(|(_, place)| self.segments[*place as usize]);
        let end = event.addr.saturating_add(event.size_bytes);
        let Some(range) = range.filter(|range| range.end() >= end && event.addr < range.end()) else {
            if !self.joined_running {
                self.fault(Fault::UnknownSegment);
            }
            self.clear_segments(event, Fault::UnknownSegment, observer);
            self.take_all_within(event.addr, event.size_bytes, event.ts, observer);
            return;
        };
        // What lies around the hole stays; free blocks that reach out of it are cut.
        let first = self.block_at(event.addr).map_or(event.addr, |block| block.addr);
        let within: Vec<u64> = self.blocks.range(first..end).map(|(addr, _)| *addr).collect();
        let mut cut = Vec::new();
        let mut in_use = false;
        for addr in within {
            let Some(block) = self.end(addr, event.ts, observer) else { continue };
            in_use |= block.is_active();
            if block.addr < event.addr {
                cut.push(Block { size_bytes: event.addr - block.addr, ts: event.ts, ..block });
            }
            if block.end() > end {
                cut.push(Block { addr: end, size_bytes: block.end() - end, ts: event.ts, ..block });
            }
        }
        if in_use {
            self.fault(Fault::SegmentInUse);
        }
        let kept: Vec<u64> = self.blocks.range(range.addr..range.end()).map(|(addr, _)| *addr).collect();
        cut.extend(kept.into_iter().filter_map(|addr| self.remove(addr)));
        self.remove_segment(range.addr, event.ts, observer);
        for (addr, to) in [(range.addr, event.addr), (end, range.end())] {
            if addr < to {
                let place = self.add_segment(Segment { addr, size_bytes: to - addr, ts: event.ts, ..range });
                for block in cut.iter().filter(|block| (addr..to).contains(&block.addr)) {
                    self.insert(Block { segment: place, ..*block });
                }
            }
        }
    }
}

fn joins(other: &Block, block: &Block) -> bool {
    other.state == State::Inactive && other.segment == block.segment
}

fn free_block(addr: u64, size_bytes: u64, segment: u32, stream: u64, ts: i64) -> Block {
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

fn came(event: &Event) -> Segment {
    let Event { ts, addr, size_bytes, stream, pool, tid, stack, .. } = *event;
    Segment {
        addr,
        size_bytes,
        stream,
        pool,
        is_expandable: false,
        is_small: false,
        ts,
        alloc_ts: ts,
        tid,
        stack,
        page_bytes: 0,
    }
}
