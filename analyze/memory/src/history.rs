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
//! The allocator releases a segment because the program called `empty_cache()`, or to make room for a request
//! (`make_room`).

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
    /// The events do not tell the cause.
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
    /// [`Cause::EmptyCache`] or [`Cause::MakeRoom`].
    pub cause: Cause,
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
    /// Returns the bytes that were active after the release in the remaining segments.
    pub fn in_use_bytes(&self) -> i64 {
        let free =
            self.pinned_bytes as i64 + self.after.private_releasable_bytes + self.after.releasable_bytes;
        self.after.reserved_bytes - free - self.after.unknown_bytes
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
    /// Changes by allocator and thread whose cause is determined by the thread's next event.
    waiting: HashMap<(Key, u32), Vec<Change>>,
    /// Releases in progress, by run, process and thread.
    open: HashMap<(u32, u32, u32), Vec<Release>>,
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
    /// Determines the cause of a thread's waiting changes, once its request has been served or has failed.
    fn settle(&mut self, key: Key, tid: u32, request: Request, is_inferred: bool) {
        let Some(changes) = self.waiting.remove(&(key, tid)) else { return };
        for mut change in changes {
            let is_gain = matches!(change.action, Action::SegmentAlloc | Action::SegmentMap);
            change.cause = if is_gain { cause_of(&change, &request, is_inferred) } else { Cause::MakeRoom };
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

    fn close(&mut self, of: (u32, u32, u32)) {
        self.releases.extend(self.open.remove(&of).unwrap_or_default());
    }

    /// Adds the changes and releases that remained without an explanation at the end.
    fn give_up(&mut self) {
        let mut rest: Vec<_> = self.waiting.drain().flat_map(|(_, changes)| changes).collect();
        rest.sort_by_key(|change| (change.key, change.ts));
        self.changes.append(&mut rest);
        let mut open: Vec<_> = self.open.drain().flat_map(|(_, releases)| releases).collect();
        open.sort_by_key(|release| (release.key, release.ts));
        self.releases.append(&mut open);
    }

    fn gone(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let of = (key.run, key.pid, event.tid);
        let releases = self.open.entry(of).or_default();
        let place = match releases.iter().position(|release| release.key == key) {
            Some(place) => place,
            None => {
                let before = *allocator.totals();
                releases.push(opened(key, event.ts, event.tid, Cause::MakeRoom, before));
                releases.len() - 1
            }
        };
        let release = &mut releases[place];
        release.last_ts = event.ts;
        release.given_back_bytes += size_of(allocator, event);
        release.segments_count += 1;
    }
}

fn opened(key: Key, ts: i64, tid: u32, cause: Cause, before: Totals) -> Release {
    Release {
        key,
        ts,
        tid,
        cause,
        last_ts: ts,
        given_back_bytes: 0,
        segments_count: 0,
        before,
        after: before,
        pinned_bytes: 0,
    }
}

impl Listener for History {
    const WANTS_POOLS: bool = true;

    fn before(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let of = (key.run, key.pid, event.tid);
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap | Action::SegmentFree | Action::SegmentUnmap => {
                let is_loss = matches!(event.action, Action::SegmentFree | Action::SegmentUnmap);
                if is_loss {
                    self.gone(key, allocator, event);
                }
                let is_asked = is_loss
                    && self.open.get(&of).is_some_and(|of| of.iter().any(|r| r.cause == Cause::EmptyCache));
                let pool = match is_loss {
                    true => pool_of(allocator, event),
                    false => PoolKey {
                        pool: event.pool,
                        stream: event.stream,
                        is_small: event.size_bytes <= SMALL_SEGMENT_BYTES,
                    },
                };
                let change = Change {
                    key,
                    ts: event.ts,
                    tid: event.tid,
                    action: event.action,
                    addr: event.addr,
                    size_bytes: size_of(allocator, event),
                    pool,
                    cause: if is_asked { Cause::EmptyCache } else { Cause::NotKnown },
                    request: None,
                    before: PoolState::of(allocator.pools(), &pool),
                };
                match is_asked {
                    true => self.changes.push(change),
                    false => self.waiting.entry((key, event.tid)).or_default().push(change),
                }
                if !is_loss {
                    self.close(of);
                }
            }
            Action::Oom => {
                let block_bytes = allocator.settings().round(event.size_bytes);
                let request = Request { requested_bytes: event.size_bytes, block_bytes, stack: event.stack };
                self.settle(key, event.tid, request, false);
                self.close(of);
                self.ooms.push(Oom::of(key, allocator, event, block_bytes));
            }
            // `empty_cache()` first completes the frees that other streams had delayed.
            Action::FreeCompleted => (),
            _ => self.close(of),
        }
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        match event.action {
            Action::SegmentFree | Action::SegmentUnmap => {
                let releases = self.open.get_mut(&(key.run, key.pid, event.tid));
                if let Some(release) = releases.and_then(|of| of.iter_mut().find(|r| r.key == key)) {
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
        self.close((run, pid, tid));
        let of_process = replay.allocators().filter(|(key, _)| (key.run, key.pid) == (run, pid));
        let releases = of_process.map(|(key, allocator)| Release {
            pinned_bytes: allocator.pools().map_or(0, Pools::pinned_bytes),
            ..opened(key, ts, tid, Cause::EmptyCache, *allocator.totals())
        });
        self.open.insert((run, pid, tid), releases.collect());
    }

    fn end(&mut self) {
        self.give_up();
    }
}
