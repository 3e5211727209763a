//! What PyTorch's allocators held at an instant, to the byte, and what pins what they could not give back.
//!
//! ```text
//! reserved = handed out + pending free + releasable + unused in private pools + pinned + not known
//! ```
//! *Releasable* is what `empty_cache` would give back: unused segments, and unused pages of expandable ones. A free
//! block of a segment (or page) in which something is still in use is *pinned* by that. Blocks that other streams may
//! still use count as in use. A source that reports usage only (no allocator events) does not tell pending frees apart
//! from free memory: [`Held::is_inferred`].

use std::collections::BTreeMap;

use serde::Serialize;
use trace_schema::Nanos;

use crate::questions::driver_memory::{self, Driver};
use crate::trace::Trace;
use analyze_memory::{
    allocator::Allocator,
    check::Difference,
    device::{
        self,
        ledger::{Line, Part},
    },
    input::{Input, Key, Listener, Replay},
    span::{BEFORE, Block, NO_SEGMENT, Segment, State},
    totals::releasable_bytes,
};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// Pinning blocks that are named in a segment.
const BLOCKS_NAMED: usize = 3;

/// The instant asked for.
#[derive(Clone, Debug)]
pub enum At {
    /// When most was reserved.
    Peak,
    /// That, where it is known already: the time of the event that made it so.
    Reached(i64),
    /// Time since recording began.
    Time(Nanos),
    /// The first mark of that name: its moment, or the end of its range.
    Mark(String),
    /// The end of the run.
    End,
}

impl At {
    /// What people type: `peak`, `end`, a time, or the name of a mark.
    pub fn parse(at: &str) -> Self {
        match at {
            "peak" => Self::Peak,
            "end" => Self::End,
            other => other.parse().map_or_else(|_| Self::Mark(other.to_owned()), Self::Time),
        }
    }
}

/// A block that keeps free memory around it from being released.
#[derive(Clone, Debug, Serialize)]
pub struct Pin {
    pub addr: u64,
    pub size_bytes: u64,
    /// `None`: the source does not tell.
    pub requested_bytes: Option<u64>,
    pub state: &'static str,
    /// `None`: it is from before the recorded span.
    pub age_ns: Option<i64>,
    pub tid: u32,
    /// Functions, outermost first, separated by semicolons; `None`: no stack was taken.
    pub frames: Option<String>,
    #[serde(skip)]
    stack: Option<u32>,
}

/// A segment with free memory that it cannot give back.
#[derive(Clone, Debug, Serialize)]
pub struct Pinned {
    pub addr: u64,
    pub size_bytes: u64,
    pub stream: u64,
    pub is_expandable: bool,
    /// Free in it and pinned.
    pub pinned_bytes: u64,
    pub in_use_bytes: u64,
    pub in_use_count: usize,
    /// Largest first, at most three.
    pub pins: Vec<Pin>,
}

/// One allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    pub pid: u32,
    pub device: i32,
    /// From usage reports and calls of the driver: streams and pending frees are not known.
    pub is_inferred: bool,
    pub reserved_bytes: i64,
    pub allocated_bytes: i64,
    /// Of the blocks in use, what was not asked for; `None`: the source does not tell.
    pub rounding_bytes: Option<i64>,
    pub pending_bytes: i64,
    pub releasable_bytes: i64,
    pub private_releasable_bytes: i64,
    pub pinned_bytes: i64,
    pub unknown_bytes: i64,
    /// In use in segments that are not on record, because recording began later: not part of what is reserved.
    pub outside_bytes: i64,
    pub segments_count: usize,
    pub largest_free_bytes: u64,
    /// Most pinned first.
    pub pinned: Vec<Pinned>,
    /// What did not fit until then, with how often.
    pub faults: Vec<(&'static str, u64)>,
    /// Events that were lost until then.
    pub lost_count: u64,
    /// Where a snapshot's state is not as its events make it; at the end only.
    pub differences: Vec<Difference>,
    /// Settings that were not understood.
    pub unknown_settings: Vec<String>,
}

/// Everything at an instant.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    pub label: String,
    /// CLOCK_MONOTONIC.
    pub ts_ns: i64,
    /// Since recording began.
    pub since_start_ns: i64,
    pub allocators: Vec<Held>,
    /// Processes of which only calls of the driver are on record.
    pub drivers: Vec<Driver>,
    /// The whole GPUs, as far as their counters were read.
    pub devices: Vec<Device>,
}

/// A line of a device's account.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    pub part: &'static str,
    pub pid: Option<u32>,
    pub library: Option<String>,
    pub size_bytes: i64,
}

/// A device: what the driver said at a reading, brought to the instant by the calls in between.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    pub device: i32,
    /// From the reading to the instant; negative: there was none before.
    pub reading_age_ns: i64,
    /// Read then.
    pub read_bytes: i64,
    /// At the instant: read, and what calls took since.
    pub used_bytes: i64,
    /// Sum: `used_bytes`.
    pub shares: Vec<Share>,
}

/// What was held at each instant.
pub struct Watch {
    /// As users are shown them, in order.
    times: Vec<i64>,
    found: Vec<Vec<Held>>,
}

impl Listener for Watch {
    fn instant(&mut self, run: u32, number: usize, replay: &Replay) {
        let ts = self.times.get(number).copied().unwrap_or_default();
        let of_run = replay.allocators().filter(|(key, _)| key.run == run);
        self.found.push(of_run.map(|(key, allocator)| held(key, allocator, replay, ts)).collect());
    }
}

fn held(key: Key, allocator: &Allocator, replay: &Replay, ts: i64) -> Held {
    let totals = allocator.totals();
    let told = replay.told(key.run, key.pid);
    let is_inferred = !told.events && !told.state;
    let outside = allocator.blocks().filter(|block| block.segment == NO_SEGMENT && block.is_active());
    let outside_bytes: u64 = outside.map(|block| block.size_bytes).sum();
    let mut pinned: Vec<Pinned> =
        allocator.segments().filter_map(|segment| pinned_in(allocator, segment, ts)).collect();
    pinned.sort_by_key(|segment| (std::cmp::Reverse(segment.pinned_bytes), segment.addr));
    let free = allocator.blocks().filter(|block| block.state == State::Inactive);
    Held {
        pid: key.pid,
        device: key.device,
        is_inferred,
        reserved_bytes: totals.reserved_bytes,
        allocated_bytes: totals.allocated_bytes - outside_bytes as i64,
        rounding_bytes: (!is_inferred).then_some(totals.active_bytes - totals.requested_bytes),
        pending_bytes: totals.active_bytes - totals.allocated_bytes,
        releasable_bytes: totals.releasable_bytes,
        private_releasable_bytes: totals.private_releasable_bytes,
        pinned_bytes: pinned.iter().map(|segment| segment.pinned_bytes as i64).sum(),
        unknown_bytes: totals.unknown_bytes,
        outside_bytes: outside_bytes as i64,
        segments_count: allocator.segments().count(),
        largest_free_bytes: free.map(|block| block.size_bytes).max().unwrap_or_default(),
        pinned,
        faults: allocator.faults().iter().map(|(fault, count)| (fault.name(), *count)).collect(),
        lost_count: allocator.knowledge().lost_count,
        differences: replay.differences(key).to_vec(),
        unknown_settings: allocator.settings().unknown.clone(),
    }
}

fn pinned_in(allocator: &Allocator, segment: &Segment, ts: i64) -> Option<Pinned> {
    let free = allocator.blocks_in(segment).filter(|block| block.state == State::Inactive);
    let pinned_bytes: u64 = free.map(|block| block.size_bytes - releasable_bytes(block, segment)).sum();
    let mut in_use: Vec<&Block> = allocator.blocks_in(segment).filter(|block| block.is_active()).collect();
    in_use.sort_by_key(|block| (std::cmp::Reverse(block.size_bytes), block.addr));
    (pinned_bytes > 0).then(|| Pinned {
        addr: segment.addr,
        size_bytes: segment.size_bytes,
        stream: segment.stream,
        is_expandable: segment.is_expandable,
        pinned_bytes,
        in_use_bytes: in_use.iter().map(|block| block.size_bytes).sum(),
        in_use_count: in_use.len(),
        pins: in_use
            .into_iter()
            .take(BLOCKS_NAMED)
            .map(|block| Pin {
                addr: block.addr,
                size_bytes: block.size_bytes,
                requested_bytes: block.requested_bytes,
                state: block.state.name(),
                age_ns: (block.alloc_ts != BEFORE).then(|| ts.saturating_sub(block.alloc_ts)),
                tid: block.tid,
                frames: None,
                stack: block.stack,
            })
            .collect(),
    })
}

/// A time that a query answers with, if it does.
async fn time(trace: &Trace, query: &str) -> Result<Option<i64>, AnalyzeError> {
    for batch in trace.batches(query).await? {
        if batch.num_rows() > 0 {
            return Ok(integers(&batch, "ts")?.at(0));
        }
    }
    Ok(None)
}

/// What instants are called.
const PEAK: &str = "when most was reserved";
const END: &str = "at the end of the run";

/// The instant on the trace's clock: everything before it has happened. With what to call it.
///
/// # Errors
/// If there is no such mark, or the run's data cannot be read.
pub async fn instant(trace: &Trace, at: &At, start_ns: i64) -> Result<(i64, String), AnalyzeError> {
    match at {
        At::Time(Nanos(since)) => Ok((start_ns.saturating_add(*since), format!("at {}", Nanos(*since)))),
        At::End => Ok((i64::MAX - 1, END.to_owned())),
        At::Reached(ts) => Ok((ts.saturating_add(1), PEAK.to_owned())),
        At::Peak => {
            let query = "SELECT ts FROM memory_curve ORDER BY reserved_bytes DESC, ts LIMIT 1";
            Ok(match time(trace, query).await? {
                Some(ts) => (ts.saturating_add(1), PEAK.to_owned()),
                None => (i64::MAX - 1, END.to_owned()),
            })
        }
        At::Mark(name) => {
            let quoted = name.replace('\'', "''");
            let query = format!(
                "SELECT ts FROM (SELECT ts AS began, ts + coalesce(dur, 0) AS ts FROM marks WHERE name = '{quoted}') ORDER BY began LIMIT 1"
            );
            let missing = || {
                AnalyzeError::Query(format!(
                    "the run has no mark {name:?}; `analyze sql RUN 'SELECT name FROM marks'` lists them"
                ))
            };
            Ok((time(trace, &query).await?.ok_or_else(missing)?, format!("at the mark {name:?}")))
        }
    }
}

/// Answers for one run.
///
/// # Errors
/// If there is no such mark, or the run's data cannot be read.
pub async fn run(trace: &Trace, at: &At) -> Result<Moment, AnalyzeError> {
    let mut moments = run_all(trace, std::slice::from_ref(at)).await?;
    moments.pop().ok_or_else(|| AnalyzeError::Internal("an instant has no moment".to_owned()))
}

/// The same for several instants, in one replay.
///
/// # Errors
/// As [`run`].
pub async fn run_all(trace: &Trace, ats: &[At]) -> Result<Vec<Moment>, AnalyzeError> {
    let plan = Plan::of(trace, ats).await?;
    let input = Input::new(trace.events(), trace.files());
    let (_, watch) = input.replay(vec![plan.times()], plan.watch()).await?;
    plan.finish(trace, watch).await
}

/// At which instants a replay is to be stopped.
pub struct Plan {
    start_ns: i64,
    /// Time, place among what was asked for, and name; in order of time.
    wanted: Vec<(i64, usize, String)>,
    /// The times, none later than the run's end.
    shown: Vec<i64>,
}

impl Plan {
    /// Of what was asked for.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn of(trace: &Trace, ats: &[At]) -> Result<Self, AnalyzeError> {
        let clock = trace.files().first().map(|file| file.run.clock.clone()).unwrap_or_default();
        let mut wanted = Vec::new();
        for (place, at) in ats.iter().enumerate() {
            let (ts, label) = instant(trace, at, clock.start_ns).await?;
            wanted.push((ts, place, label));
        }
        wanted.sort();
        let shown = wanted.iter().map(|(ts, ..)| (*ts).min(clock.end_ns.max(clock.start_ns))).collect();
        Ok(Self { start_ns: clock.start_ns, wanted, shown })
    }

    /// In order.
    pub fn times(&self) -> Vec<i64> {
        self.wanted.iter().map(|(ts, ..)| *ts).collect()
    }

    /// What number the replay calls that instant by.
    pub fn number(&self, place: usize) -> usize {
        self.wanted.iter().position(|(_, of, _)| *of == place).unwrap_or_default()
    }

    /// What hears of them.
    pub fn watch(&self) -> Watch {
        Watch { times: self.shown.clone(), found: Vec::new() }
    }

    /// What was found, in the order in which it was asked for.
    ///
    /// # Errors
    /// If the run's data cannot be read.
    pub async fn finish(self, trace: &Trace, watch: Watch) -> Result<Vec<Moment>, AnalyzeError> {
        let times = self.times();
        let mut found = watch.found;
        // A run without events of an allocator passes no instant.
        found.resize_with(times.len(), Vec::new);
        name_stacks(trace, &mut found).await?;
        let devices = devices(trace, &times, &self.shown).await?;
        let mut moments = Vec::new();
        for (((ts, place, label), allocators), (devices, ts_ns)) in
            self.wanted.into_iter().zip(found).zip(devices.into_iter().zip(self.shown))
        {
            let mut drivers = driver_memory::run(trace, ts).await?;
            drivers.retain(|driver| !allocators.iter().any(|held| i64::from(held.pid) == driver.pid));
            let since_start_ns = ts_ns - self.start_ns;
            moments.push((place, Moment { label, ts_ns, since_start_ns, allocators, drivers, devices }));
        }
        moments.sort_by_key(|(place, _)| *place);
        Ok(moments.into_iter().map(|(_, moment)| moment).collect())
    }
}

/// The account of every device at some times, in order. `shown`: those times, none later than the run's end.
pub(super) async fn devices(
    trace: &Trace,
    times: &[i64],
    shown: &[i64],
) -> Result<Vec<Vec<Device>>, AnalyzeError> {
    let mut replay = device::input::Replay::new(trace.files());
    let found = replay.at(&*trace.events(), times).await?;
    let of = |(instants, shown): (BTreeMap<i32, device::input::Instant>, &i64)| {
        instants.into_iter().map(|(number, instant)| at_instant(&replay, number, instant, *shown)).collect()
    };
    Ok(found.into_iter().zip(shown).map(of).collect())
}

fn at_instant(
    replay: &device::input::Replay,
    number: i32,
    instant: device::input::Instant,
    shown_ts: i64,
) -> Device {
    let account = &instant.account;
    let mut changes = instant.changes;
    let mut lines: Vec<Line> = account.lines.iter().filter(|line| line.part != Part::Used).copied().collect();
    for line in &mut lines {
        let of = line.pid.zip(line.library);
        line.bytes += of.and_then(|of| changes.remove(&of)).unwrap_or_default();
    }
    // What came from libraries that had nothing at the reading; of a process that could not be split, as its own.
    for ((pid, library), bytes) in changes {
        match lines.iter_mut().find(|line| line.pid == Some(pid) && line.part == Part::Process) {
            Some(line) => line.bytes += bytes,
            None => lines.push(Line { part: Part::Library, pid: Some(pid), library: Some(library), bytes }),
        }
    }
    let mut shares: Vec<Share> = lines
        .iter()
        .filter(|line| line.bytes != 0)
        .map(|line| Share {
            part: replay.part(line).name(),
            pid: line.pid,
            library: line.library.map(|library| replay.library(library).to_owned()),
            size_bytes: line.bytes,
        })
        .collect();
    shares.sort_by_key(|share| (share.pid.is_none(), share.pid, std::cmp::Reverse(share.size_bytes)));
    Device {
        device: number,
        reading_age_ns: shown_ts - account.ts,
        read_bytes: account.used_bytes(),
        used_bytes: shares.iter().map(|share| share.size_bytes).sum(),
        shares,
    }
}

/// Spells out the call stacks of pinning blocks.
async fn name_stacks(trace: &Trace, moments: &mut [Vec<Held>]) -> Result<(), AnalyzeError> {
    let pins = |held: &Held| held.pinned.iter().flat_map(|s| &s.pins).any(|pin| pin.stack.is_some());
    if !moments.iter().flatten().any(pins) {
        return Ok(());
    }
    let mut stacks = std::collections::HashMap::new();
    for batch in trace.batches("SELECT pid, stack, frames FROM stacks").await? {
        let (pid, stack) = (integers(&batch, "pid")?, integers(&batch, "stack")?);
        let frames = strings(&batch, "frames")?;
        for row in 0..batch.num_rows() {
            stacks.insert((pid.value(row), stack.value(row)), frames.value(row).to_owned());
        }
    }
    for held in moments.iter_mut().flatten() {
        let pid = i64::from(held.pid);
        for pin in held.pinned.iter_mut().flat_map(|segment| &mut segment.pins) {
            pin.frames = pin.stack.and_then(|stack| stacks.get(&(pid, i64::from(stack))).cloned());
        }
    }
    Ok(())
}
