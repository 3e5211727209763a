//! Serves the requests of a recorded process as they come: once with the settings that the
//! process had, which must reproduce the record, and once with each of the alternative settings.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    allocator::Allocator,
    decode::Key,
    event::{Action, Event, PoolId},
    input::{Listener, Replay},
    knowledge::SplitPolicy,
    settings::Settings,
    span::State,
    totals::DEFAULT_POOL,
    what_if::{
        changes::{Alternative, Changes},
        ensemble::{Ensemble, Release},
        limits::{self, Limits},
        served::Served,
    },
};

/// The requests of a recorded allocator under an alternative.
#[derive(Debug)]
pub struct Asked {
    /// The replays of the alternative.
    pub replays: Ensemble,
    changes: Changes,
    /// The number of added calls of `empty_cache()` so far.
    added_count: usize,
}

impl Asked {
    /// Makes the added calls of `empty_cache()` before a time (ns, trace clock), or all that are left.
    fn add_calls(&mut self, before: Option<i64>) {
        let comes = |ts: &i64| before.is_none_or(|before| *ts < before);
        while self.changes.empty_cache_ts.get(self.added_count).is_some_and(comes) {
            self.added_count += 1;
            self.replays.release(DEFAULT_POOL, Release::Certain);
        }
    }

    fn event(&mut self, event: &Event) {
        self.add_calls(Some(event.ts));
        self.replays.event(&self.changes.request(event));
    }

    /// Follows a release by the program, or one that it may have made.
    fn release(&mut self, release: Release) {
        if !self.changes.no_empty_cache || release == Release::Likely {
            self.replays.release(DEFAULT_POOL, release);
        }
    }
}

/// Where the program called `empty_cache()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Every call is on record.
    Recorded,
    /// There were calls; those that released nothing are not on record.
    Partial,
    /// No call is on record, and none released anything.
    NoneSeen,
}

/// One recorded allocator, with its control and the alternatives.
#[derive(Debug)]
pub struct Case {
    /// The settings that the process had.
    pub settings: Settings,
    /// The largest number of bytes that the allocator can reserve, if it is known.
    pub capacity_bytes: Option<u64>,
    /// The device's total memory in bytes, if it is known.
    pub device_bytes: Option<u64>,
    /// The requests served with the settings that the process had.
    pub control: Served,
    /// The requests served with each of the alternatives, in the order in which they were given.
    pub asked: Vec<Asked>,
    /// The number of requests that were served on record.
    pub requests_count: u64,
    /// The number of these requests after which the control had reserved exactly as much as the record.
    pub equal_count: u64,
    /// The largest difference between the control's reserved bytes and the record's.
    pub difference_bytes: u64,
    /// The largest number of bytes that were reserved on record.
    pub peak_reserved_bytes: u64,
    /// The time of that maximum (ns, trace clock); `None` if nothing was reserved.
    pub peak_ts: Option<i64>,
    /// The bytes reserved at the end of the record.
    pub end_reserved_bytes: u64,
    /// The number of segments and ranges that were reserved on record.
    pub asked_count: u64,
    /// The number of segments and ranges that were released on record.
    pub given_back_count: u64,
    /// The number of requests that failed on record.
    pub failed_count: u64,
    /// Blocks existed when recording began; the policy lays them out anew.
    pub began_late: bool,
    /// The recorded sizes are those of blocks; the requested sizes are not known.
    pub is_rounded: bool,
    /// What is known about calls of `empty_cache()`.
    pub calls: Calls,
    /// Frees of blocks that other streams had used were completed by a call of `empty_cache()`, which waits for
    /// them; without the call they would have been completed later.
    pub waits_in_calls: bool,
    /// The block whose free was requested last, and whether another free has been completed since.
    freed_addr: Option<u64>,
    is_late: bool,
    limits: Limits,
    /// The number of bursts of releases so far, and what the current one was.
    bursts_count: usize,
    burst: Option<Release>,
    /// Private pools of which memory was released.
    destroyed: HashSet<PoolId>,
    /// The private pool of which memory was released last, without another event since.
    last_private: Option<PoolId>,
}

impl Case {
    /// Replays an event with the control and the alternatives.
    fn event(&mut self, event: &Event) {
        if self.control.ended.is_none() {
            self.control.event(event);
        }
        self.asked.iter_mut().for_each(|asked| asked.event(event));
    }

    /// Follows a release of the default pool that is on record; returns whether the program made it.
    fn release(&mut self) -> Release {
        let burst = self.limits.bursts.get(self.bursts_count);
        self.bursts_count += 1;
        let has_room = |served: &Served| {
            let request = burst.and_then(|burst| burst.request);
            request.is_some_and(|request| served.policy.has_room(request.bytes, request.stream, request.pool))
        };
        let is_certain = match self.calls {
            Calls::Recorded => burst.is_some_and(|burst| burst.is_call),
            _ => burst.is_some_and(|burst| self.limits.is_of_program(burst)) || has_room(&self.control),
        };
        if is_certain && self.calls == Calls::NoneSeen {
            self.calls = Calls::Partial;
        }
        self.waits_in_calls |= is_certain && self.is_late;
        let release = if is_certain { Release::Certain } else { Release::Likely };
        self.asked.iter_mut().for_each(|asked| asked.release(release));
        release
    }

    /// Follows a release of a private pool, which shows that the pool has been destroyed. Its destructor releases
    /// what is unused of it; later, or where nothing was unused, the pool is released with everything else.
    fn release_private(&mut self, pool: PoolId) {
        if self.last_private.replace(pool) == Some(pool) {
            return;
        }
        let is_first = self.destroyed.insert(pool);
        let is_recorded = self.calls == Calls::Recorded;
        // A call would have released what else was unused.
        let is_own = self.control.ended.is_none() && self.control.policy.has_releasable_beside(pool);
        for asked in &mut self.asked {
            asked.replays.destroy(pool);
            match self.burst {
                Some(release) => asked.release(release),
                None if is_own || is_first && (is_recorded || !asked.changes.no_empty_cache) => {
                    asked.replays.release(pool, Release::Certain);
                }
                // The destructor, or a call that is not made now.
                None if is_first => asked.replays.release(pool, Release::Likely),
                None if is_recorded => (),
                None => asked.release(Release::Likely),
            }
        }
    }

    /// Considers a call of `empty_cache()` at a time at which it releases nothing on record.
    fn consider_call(&mut self) {
        let is_open = self.calls == Calls::Partial && self.control.ended.is_none();
        if is_open && !self.control.policy.has_releasable() {
            self.asked.iter_mut().for_each(|asked| asked.release(Release::Possible));
        }
    }
}

/// A listener that serves the requests of every recorded allocator.
#[derive(Debug, Default)]
pub struct Cases {
    /// The alternatives by run and process.
    pub asked: HashMap<(u32, u32), Vec<Alternative>>,
    /// The alternatives for processes without metadata.
    pub default: Vec<Alternative>,
    /// The largest number of bytes that every allocator can reserve; if `None`, [`Self::limits`] tells.
    pub capacity_bytes: Option<u64>,
    /// The total memory in bytes of the devices of each run; runs in which it is not known are left out.
    pub device_bytes: HashMap<u32, u64>,
    /// What a first pass tells about each allocator.
    pub limits: BTreeMap<Key, Limits>,
    /// The results by allocator.
    pub cases: BTreeMap<Key, Case>,
}

impl Cases {
    pub(super) fn case(&mut self, key: Key, allocator: &Allocator) -> &mut Case {
        let Self { asked, default, capacity_bytes, device_bytes, limits, cases } = self;
        cases.entry(key).or_insert_with(|| {
            let limits = limits.get(&key).cloned().unwrap_or_default();
            let device_bytes = device_bytes.get(&key.run).copied().or(*capacity_bytes);
            let capacity_bytes = capacity_bytes.or_else(|| limits.capacity_bytes());
            let mut settings = allocator.settings().clone();
            settings.expandable_segments |= limits.is_expandable;
            let knowledge = allocator.knowledge();
            let kept = knowledge.split_policies.iter().filter(|(_, rest)| **rest == SplitPolicy::Kept);
            let kept: Vec<PoolId> = kept.map(|(pool, _)| *pool).collect();
            let serve = |settings| {
                let mut served = Served::new(settings, capacity_bytes, device_bytes);
                kept.iter().for_each(|pool| served.policy.keep_whole(*pool));
                served
            };
            let control = serve(settings.clone());
            let room = limits.room().filter(|_| capacity_bytes.is_none());
            let asked = asked.get(&(key.run, key.pid)).unwrap_or(default).iter().map(|alternative| Asked {
                replays: Ensemble::new(
                    serve(alternative.settings.as_ref().unwrap_or(&settings).clone()),
                    room,
                ),
                changes: alternative.changes.clone(),
                added_count: 0,
            });
            let calls = match knowledge.records_empty_cache {
                true => Calls::Recorded,
                false if limits.calls_empty_cache() => Calls::Partial,
                false => Calls::NoneSeen,
            };
            Case {
                asked: asked.collect(),
                settings,
                capacity_bytes,
                device_bytes,
                control,
                requests_count: 0,
                equal_count: 0,
                difference_bytes: 0,
                peak_reserved_bytes: 0,
                peak_ts: None,
                end_reserved_bytes: 0,
                asked_count: 0,
                given_back_count: 0,
                failed_count: 0,
                began_late: false,
                is_rounded: false,
                calls,
                waits_in_calls: false,
                freed_addr: None,
                is_late: false,
                limits,
                bursts_count: 0,
                burst: None,
                destroyed: HashSet::new(),
                last_private: None,
            }
        })
    }
}

impl Listener for Cases {
    fn began(&mut self, key: Key, allocator: &Allocator, ts: i64) {
        let case = self.case(key, allocator);
        case.began_late = true;
        for block in allocator.blocks().filter(|block| block.state == State::Active) {
            let pool = allocator.segment(block.segment).map_or(DEFAULT_POOL, |segment| segment.pool);
            case.event(&Event {
                ts,
                action: Action::Alloc,
                addr: block.addr,
                size_bytes: block.requested_bytes.unwrap_or(block.size_bytes),
                stream: block.stream,
                pool,
                tid: 0,
                stack: None,
                is_of_empty_cache: false,
            });
        }
    }

    fn before(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let Some(pool) = limits::released_pool(allocator, event) else { return };
        let case = self.case(key, allocator);
        case.given_back_count += 1;
        if pool != DEFAULT_POOL {
            case.release_private(pool);
        } else if case.burst.is_none() {
            case.burst = Some(case.release());
        }
        // The cause does not matter to the control, which releases what is unused.
        if case.control.ended.is_none() {
            case.control.release(pool);
        }
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let reserved = allocator.totals().reserved_bytes.max(0) as u64;
        let case = self.case(key, allocator);
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                case.asked_count += 1;
                if reserved > case.peak_reserved_bytes {
                    (case.peak_reserved_bytes, case.peak_ts) = (reserved, Some(event.ts));
                }
            }
            Action::Oom => case.failed_count += 1,
            Action::UsageAlloc => case.is_rounded = true,
            _ => (),
        }
        case.end_reserved_bytes = reserved;
        match event.action {
            Action::FreeRequested => case.freed_addr = Some(event.addr),
            Action::FreeCompleted => case.is_late |= case.freed_addr != Some(event.addr),
            _ => (),
        }
        case.event(event);
        if matches!(event.action, Action::Alloc | Action::UsageAlloc) {
            case.requests_count += 1;
            let difference = case.control.counts().reserved_bytes.abs_diff(reserved);
            case.equal_count += u64::from(difference == 0);
            case.difference_bytes = case.difference_bytes.max(difference);
        }
        if limits::ends_burst(event) {
            (case.burst, case.last_private, case.is_late) = (None, None, false);
            case.consider_call();
        }
    }

    fn empty_cache(&mut self, run: u32, pid: u32, _tid: u32, ts: i64, _replay: &Replay) {
        let of_process = self.cases.iter_mut().filter(|(key, _)| (key.run, key.pid) == (run, pid));
        for (_, case) in of_process.filter(|(_, case)| case.limits.is_for_all(ts)) {
            if case.control.ended.is_none() {
                case.control.release(DEFAULT_POOL);
            }
            case.asked.iter_mut().for_each(|asked| asked.release(Release::Certain));
        }
    }

    fn end(&mut self) {
        let asked = self.cases.values_mut().flat_map(|case| &mut case.asked);
        asked.for_each(|asked| {
            // The program may call it after its last event.
            asked.add_calls(None);
            asked.replays.catch_up();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_after_the_last_event_releases_memory() {
        let event = |ts, action| Event {
            ts,
            action,
            addr: 1 << 20,
            size_bytes: 30 << 20,
            stream: 0,
            pool: DEFAULT_POOL,
            tid: 1,
            stack: None,
            is_of_empty_cache: false,
        };
        let events =
            [event(10, Action::Alloc), event(20, Action::FreeRequested), event(30, Action::FreeCompleted)];
        let end_bytes = |empty_cache_ts: Vec<i64>| {
            let changes = Changes { empty_cache_ts, ..Changes::default() };
            let default = vec![Alternative { settings: None, changes }];
            let mut cases = Cases { default, ..Cases::default() };
            let (key, allocator) = (Key { run: 0, pid: 1, device: 0 }, Allocator::default());
            events.iter().for_each(|event| cases.after(key, &allocator, event));
            cases.end();
            let end = cases.cases[&key].asked[0].replays.range(|served| served.counts().reserved_bytes);
            end.single().expect("nothing is open")
        };
        let cached = end_bytes(Vec::new());
        assert!(cached >= 30 << 20, "{cached}");
        assert_eq!(end_bytes(vec![15]), cached, "nothing is free yet");
        assert_eq!(end_bytes(vec![15, 40]), 0);
        assert_eq!(end_bytes(vec![30]), 0, "right after the last event, too");
    }
}
