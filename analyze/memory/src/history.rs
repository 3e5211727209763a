//! Explains why the allocator reserved memory, what it released, and why requests failed, from its state at
//! that moment.
//!
//! The allocator reserves a segment because of a request that the pool and stream of that request could not
//! serve. The request is the next allocation of the same thread, or its failure. The state of the pool just
//! before decides the cause:
//!
//! | cause | condition |
//! |---|---|
//! | `first_use` | the pool had never had memory |
//! | `fragmentation` | enough memory was free in the pool, but no single block was large enough |
//! | `other_stream` | a free block of the same pool was large enough, but belonged to another stream |
//! | `after_release` | the pool had reserved as much before, and had released it |
//! | `growth` | the pool needed more than ever before |
//! | `not_known` | the request was not recorded, or the source does not tell streams and pending frees |
//!
//! A release is a series of segments that a thread releases without another event in between. Its cause is the
//! first of these whose condition the record shows:
//!
//! | cause | condition |
//! |---|---|
//! | `empty_cache` | a recorded call of `emptyCache` encloses the release, or a frame of `empty_cache()` is in its call stacks |
//! | `make_room` | right before it, the driver refused the thread memory; or a request of the thread fails right after it; or the thread reserves a segment right after it, and the run records all calls of `emptyCache` |
//! | `not_known` | neither: without the calls of `emptyCache`, a release by `empty_cache()` looks like one for a request |
//!
//! ```text
//! cudaMalloc: out of memory ─ segment_free … ─────────────────► make_room
//!                             segment_free … ─ oom ───────────► make_room
//!                emptyCache ─ segment_free … ─────────────────► empty_cache
//!                             segment_free … ─ segment_alloc ─► make_room, or not_known
//! ```
//! The garbage collector (`garbage_collection_threshold`) also releases segments for a request (`make_room`).
//! `ipc_collect()` releases none: it frees blocks, whose segments the next release returns to the driver.

use std::collections::HashMap;

use super::{
    allocator::Allocator,
    event::{Action, Event},
    input::{Key, Listener, Replay},
    oom::Oom,
    pools::{PoolKey, PoolState, Pools},
    settings::SMALL_SEGMENT_BYTES,
    totals::Totals,
};

/// The reason for which a segment was reserved or released; the table above gives the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The pool had never had memory.
    FirstUse,
    /// Enough memory was free in the pool, but no single block was large enough.
    Fragmentation,
    /// A free block of the same pool was large enough, but belonged to another stream.
    OtherStream,
    /// The pool had reserved as much before, and had released it.
    AfterRelease,
    /// The pool needed more than ever before.
    Growth,
    /// The program called `empty_cache()`.
    EmptyCache,
    /// The allocator released memory to make room for a request.
    MakeRoom,
    /// The record does not show the cause.
    NotKnown,
}

impl Cause {
    /// Returns the name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstUse => "first_use",
            Self::Fragmentation => "fragmentation",
            Self::OtherStream => "other_stream",
            Self::AfterRelease => "after_release",
            Self::Growth => "growth",
            Self::EmptyCache => "empty_cache",
            Self::MakeRoom => "make_room",
            Self::NotKnown => "not_known",
        }
    }
}

/// The request that a segment was reserved or released for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The requested size in bytes.
    pub requested_bytes: u64,
    /// The size in bytes of the smallest block that serves it.
    pub block_bytes: u64,
    /// The number of the request's call stack, if one was taken.
    pub stack: Option<u32>,
}

/// A segment, or a range of an expandable one, that was reserved or released.
#[derive(Clone, Debug)]
pub struct Change {
    /// The allocator.
    pub key: Key,
    /// The time at which it happened (ns, trace clock).
    pub ts: i64,
    /// The thread.
    pub tid: u32,
    /// The event: a segment that was allocated, freed, mapped or unmapped.
    pub action: Action,
    /// The address of the first byte.
    pub addr: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The pool, stream and size class that the memory belongs to.
    pub pool: PoolKey,
    /// The reason for the change.
    pub cause: Cause,
    /// The request that it was for; `None` if there was none, or if it was not recorded.
    pub request: Option<Request>,
    /// The state of the pool just before.
    pub before: PoolState,
}

/// What one allocator released for one cause: one call of `empty_cache()`, or one request that needed room.
#[derive(Clone, Debug)]
pub struct Release {
    /// The allocator.
    pub key: Key,
    /// The time at which the release began (ns, trace clock).
    pub ts: i64,
    /// The thread that released the memory.
    pub tid: u32,
    /// [`Cause::EmptyCache`], [`Cause::MakeRoom`] or [`Cause::NotKnown`].
    pub cause: Cause,
    /// Whether the run records all calls of `emptyCache`.
    pub records_empty_cache: bool,
    /// The time at which the last segment or range was released (ns, trace clock).
    pub last_ts: i64,
    /// Released bytes.
    pub given_back_bytes: u64,
    /// The number of released segments and ranges.
    pub segments_count: u64,
    /// The allocator's totals before the release.
    pub before: Totals,
    /// The allocator's totals after the last segment was released.
    pub after: Totals,
    /// Bytes that were free after the release in segments held by active blocks.
    pub pinned_bytes: u64,
}

impl Release {
    fn new(key: Key, allocator: &Allocator, ts: i64, tid: u32, cause: Cause) -> Self {
        let totals = *allocator.totals();
        Self {
            key,
            ts,
            tid,
            cause,
            records_empty_cache: allocator.knowledge().records_empty_cache,
            last_ts: ts,
            given_back_bytes: 0,
            segments_count: 0,
            before: totals,
            after: totals,
            pinned_bytes: allocator.pools().map_or(0, Pools::pinned_bytes),
        }
    }

    /// Returns a sentence that says why the cause is not known; `None` if it is known.
    pub fn why_not_known(&self) -> Option<&'static str> {
        (self.cause == Cause::NotKnown).then_some(match self.records_empty_cache {
            true => {
                "no recorded call of emptyCache encloses the release, and the thread needed no segment right after it"
            }
            false => {
                "the record does not have the calls of emptyCache (capture needs its probe, a snapshot its call stacks), and no request failed just then"
            }
        })
    }

    /// Returns the bytes that were active after the release in the remaining segments.
    pub fn in_use_bytes(&self) -> i64 {
        let free =
            self.pinned_bytes as i64 + self.after.private_releasable_bytes + self.after.releasable_bytes;
        self.after.reserved_bytes - free - self.after.unknown_bytes
    }
}

/// A thread, by run, process and its own number.
type Thread = (u32, u32, u32);

/// What a thread is releasing.
#[derive(Debug)]
struct Open {
    /// The cause that a call before the first released segment shows, or the segment's call stack.
    cause: Cause,
    /// Whether the call stacks of the segments show the cause.
    is_by_stack: bool,
    /// The release of each allocator, with its changes, whose cause is that of the release.
    releases: Vec<(Release, Vec<Change>)>,
}

/// A listener that collects changes, releases and failures until [`Self::forget`] is called.
#[derive(Debug, Default)]
pub struct History {
    /// Segments that were reserved or released and whose cause has been determined.
    pub changes: Vec<Change>,
    /// Completed releases.
    pub releases: Vec<Release>,
    /// Failed requests.
    pub ooms: Vec<Oom>,
    /// Changes by allocator and thread that are for a request, which is the thread's next one.
    waiting: HashMap<(Key, u32), Vec<Change>>,
    /// Releases in progress.
    open: HashMap<Thread, Open>,
}

/// Returns the pool, stream and size class that an event belongs to.
pub fn pool_of(allocator: &Allocator, event: &Event) -> PoolKey {
    let segment = allocator.block_at(event.addr).and_then(|block| allocator.segment(block.segment));
    segment.map_or_else(
        || PoolKey {
            pool: event.pool,
            stream: event.stream,
            is_small: event.size_bytes <= SMALL_SEGMENT_BYTES,
        },
        PoolKey::of,
    )
}

/// Returns the size in bytes of a segment that is reserved or released; cudaFree does not report it, but the
/// replay knows it.
fn size_of(allocator: &Allocator, event: &Event) -> u64 {
    let block = allocator.block_at(event.addr).filter(|_| event.action == Action::SegmentFree);
    let segment = block.and_then(|block| allocator.segment(block.segment));
    segment.map_or(event.size_bytes, |segment| segment.size_bytes)
}

fn cause_of(change: &Change, request: &Request, is_inferred: bool) -> Cause {
    let (before, wanted) = (&change.before, request.block_bytes);
    if before.peak_bytes == 0 {
        Cause::FirstUse
    } else if before.free_bytes >= wanted {
        // Without streams and pending frees it is not known which of the free memory was usable.
        if is_inferred { Cause::NotKnown } else { Cause::Fragmentation }
    } else if before.other_stream_bytes >= wanted {
        Cause::OtherStream
    } else if before.peak_bytes >= before.reserved_bytes.saturating_add(change.size_bytes) {
        Cause::AfterRelease
    } else {
        Cause::Growth
    }
}

impl History {
    /// Completes a thread's waiting changes, once its request has been served or has failed.
    fn settle(&mut self, key: Key, tid: u32, request: Request, is_inferred: bool) {
        let Some(changes) = self.waiting.remove(&(key, tid)) else { return };
        for mut change in changes {
            if matches!(change.action, Action::SegmentAlloc | Action::SegmentMap) {
                change.cause = cause_of(&change, &request, is_inferred);
            }
            change.request = Some(request);
            self.changes.push(change);
        }
    }

    /// Drops what has been collected and completed.
    pub fn forget(&mut self) {
        self.changes.clear();
        self.releases.clear();
        self.ooms.clear();
    }

    /// Completes a thread's releases. `asked` is the allocator of which the thread's next event shows that it
    /// needed room for a request.
    fn close(&mut self, thread: Thread, asked: Option<Key>) {
        let Some(open) = self.open.remove(&thread) else { return };
        for (mut release, changes) in open.releases {
            if release.cause == Cause::NotKnown && asked == Some(release.key) {
                release.cause = Cause::MakeRoom;
            }
            let cause = release.cause;
            let changes = changes.into_iter().map(|change| Change { cause, ..change });
            match cause {
                Cause::MakeRoom => {
                    self.waiting.entry((release.key, release.tid)).or_default().extend(changes);
                }
                _ => self.changes.extend(changes),
            }
            self.releases.push(release);
        }
    }

    /// Adds the changes and releases that remained without an explanation at the end.
    fn give_up(&mut self) {
        let known = self.releases.len();
        let mut threads: Vec<Thread> = self.open.keys().copied().collect();
        threads.sort_unstable();
        threads.into_iter().for_each(|thread| self.close(thread, None));
        self.releases[known..].sort_by_key(|release| (release.key, release.ts));
        let mut rest: Vec<_> = self.waiting.drain().flat_map(|(_, changes)| changes).collect();
        rest.sort_by_key(|change| (change.key, change.ts));
        self.changes.append(&mut rest);
    }

    /// Adds a segment that is about to be released to its release.
    fn gone(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let thread = (key.run, key.pid, event.tid);
        // Without recorded calls, releases are told apart by their call stacks.
        let is_other = |open: &Open| match event.is_of_empty_cache {
            true => open.cause != Cause::EmptyCache,
            false => open.is_by_stack,
        };
        if self.open.get(&thread).is_some_and(is_other) {
            self.close(thread, None);
        }
        let change = changed(key, allocator, event);
        let open = self.open.entry(thread).or_insert_with(|| Open {
            cause: if event.is_of_empty_cache { Cause::EmptyCache } else { Cause::NotKnown },
            is_by_stack: event.is_of_empty_cache,
            releases: Vec::new(),
        });
        let place = match open.releases.iter().position(|(release, _)| release.key == key) {
            Some(place) => place,
            None => {
                let release = Release::new(key, allocator, event.ts, event.tid, open.cause);
                open.releases.push((release, Vec::new()));
                open.releases.len() - 1
            }
        };
        let (release, changes) = &mut open.releases[place];
        release.last_ts = event.ts;
        release.given_back_bytes += change.size_bytes;
        release.segments_count += 1;
        changes.push(change);
    }
}

/// Describes an event of segments that is about to be replayed; its cause is not determined yet.
fn changed(key: Key, allocator: &Allocator, event: &Event) -> Change {
    let pool = match event.action {
        Action::SegmentFree | Action::SegmentUnmap => pool_of(allocator, event),
        _ => PoolKey {
            pool: event.pool,
            stream: event.stream,
            is_small: event.size_bytes <= SMALL_SEGMENT_BYTES,
        },
    };
    Change {
        key,
        ts: event.ts,
        tid: event.tid,
        action: event.action,
        addr: event.addr,
        size_bytes: size_of(allocator, event),
        pool,
        cause: Cause::NotKnown,
        request: None,
        before: PoolState::of(allocator.pools(), &pool),
    }
}

impl Listener for History {
    const WANTS_POOLS: bool = true;

    fn before(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let thread = (key.run, key.pid, event.tid);
        match event.action {
            Action::SegmentFree | Action::SegmentUnmap => self.gone(key, allocator, event),
            Action::SegmentAlloc | Action::SegmentMap => {
                self.close(thread, allocator.knowledge().records_empty_cache.then_some(key));
                let change = changed(key, allocator, event);
                self.waiting.entry((key, event.tid)).or_default().push(change);
            }
            Action::Oom => {
                self.close(thread, Some(key));
                let block_bytes = allocator.settings().round(event.size_bytes);
                let request = Request { requested_bytes: event.size_bytes, block_bytes, stack: event.stack };
                self.settle(key, event.tid, request, false);
                self.ooms.push(Oom::of(key, allocator, event, block_bytes));
            }
            // A release first completes the frees that other streams had delayed.
            Action::FreeCompleted => (),
            _ => self.close(thread, None),
        }
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        match event.action {
            Action::SegmentFree | Action::SegmentUnmap => {
                let open = self.open.get_mut(&(key.run, key.pid, event.tid));
                let mut releases = open.into_iter().flat_map(|open| &mut open.releases);
                if let Some((release, _)) = releases.find(|(release, _)| release.key == key) {
                    release.after = *allocator.totals();
                    release.pinned_bytes = allocator.pools().map_or(0, Pools::pinned_bytes);
                }
            }
            Action::Alloc | Action::UsageAlloc => {
                let is_inferred = event.action == Action::UsageAlloc;
                let block_bytes = match is_inferred {
                    true => event.size_bytes,
                    false => allocator.settings().round(event.size_bytes),
                };
                let request = Request { requested_bytes: event.size_bytes, block_bytes, stack: event.stack };
                self.settle(key, event.tid, request, is_inferred);
            }
            _ => (),
        }
    }

    fn empty_cache(&mut self, run: u32, pid: u32, tid: u32, ts: i64, replay: &Replay) {
        self.close((run, pid, tid), None);
        let cause = Cause::EmptyCache;
        let of_process = replay.allocators().filter(|(key, _)| (key.run, key.pid) == (run, pid));
        let releases =
            of_process.map(|(key, allocator)| (Release::new(key, allocator, ts, tid, cause), Vec::new()));
        self.open.insert((run, pid, tid), Open { cause, is_by_stack: false, releases: releases.collect() });
    }

    fn refused(&mut self, run: u32, pid: u32, tid: u32) {
        self.close((run, pid, tid), None);
        self.open.insert(
            (run, pid, tid),
            Open { cause: Cause::MakeRoom, is_by_stack: false, releases: Vec::new() },
        );
    }

    fn end(&mut self) {
        self.give_up();
    }
}
