//! The history of PyTorch's memory over a run: why it was reserved, what each release returned to the driver,
//! what remained and why, what was paused and resumed, what processes left behind at their exit, how each
//! phase changed it, and how requests failed.

use std::collections::{BTreeMap, HashMap};

use trace_schema::{Kind, Nanos};

use crate::questions::{
    info::Present,
    memory::{
        exports::Exports,
        history_report::{
            CauseSum, ExitReport, HistoryReport, OomReport, PauseReport, PhaseReport, ReleaseReport,
        },
        occupancy::Occupancy,
        state::{self, At, Moment},
    },
};
use crate::trace::Trace;
use analyze_memory::{
    event::Action,
    history::{Cause, History, Release},
    input::{Input, Key, Listener, Replay},
    oom::Oom,
};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// The number of failed requests for which the whole state is included.
const MOMENTS: usize = 8;

/// The reserved and the active bytes of an allocator, as far as the source records them.
type Sum = [Option<i64>; 2];

/// The sums of every allocator, by requested instant.
#[derive(Default)]
pub struct Sums(HashMap<usize, BTreeMap<Key, Sum>>);

/// A listener that collects a history, and totals at the requested instants.
pub type Watch = (History, Sums);

impl Listener for Sums {
    fn instant(&mut self, _run: u32, number: usize, replay: &Replay) {
        let sums = replay.allocators().map(|(key, allocator)| {
            let (totals, known) = (allocator.totals(), allocator.knowledge());
            let reserved = known.has_segments.then_some(totals.reserved_bytes);
            (key, [reserved, known.has_blocks.then_some(totals.active_bytes)])
        });
        self.0.insert(number, sums.collect());
    }
}

/// A phase: its name, start and end (ns, trace clock).
struct Phase {
    name: String,
    from: i64,
    to: i64,
}

async fn phases(trace: &Trace) -> Result<Vec<Phase>, AnalyzeError> {
    let query = "SELECT name, ts, dur FROM marks WHERE op = 'range' AND dur IS NOT NULL ORDER BY ts, name";
    let mut phases = Vec::new();
    for batch in trace.batches(query).await? {
        let (name, ts, dur) = (strings(&batch, "name")?, integers(&batch, "ts")?, integers(&batch, "dur")?);
        phases.extend((0..batch.num_rows()).map(|row| Phase {
            name: name.value(row).to_owned(),
            from: ts.value(row),
            to: ts.value(row).saturating_add(dur.value(row)),
        }));
    }
    Ok(phases)
}

/// Calls that release memory, as start and duration in ns, by process and thread, in order of time.
type Frees = HashMap<(u32, u32), Vec<(i64, i64)>>;

async fn frees(trace: &Trace) -> Result<Frees, AnalyzeError> {
    let query = "SELECT pid, tid, ts, dur FROM events WHERE kind = 'call' AND op IN ('cudaFree', 'cuMemUnmap') AND dur IS NOT NULL ORDER BY ts";
    let mut frees = Frees::new();
    for batch in trace.batches(query).await? {
        let (pid, tid) = (integers(&batch, "pid")?, integers(&batch, "tid")?);
        let (ts, dur) = (integers(&batch, "ts")?, integers(&batch, "dur")?);
        for row in 0..batch.num_rows() {
            let of = (pid.value(row) as u32, tid.value(row) as u32);
            frees.entry(of).or_default().push((ts.value(row), dur.value(row)));
        }
    }
    Ok(frees)
}

fn released(release: &Release, frees: &Frees, exports: &Exports, start_ns: i64) -> ReleaseReport {
    // The allocator reports a released segment right before or right after the call that released it.
    let of = frees.get(&(release.key.pid, release.tid)).map_or(&[][..], Vec::as_slice);
    let first = of.partition_point(|(ts, _)| *ts < release.ts);
    let near = of[first..].iter().enumerate();
    let calls: Vec<(i64, i64)> = near
        .take_while(|(place, (ts, _))| {
            *ts <= release.last_ts || (*place as u64) < release.segments_count && release.last_ts > release.ts
        })
        .map(|(_, call)| *call)
        .collect();
    let mut durs: Vec<i64> = calls.iter().map(|(_, dur)| *dur).collect();
    durs.sort_unstable();
    let last = calls.iter().map(|(ts, dur)| ts.saturating_add(*dur)).max().unwrap_or(release.last_ts);
    let has_calls = !frees.is_empty();
    ReleaseReport {
        pid: release.key.pid,
        device: release.key.device,
        tid: release.tid,
        cause: release.cause.name(),
        why_not_known: release.why_not_known(),
        ts_ns: release.ts,
        since_start_ns: release.ts - start_ns,
        dur_ns: last.max(release.last_ts) - release.ts,
        freed_before_bytes: release.freed_before_bytes,
        ipc_freed_bytes: release.ipc_freed_bytes,
        closed_handles_count: release.closed_handles_count,
        before_bytes: release.before.reserved_bytes,
        given_back_bytes: release.given_back_bytes,
        segments_count: release.segments_count,
        after_bytes: release.after.reserved_bytes,
        in_use_bytes: release.in_use_bytes(),
        exported_bytes: exports.at(release.key.pid, release.key.device, release.last_ts),
        pinned_bytes: release.pinned_bytes,
        private_bytes: release.after.private_releasable_bytes,
        releasable_bytes: release.after.releasable_bytes,
        unknown_bytes: release.after.unknown_bytes,
        calls_count: has_calls.then_some(durs.len() as u64),
        call_p50_ns: durs.get(durs.len().saturating_sub(1) / 2).copied(),
        call_max_ns: durs.last().copied(),
        others: Vec::new(),
    }
}

/// Adds what else used memory of the devices after each release.
async fn add_others(
    trace: &Trace,
    history: &History,
    releases: &mut [ReleaseReport],
    present: &Present,
) -> Result<(), AnalyzeError> {
    let mut places: Vec<usize> = (0..releases.len()).collect();
    places.sort_by_key(|place| history.releases[*place].last_ts);
    let times: Vec<i64> = places.iter().map(|place| history.releases[*place].last_ts).collect();
    let found = state::devices(trace, &times, &times, present).await?;
    for (place, devices) in places.into_iter().zip(found) {
        let release = &mut releases[place];
        let of_device = devices.into_iter().filter(|device| device.device == release.device);
        let shares = of_device.flat_map(|device| device.shares);
        release.others =
            shares.filter(|share| share.part != "allocator" || share.pid != Some(release.pid)).collect();
    }
    Ok(())
}

fn failed(oom: &Oom, start_ns: i64) -> OomReport {
    let verdict = if oom.before.free_bytes >= oom.block_bytes {
        "fragmentation"
    } else if oom.before.other_stream_bytes >= oom.block_bytes {
        "other_stream"
    } else if oom.is_limited() {
        "limit"
    } else {
        "capacity"
    };
    OomReport {
        pid: oom.key.pid,
        device: oom.key.device,
        tid: oom.tid,
        ts_ns: oom.ts,
        since_start_ns: oom.ts - start_ns,
        requested_bytes: oom.requested_bytes,
        block_bytes: oom.block_bytes,
        segment_bytes: oom.segment_bytes,
        device_free_bytes: oom.device_free_bytes,
        verdict,
        is_limited: oom.is_limited(),
        reserved_bytes: oom.totals.reserved_bytes,
        allocated_bytes: oom.totals.allocated_bytes,
        pending_bytes: oom.totals.active_bytes - oom.totals.allocated_bytes,
        pinned_bytes: oom.pinned_bytes,
        private_bytes: oom.totals.private_releasable_bytes,
        pool_free_bytes: oom.before.free_bytes,
        largest_free_bytes: oom.before.largest_free_bytes,
        other_stream_bytes: oom.before.other_stream_bytes,
        is_expandable: oom.is_expandable,
        expandable_helps: oom.expandable_helps,
        expandable_serves: None,
        expandable_reason: None,
        hole_addr: oom.hole.map(|hole| hole.addr),
        hole_in_use_bytes: oom.hole.map(|hole| hole.in_use_bytes),
        hole_in_use_count: oom.hole.map(|hole| hole.in_use_count),
        segments_count: oom.segments.map(|of| of.segments_count),
        segments_in_use_bytes: oom.segments.map(|of| of.in_use_bytes),
        segments_in_use_count: oom.segments.map(|of| of.in_use_count),
        occupancy: None,
        moment: None,
    }
}

fn causes(history: &History) -> Vec<CauseSum> {
    let mut sums: BTreeMap<(Key, bool, &'static str), (u64, u64)> = BTreeMap::new();
    for change in &history.changes {
        let is_gain = matches!(change.action, Action::SegmentAlloc | Action::SegmentMap);
        let sum = sums.entry((change.key, !is_gain, change.cause.name())).or_default();
        sum.0 += 1;
        sum.1 += change.size_bytes;
    }
    sums.into_iter()
        .map(|((key, is_loss, cause), (segments_count, size_bytes))| CauseSum {
            pid: key.pid,
            device: key.device,
            is_gain: !is_loss,
            cause,
            segments_count,
            size_bytes,
        })
        .collect()
}

async fn pauses(trace: &Trace, start_ns: i64) -> Result<Vec<PauseReport>, AnalyzeError> {
    let mut pauses = Vec::new();
    for batch in trace.batches("SELECT * FROM memory_pauses ORDER BY ts").await? {
        let (action, library) = (strings(&batch, "action")?, strings(&batch, "library")?);
        let whole = |name| integers(&batch, name);
        let (pid, ts, dur, size) = (whole("pid")?, whole("ts")?, whole("dur")?, whole("size_bytes")?);
        let (calls, p50, max) = (whole("calls_count")?, whole("call_p50_ns")?, whole("call_max_ns")?);
        let (before, after) = (whole("before_bytes")?, whole("after_bytes")?);
        let (missing, missing_count) = (whole("missing_bytes")?, whole("missing_count")?);
        pauses.extend((0..batch.num_rows()).map(|row| PauseReport {
            pid: pid.value(row) as u32,
            action: action.value(row).to_owned(),
            library: library.value(row).to_owned(),
            since_start_ns: ts.value(row) - start_ns,
            dur_ns: dur.value(row),
            size_bytes: size.value(row),
            calls_count: calls.value(row),
            call_p50_ns: p50.at(row).unwrap_or_default(),
            call_max_ns: max.at(row).unwrap_or_default(),
            before_bytes: before.value(row),
            after_bytes: after.value(row),
            missing_bytes: missing.value(row),
            missing_count: missing_count.value(row),
        }));
    }
    Ok(pauses)
}

async fn exits(trace: &Trace, start_ns: i64) -> Result<Vec<ExitReport>, AnalyzeError> {
    let query = "SELECT d.pid AS pid, e.ts AS ts, d.library AS library, CAST(sum(d.size_bytes) AS BIGINT) AS size_bytes \
         FROM memory_driver d JOIN events e ON e.run = d.run AND e.pid = d.pid AND e.ts = d.ts + d.dur \
         WHERE e.kind = 'process' AND e.op = 'exit' AND e.tid = e.pid GROUP BY d.pid, e.ts, d.library ORDER BY ts, pid, library";
    let mut exits = Vec::new();
    for batch in trace.batches(query).await? {
        let (pid, ts, size) =
            (integers(&batch, "pid")?, integers(&batch, "ts")?, integers(&batch, "size_bytes")?);
        let library = strings(&batch, "library")?;
        exits.extend((0..batch.num_rows()).map(|row| ExitReport {
            pid: pid.value(row) as u32,
            since_start_ns: ts.value(row) - start_ns,
            library: library.value(row).to_owned(),
            size_bytes: size.value(row),
        }));
    }
    Ok(exits)
}

/// Analyzes one run.
pub async fn run(trace: &Trace) -> Result<HistoryReport, AnalyzeError> {
    let plan = Plan::of(trace, Present::of(trace).await?).await?;
    let input = Input::new(trace.events(), trace.files());
    let (_, watch) = input.replay(vec![plan.instants()], plan.watch()).await?;
    let mut history = plan.finish(trace, watch).await?;
    let ats = history.moments_wanted();
    if !ats.is_empty() {
        history.add_moments(state::run_all(trace, &ats).await?.into_iter());
    }
    Ok(history)
}

/// The analysis before the replay: the phases and the instants at which the replay has to stop.
pub struct Plan {
    present: Present,
    start_ns: i64,
    phases: Vec<Phase>,
    /// The start or end of each phase, in order of time: its time, and twice the number of the phase, plus
    /// one for the end.
    instants: Vec<(i64, usize)>,
}

impl Plan {
    /// Reads the phases of one run, of which these rows are present.
    pub async fn of(trace: &Trace, present: Present) -> Result<Self, AnalyzeError> {
        let start_ns = trace.files().first().map_or(0, |file| file.run.clock.start_ns);
        let has_ranges = present.has(Kind::Mark, "range");
        let phases = if has_ranges { phases(trace).await? } else { Vec::new() };
        let ends = phases.iter().enumerate();
        let mut instants: Vec<(i64, usize)> =
            ends.flat_map(|(place, phase)| [(phase.from, 2 * place), (phase.to, 2 * place + 1)]).collect();
        instants.sort_unstable();
        Ok(Self { present, start_ns, phases, instants })
    }

    /// Returns the instants (ns, sorted) that the replay has to pass to the listener.
    pub fn instants(&self) -> Vec<i64> {
        self.instants.iter().map(|(ts, _)| *ts).collect()
    }

    /// Returns the listener that the replay has to feed.
    pub fn watch(&self) -> Watch {
        Watch::default()
    }

    fn phase_reports(&self, sums: &Sums) -> Vec<PhaseReport> {
        let numbers = self.instants.iter().enumerate();
        let places: HashMap<usize, usize> = numbers.map(|(number, (_, place))| (*place, number)).collect();
        let sums = |place: usize| places.get(&place).and_then(|number| sums.0.get(number));
        let mut reports = Vec::new();
        for (place, phase) in self.phases.iter().enumerate() {
            let (before, after) = (sums(2 * place), sums(2 * place + 1));
            for (key, after) in after.into_iter().flatten() {
                // An allocator that was not there yet had nothing of what it has later.
                let none = after.map(|bytes| bytes.map(|_| 0));
                let [reserved, active] = before.and_then(|of| of.get(key)).copied().unwrap_or(none);
                reports.push(PhaseReport {
                    name: phase.name.clone(),
                    since_start_ns: phase.from - self.start_ns,
                    dur_ns: phase.to - phase.from,
                    pid: key.pid,
                    device: key.device,
                    reserved_before_bytes: reserved,
                    reserved_after_bytes: after[0],
                    active_before_bytes: active,
                    active_after_bytes: after[1],
                });
            }
        }
        reports
    }

    /// Completes the history after the replay, without the whole states at failures.
    pub async fn finish(self, trace: &Trace, (history, sums): Watch) -> Result<HistoryReport, AnalyzeError> {
        let (start_ns, phases) = (self.start_ns, self.phase_reports(&sums));
        let mut releases = Vec::new();
        if !history.releases.is_empty() {
            let (frees, exports) = (frees(trace).await?, Exports::of(trace).await?);
            let each = history.releases.iter();
            releases.extend(each.map(|release| released(release, &frees, &exports, start_ns)));
            add_others(trace, &history, &mut releases, &self.present).await?;
        }
        // A pause begins with a call that unmaps memory.
        let has_pauses = self.present.has(Kind::Call, "cuMemUnmap");
        let has_exits = self.present.has(Kind::Process, "exit");
        Ok(HistoryReport {
            causes: causes(&history),
            releases,
            pauses: if has_pauses { pauses(trace, start_ns).await? } else { Vec::new() },
            exits: if has_exits { exits(trace, start_ns).await? } else { Vec::new() },
            phases,
            ooms: history.ooms.iter().map(|oom| failed(oom, start_ns)).collect(),
        })
    }
}

impl HistoryReport {
    /// Returns the instants of the first failures, for which the whole state is wanted.
    pub fn moments_wanted(&self) -> Vec<At> {
        self.ooms.iter().take(MOMENTS).map(|oom| At::Time(Nanos(oom.since_start_ns))).collect()
    }

    /// Adds the whole states at the instants of [`Self::moments_wanted`], in the same order.
    pub fn add_moments(&mut self, moments: impl Iterator<Item = Moment>) {
        for (oom, moment) in self.ooms.iter_mut().zip(moments) {
            let occupancy = Occupancy::of(&moment, oom.pid);
            let missing_bytes = oom.segment_bytes.saturating_sub(oom.device_free_bytes) as i64;
            if oom.verdict == "capacity"
                && occupancy.as_ref().is_some_and(|of| of.is_of_neighbours(missing_bytes))
            {
                oom.verdict = "neighbour";
            }
            (oom.occupancy, oom.moment) = (occupancy, Some(moment));
        }
    }
}

/// Returns whether a cause is a kind of growth that another layout of memory would have avoided.
pub fn is_avoidable(cause: &str) -> bool {
    [Cause::Fragmentation, Cause::OtherStream, Cause::AfterRelease].iter().any(|of| of.name() == cause)
}
