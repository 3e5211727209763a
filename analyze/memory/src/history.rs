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
//! | `make_room` | a request of the thread encloses the release: see below |
//! | `not_known` | neither: without the calls of `emptyCache`, a release by `empty_cache()` looks like one for a request |
//!
//! What shows that a request encloses a release:
//!
//! ```text
//! cudaMalloc: out of memory ─ segment_free …                    the driver refused the thread memory right before
//!   ipc_collect (allocator) ─ segment_free …                    the request found no free block, and has not ended yet
//!                             segment_free … ─ segment_alloc    the thread's request ends right after, and the run records
//!                             segment_free … ─ oom              all calls of emptyCache, or the call stacks of both are one
//! ```
//! A second refusal may be the end of the request, after which the program may empty the cache. It shows nothing unless
//! the allocator's events are recorded, among them `oom`, or the calls of `emptyCache`. A segment whose release has no call
//! stack of its own gets that of its allocation; such a call stack shows nothing either.
//!
//! The garbage collector (`garbage_collection_threshold`) also releases segments for a request (`make_room`).
//! `ipc_collect()` releases none, and is a cause of its own: it frees blocks that other processes no longer use, whose
//! segments the next release returns to the driver. The allocator calls it, too, for every request that finds no free block;
//! only the calls of the program are collected here. Each release has the bytes of the blocks that the thread freed before it
//! (`frees.rs`), so that a program that collects its garbage, empties its cache and calls `ipc_collect()` has the bytes of
//! each part.

use super::{
    allocator::Allocator,
    event::{Action, Event},
    frees::{Frees, Thread, freed_bytes},
    input::{IpcCollect, Key, Listener, Replay},
    oom::Oom,
    pools::{PoolKey, PoolState},
    settings::SMALL_SEGMENT_BYTES,
};
pub use crate::{cause::Cause, release::Release};
use analyze_run::hash::HashMap;

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

/// What a thread is releasing.
#[derive(Debug)]
struct Open {
    /// The cause that a call before the first released segment shows, or the segment's call stack.
    cause: Cause,
    /// Whether the call stacks of the segments show the cause.
    is_by_stack: bool,
    /// Whether the request that the cause supposes may have ended by a failure that is not recorded.
    may_have_failed: bool,
    /// The call stack of all released segments, if they have one that is not that of their allocation.
    stack: Option<u32>,
    /// The end of the call of `ipc_collect()` that the thread is in (ns, trace clock).
    collects_until: Option<i64>,
    /// The release of each allocator, with its changes, whose cause is that of the release.
    releases: Vec<(Release, Vec<Change>)>,
}

impl Open {
    fn new(cause: Cause) -> Self {
        let releases = Vec::new();
        Self {
            cause,
            is_by_stack: false,
            may_have_failed: false,
            stack: None,
            collects_until: None,
            releases,
        }
    }

    /// Returns whether the thread is in a call of `ipc_collect()` at `ts` (ns).
    fn is_collecting(&self, ts: i64) -> bool {
        self.collects_until.is_some_and(|until| ts <= until)
    }

    fn release(&mut self, key: Key) -> Option<&mut Release> {
        self.releases.iter_mut().map(|(release, _)| release).find(|release| release.key == key)
    }
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
    /// What each thread freed since its last allocation or release.
    frees: Frees,
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
        if !open.releases.is_empty() {
            self.frees.released(thread);
        }
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

    /// Begins a release of every allocator of a process, given by run and number.
    fn of_process(
        &mut self,
        process: (u32, u32),
        tid: u32,
        ts: i64,
        cause: Cause,
        replay: &Replay,
    ) -> Vec<(Release, Vec<Change>)> {
        let of_process = replay.allocators().filter(|(key, _)| (key.run, key.pid) == process);
        let releases = of_process.map(|(key, allocator)| {
            (Release::new(key, allocator, ts, tid, cause, &mut self.frees), Vec::new())
        });
        releases.collect()
    }

    /// Adds a segment that is about to be released to its release.
    fn gone(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let thread = (key.run, key.pid, event.tid);
        // Without recorded calls, releases are told apart by their call stacks.
        let is_other = |open: &Open| match event.is_of_empty_cache {
            true => open.cause != Cause::EmptyCache,
            false => open.is_by_stack || open.cause == Cause::IpcCollect && !open.is_collecting(event.ts),
        };
        if self.open.get(&thread).is_some_and(is_other) {
            self.close(thread, None);
        }
        let knowledge = allocator.knowledge();
        let stack = own_stack(allocator, event);
        let change = changed(key, allocator, event);
        let cause = if event.is_of_empty_cache { Cause::EmptyCache } else { Cause::NotKnown };
        let is_by_stack = event.is_of_empty_cache;
        let open = self.open.entry(thread).or_insert_with(|| Open { is_by_stack, stack, ..Open::new(cause) });
        if open.releases.iter().all(|(_, changes)| changes.is_empty()) {
            open.stack = stack;
        }
        open.stack = open.stack.filter(|of| Some(*of) == stack);
        let place = match open.releases.iter().position(|(release, _)| release.key == key) {
            Some(place) => place,
            None => {
                let is_open = open.may_have_failed && !knowledge.records_requests;
                let cause = match open.cause {
                    Cause::MakeRoom if is_open && !knowledge.records_empty_cache => Cause::NotKnown,
                    cause => cause,
                };
                let release = Release::new(key, allocator, event.ts, event.tid, cause, &mut self.frees);
                open.releases.push((release, Vec::new()));
                open.releases.len() - 1
            }
        };
        let (release, changes) = &mut open.releases[place];
        release.last_ts = release.last_ts.max(event.ts);
        release.given_back_bytes += change.size_bytes;
        release.segments_count += 1;
        changes.push(change);
    }

    /// Adds a block that is about to be freed to the call of `ipc_collect()` that frees it, or to what the thread frees
    /// itself.
    fn freed(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let thread = (key.run, key.pid, event.tid);
        let bytes = freed_bytes(allocator, event);
        match self.open.get_mut(&thread).filter(|open| open.is_collecting(event.ts)) {
            Some(open) => {
                if let Some(release) = open.release(key) {
                    let sum = release.ipc_freed_bytes.zip(bytes);
                    release.ipc_freed_bytes = sum.map(|(sum, bytes)| sum.saturating_add(bytes));
                }
            }
            None => {
                self.close(thread, None);
                self.frees.freed(key, event.tid, allocator.knowledge(), bytes);
            }
        }
    }

    /// Returns whether the event that ends a request, by a segment or a failure, shows that the thread's open release was
    /// made for that request.
    fn is_for_request(&self, thread: Thread, allocator: &Allocator, event: &Event) -> bool {
        let has_stack = |open: &Open| open.stack.is_some() && open.stack == event.stack && !open.is_by_stack;
        allocator.knowledge().records_empty_cache || self.open.get(&thread).is_some_and(has_stack)
    }
}

/// Returns the call stack of the release of a segment; `None` if it has none, or if it may be that of its allocation.
fn own_stack(allocator: &Allocator, event: &Event) -> Option<u32> {
    let segment = allocator.segment_at(event.addr).filter(|_| event.action == Action::SegmentFree);
    let allocated = segment.and_then(|segment| segment.stack);
    event.stack.filter(|stack| allocated.is_some_and(|allocated| allocated != *stack))
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
                self.close(thread, self.is_for_request(thread, allocator, event).then_some(key));
                let change = changed(key, allocator, event);
                self.waiting.entry((key, event.tid)).or_default().push(change);
            }
            Action::Oom => {
                self.close(thread, self.is_for_request(thread, allocator, event).then_some(key));
                let block_bytes = allocator.settings().round(event.size_bytes);
                let request = Request { requested_bytes: event.size_bytes, block_bytes, stack: event.stack };
                self.settle(key, event.tid, request, false);
                self.ooms.push(Oom::of(key, allocator, event, block_bytes));
            }
            // A release first completes the frees that other streams had delayed.
            Action::FreeCompleted => (),
            Action::FreeRequested | Action::UsageFree => self.freed(key, allocator, event),
            Action::Alloc | Action::UsageAlloc => {
                self.close(thread, None);
                self.frees.allocated(key, event.tid, allocator.knowledge());
            }
        }
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        match event.action {
            Action::SegmentFree | Action::SegmentUnmap => {
                let open = self.open.get_mut(&(key.run, key.pid, event.tid));
                if let Some(release) = open.and_then(|open| open.release(key)) {
                    release.passed(allocator);
                }
            }
            Action::FreeRequested | Action::FreeCompleted | Action::UsageFree => {
                let open = self.open.get_mut(&(key.run, key.pid, event.tid));
                let open = open.filter(|open| open.is_collecting(event.ts));
                if let Some(release) = open.and_then(|open| open.release(key)) {
                    release.passed(allocator);
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
        let releases = self.of_process((run, pid), tid, ts, Cause::EmptyCache, replay);
        self.open.insert((run, pid, tid), Open { releases, ..Open::new(Cause::EmptyCache) });
    }

    fn ipc_collect(&mut self, run: u32, pid: u32, call: &IpcCollect, is_whole: bool, replay: &Replay) {
        let thread = (run, pid, call.tid);
        self.close(thread, None);
        // What follows in a call that never returned is within it.
        let collects_until = Some(call.end_ts.unwrap_or(i64::MAX));
        let open = match call.is_for_request {
            true => Open { may_have_failed: true, collects_until, ..Open::new(Cause::MakeRoom) },
            false => {
                let mut releases = self.of_process((run, pid), call.tid, call.ts, Cause::IpcCollect, replay);
                for (release, _) in &mut releases {
                    release.last_ts = call.end_ts.unwrap_or(call.ts);
                    release.ipc_freed_bytes = release.ipc_freed_bytes.filter(|_| is_whole);
                }
                Open { collects_until, releases, ..Open::new(Cause::IpcCollect) }
            }
        };
        self.open.insert(thread, open);
    }

    fn handle_closed(&mut self, run: u32, pid: u32, tid: u32, ts: i64, addr: u64, is_driver: bool) {
        let thread = (run, pid, tid);
        if !self.frees.is_own_close(thread, addr, is_driver) {
            return;
        }
        match self.open.get_mut(&thread).filter(|open| open.is_collecting(ts)) {
            Some(open) => {
                for (release, _) in &mut open.releases {
                    release.closed_handles_count = release.closed_handles_count.map(|count| count + 1);
                }
            }
            None => {
                self.close(thread, None);
                self.frees.closed(thread);
            }
        }
    }

    fn refused(&mut self, run: u32, pid: u32, tid: u32) {
        let thread = (run, pid, tid);
        let may_have_failed = self.open.get(&thread).is_some_and(|open| open.cause == Cause::MakeRoom);
        self.close(thread, None);
        self.open.insert(thread, Open { may_have_failed, ..Open::new(Cause::MakeRoom) });
    }

    fn end(&mut self) {
        self.give_up();
    }
}
