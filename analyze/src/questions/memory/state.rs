//! What PyTorch's allocators held at an instant, to the byte, and which blocks keep them from releasing the
//! rest.
//!
//! ```text
//! reserved = allocated + pending free + reclaimable + unused in private pools + pinned + unknown
//! ```
//! *Reclaimable* memory is what `empty_cache()` would release: unused segments, and unused pages of
//! expandable ones. A free block is *pinned* by active blocks in the same segment (or page). Blocks that
//! other streams may still use count as active. If a source reports only usage (no allocator events), pending
//! frees cannot be distinguished from free memory: see [`Held::is_inferred`].

use std::collections::BTreeMap;

use serde::Serialize;
use trace_schema::{Kind, Nanos};

use crate::questions::{
    driver_memory::{self, Driver},
    info::Present,
    marks,
};
use crate::trace::Trace;
use analyze_engine::session::string_literal;
use analyze_memory::{
    allocator::Allocator,
    check::Difference,
    device::{
        self,
        ledger::{Line, Part},
    },
    input::{Input, Key, Listener, Replay, lost_count},
    span::{BEFORE, Block, NO_SEGMENT, Segment, State},
    totals::releasable_bytes,
};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// The largest number of pinning blocks that are listed for one segment.
const BLOCKS_NAMED: usize = 3;

/// An instant of a run.
#[derive(Clone, Debug)]
pub enum At {
    /// The time at which the most memory was reserved; without an allocator of PyTorch, allocated from the driver.
    Peak,
    /// The peak, if it is known already: the time of the event that caused it (ns, trace clock).
    Reached(i64),
    /// A time since recording began.
    Time(Nanos),
    /// The first mark with this name: its moment, or the end of its range.
    Mark(String),
    /// The end of the run.
    End,
}

impl At {
    /// Parses what users type: `peak`, `end`, a time, or the name of a mark.
    pub fn parse(at: &str) -> Self {
        match at {
            "peak" => Self::Peak,
            "end" => Self::End,
            other => other.parse().map_or_else(|_| Self::Mark(other.to_owned()), Self::Time),
        }
    }
}

/// An active block that keeps free memory around it from being released.
#[derive(Clone, Debug, Serialize)]
pub struct Pin {
    /// The address.
    pub addr: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The requested size in bytes; `None` if the source does not tell.
    pub requested_bytes: Option<u64>,
    /// The name of its state, as in PyTorch's snapshots.
    pub state: &'static str,
    /// The time since its allocation in ns; `None` if it was allocated before the recorded span.
    pub age_ns: Option<i64>,
    /// The thread that allocated it; 0 if not known.
    pub tid: u32,
    /// The functions of its call stack, outermost first, separated by semicolons; `None` if no stack was
    /// taken.
    pub frames: Option<String>,
    #[serde(skip)]
    stack: Option<u32>,
}

/// A segment with free memory that cannot be released.
#[derive(Clone, Debug, Serialize)]
pub struct Pinned {
    /// The address of its first byte.
    pub addr: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The CUDA stream; 0 is the default stream.
    pub stream: u64,
    /// Whether it is a range of an expandable segment.
    pub is_expandable: bool,
    /// Free bytes in it that active blocks hold.
    pub pinned_bytes: u64,
    /// Bytes in active blocks.
    pub in_use_bytes: u64,
    /// The number of active blocks.
    pub in_use_count: usize,
    /// The largest active blocks, largest first, at most three.
    pub pins: Vec<Pin>,
}

/// What one allocator held.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    /// The process.
    pub pid: u32,
    /// The device, by CUDA's index.
    pub device: i32,
    /// Whether the state was inferred from usage reports and driver calls, so that streams and pending frees
    /// are not known.
    pub is_inferred: bool,
    /// Reserved bytes; `None` if the source does not record segments.
    pub reserved_bytes: Option<i64>,
    /// Bytes in allocated blocks within known segments.
    pub allocated_bytes: i64,
    /// The part of the active blocks that was not requested, in bytes; `None` if the source does not tell.
    pub rounding_bytes: Option<i64>,
    /// Bytes in blocks that the program freed but other streams may still use.
    pub pending_bytes: i64,
    /// Free bytes that `empty_cache()` would release.
    pub releasable_bytes: i64,
    /// Unused bytes that private pools keep.
    pub private_releasable_bytes: i64,
    /// Free bytes in segments and pages that active blocks hold.
    pub pinned_bytes: i64,
    /// Bytes in blocks whose state is not known.
    pub unknown_bytes: i64,
    /// Active bytes in segments that were not recorded because recording began later; they are not part of
    /// the reserved bytes.
    pub outside_bytes: i64,
    /// The number of segments.
    pub segments_count: usize,
    /// The size of the largest free block in bytes.
    pub largest_free_bytes: u64,
    /// Segments with pinned memory, those with the most first.
    pub pinned: Vec<Pinned>,
    /// The faults found until then, with their counts.
    pub faults: Vec<(&'static str, u64)>,
    /// The number of events lost until then; at the peak, in the whole run, because more may have been reserved meanwhile.
    pub lost_count: u64,
    /// The differences between a snapshot's recorded state and the replayed one; only at the end of the run.
    pub differences: Vec<Difference>,
    /// The allocator settings that were not understood.
    pub unknown_settings: Vec<String>,
}

/// The state of all memory at an instant.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// A description of the instant, such as "at the end of the run".
    pub label: String,
    /// The time in ns of CLOCK_MONOTONIC.
    pub ts_ns: i64,
    /// The time in ns since recording began.
    pub since_start_ns: i64,
    /// What each allocator held.
    pub allocators: Vec<Held>,
    /// Processes for which only driver calls were recorded.
    pub drivers: Vec<Driver>,
    /// The memory of whole GPUs, for those whose counters were read.
    pub devices: Vec<Device>,
}

/// One line of a device's account.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The name of the part, such as `allocator` or `context`.
    pub part: &'static str,
    /// The process; `None` for memory that belongs to no process.
    pub pid: Option<u32>,
    /// The library, for parts that belong to one.
    pub library: Option<String>,
    /// The size in bytes.
    pub size_bytes: i64,
}

/// The memory of a device: a reading by the driver, brought to the instant by the calls in between.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// The device.
    pub device: i32,
    /// The time from the reading to the instant in ns; negative if the reading was made after it.
    pub reading_age_ns: i64,
    /// The used bytes at the reading.
    pub read_bytes: i64,
    /// The used bytes at the instant: those of the reading, and what calls have allocated and freed since.
    pub used_bytes: i64,
    /// The used bytes by owner; their sum is `used_bytes`.
    pub shares: Vec<Share>,
}

/// A listener that collects what was held at each instant.
pub struct Watch {
    /// The number of the first instant that is its own: a replay may have to stop at others before.
    first: usize,
    /// The times shown to users, sorted.
    times: Vec<i64>,
    found: Vec<Vec<Held>>,
}

impl Watch {
    /// Adds what another replay found at instants that come after those of this one.
    pub fn append(&mut self, mut later: Self) {
        self.found.append(&mut later.found);
    }
}

impl Listener for Watch {
    fn instant(&mut self, run: u32, number: usize, replay: &Replay) {
        let Some(place) = number.checked_sub(self.first) else { return };
        let ts = self.times.get(place).copied().unwrap_or_default();
        let of_run = replay.allocators().filter(|(key, _)| key.run == run);
        self.found.push(of_run.map(|(key, allocator)| held(key, allocator, replay, ts)).collect());
    }
}

fn held(key: Key, allocator: &Allocator, replay: &Replay, ts: i64) -> Held {
    let totals = allocator.totals();
    let recorded = replay.recorded_kinds(key.run, key.pid);
    let is_inferred = !recorded.events && !recorded.state;
    let outside = allocator.blocks().filter(|block| block.segment == NO_SEGMENT && block.is_active());
    let outside_bytes: u64 = outside.map(|block| block.size_bytes).sum();
    let mut pinned: Vec<Pinned> =
        allocator.segments().filter_map(|segment| pinned_in(allocator, segment, ts)).collect();
    pinned.sort_by_key(|segment| (std::cmp::Reverse(segment.pinned_bytes), segment.addr));
    let free = allocator.blocks().filter(|block| block.state == State::Inactive);
    let refused = allocator.settings().refused.iter();
    Held {
        pid: key.pid,
        device: key.device,
        is_inferred,
        reserved_bytes: allocator.knowledge().has_segments.then_some(totals.reserved_bytes),
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
        unknown_settings: refused.map(|refusal| refusal.entry.clone()).collect(),
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

/// Returns the time that a query yields, if it yields a row.
async fn time(trace: &Trace, query: &str) -> Result<Option<i64>, AnalyzeError> {
    for batch in trace.batches(query).await? {
        if batch.num_rows() > 0 {
            return Ok(integers(&batch, "ts")?.at(0));
        }
    }
    Ok(None)
}

/// The descriptions of instants.
const PEAK: &str = "when most was reserved";
const END: &str = "at the end of the run";

/// What the peak is the peak of, with the query that returns its time: the first that has a row. Without an allocator of PyTorch it is that of
/// the memory that all processes had allocated from the driver, and without the addresses of allocations that of a counter.
const PEAKS: [(&str, &str); 3] = [
    (PEAK, "SELECT ts FROM memory_curve ORDER BY reserved_bytes DESC, ts LIMIT 1"),
    (
        "when most was allocated from the driver",
        "SELECT ts FROM (SELECT ts, sum(bytes) OVER (ORDER BY ts, bytes ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS held_bytes \
         FROM (SELECT ts, size_bytes AS bytes FROM driver_allocations \
         UNION ALL SELECT ts + dur AS ts, -size_bytes AS bytes FROM driver_allocations WHERE dur IS NOT NULL)) \
         ORDER BY held_bytes DESC, ts LIMIT 1",
    ),
    (
        "when most was in use on a GPU, by its counter",
        "SELECT ts FROM memory_use ORDER BY used_bytes DESC, ts LIMIT 1",
    ),
];

/// Resolves an instant to the time (ns, trace clock) before which everything has happened, and describes it.
///
/// # Errors
/// Returns an error if there is no such mark, or the run's data cannot be read.
pub async fn instant(trace: &Trace, at: &At, start_ns: i64) -> Result<(i64, String), AnalyzeError> {
    match at {
        At::Time(Nanos(since)) => Ok((start_ns.saturating_add(*since), format!("at {}", Nanos(*since)))),
        At::End => Ok((i64::MAX - 1, END.to_owned())),
        At::Reached(ts) => Ok((ts.saturating_add(1), PEAK.to_owned())),
        At::Peak => {
            for (label, query) in PEAKS {
                if let Some(ts) = time(trace, query).await? {
                    return Ok((ts.saturating_add(1), label.to_owned()));
                }
            }
            Ok((i64::MAX - 1, END.to_owned()))
        }
        At::Mark(name) => {
            let query = format!(
                "SELECT ts FROM (SELECT ts AS began, ts + coalesce(dur, 0) AS ts FROM marks WHERE name = {}) ORDER BY began LIMIT 1",
                string_literal(name)
            );
            Ok((
                time(trace, &query).await?.ok_or_else(|| marks::missing(name))?,
                format!("at the mark {name:?}"),
            ))
        }
    }
}

/// Analyzes the memory of one run at one instant.
///
/// # Errors
/// Returns an error if there is no such mark, or the run's data cannot be read.
pub async fn run(trace: &Trace, at: &At) -> Result<Moment, AnalyzeError> {
    let mut moments = run_all(trace, std::slice::from_ref(at)).await?;
    moments.pop().ok_or_else(|| AnalyzeError::Internal("an instant has no moment".to_owned()))
}

/// Analyzes the memory of one run at several instants, in one replay.
///
/// # Errors
/// Returns an error in the same cases as [`run`].
pub async fn run_all(trace: &Trace, ats: &[At]) -> Result<Vec<Moment>, AnalyzeError> {
    let plan = Plan::of(trace, ats).await?;
    let input = Input::new(trace.events(), trace.files());
    let (_, watch) = input.replay(vec![plan.times()], plan.watch(0)).await?;
    plan.finish(trace, watch, &input, &Present::of(trace).await?).await
}

/// The instants at which a replay has to stop.
pub struct Plan {
    start_ns: i64,
    /// The time, the position among the requested instants, and the description; in order of time.
    wanted: Vec<(i64, usize, String)>,
    /// The times, none later than the end of the run.
    shown: Vec<i64>,
}

impl Plan {
    /// Resolves the requested instants.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`run`].
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

    /// Returns the times (ns, sorted) that the replay has to pass to the listener.
    pub fn times(&self) -> Vec<i64> {
        self.wanted.iter().map(|(ts, ..)| *ts).collect()
    }

    /// Returns the number by which the replay calls the requested instant at this position.
    pub fn number(&self, place: usize) -> usize {
        self.wanted.iter().position(|(_, of, _)| *of == place).unwrap_or_default()
    }

    /// Returns the listener that the replay has to feed. The number of the first instant among those of the replay is `first`.
    pub fn watch(&self, first: usize) -> Watch {
        Watch { first, times: self.shown.clone(), found: Vec::new() }
    }

    /// Completes the analysis after the replay of `input`; the results are in the order of the requested instants. `present` are
    /// the rows of the run.
    pub async fn finish(
        self,
        trace: &Trace,
        watch: Watch,
        input: &Input,
        present: &Present,
    ) -> Result<Vec<Moment>, AnalyzeError> {
        let times = self.times();
        let mut found = watch.found;
        // A run without allocator events passes no instant.
        found.resize_with(times.len(), Vec::new);
        name_stacks(trace, &mut found).await?;
        let devices = devices(trace, &times, &self.shown, present).await?;
        // Calls of the driver are all that is known of a process without an allocator.
        let pids = input.with_driver_calls().await?;
        let has_allocator = |of: &[Held], pid: &u32| of.iter().any(|held| held.pid == *pid);
        let is_known = found.iter().all(|of| pids.iter().all(|pid| has_allocator(of, pid)));
        let drivers = match is_known {
            true => vec![Vec::new(); times.len()],
            false => driver_memory::run(trace, &times).await?,
        };
        let accounts = devices.into_iter().zip(drivers).zip(self.shown);
        let mut moments = Vec::new();
        for (((_, place, label), mut allocators), ((devices, mut drivers), ts_ns)) in
            self.wanted.into_iter().zip(found).zip(accounts)
        {
            if let Some(file) = trace.files().first().filter(|_| label == PEAK) {
                for held in &mut allocators {
                    held.lost_count = held.lost_count.max(lost_count(&file.run, held.is_inferred));
                }
            }
            drivers.retain(|driver| !allocators.iter().any(|held| i64::from(held.pid) == driver.pid));
            let since_start_ns = ts_ns - self.start_ns;
            moments.push((place, Moment { label, ts_ns, since_start_ns, allocators, drivers, devices }));
        }
        moments.sort_by_key(|(place, _)| *place);
        Ok(moments.into_iter().map(|(_, moment)| moment).collect())
    }
}

/// Returns the account of every device at each of the times. `shown` are the same times, none later than the
/// end of the run; `present` are the rows of the run.
pub(super) async fn devices(
    trace: &Trace,
    times: &[i64],
    shown: &[i64],
    present: &Present,
) -> Result<Vec<Vec<Device>>, AnalyzeError> {
    // Every account begins with a reading of the used memory.
    if !present.has(Kind::Sample, "memory_used_bytes") {
        return Ok(vec![Vec::new(); times.len()]);
    }
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
    // A library may have had nothing at the reading; changes of a process that could not be split go to the
    // process.
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

/// Resolves the call stacks of pinning blocks.
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
