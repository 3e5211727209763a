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
        private_pools::Scope,
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
            self.replays.release(Scope::All, Release::Certain);
        }
    }

    /// Replays an event of a process that had these settings.
    fn event(&mut self, event: &Event, settings: &Settings) {
        self.add_calls(Some(event.ts));
        let event = self.changes.request(event);
        match event.action {
            // The allocator states the size of the block that it found no room for.
            Action::Oom => self.replays.failed(&event, settings.least_request_bytes(event.size_bytes)),
            _ => self.replays.event(&event),
        }
    }

    /// Follows a release by the program, or one that it may have made.
    fn release(&mut self, release: Release) {
        if !self.changes.no_empty_cache || release == Release::Likely {
            self.replays.release(Scope::All, release);
        }
    }

    /// Follows a call, which may have released less than everything: the destructor of a private pool makes one, and the
    /// program may have been allocating from such a pool.
    fn call(&mut self, scope: Scope, release: Release) {
        if !self.changes.no_empty_cache {
            self.replays.release(scope, release);
        }
    }

    /// Follows the release of memory of a private pool, which was destroyed at that time (`is_first`) or before, and maybe
    /// of what else was unused.
    fn release_of_pool(&mut self, pool: PoolId, release: PrivateRelease) {
        let PrivateRelease { is_first, is_destructor, is_recorded, leaves_default } = release;
        let is_call_made = !self.changes.no_empty_cache;
        let made = |scope| is_call_made.then_some(scope);
        let causes = match (is_first, leaves_default) {
            _ if is_destructor => [Some(Scope::Pool(pool)); 3],
            (true, true) => [Some(Scope::Pool(pool)), made(Scope::Destroyed), made(Scope::Destroyed)],
            (true, false) => [Some(Scope::Pool(pool)), made(Scope::All), made(Scope::Destroyed)],
            (false, true) => [made(Scope::Destroyed); 3],
            (false, false) if is_recorded => [made(Scope::All), made(Scope::All), made(Scope::Destroyed)],
            // It may have been released because the device was full.
            (false, false) => [Some(Scope::All), made(Scope::Destroyed), None],
        };
        self.replays.release_of_pool(pool, causes);
    }
}

/// What the record tells about a release of memory of a private pool.
#[derive(Clone, Copy, Debug)]
struct PrivateRelease {
    /// No memory of the pool was released before.
    is_first: bool,
    /// The pool was not destroyed before: something of it was unused all the time since the last request to it.
    is_destructor: bool,
    /// Every call of `empty_cache()` is on record.
    is_recorded: bool,
    /// Unused memory of the default pool was not released, so that the call was not for all memory.
    leaves_default: bool,
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
    /// What the control would be if blocks were preferred by the age of their segments, while it is not known whether
    /// they are and both have reserved the same.
    by_age: Option<Served>,
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
    /// Private pools that may have been destroyed before memory of them was released.
    maybe_destroyed: HashSet<PoolId>,
    /// The number of requests to private pools so far.
    pool_requests: HashMap<PoolId, u64>,
    /// The private pool of which memory was released last, without another event since.
    last_private: Option<PoolId>,
}

impl Case {
    /// Replays an event with the control and the alternatives.
    fn event(&mut self, event: &Event) {
        for control in std::iter::once(&mut self.control).chain(&mut self.by_age) {
            if control.ended.is_none() {
                control.event(event);
            }
        }
        self.asked.iter_mut().for_each(|asked| asked.event(event, &self.settings));
    }

    /// Releases unused memory with the control: only a segment of the default pool if it is there.
    fn release_control(&mut self, scope: Scope, segment: Option<(u64, u64)>) {
        for control in std::iter::once(&mut self.control).chain(&mut self.by_age) {
            let segment = segment.filter(|_| scope == Scope::All);
            let is_released =
                segment.is_some_and(|(addr, bytes)| control.policy.release_segment(addr, bytes));
            if !is_released && control.ended.is_none() {
                control.release(scope);
            }
        }
    }

    /// Compares the control with the bytes reserved on record after a request, and decides what blocks are preferred by,
    /// once that makes a difference.
    fn compare(&mut self, reserved_bytes: u64) {
        let difference = |served: &Served| served.counts().reserved_bytes.abs_diff(reserved_bytes);
        let is_same = |served: &Served| served.ended.is_none() && difference(served) == 0;
        if self.by_age.as_ref().is_some_and(|by_age| is_same(by_age) != is_same(&self.control)) {
            self.by_age.take().filter(is_same).into_iter().for_each(|by_age| self.control = by_age);
        }
        self.requests_count += 1;
        let difference = difference(&self.control);
        self.equal_count += u64::from(difference == 0);
        self.difference_bytes = self.difference_bytes.max(difference);
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
        let release = PrivateRelease {
            is_first,
            is_destructor: is_first && self.control.ended.is_none() && !self.maybe_destroyed.contains(&pool),
            is_recorded: self.calls == Calls::Recorded,
            leaves_default: self.control.ended.is_none() && self.control.policy.has_releasable_by_default(),
        };
        for asked in &mut self.asked {
            asked.release_of_pool(pool, release);
            // The default pool was released right before.
            if let Some(release) = self.burst {
                asked.release(release);
            }
        }
    }

    /// Considers that a private pool is destroyed after an event of it, if nothing tells of it: nothing asks for its memory
    /// any more, and nothing of it is unused on record.
    fn consider_destruction(&mut self, event: &Event) {
        let pool = event.pool;
        if pool == DEFAULT_POOL {
            return;
        }
        let count = self.pool_requests.entry(pool).or_default();
        *count += u64::from(limits::is_request(event));
        let is_last = *count >= self.limits.pool_requests.get(&pool).copied().unwrap_or_default();
        let is_open = is_last && !self.destroyed.contains(&pool) && self.control.ended.is_none();
        if is_open && !self.control.policy.can_release(Scope::Pool(pool)) {
            self.maybe_destroyed.insert(pool);
            self.asked.iter_mut().for_each(|asked| asked.replays.may_destroy(pool));
        }
    }

    /// Considers a call of `empty_cache()` at a time at which it releases nothing on record.
    fn consider_call(&mut self) {
        let is_open = self.calls == Calls::Partial && self.control.ended.is_none();
        let policy = &self.control.policy;
        let scope = match (policy.can_release(Scope::All), policy.can_release(Scope::Destroyed)) {
            (false, _) => Scope::All,
            // While the program allocated from a private pool.
            (true, false) if !self.destroyed.is_empty() => Scope::Destroyed,
            (true, _) => return,
        };
        if is_open {
            self.asked.iter_mut().for_each(|asked| asked.call(scope, Release::Possible));
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
            let by_age = settings.orders_by_age.is_none();
            let by_age = by_age.then(|| serve(settings.clone().ordered_by_age()));
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
                by_age,
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
                maybe_destroyed: HashSet::new(),
                pool_requests: HashMap::new(),
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
            if !case.limits.pool_requests.contains_key(&pool) {
                case.maybe_destroyed.insert(pool);
            }
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
        // The cause does not matter to the control, which releases the segment, or what is unused.
        let segment = (event.action == Action::SegmentFree).then_some((event.addr, event.size_bytes));
        case.release_control(if pool == DEFAULT_POOL { Scope::All } else { Scope::Pool(pool) }, segment);
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
        case.consider_destruction(event);
        if matches!(event.action, Action::Alloc | Action::UsageAlloc) {
            case.compare(reserved);
        }
        if limits::ends_burst(event) {
            (case.burst, case.last_private, case.is_late) = (None, None, false);
            case.consider_call();
        }
    }

    fn empty_cache(&mut self, run: u32, pid: u32, _tid: u32, ts: i64, _replay: &Replay) {
        let of_process = self.cases.iter_mut().filter(|(key, _)| (key.run, key.pid) == (run, pid));
        for (_, case) in of_process {
            let Some(release) = case.limits.call(ts) else { continue };
            let scope = |leaves_default| match release == Release::Likely && leaves_default {
                true => Scope::Destroyed,
                false => Scope::All,
            };
            let policy = &case.control.policy;
            // Pending frees may have been completed although nothing was released.
            let called = scope(policy.releasable_of_pool(DEFAULT_POOL) > 0);
            case.release_control(scope(policy.has_releasable_by_default()), None);
            case.asked.iter_mut().for_each(|asked| asked.call(called, release));
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
mod tests;
