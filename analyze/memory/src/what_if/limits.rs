//! What a first pass over the events tells about an allocator: how much it could reserve, and why it released memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    allocator::Allocator,
    decode::Key,
    event::{Action, Event, PoolId},
    input::{Listener, Replay},
    totals::DEFAULT_POOL,
    what_if::ensemble::{Range, Release},
};

/// A request that followed a release directly, so that the release may have been made for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) bytes: u64,
    pub(super) stream: u64,
    pub(super) pool: PoolId,
    /// The bytes reserved before the release and the segment that the request needed: more than the device had
    /// room for, if the release was made for the request.
    pub(super) needed_bytes: u64,
}

/// Segments of the default pool that were released without any other event between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    reserved_bytes: u64,
    /// Whether it is on record that the program called `empty_cache()`.
    pub(super) is_call: bool,
    /// Whether the driver had refused memory to the thread.
    is_refused: bool,
    /// Whether a segment was reserved next.
    is_followed: bool,
    pub(super) request: Option<Request>,
}

/// What the events tell about an allocator.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    peak_reserved_bytes: u64,
    /// The bytes that could have been reserved when a request first failed.
    room_bytes: Option<u64>,
    /// Segments were mapped in place, whatever the recorded settings say.
    pub(super) is_expandable: bool,
    /// The releases, in order of time.
    pub(super) bursts: Vec<Burst>,
    /// The last burst has not been followed by another event.
    is_in_burst: bool,
    /// Unused segments are released early (`garbage_collection_threshold`).
    collects: bool,
    /// A limit of the process, not the device, made a request fail.
    is_limited: bool,
    records_refusals: bool,
    /// The thread that is in a recorded call of `empty_cache()`, and when it began.
    calling: Option<(u32, i64)>,
    /// The times of calls that released memory of private pools only: the destructor of a pool makes them for that pool.
    pool_calls: HashSet<i64>,
    /// The times of calls that released memory of the default pool.
    default_calls: HashSet<i64>,
    /// The number of requests to each private pool.
    pub(super) pool_requests: HashMap<PoolId, u64>,
    /// The thread that the driver refused memory last.
    refused_tid: Option<u32>,
}

impl Limits {
    fn new(allocator: &Allocator) -> Self {
        let settings = allocator.settings();
        let is_limited = settings.memory_ratio.is_some();
        Self {
            collects: is_limited && settings.gc_threshold_ratio.is_some(),
            is_limited,
            records_refusals: allocator.knowledge().records_refusals,
            ..Self::default()
        }
    }

    /// Returns how many bytes the allocator could reserve at least, or `None` if no request failed. The failed
    /// request needed more than that.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.room_bytes.map(|room| room.max(self.peak_reserved_bytes))
    }

    /// Returns whether a release was certainly not made for a request: the program called `empty_cache()`, or no
    /// request followed, or the device had room for it, as it did not refuse memory or had more at another time. (A
    /// limit that the program sets for itself is known by a request that failed.)
    pub(super) fn is_of_program(&self, burst: &Burst) -> bool {
        let has_room = |request: Request| {
            let is_refused = burst.is_refused || !self.records_refusals || self.is_limited;
            !self.collects && (request.needed_bytes <= self.peak_reserved_bytes || !is_refused)
        };
        burst.is_call || burst.request.is_none_or(has_room)
    }

    /// Returns the bytes that the device had room for if memory was ever released because it was full: what was
    /// reserved at most, and less than any request needed for which memory was released.
    pub(super) fn room(&self) -> Option<Range<u64>> {
        if self.collects {
            return None;
        }
        let for_requests = self.bursts.iter().filter(|burst| !self.is_of_program(burst));
        let needed = for_requests.filter_map(|burst| Some(burst.request?.needed_bytes)).min()?;
        Some(Range { min: self.peak_reserved_bytes, max: needed - 1 })
    }

    /// Returns what a recorded call of `empty_cache()` was for, if it is known that no release shows it: all memory, or
    /// perhaps none where the program uses private pools. A call that released memory of private pools only is followed
    /// when it did.
    pub(super) fn call(&self, ts: i64) -> Option<Release> {
        if self.pool_calls.contains(&ts) {
            return None;
        }
        let is_certain = self.default_calls.contains(&ts) || self.pool_requests.is_empty();
        Some(if is_certain { Release::Certain } else { Release::Likely })
    }

    /// Returns whether the program certainly released memory at some time.
    pub(super) fn calls_empty_cache(&self) -> bool {
        self.bursts.iter().any(|burst| self.is_of_program(burst))
    }
}

/// Returns the pool of the segment that an event releases; `None` if it releases none.
pub(super) fn released_pool(allocator: &Allocator, event: &Event) -> Option<PoolId> {
    let is_release = matches!(event.action, Action::SegmentFree | Action::SegmentUnmap);
    is_release.then(|| allocator.segment_at(event.addr).map_or(DEFAULT_POOL, |segment| segment.pool))
}

/// Returns whether an event shows that a release has ended: the allocator does something else. (Frees are completed
/// while it releases memory, and memory may be reserved for the request for which it was released.)
pub(super) fn ends_burst(event: &Event) -> bool {
    use Action::{Alloc, FreeRequested, Oom, UsageAlloc, UsageFree};
    matches!(event.action, Alloc | FreeRequested | Oom | UsageAlloc | UsageFree)
}

/// Returns whether an event is a request.
pub(super) fn is_request(event: &Event) -> bool {
    matches!(event.action, Action::Alloc | Action::UsageAlloc | Action::Oom)
}

impl Listener for BTreeMap<Key, Limits> {
    fn before(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let Some(pool) = released_pool(allocator, event) else { return };
        let limits = self.entry(key).or_insert_with(|| Limits::new(allocator));
        let is_default = pool == DEFAULT_POOL;
        let call = limits.calling.filter(|(tid, _)| *tid == event.tid);
        match call {
            Some((_, ts)) if is_default => {
                limits.pool_calls.remove(&ts);
                limits.default_calls.insert(ts);
            }
            Some((_, ts)) if !limits.is_in_burst => drop(limits.pool_calls.insert(ts)),
            _ => (),
        }
        if !is_default {
            return;
        }
        if !std::mem::replace(&mut limits.is_in_burst, true) {
            let reserved_bytes = allocator.totals().reserved_bytes.max(0) as u64;
            let of_thread = |tid: Option<u32>| tid == Some(event.tid);
            limits.bursts.push(Burst {
                reserved_bytes,
                is_call: event.is_of_empty_cache || call.is_some(),
                is_refused: of_thread(limits.refused_tid),
                is_followed: false,
                request: None,
            });
        }
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let limits = self.entry(key).or_insert_with(|| Limits::new(allocator));
        let settings = allocator.settings();
        if is_request(event) && event.pool != DEFAULT_POOL {
            *limits.pool_requests.entry(event.pool).or_default() += 1;
        }
        if limits.is_in_burst
            && let Some(burst) = limits.bursts.last_mut()
        {
            burst.is_followed |= matches!(event.action, Action::SegmentAlloc | Action::SegmentMap);
            limits.is_in_burst = !ends_burst(event);
            if event.action == Action::Oom || is_request(event) && burst.is_followed {
                let (bytes, stream, pool) = (event.size_bytes, event.stream, event.pool);
                let segment = settings.segment_bytes(settings.round(bytes));
                let needed_bytes = burst.reserved_bytes.saturating_add(segment);
                burst.request = Some(Request { bytes, stream, pool, needed_bytes });
            }
        }
        if ends_burst(event) {
            limits.calling = limits.calling.filter(|(tid, _)| *tid != event.tid);
            limits.refused_tid = limits.refused_tid.filter(|tid| *tid != event.tid);
        }
        if !matches!(event.action, Action::Oom | Action::SegmentAlloc | Action::SegmentMap) {
            return;
        }
        let reserved = allocator.totals().reserved_bytes.max(0) as u64;
        limits.peak_reserved_bytes = limits.peak_reserved_bytes.max(reserved);
        limits.is_expandable |= event.action == Action::SegmentMap;
        if event.action == Action::Oom {
            let segment = settings.segment_bytes(settings.round(event.size_bytes));
            // If the device had room for a segment, a limit of the process made the request fail. One that is
            // in the settings is followed as such; any other one is taken for the device's.
            let is_device = event.addr < segment || settings.memory_ratio.is_some();
            limits.is_limited |= !is_device;
            let free = if is_device { event.addr } else { 0 };
            limits.room_bytes.get_or_insert(reserved.saturating_add(free));
        }
    }

    fn empty_cache(&mut self, run: u32, pid: u32, tid: u32, ts: i64, _replay: &Replay) {
        let of_process = self.iter_mut().filter(|(key, _)| (key.run, key.pid) == (run, pid));
        of_process.for_each(|(_, limits)| limits.calling = Some((tid, ts)));
    }

    fn refused(&mut self, run: u32, pid: u32, tid: u32) {
        let of_process = self.iter_mut().filter(|(key, _)| (key.run, key.pid) == (run, pid));
        of_process.for_each(|(_, limits)| limits.refused_tid = Some(tid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{knowledge::Knowledge, settings::Settings};

    const MIB: u64 = 1 << 20;
    const KEY: Key = Key { run: 0, pid: 1, device: 0 };
    const TID: u32 = 7;

    type Given = (Action, u64, u64);

    /// A segment of 20 MiB whose only block is freed.
    const UNUSED: [Given; 4] = [
        (Action::SegmentAlloc, 1 << 40, 20 * MIB),
        (Action::Alloc, 1 << 40, 20 * MIB),
        (Action::FreeRequested, 1 << 40, 20 * MIB),
        (Action::FreeCompleted, 1 << 40, 20 * MIB),
    ];
    /// It is released.
    const RELEASE: Given = (Action::SegmentFree, 1 << 40, 20 * MIB);
    /// A segment is reserved next, and a block in it allocated.
    const REQUEST: [Given; 2] =
        [(Action::SegmentAlloc, 1 << 41, 30 * MIB), (Action::Alloc, 1 << 41, 30 * MIB)];

    fn limits(text: &str, knowledge: Knowledge, events: &[Given], is_refused: bool) -> Limits {
        let mut allocator = Allocator::new(Settings::parse(text, ""), knowledge);
        let mut limits: BTreeMap<Key, Limits> = BTreeMap::new();
        for (ts, (action, addr, size_bytes)) in (0..).zip(events.iter().copied()) {
            if is_refused && action == Action::SegmentFree {
                limits.refused(KEY.run, KEY.pid, TID);
            }
            let (stream, pool, tid, stack, is_of_empty_cache) = (0, DEFAULT_POOL, TID, None, false);
            let event = Event { ts, action, addr, size_bytes, stream, pool, tid, stack, is_of_empty_cache };
            limits.before(KEY, &allocator, &event);
            allocator.apply(&event, &mut ());
            limits.after(KEY, &allocator, &event);
        }
        limits.remove(&KEY).expect("an allocator")
    }

    #[test]
    fn a_request_that_failed_tells_how_much_could_be_reserved() {
        let capacity = |text: &str, free_bytes: u64| {
            let oom = (Action::Oom, free_bytes, 20 * MIB);
            limits(text, Knowledge::default(), &[UNUSED[0], oom], false).capacity_bytes()
        };
        assert_eq!(capacity("", 3 * MIB), Some(23 * MIB));
        assert_eq!(capacity("", 20 * MIB - 1), Some(40 * MIB - 1));
        // The device had room: a limit of the process made the request fail.
        assert_eq!(capacity("", 20 * MIB), Some(20 * MIB));
        assert_eq!(
            capacity("per_process_memory_fraction:0.5", 20 * MIB),
            Some(40 * MIB),
            "it is followed as such"
        );
        assert_eq!(limits("", Knowledge::default(), &UNUSED, false).capacity_bytes(), None);
    }

    #[test]
    fn a_release_is_of_the_program_unless_a_request_needed_it() {
        let refusals = || Knowledge { records_refusals: true, ..Knowledge::default() };
        let needed = [&UNUSED[..], &[RELEASE], &REQUEST].concat();
        // 20 MiB that were reserved and the 30 MiB of the request.
        let room = Some(Range { min: 30 * MIB, max: 50 * MIB - 1 });
        let more = |bytes| [&needed[..], &[(Action::SegmentAlloc, 1 << 42, bytes)]].concat();
        let without_segment = [&UNUSED[..], &[RELEASE, (Action::Alloc, 1 << 41, 30 * MIB)]].concat();
        let gc = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5";
        for (text, knowledge, events, is_refused, expected) in [
            ("", Knowledge::default(), &needed, false, room),
            // As much was reserved at another time, or just less.
            ("", Knowledge::default(), &more(20 * MIB), false, None),
            (
                "",
                Knowledge::default(),
                &more(18 * MIB),
                false,
                Some(Range { min: 48 * MIB, max: 50 * MIB - 1 }),
            ),
            // Nothing was reserved for the request, or no request followed.
            ("", Knowledge::default(), &without_segment, false, None),
            ("", Knowledge::default(), &[&UNUSED[..], &[RELEASE]].concat(), false, None),
            // It is on record whether the driver refused memory.
            ("", refusals(), &needed, false, None),
            ("", refusals(), &needed, true, room),
            (gc, Knowledge::default(), &needed, false, None),
        ] {
            let limits = limits(text, knowledge, events, is_refused);
            assert_eq!(limits.room(), expected, "{text} {events:?}");
            assert_eq!(limits.bursts.len(), 1);
            // What is released early is no release of the program.
            let is_program = expected.is_none() && text.is_empty();
            assert_eq!(
                (limits.calls_empty_cache(), limits.is_of_program(&limits.bursts[0])),
                (is_program, is_program)
            );
        }
    }
}
