//! Serves the requests of a recorded process with [`Policy`] as they come: once with the settings that the
//! process had, which must reproduce the record, and once with each of the alternative settings.

use std::collections::{BTreeMap, HashMap};

use crate::{
    allocator::Allocator,
    decode::Key,
    event::{Action, Event, PoolId},
    input::{Listener, Replay},
    knowledge::SplitPolicy,
    settings::Settings,
    span::State,
    totals::DEFAULT_POOL,
    what_if::policy::{Counts, Policy},
};

/// The recorded requests, served under one set of settings.
#[derive(Debug)]
pub struct Served {
    pub(super) policy: Policy,
    /// The policy's addresses of blocks, by their recorded addresses.
    blocks: HashMap<u64, u64>,
    peak_ts: Option<i64>,
    /// Where the outcome of a request differed from the record. From then on the program would have behaved
    /// differently, so no further event is replayed.
    pub ended: Option<Ended>,
}

/// The first request whose outcome differed from the record.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The time of the request (ns, trace clock).
    pub ts: i64,
    /// The requested size in bytes.
    pub requested_bytes: u64,
    /// Whether the policy served the request although it had failed; otherwise it failed although it had been
    /// served.
    pub is_served: bool,
}

impl Served {
    pub(super) fn new(settings: Settings, capacity_bytes: Option<u64>, device_bytes: Option<u64>) -> Self {
        let policy = Policy::new(settings, capacity_bytes, device_bytes);
        Self { policy, blocks: HashMap::new(), peak_ts: None, ended: None }
    }

    /// Returns the policy's counts.
    pub fn counts(&self) -> Counts {
        self.policy.counts
    }

    /// Returns how many bytes the process may reserve at most; `None` means no limit.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.policy.limit_bytes()
    }

    /// Returns when the most memory was reserved (ns, trace clock); `None` if nothing was reserved.
    pub fn peak_ts(&self) -> Option<i64> {
        self.peak_ts
    }

    /// Replays the next event.
    pub(super) fn event(&mut self, event: &Event) {
        match event.action {
            Action::Alloc | Action::UsageAlloc | Action::Oom => {
                let peak = self.policy.counts.peak_reserved_bytes;
                let found = self.policy.alloc(event.size_bytes, event.stream, event.pool);
                if self.policy.counts.peak_reserved_bytes > peak {
                    self.peak_ts = Some(event.ts);
                }
                if found.is_some() == (event.action == Action::Oom) {
                    let is_served = found.is_some();
                    let requested_bytes = event.size_bytes;
                    self.ended = Some(Ended { ts: event.ts, requested_bytes, is_served });
                }
                self.blocks.extend(found.map(|found| (event.addr, found)));
            }
            Action::SegmentAlloc => self.policy.see(event.addr, event.size_bytes),
            Action::FreeRequested => {
                self.blocks.get(&event.addr).into_iter().for_each(|addr| self.policy.free_requested(*addr));
            }
            Action::FreeCompleted | Action::UsageFree => {
                let addr = self.blocks.remove(&event.addr);
                addr.into_iter().for_each(|addr| self.policy.free_completed(addr));
            }
            _ => (),
        }
    }

    fn release(&mut self, pool: PoolId) {
        match pool {
            DEFAULT_POOL => self.policy.empty_cache(),
            pool => self.policy.release_pool(pool),
        }
    }
}

/// One recorded allocator, with its control and the alternative settings.
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
    /// The requests served with each of the alternative settings, in the order in which they were given.
    pub asked: Vec<Served>,
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
}

impl Case {
    fn each(&mut self) -> impl Iterator<Item = &mut Served> {
        std::iter::once(&mut self.control).chain(&mut self.asked).filter(|served| served.ended.is_none())
    }
}

/// A listener that serves the requests of every recorded allocator.
#[derive(Debug, Default)]
pub struct Cases {
    /// The alternative settings by run and process.
    pub asked: HashMap<(u32, u32), Vec<Settings>>,
    /// The alternative settings for processes without metadata.
    pub default: Vec<Settings>,
    /// The largest number of bytes that every allocator can reserve; if `None`, [`Self::limits`] tells.
    pub capacity_bytes: Option<u64>,
    /// The total memory in bytes of the devices of each run; runs in which it is not known are left out.
    pub device_bytes: HashMap<u32, u64>,
    /// What failed requests tell about each allocator's limit.
    pub limits: BTreeMap<Key, Limits>,
    /// The results by allocator.
    pub cases: BTreeMap<Key, Case>,
}

impl Cases {
    fn case(&mut self, key: Key, allocator: &Allocator) -> &mut Case {
        let Self { asked, default, capacity_bytes, device_bytes, limits, cases } = self;
        cases.entry(key).or_insert_with(|| {
            let limits = limits.get(&key).copied().unwrap_or_default();
            let device_bytes = device_bytes.get(&key.run).copied().or(*capacity_bytes);
            let capacity_bytes = capacity_bytes.or_else(|| limits.capacity_bytes());
            let mut settings = allocator.settings().clone();
            settings.expandable_segments |= limits.is_expandable;
            let serve = |settings| Served::new(settings, capacity_bytes, device_bytes);
            let mut control = serve(settings.clone());
            let asked = asked.get(&(key.run, key.pid)).unwrap_or(default).clone();
            let mut asked: Vec<Served> = asked.into_iter().map(serve).collect();
            let split_policies = &allocator.knowledge().split_policies;
            for pool in
                split_policies.iter().filter(|(_, rest)| **rest == SplitPolicy::Kept).map(|(pool, _)| *pool)
            {
                control.policy.keep_whole(pool);
                asked.iter_mut().for_each(|served| served.policy.keep_whole(pool));
            }
            Case {
                settings,
                capacity_bytes,
                device_bytes,
                control,
                asked,
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
            let event = Event {
                ts,
                action: Action::Alloc,
                addr: block.addr,
                size_bytes: block.requested_bytes.unwrap_or(block.size_bytes),
                stream: block.stream,
                pool,
                tid: 0,
                stack: None,
                is_of_empty_cache: false,
            };
            case.each().for_each(|served| served.event(&event));
        }
    }

    fn before(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        if !matches!(event.action, Action::SegmentFree | Action::SegmentUnmap) {
            return;
        }
        let pool = allocator.segment_at(event.addr).map_or(DEFAULT_POOL, |segment| segment.pool);
        let case = self.case(key, allocator);
        case.given_back_count += 1;
        // The cause does not matter: the policy releases what is unused.
        case.each().for_each(|served| served.release(pool));
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
        case.each().for_each(|served| served.event(event));
        if matches!(event.action, Action::Alloc | Action::UsageAlloc) {
            case.requests_count += 1;
            let difference = case.control.counts().reserved_bytes.abs_diff(reserved);
            case.equal_count += u64::from(difference == 0);
            case.difference_bytes = case.difference_bytes.max(difference);
        }
    }

    fn empty_cache(&mut self, run: u32, pid: u32, _tid: u32, _ts: i64, _replay: &Replay) {
        let of_process = self.cases.iter_mut().filter(|(key, _)| (key.run, key.pid) == (run, pid));
        for (_, case) in of_process {
            case.each().for_each(|served| served.release(DEFAULT_POOL));
        }
    }
}

/// What failed requests and segment events tell about an allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    peak_reserved_bytes: u64,
    /// The bytes that could have been reserved when a request first failed.
    room_bytes: Option<u64>,
    /// Segments were mapped in place, whatever the recorded settings say.
    is_expandable: bool,
}

impl Limits {
    /// Returns how many bytes the allocator could reserve at least, or `None` if no request failed. The
    /// failed request needed more than that.
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.room_bytes.map(|room| room.max(self.peak_reserved_bytes))
    }
}

impl Listener for BTreeMap<Key, Limits> {
    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let is_of_interest = matches!(event.action, Action::Oom | Action::SegmentAlloc | Action::SegmentMap);
        if !is_of_interest {
            return;
        }
        let limits = self.entry(key).or_default();
        let reserved = allocator.totals().reserved_bytes.max(0) as u64;
        limits.peak_reserved_bytes = limits.peak_reserved_bytes.max(reserved);
        limits.is_expandable |= event.action == Action::SegmentMap;
        if event.action == Action::Oom {
            let settings = allocator.settings();
            let segment = settings.segment_bytes(settings.round(event.size_bytes));
            // If the device had room for a segment, a limit of the process made the request fail. One that
            // is in the settings is followed as such; any other one is taken for the device's.
            let is_device = event.addr < segment || settings.memory_ratio.is_some();
            let free = if is_device { event.addr } else { 0 };
            limits.room_bytes.get_or_insert(reserved.saturating_add(free));
        }
    }
}
