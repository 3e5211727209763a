//! The requests of a recorded process, served by [`Policy`] as they come: once with the settings that it had, which must
//! give what was recorded, and once with each of the settings asked about.

use std::collections::{BTreeMap, HashMap};

use crate::{
    allocator::Allocator,
    decode::Key,
    event::{Action, Event, PoolId},
    input::{Listener, Replay},
    pool_split::Rest,
    settings::Settings,
    span::State,
    totals::DEFAULT_POOL,
    what_if::policy::{Counts, Policy},
};

/// Requests under some settings.
#[derive(Debug)]
pub struct Served {
    pub(super) policy: Policy,
    /// Addresses by those on record.
    blocks: HashMap<u64, u64>,
    peak_ts: Option<i64>,
    /// Since then the program is another: a request failed that had not, or the other way.
    pub ended: Option<Ended>,
}

/// The first request that went another way.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub ts: i64,
    pub requested_bytes: u64,
    /// It was served, and had failed.
    pub is_served: bool,
}

impl Served {
    pub(super) fn new(settings: Settings, capacity_bytes: Option<u64>) -> Self {
        let policy = Policy::new(settings, capacity_bytes);
        Self { policy, blocks: HashMap::new(), peak_ts: None, ended: None }
    }

    pub fn counts(&self) -> Counts {
        self.policy.counts
    }

    /// When the most was reserved.
    pub fn peak_ts(&self) -> Option<i64> {
        self.peak_ts
    }

    /// The next event.
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

/// One allocator.
#[derive(Debug)]
pub struct Case {
    pub settings: Settings,
    /// What it can have at most, if that is known.
    pub capacity_bytes: Option<u64>,
    pub control: Served,
    /// In the order of the settings asked about.
    pub asked: Vec<Served>,
    /// Requests that were served on record.
    pub requests_count: u64,
    /// After how many of them the control had as much reserved as the record.
    pub equal_count: u64,
    /// The most by which it had not.
    pub difference_bytes: u64,
    /// Of the record.
    pub peak_reserved_bytes: u64,
    pub peak_ts: Option<i64>,
    pub end_reserved_bytes: u64,
    pub asked_count: u64,
    pub given_back_count: u64,
    pub failed_count: u64,
    /// Something was there when recording began, which is laid out anew.
    pub began_late: bool,
    /// Sizes are those of blocks: what was asked for is not on record.
    pub is_rounded: bool,
}

impl Case {
    fn each(&mut self) -> impl Iterator<Item = &mut Served> {
        std::iter::once(&mut self.control).chain(&mut self.asked).filter(|served| served.ended.is_none())
    }
}

/// The listener.
#[derive(Debug, Default)]
pub struct Cases {
    /// Settings asked about, by run and process; of a process that says nothing about itself, `default`.
    pub asked: HashMap<(u32, u32), Vec<Settings>>,
    pub default: Vec<Settings>,
    /// What all devices can have at most; `None`: see `limits`.
    pub capacity_bytes: Option<u64>,
    pub limits: BTreeMap<Key, Limits>,
    pub cases: BTreeMap<Key, Case>,
}

impl Cases {
    fn case(&mut self, key: Key, allocator: &Allocator) -> &mut Case {
        let Self { asked, default, capacity_bytes, limits, cases } = self;
        cases.entry(key).or_insert_with(|| {
            let limits = limits.get(&key).copied().unwrap_or_default();
            let capacity_bytes = capacity_bytes.or_else(|| limits.capacity_bytes());
            let mut settings = allocator.settings().clone();
            settings.expandable_segments |= limits.is_expandable;
            let mut control = Served::new(settings.clone(), capacity_bytes);
            let asked = asked.get(&(key.run, key.pid)).unwrap_or(default).clone();
            let mut asked: Vec<Served> =
                asked.into_iter().map(|settings| Served::new(settings, capacity_bytes)).collect();
            let rests = &allocator.knowledge().rests;
            for pool in rests.iter().filter(|(_, rest)| **rest == Rest::Kept).map(|(pool, _)| *pool) {
                control.policy.keep_whole(pool);
                asked.iter_mut().for_each(|served| served.policy.keep_whole(pool));
            }
            Case {
                settings,
                capacity_bytes,
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
        // Whatever made it: what is unused goes.
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

/// What failed requests and segments tell of an allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    peak_reserved_bytes: u64,
    /// What it could have had when a request first failed.
    room_bytes: Option<u64>,
    /// Segments grow, whatever the settings on record say.
    is_expandable: bool,
}

impl Limits {
    /// What it could have at least, if a request failed: as much was to be had, and no more for that request.
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
            // Where the device had room for a segment, a limit of the process stood in the way.
            let free = if event.addr < segment { event.addr } else { 0 };
            limits.room_bytes.get_or_insert(reserved.saturating_add(free));
        }
    }
}
