//! The positions of blocks at an instant and the lifetimes of the largest blocks, for the charts of the
//! report.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use serde::Serialize;

use analyze_memory::{
    allocator::Allocator,
    input::{Key, Listener, Replay},
    span::{self, BEFORE, State},
};

/// The number of segments shown: the largest ones.
const SEGMENTS: usize = 40;
/// The number of blocks whose lifetimes are shown: those with the largest product of bytes and time.
const LIVES: usize = 60;

/// A block at the instant.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    /// The offset from the start of its segment in bytes.
    pub offset_bytes: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The name of its state, as in PyTorch's snapshots.
    pub state: String,
}

/// A segment at the instant.
#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    /// The process.
    pub pid: u32,
    /// The address of its first byte.
    pub addr: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The blocks, by address.
    pub blocks: Vec<Block>,
}

/// The lifetime of one block: the time for which it was allocated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Life {
    /// The address.
    pub addr: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The time at which it was allocated (ns, trace clock), or when recording of its allocator began.
    pub ts_ns: i64,
    /// The duration in ns; `None` if it lived to the end of the run.
    pub dur_ns: Option<i64>,
}

/// The positions and lifetimes that the report shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Map {
    /// The largest segments, largest first.
    pub segments: Vec<Segment>,
    /// The number of all segments.
    pub segments_count: usize,
    /// The lifetimes with the largest product of bytes and time, in order of their start.
    pub lives: Vec<Life>,
    /// The number of all lifetimes.
    pub lives_count: usize,
}

impl Map {
    /// Combines the results of two replays.
    pub fn of(layout: Layout, lives: Lives) -> Self {
        let mut all: Vec<Life> = lives.largest.into_iter().map(|Reverse((.., life))| life).collect();
        all.sort_by_key(|life| (life.ts_ns, life.addr));
        let (segments, segments_count) = (layout.segments, layout.segments_count);
        Self { segments, segments_count, lives: all, lives_count: lives.count }
    }
}

/// A listener that collects the segments and blocks at one instant of a replay.
pub struct Layout {
    /// The number of the instant.
    number: usize,
    segments: Vec<Segment>,
    segments_count: usize,
}

impl Layout {
    /// Creates a listener for the instant with this number.
    pub fn new(number: usize) -> Self {
        Self { number, segments: Vec::new(), segments_count: 0 }
    }
}

impl Listener for Layout {
    fn instant(&mut self, run: u32, number: usize, replay: &Replay) {
        if number != self.number {
            return;
        }
        let allocators = || replay.allocators().filter(|(key, _)| key.run == run);
        let mut all: Vec<(Key, &Allocator, &span::Segment)> = allocators()
            .flat_map(|(key, allocator)| allocator.segments().map(move |segment| (key, allocator, segment)))
            .collect();
        all.sort_by_key(|(key, _, segment)| (Reverse(segment.size_bytes), key.pid, segment.addr));
        self.segments_count = all.len();
        let largest = all.into_iter().take(SEGMENTS);
        self.segments = largest
            .map(|(key, allocator, segment)| Segment {
                pid: key.pid,
                addr: segment.addr,
                size_bytes: segment.size_bytes,
                blocks: allocator
                    .blocks_in(segment)
                    .map(|block| Block {
                        offset_bytes: block.addr - segment.addr,
                        size_bytes: block.size_bytes,
                        state: block.state.name().to_owned(),
                    })
                    .collect(),
            })
            .collect();
    }
}

/// A lifetime with its weight; of those with the same weight the earlier one counts more, then the one with
/// the lower address.
type Weighed = (u128, Reverse<(i64, u64)>, Life);

/// A listener that collects the blocks with the largest product of bytes and time.
pub struct Lives {
    /// The lifetimes by weight, which is bytes times time; the lightest one is the first to be dropped.
    largest: BinaryHeap<Reverse<Weighed>>,
    count: usize,
    /// The time at which the first event of each allocator that already held memory was recorded.
    began: HashMap<Key, i64>,
    end_ns: i64,
}

impl Lives {
    /// Creates a listener for a run that ends at `end_ns`.
    pub fn new(end_ns: i64) -> Self {
        Self { largest: BinaryHeap::new(), count: 0, began: HashMap::new(), end_ns }
    }
}

impl Listener for Lives {
    fn began(&mut self, key: Key, _: &Allocator, ts: i64) {
        self.began.insert(key, ts);
    }

    fn block(&mut self, key: Key, block: &span::Block, _: Option<&span::Segment>, end: Option<i64>) {
        if block.state != State::Active || end == Some(block.ts) {
            return;
        }
        self.count += 1;
        let ts_ns = match block.ts {
            BEFORE => self.began.get(&key).copied().unwrap_or_default(),
            ts => ts,
        };
        let dur_ns = end.map(|end| end.saturating_sub(ts_ns));
        let held_ns = dur_ns.unwrap_or_else(|| self.end_ns.saturating_sub(ts_ns)).max(0);
        let weight = u128::from(block.size_bytes) * held_ns as u128;
        let life = Life { addr: block.addr, size_bytes: block.size_bytes, ts_ns, dur_ns };
        let weighed = Reverse((weight, Reverse((ts_ns, block.addr)), life));
        // Most blocks are lighter than all that are kept: they are not worth a place in the heap.
        if self.largest.len() >= LIVES && self.largest.peek().is_some_and(|lightest| weighed >= *lightest) {
            return;
        }
        self.largest.push(weighed);
        if self.largest.len() > LIVES {
            self.largest.pop();
        }
    }
}
