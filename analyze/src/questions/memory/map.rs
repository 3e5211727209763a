//! Where blocks lay at an instant, and how long the largest ones lived: what the figures of the report show.

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

/// Segments shown; the largest.
const SEGMENTS: usize = 40;
/// Blocks whose lives are shown: those with most bytes for longest.
const LIVES: usize = 60;

/// A block at the instant.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    /// From the beginning of its segment.
    pub offset_bytes: u64,
    pub size_bytes: u64,
    pub state: String,
}

/// A segment at the instant.
#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    pub pid: u32,
    pub addr: u64,
    pub size_bytes: u64,
    pub blocks: Vec<Block>,
}

/// One block while it was handed out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Life {
    pub addr: u64,
    pub size_bytes: u64,
    pub ts_ns: i64,
    /// `None`: to the end of the run.
    pub dur_ns: Option<i64>,
}

/// The map.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Map {
    /// Largest first.
    pub segments: Vec<Segment>,
    pub segments_count: usize,
    /// In the order of their beginning.
    pub lives: Vec<Life>,
    pub lives_count: usize,
}

impl Map {
    /// Of what two replays told.
    pub fn of(layout: Layout, lives: Lives) -> Self {
        let mut all: Vec<Life> = lives.largest.into_iter().map(|Reverse((.., life))| life).collect();
        all.sort_by_key(|life| (life.ts_ns, life.addr));
        let (segments, segments_count) = (layout.segments, layout.segments_count);
        Self { segments, segments_count, lives: all, lives_count: lives.count }
    }
}

/// Where segments and blocks lie at one instant of a replay.
pub struct Layout {
    /// Of the instant.
    number: usize,
    segments: Vec<Segment>,
    segments_count: usize,
}

impl Layout {
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

/// A life after its weight, and of those of one weight the earlier one, then the lower address.
type Weighed = (u128, Reverse<(i64, u64)>, Life);

/// The blocks of a replay that had most bytes for longest.
pub struct Lives {
    /// Weighed by bytes times time: the least is to be dropped first.
    largest: BinaryHeap<Reverse<Weighed>>,
    count: usize,
    /// When allocators began that were at work before.
    began: HashMap<Key, i64>,
    end_ns: i64,
}

impl Lives {
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
        self.largest.push(Reverse((weight, Reverse((ts_ns, block.addr)), life)));
        if self.largest.len() > LIVES {
            self.largest.pop();
        }
    }
}
