//! Replays events of segments: how the allocator reserves and releases memory.

use super::{
    allocator::{Allocator, free_block},
    event::Event,
    fault::Fault,
    settings::SMALL_SEGMENT_BYTES,
    span::{Block, Observer, Segment, State},
    totals::DEFAULT_POOL,
};

impl Allocator {
    pub(super) fn segment_alloc(&mut self, event: &Event, observer: &mut impl Observer) {
        self.clear_segments(event, Fault::SegmentFreeMissed, observer);
        self.take_all_within(event.addr, event.size_bytes, event.ts, observer);
        let is_small = event.size_bytes <= SMALL_SEGMENT_BYTES;
        let place =
            self.add_segment(Segment { is_expandable: false, is_small, page_bytes: 0, ..came(event) });
        self.insert(self.fresh(event, place));
    }

    /// Returns the block that covers newly reserved memory: free, or unknown if the events do not tell.
    fn fresh(&self, event: &Event, place: u32) -> Block {
        let is_told = self.knowledge.has_blocks && event.ts >= self.knowledge.lost_until_ts;
        let state = if is_told { State::Inactive } else { State::Unknown };
        Block { state, ..free_block(event.addr, event.size_bytes, place, event.stream, event.ts) }
    }

    /// Ends the segments that overlap a new one.
    fn clear_segments(&mut self, event: &Event, fault: Fault, observer: &mut impl Observer) {
        let end = event.addr.saturating_add(event.size_bytes);
        while let Some((addr, place)) = self.places.range(..end).next_back().map(|(a, p)| (*a, *p)) {
            let segment = self.segments[place as usize];
            if segment.end() <= event.addr {
                return;
            }
            self.fault_if_whole(fault);
            self.take_all_within(addr, segment.size_bytes, event.ts, observer);
            self.remove_segment(addr, event.ts, observer);
        }
    }

    pub(super) fn add_segment(&mut self, segment: Segment) -> u32 {
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

    /// Ends an empty segment: removes it and reports it to the observer.
    fn remove_segment(&mut self, addr: u64, ts: i64, observer: &mut impl Observer) {
        let Some(place) = self.places.remove(&addr) else { return };
        let segment = self.segments[place as usize];
        self.count_segment(&segment, -1);
        observer.segment(&segment, Some(ts));
        self.free_places.push(place);
    }

    pub(super) fn segment_free(&mut self, event: &Event, observer: &mut impl Observer) {
        let known = self.places.get(&event.addr).map(|place| self.segments[*place as usize]);
        let Some(segment) = known else {
            self.fault_if_whole(Fault::UnknownSegment);
            self.clear_segments(event, Fault::UnknownSegment, observer);
            self.take_all_within(event.addr, event.size_bytes, event.ts, observer);
            return;
        };
        if self.take_all_within(segment.addr, segment.size_bytes, event.ts, observer) > 0 {
            self.fault(Fault::SegmentInUse);
        }
        self.remove_segment(segment.addr, event.ts, observer);
    }

    pub(super) fn segment_map(&mut self, event: &Event, observer: &mut impl Observer) {
        self.clear_segments(event, Fault::SegmentFreeMissed, observer);
        self.take_all_within(event.addr, event.size_bytes, event.ts, observer);
        // An expandable segment of small blocks maps one page at a time; large ones have larger pages.
        let is_small = event.size_bytes <= SMALL_SEGMENT_BYTES;
        let page_bytes = if is_small { SMALL_SEGMENT_BYTES } else { self.settings.large_segment_bytes };
        let mut range = Segment { is_expandable: true, is_small, page_bytes, ..came(event) };
        let end = range.end();
        let of_same = |other: &Segment| {
            other.is_expandable
                && (other.stream, other.is_small) == (event.stream, is_small)
                // The events of snapshots do not tell pools.
                && (other.pool == event.pool || [other.pool, event.pool].contains(&DEFAULT_POOL))
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
                range.pool = range.pool.max(other.pool);
                range.alloc_ts = range.alloc_ts.min(other.alloc_ts);
                range.is_stale |= other.is_stale;
                joined.push(other);
            }
        }
        // The blocks move to the merged range; their states do not change.
        let mut moved = Vec::new();
        for other in &joined {
            let within: Vec<u64> =
                self.blocks.range(other.addr..other.end()).map(|(addr, _)| *addr).collect();
            moved.extend(within.into_iter().filter_map(|addr| self.remove(addr)));
            self.remove_segment(other.addr, event.ts, observer);
        }
        let place = self.add_segment(range);
        moved.into_iter().for_each(|block| self.insert(Block { segment: place, ..block }));
        let new = self.fresh(event, place);
        if new.state == State::Unknown {
            self.insert(new);
            return;
        }
        self.insert(Block { state: State::PendingFree, ..new });
        self.join_new(event, observer);
    }

    /// Turns newly mapped pages into a free block.
    fn join_new(&mut self, event: &Event, observer: &mut impl Observer) {
        struct Others<'a, O>(&'a mut O, u64);
        impl<O: Observer> Observer for Others<'_, O> {
            fn block(&mut self, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
                // The new pages were in no state before, so their first state is not reported.
                if block.addr != self.1 || block.state == State::Inactive {
                    self.0.block(block, segment, end);
                }
            }
        }
        self.release(event.addr, event.ts, &mut Others(observer, event.addr));
    }

    pub(super) fn segment_unmap(&mut self, event: &Event, observer: &mut impl Observer) {
        let range = self.places.range(..=event.addr).next_back();
        let range = range.map(|(_, place)| self.segments[*place as usize]);
        let end = event.addr.saturating_add(event.size_bytes);
        let Some(range) = range.filter(|range| range.end() >= end && event.addr < range.end()) else {
            self.fault_if_whole(Fault::UnknownSegment);
            self.clear_segments(event, Fault::UnknownSegment, observer);
            self.take_all_within(event.addr, event.size_bytes, event.ts, observer);
            return;
        };
        // Blocks around the hole remain; free blocks that extend beyond it are cut.
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
        is_stale: false,
    }
}
