//! Reconstructs what an allocator held when recording began, from its events and from the state recorded
//! after them.
//!
//! ```text
//! not recorded │ events                                    │ final state
//!     ?  ──────┤ free(a)  alloc(b)  segment_free(s)  …     ├── a: free, b and c allocated
//!              ▼
//!     a was allocated: it is freed without an earlier allocation. So was c, which no event names. s existed.
//! ```
//! The first event that touches an address tells what was there; if there is none, the final state does. Free
//! blocks are what lies between the others. The size of a block may remain open: the free of a block tells
//! only the requested size, and up to 1 MiB more may have belonged to it. A neighbour settles it: a block
//! ends at the latest where the next one starts, and a block that is allocated behind it starts where it
//! ends. Otherwise the bytes in question are [`State::Unknown`].

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{
    event::{Action, Event},
    settings::{MIN_BLOCK_BYTES, SMALL_BYTES, SMALL_SEGMENT_BYTES, Settings},
    span::{BEFORE, Block, NO_SEGMENT, Segment, State},
};
use analyze_run::address_ranges::Ranges;

/// The final state as a snapshot records it.
#[derive(Clone, Debug, Default)]
pub struct SnapshotState {
    /// Segments by address.
    pub segments: BTreeMap<u64, Segment>,
    /// Blocks by address.
    pub blocks: BTreeMap<u64, Block>,
}

/// What an allocator held when recording began. Free memory is what lies between the blocks.
#[derive(Clone, Debug, Default)]
pub struct Seed {
    /// The segments; none overlaps another.
    pub segments: Vec<Segment>,
    /// Active and unknown blocks by address; each lies within a segment, and none overlaps another.
    pub blocks: BTreeMap<u64, Block>,
    /// The number of events and recorded items that cannot both be true.
    pub contradictions_count: u64,
}

impl Seed {
    /// Returns whether the allocator held nothing.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.contradictions_count == 0
    }
}

/// A block that existed when recording began.
struct Early {
    requested_bytes: Option<u64>,
    /// `None` if it is not known.
    size_bytes: Option<u64>,
    state: State,
    stream: u64,
    stack: Option<u32>,
    is_freed: bool,
    /// The start of the first block that was allocated close behind it.
    next_addr: Option<u64>,
}

/// Reserved memory that existed when recording began.
struct Range {
    segment: Segment,
    /// Whether the size class (small or large) is known.
    has_class: bool,
}

/// Collects what the events tell about the initial state.
#[derive(Default)]
pub struct InitialState {
    settings: Settings,
    /// Memory that was reserved during the recording.
    mapped: Ranges,
    /// Blocks that were allocated during the recording.
    live: HashSet<u64>,
    /// Addresses at which blocks of more than 1 MiB were allocated.
    starts: BTreeSet<u64>,
    early: BTreeMap<u64, Early>,
    ranges: Vec<Range>,
    contradictions_count: u64,
}

impl InitialState {
    /// Creates a collector for an allocator with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes the next event, in order of time.
    pub fn event(&mut self, event: &Event) {
        let Event { addr, size_bytes, .. } = *event;
        match event.action {
            Action::Alloc => {
                self.live.insert(addr);
                if self.settings.round(size_bytes) > SMALL_BYTES {
                    self.starts.insert(addr);
                }
            }
            Action::FreeRequested if !self.live.contains(&addr) => self.early(event, State::Active),
            Action::FreeCompleted if !self.live.remove(&addr) => {
                self.early(event, State::PendingFree);
                let asked_end = addr.saturating_add(self.settings.round(size_bytes));
                let next = self.starts.range(asked_end..=asked_end.saturating_add(SMALL_BYTES)).next();
                if let Some(early) = self.early.get_mut(&addr).filter(|early| !early.is_freed) {
                    early.is_freed = true;
                    early.next_addr = next.copied();
                }
            }
            Action::SegmentAlloc | Action::SegmentMap => self.mapped.insert(addr, size_bytes),
            Action::SegmentFree | Action::SegmentUnmap => {
                let is_expandable = event.action == Action::SegmentUnmap;
                for (addr, size_bytes) in self.mapped.remove(addr, size_bytes) {
                    let segment = self.segment(event, addr, size_bytes, is_expandable);
                    self.ranges.push(Range { segment, has_class: !is_expandable });
                }
            }
            _ => (),
        }
    }

    fn early(&mut self, event: &Event, state: State) {
        self.early.entry(event.addr).or_insert(Early {
            requested_bytes: Some(event.size_bytes),
            size_bytes: None,
            state,
            stream: event.stream,
            stack: None,
            is_freed: false,
            next_addr: None,
        });
    }

    fn segment(&self, event: &Event, addr: u64, size_bytes: u64, is_expandable: bool) -> Segment {
        // Pages of large expandable segments are mapped as whole ones.
        let is_small = match is_expandable {
            true => !size_bytes.is_multiple_of(self.settings.large_segment_bytes.max(1)),
            false => size_bytes <= SMALL_SEGMENT_BYTES,
        };
        Segment {
            addr,
            size_bytes,
            stream: event.stream,
            pool: event.pool,
            is_expandable,
            is_small,
            ts: BEFORE,
            alloc_ts: BEFORE,
            tid: 0,
            stack: None,
            page_bytes: 0,
            is_stale: false,
        }
    }

    /// Returns the initial state, given the final state.
    pub fn finish(mut self, held: &SnapshotState) -> Seed {
        for segment in held.segments.values() {
            for (addr, size_bytes) in self.mapped.missing(segment.addr, segment.size_bytes) {
                let segment = Segment { addr, size_bytes, ..*segment };
                self.ranges.push(Range { segment, has_class: true });
            }
        }
        for block in held.blocks.values().filter(|block| block.is_active()) {
            self.take_last(block);
        }
        let segments = self.segments();
        let mut seed = Seed::default();
        let mut early = std::mem::take(&mut self.early).into_iter().peekable();
        for segment in &segments {
            while early.next_if(|(addr, _)| *addr < segment.addr).is_some() {
                self.contradictions_count += 1;
            }
            while let Some((addr, block)) = early.next_if(|(addr, _)| *addr < segment.end()) {
                let next = early.peek().map_or(u64::MAX, |(addr, _)| *addr).min(segment.end());
                self.place(addr, &block, segment, next, &mut seed.blocks);
            }
        }
        seed.contradictions_count = self.contradictions_count + early.count() as u64;
        seed.segments = segments;
        seed
    }

    /// Takes an active block of the final state, which may have existed from the start.
    fn take_last(&mut self, block: &Block) {
        if self.live.contains(&block.addr) {
            return;
        }
        let Some(early) = self.early.get_mut(&block.addr) else {
            let Block { requested_bytes, size_bytes, state, stream, stack, .. } = *block;
            let size_bytes = Some(size_bytes);
            let early =
                Early { requested_bytes, size_bytes, state, stream, stack, is_freed: false, next_addr: None };
            self.early.insert(block.addr, early);
            return;
        };
        match early.is_freed {
            true => self.contradictions_count += 1,
            false => (early.size_bytes, early.stack) = (Some(block.size_bytes), block.stack),
        }
    }

    /// Returns the ranges, merged as the allocator merges them.
    fn segments(&mut self) -> Vec<Segment> {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_by_key(|range| (range.segment.addr, std::cmp::Reverse(range.segment.size_bytes)));
        let mut joined: Vec<Range> = Vec::new();
        for range in ranges {
            let Some(last) = joined.last_mut().filter(|last| last.segment.end() >= range.segment.addr) else {
                joined.push(range);
                continue;
            };
            let about = |segment: &Segment| (segment.is_expandable, segment.stream);
            if last.segment.end() > range.segment.addr {
                // Memory can have existed only once.
                self.contradictions_count += 1;
            } else if range.segment.is_expandable && about(&last.segment) == about(&range.segment) {
                last.segment.size_bytes += range.segment.size_bytes;
                last.segment.pool = last.segment.pool.max(range.segment.pool);
                let is_told = range.has_class || !last.has_class;
                if is_told {
                    last.segment.is_small = match (last.has_class, range.has_class) {
                        (false, false) => last.segment.is_small || range.segment.is_small,
                        _ => range.segment.is_small,
                    };
                }
                last.has_class |= range.has_class;
            } else {
                joined.push(range);
            }
        }
        for range in joined.iter_mut().filter(|range| range.segment.is_expandable) {
            let segment = &mut range.segment;
            if !range.has_class
                && let Some((_, block)) = self.early.range(segment.addr..segment.end()).next()
            {
                segment.is_small =
                    self.settings.round(block.requested_bytes.unwrap_or_default()) <= SMALL_BYTES;
            }
            segment.page_bytes =
                if segment.is_small { SMALL_SEGMENT_BYTES } else { self.settings.large_segment_bytes };
        }
        joined.into_iter().map(|range| range.segment).collect()
    }

    /// Inserts a block, and the unknown bytes that may have belonged to it, into `blocks`. `next` is the
    /// first address that does not belong to it.
    fn place(
        &mut self,
        addr: u64,
        early: &Early,
        segment: &Segment,
        next: u64,
        blocks: &mut BTreeMap<u64, Block>,
    ) {
        let asked = self.settings.round(early.requested_bytes.unwrap_or_default());
        let room = next - addr;
        let (size, open) = match early.size_bytes {
            Some(size) => (size, 0),
            None => self.extent(addr, early, segment, asked, room),
        };
        if size > room {
            self.contradictions_count += 1;
        }
        let size_bytes = size.min(room);
        let block = Block {
            addr,
            size_bytes,
            requested_bytes: early.requested_bytes,
            state: early.state,
            ts: BEFORE,
            alloc_ts: BEFORE,
            tid: 0,
            stack: early.stack,
            stream: early.stream,
            segment: NO_SEGMENT,
        };
        if size_bytes > 0 {
            blocks.insert(addr, block);
        }
        let open = open.min(room - size_bytes);
        if open > 0 {
            let tail = Block {
                addr: addr + size_bytes,
                size_bytes: open,
                requested_bytes: Some(0),
                state: State::Unknown,
                stack: None,
                ..block
            };
            blocks.insert(tail.addr, tail);
        }
    }

    /// Returns a block's size, and how many further bytes may have belonged to it.
    fn extent(&self, addr: u64, early: &Early, segment: &Segment, asked: u64, room: u64) -> (u64, u64) {
        let behind = room.saturating_sub(asked);
        if segment.is_small || segment.is_expandable || behind == 0 {
            return (asked, 0);
        }
        if let Some(next) = early.next_addr.filter(|next| *next < segment.end()) {
            return (next - addr, 0);
        }
        // Large blocks have more than 1 MiB, free ones too: a smaller remainder is no block of its own.
        if asked >= self.settings.max_split_bytes || behind <= SMALL_BYTES {
            return (room, 0);
        }
        (asked, behind.saturating_sub(SMALL_BYTES + MIN_BLOCK_BYTES).min(SMALL_BYTES))
    }
}
