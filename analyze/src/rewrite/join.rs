//! Joins the calls of one source with the scheduler rows that another source has of the same processes.
//!
//! ```text
//! calls      call, mark, device, …    stay as they are, with the metadata of their run
//! scheduler  off_cpu, run, process ►  moved onto the clock of the calls; rows outside of the calls' recording are left out
//! ```
//! No row can be a copy of another one: one run has calls and nothing of the scheduler, the other the scheduler and no calls.
//!
//! Both must be on one clock of one boot of one host, or the user states the offset and its error. A thread is on a CPU when it
//! enters and leaves a call: an offset by which it is off CPU then, for longer than the error on either side, is refused. What
//! the scheduler rows say within the error of a call's start or end, and before and after them, stays open
//! (`analyze_run::coverage`).

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array, new_null_array},
    compute::filter_record_batch,
    datatypes::{DataType, Int64Type, UInt32Type},
};
use trace_schema::{Kind, Nanos, Run, ScheduleSource, TIME_LIMIT_NS};
use trace_writer::Finished;

use super::{add_new, blocking, clocks, in_order::InOrder, numbers, texts};
use crate::trace::Trace;
use analyze_run::{
    columns::{Cell as _, integers, strings},
    error::AnalyzeError,
    reading::plain,
    run_file::RunFile,
};

/// Columns needed to find the threads of both runs and to check the clock.
const COLUMNS: &[&str] = &["ts", "dur", "kind", "pid", "tid"];
/// Columns of processes, each with that of their threads.
const PROCESSES: [(&str, &str); 3] = [("pid", "tid"), ("waker_pid", "waker_tid"), ("next_pid", "next_tid")];

/// How the clocks of a scheduler trace and of calls relate, as the user states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedOffset {
    /// Nanoseconds to add to a time of the scheduler trace to get the time of the calls.
    pub offset_ns: i64,
    /// Upper bound of the error of that offset in nanoseconds, over the whole trace.
    pub error_ns: i64,
}

/// A process ID and a thread ID.
type ThreadId = (u32, u32);

/// The two runs of a join.
pub(super) struct Pair {
    calls: RunFile,
    scheduler: RunFile,
    /// Processes of which the calls' run has `process` rows.
    with_life: HashSet<u32>,
    /// Processes of which the scheduler trace has rows.
    scheduled: BTreeSet<u32>,
    stated: Option<StatedOffset>,
}

/// The kinds of rows of one run, each with its processes.
type Kinds = BTreeMap<String, BTreeSet<u32>>;

async fn kinds(trace: &Trace) -> Result<HashMap<String, Kinds>, AnalyzeError> {
    let mut found: HashMap<String, Kinds> = HashMap::new();
    for batch in trace.batches("SELECT DISTINCT run, kind, CAST(pid AS BIGINT) AS pid FROM events").await? {
        let (runs, kinds) = (strings(&batch, "run")?, strings(&batch, "kind")?);
        let pids = integers(&batch, "pid")?;
        for row in 0..batch.num_rows() {
            let of_run = found.entry(runs.value(row).to_owned()).or_default();
            of_run.entry(kinds.value(row).to_owned()).or_default().insert(pids.value(row) as u32);
        }
    }
    Ok(found)
}

/// Returns the runs of a trace as a pair of calls and scheduler rows; `None` if they are none.
///
/// # Errors
/// Returns an error if the events cannot be read.
pub(super) async fn pair(trace: &Trace, stated: Option<StatedOffset>) -> Result<Option<Pair>, AnalyzeError> {
    let [first, second] = trace.files() else { return Ok(None) };
    let found = kinds(trace).await?;
    let has = |file: &RunFile, kind: Kind| {
        found.get(&file.name).is_some_and(|kinds| kinds.contains_key(kind.name()))
    };
    let has_calls_only = |file| has(file, Kind::Call) && !has(file, Kind::OffCpu) && !has(file, Kind::Run);
    let has_scheduler_only = |file| has(file, Kind::OffCpu) && !has(file, Kind::Call);
    let (calls, scheduler) = match () {
        () if has_calls_only(first) && has_scheduler_only(second) => (first, second),
        () if has_calls_only(second) && has_scheduler_only(first) => (second, first),
        () => return Ok(None),
    };
    let of = |file: &RunFile| found.get(&file.name).cloned().unwrap_or_default();
    let (ours, theirs) = (of(calls), of(scheduler));
    let is_left_out = |kind: &str| kind == Kind::Name.name() || kind == Kind::Process.name();
    let is_twice = |(kind, pids): &(&String, &BTreeSet<u32>)| {
        let mut own = ours.get(*kind).into_iter().flatten();
        !is_left_out(kind) && own.any(|pid| *pid > 0 && pids.contains(pid))
    };
    if theirs.iter().any(|of_kind| is_twice(&of_kind)) {
        return Ok(None);
    }
    let pids = |kinds: &Kinds, kind: Kind| kinds.get(kind.name()).cloned().unwrap_or_default();
    Ok(Some(Pair {
        calls: calls.clone(),
        scheduler: scheduler.clone(),
        with_life: pids(&ours, Kind::Process).into_iter().collect(),
        scheduled: pids(&theirs, Kind::OffCpu),
        stated,
    }))
}

/// The process of each thread, by thread ID; `None` if there are several.
#[derive(Default)]
struct Processes(HashMap<u32, Option<u32>>);

impl Processes {
    fn learn(&mut self, (pid, tid): ThreadId) {
        if pid != 0 && tid != 0 {
            let known = self.0.entry(tid).or_insert(Some(pid));
            *known = known.filter(|known| *known == pid);
        }
    }

    /// Returns the process of a thread, which is 0 in a run that does not know it.
    fn of(&self, (pid, tid): ThreadId) -> u32 {
        if pid != 0 { pid } else { self.0.get(&tid).copied().flatten().unwrap_or(0) }
    }

    /// Returns a batch with the processes of all threads that are known. A column that the batch lacks stays absent.
    fn filled(&self, batch: &RecordBatch) -> Result<Vec<(&'static str, ArrayRef)>, AnalyzeError> {
        let has = |name: &str| batch.column_by_name(name).is_some();
        let mut columns: Vec<(&'static str, ArrayRef)> = Vec::new();
        for (pid, tid) in PROCESSES.into_iter().filter(|(pid, tid)| has(pid) && has(tid)) {
            let (pids, tids) = (numbers::<UInt32Type>(batch, pid)?, numbers::<UInt32Type>(batch, tid)?);
            let of = |(pid, tid): (Option<u32>, Option<u32>)| match (pid, tid) {
                (None | Some(0), Some(tid)) => Some(self.of((0, tid))).filter(|found| *found != 0).or(pid),
                (pid, _) => pid,
            };
            let filled: UInt32Array = pids.iter().zip(tids.iter()).map(of).collect();
            columns.push((pid, Arc::new(filled)));
        }
        Ok(columns)
    }
}

/// Returns the batch with these columns in place of its own.
fn with(batch: &RecordBatch, columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch, AnalyzeError> {
    let mut all = batch.columns().to_vec();
    for (name, column) in columns {
        let index = batch.schema().index_of(name).ok();
        if let Some(place) = index.and_then(|index| all.get_mut(index)) {
            *place = column;
        }
    }
    RecordBatch::try_new(batch.schema(), all).map_err(|error| AnalyzeError::Damaged(error.to_string()))
}

/// A row of one kind: its thread, its start, and its end if it has one.
struct Span {
    thread: ThreadId,
    start: i64,
    end: Option<i64>,
}

/// Calls `take` with every row of a kind.
fn spans(file: &RunFile, kind: Kind, mut take: impl FnMut(Span)) -> Result<(), AnalyzeError> {
    for batch in plain::batches(file.paths.clone(), Some(COLUMNS)) {
        let batch = batch?;
        let kinds = texts(&batch, "kind")?;
        let (ts, dur) = (numbers::<Int64Type>(&batch, "ts")?, numbers::<Int64Type>(&batch, "dur")?);
        let (pids, tids) = (numbers::<UInt32Type>(&batch, "pid")?, numbers::<UInt32Type>(&batch, "tid")?);
        for row in (0..batch.num_rows()).filter(|row| kinds.value(*row) == kind.name()) {
            let start = ts.value(row);
            let end = dur.at(row).map(|dur| start.saturating_add(dur.max(0)));
            take(Span { thread: (pids.value(row), tids.value(row)), start, end });
        }
    }
    Ok(())
}

/// What is known of both runs before a row is written.
struct Known {
    processes: Processes,
    /// The off-CPU intervals of each thread with calls, on the clock of the scheduler trace, in order.
    off_cpu: HashMap<ThreadId, Vec<(i64, i64)>>,
    /// The first and the last time of the scheduler trace's rows.
    span: (i64, i64),
    /// Number of threads with calls.
    threads_count: usize,
    /// Whether the calls of some thread do not tell its process.
    has_strays: bool,
}

impl Pair {
    /// Finds the threads that both runs have; `None` if there are none.
    fn known(&self) -> Result<Option<Known>, AnalyzeError> {
        let mut processes = Processes::default();
        let mut threads: BTreeSet<ThreadId> = BTreeSet::new();
        spans(&self.calls, Kind::Call, |call| {
            processes.learn(call.thread);
            threads.insert(call.thread);
        })?;
        let has_strays = threads.iter().any(|(pid, _)| *pid == 0);
        let tids: HashSet<u32> = threads.iter().map(|(_, tid)| *tid).collect();
        let mut found: HashMap<ThreadId, Vec<(i64, i64)>> = HashMap::new();
        let mut span = (i64::MAX, i64::MIN);
        spans(&self.scheduler, Kind::OffCpu, |interval| {
            let end = interval.end.unwrap_or(interval.start);
            span = (span.0.min(interval.start), span.1.max(end));
            if tids.contains(&interval.thread.1) {
                processes.learn(interval.thread);
                found.entry(interval.thread).or_default().push((interval.start, end));
            }
        })?;
        let threads: HashSet<ThreadId> =
            threads.into_iter().map(|thread| (processes.of(thread), thread.1)).collect();
        let mut off_cpu: HashMap<ThreadId, Vec<(i64, i64)>> = HashMap::new();
        for (thread, mut intervals) in found {
            let thread = (processes.of(thread), thread.1);
            if threads.contains(&thread) {
                off_cpu.entry(thread).or_default().append(&mut intervals);
            }
        }
        off_cpu.values_mut().for_each(|intervals| intervals.sort_unstable());
        let threads_count = threads.len();
        let is_common = !off_cpu.is_empty();
        Ok(is_common.then_some(Known { processes, off_cpu, span, threads_count, has_strays }))
    }

    /// Returns the offset of the clocks and its error, rounding included.
    fn offset(&self) -> Result<StatedOffset, AnalyzeError> {
        let Self { calls, scheduler, stated, .. } = self;
        let hosts = [&calls.run.host.name, &scheduler.run.host.name];
        if hosts.iter().all(|name| !name.is_empty()) && hosts[0] != hosts[1] {
            return Err(AnalyzeError::Query(format!(
                "{} is of host {:?}, {} of {:?}: their processes have nothing in common",
                calls.name, hosts[0], scheduler.name, hosts[1]
            )));
        }
        let why = if stated.is_none() { clocks::why_not_one(calls, scheduler) } else { None };
        if let Some(why) = why {
            return Err(AnalyzeError::Query(format!(
                "the scheduler rows of {} cannot be joined with the calls of {} on one clock: {why}. If you know how their clocks \
                 relate, state it: `analyze merge CALLS.parquet SCHED.parquet --offset NS --offset-error NS --out \
                 JOINED.parquet` (0 and 0: they are the same)",
                scheduler.name, calls.name
            )));
        }
        let stated = stated.unwrap_or_default();
        let rounded = |file: &RunFile| file.run.clock.resolution_ns.unwrap_or(0).max(0);
        let error_ns = stated.error_ns.saturating_add(rounded(calls)).saturating_add(rounded(scheduler));
        Ok(StatedOffset { error_ns, ..stated })
    }

    /// Checks that threads were on a CPU when they entered and left calls.
    fn check(&self, known: &Known, clock: StatedOffset) -> Result<(), AnalyzeError> {
        // The time by which a moment lies within an off-CPU interval of the thread, beyond the error; at most 0 if it need not.
        let depth_ns = |thread: ThreadId, at: i64| {
            let at = at.saturating_sub(clock.offset_ns);
            let intervals = known.off_cpu.get(&thread).map_or(&[][..], Vec::as_slice);
            let before = intervals.partition_point(|interval| interval.0 < at);
            let interval = before.checked_sub(1).and_then(|index| intervals.get(index));
            let depth = |(start, end): &(i64, i64)| at.saturating_sub(*start).min(end.saturating_sub(at));
            interval.map_or(0, depth).saturating_sub(clock.error_ns)
        };
        let (mut calls_count, mut wrong_count, mut deepest_ns) = (0_u64, 0_u64, 0);
        spans(&self.calls, Kind::Call, |call| {
            let thread = (known.processes.of(call.thread), call.thread.1);
            let depth =
                [Some(call.start), call.end].into_iter().flatten().map(|at| depth_ns(thread, at)).max();
            let depth = depth.unwrap_or(0);
            calls_count += 1;
            wrong_count += u64::from(depth > 0);
            deepest_ns = deepest_ns.max(depth);
        })?;
        if wrong_count == 0 {
            return Ok(());
        }
        Err(AnalyzeError::Query(format!(
            "{wrong_count} of {calls_count} calls of {} begin or end while their thread is off CPU by {}, up to {} further than the \
             error of the clock ({}) allows: the offset is another one, or its error is larger (--offset, --offset-error)",
            self.calls.name,
            self.scheduler.name,
            Nanos(deepest_ns),
            Nanos(clock.error_ns)
        )))
    }

    /// Joins the runs and writes them to `out`; `None` if they have no thread in common.
    ///
    /// # Errors
    /// Returns an error if it is not known how the clocks relate, if the rows contradict what is known, if the runs cannot
    /// be read, or if `out` cannot be written.
    pub(super) async fn join(self, out: &Path, force: bool) -> Result<Option<Joined>, AnalyzeError> {
        let out = out.to_owned();
        blocking(move || {
            let Some(known) = self.known()? else { return Ok(None) };
            let clock = self.offset()?;
            self.check(&known, clock)?;
            let moving = Moving::new(&self, &known, clock)?;
            let ours = plain::batches(self.calls.paths.clone(), None).map(|batch| {
                let batch = batch?;
                if known.has_strays { with(&batch, known.processes.filled(&batch)?) } else { Ok(batch) }
            });
            let theirs = plain::batches(self.scheduler.paths.clone(), None).map(|batch| moving.batch(&batch?));
            let rows: Vec<Box<dyn Iterator<Item = Result<RecordBatch, AnalyzeError>> + '_>> =
                vec![Box::new(ours), Box::new(theirs)];
            let finished = trace_writer::write(&out, force, InOrder::new(rows), || {
                self.described(&known, clock, moving.outside_count.get())
            })?;
            let sentence = format!(
                "the scheduler rows of {} are joined with the calls of {}: they have {} of {} threads with calls",
                self.scheduler.name,
                self.calls.name,
                known.off_cpu.len(),
                known.threads_count
            );
            Ok(Some(Joined { finished, sentence }))
        })
        .await
    }

    /// Builds the metadata of the joined run: those of the calls, with what the scheduler trace adds.
    fn described(&self, known: &Known, clock: StatedOffset, outside_count: u64) -> Run {
        let Self { calls, scheduler, .. } = self;
        let (mut whole, other) = (calls.run.clone(), &scheduler.run);
        let StatedOffset { offset_ns, error_ns } = clock;
        let moved = |ts: i64| ts.saturating_add(offset_ns);
        (whole.part_number, whole.part_is_last) = (0, false);
        if whole.host.name.is_empty() {
            whole.host = other.host.clone();
        }
        whole.lost_is_counted &= other.lost_is_counted;
        whole.throttling_is_recorded = other.throttling_is_recorded;
        let lost = other.lost.iter().cloned().map(|mut lost| {
            lost.from_ns = moved(lost.from_ns).saturating_sub(error_ns);
            lost.to_ns = moved(lost.to_ns).saturating_add(error_ns);
            lost
        });
        add_new(&mut whole.lost, &lost.collect::<Vec<_>>());
        // Calls come from the other run only. A span without an end of its own stays within the bound of times.
        let stored =
            other.stored.iter().filter(|stored| !stored.is_of(Kind::Call)).cloned().map(|mut stored| {
                let bounded = |ns: i64| ns.clamp(-TIME_LIMIT_NS, TIME_LIMIT_NS);
                stored.from_ns = bounded(moved(stored.from_ns).saturating_sub(error_ns));
                stored.to_ns = bounded(moved(stored.to_ns).saturating_add(error_ns));
                stored
            });
        add_new(&mut whole.stored, &stored.collect::<Vec<_>>());
        add_new(&mut whole.redacted, &other.redacted);
        for process in &other.processes {
            match whole.processes.iter_mut().find(|own| own.pid == process.pid) {
                Some(own) if own.command.is_empty() => own.command.clone_from(&process.command),
                Some(_) => {}
                None => whole.processes.push(process.clone()),
            }
        }
        let mut names: HashMap<ThreadId, usize> = whole
            .threads
            .iter()
            .enumerate()
            .map(|(index, thread)| ((thread.pid, thread.tid), index))
            .collect();
        for thread in &other.threads {
            let pid = known.processes.of((thread.pid, thread.tid));
            match names.get(&(pid, thread.tid)).and_then(|index| whole.threads.get_mut(*index)) {
                Some(own) if own.comm.is_empty() => own.comm.clone_from(&thread.comm),
                Some(_) => {}
                None => {
                    names.insert((pid, thread.tid), whole.threads.len());
                    whole.threads.push(trace_schema::Thread { pid, ..thread.clone() });
                }
            }
        }
        let (from_ns, to_ns) = self.window(known.span, offset_ns);
        let pids = self.scheduled.iter().copied().chain(known.off_cpu.keys().map(|(pid, _)| *pid));
        whole.schedules.push(ScheduleSource {
            trace: scheduler.name.clone(),
            producer: other.producer.clone(),
            pids: pids.collect::<BTreeSet<_>>().into_iter().collect(),
            from_ns,
            to_ns,
            offset_ns,
            offset_error_ns: error_ns,
        });
        let limits = &mut whole.not_captured;
        limits.retain(|what| !what.starts_with(Run::NO_SCHEDULE));
        let theirs = other.not_captured.iter().filter(|what| !calls.run.not_captured.contains(what));
        limits.extend(theirs.map(|what| format!("in {}: {what}", scheduler.name)));
        if outside_count > 0 {
            let name = &calls.name;
            limits.push(format!("{outside_count} rows of {} outside of the time of {name}", scheduler.name));
        }
        if error_ns > 0 {
            limits.push(format!(
                "what the scheduler did to calls that begin or end within {} of an off-CPU interval of their thread: the clock of \
                 {} is known to that error",
                Nanos(error_ns),
                scheduler.name
            ));
        }
        whole
    }

    /// Returns from when to when the scheduler was watched, on the clock of the calls; `None` where that is as long as calls
    /// were recorded.
    fn window(&self, (first, last): (i64, i64), offset_ns: i64) -> (Option<i64>, Option<i64>) {
        let (ours, theirs) = (&self.calls.run.clock, &self.scheduler.run.clock);
        let knows = self.scheduler.run.knows_schedule_span() && theirs.end_ns > theirs.start_ns;
        let (first, last) = if knows { (theirs.start_ns, theirs.end_ns) } else { (first, last) };
        let (first, last) = (first.saturating_add(offset_ns), last.saturating_add(offset_ns));
        let has_end = ours.end_ns > ours.start_ns;
        (
            Some(first).filter(|first| !knows || *first > ours.start_ns),
            Some(last).filter(|last| !knows || !has_end || *last < ours.end_ns),
        )
    }
}

/// Result of a join.
pub(super) struct Joined {
    /// Number of rows and size of the joined run.
    pub(super) finished: Finished,
    /// What was joined.
    pub(super) sentence: String,
}

/// Moves the rows of a scheduler trace onto the clock of the calls.
struct Moving<'a> {
    pair: &'a Pair,
    processes: &'a Processes,
    offset_ns: i64,
    /// The time in which calls were recorded.
    from_ns: i64,
    to_ns: i64,
    /// Number of rows outside of that time, which are left out.
    outside_count: Cell<u64>,
}

impl<'a> Moving<'a> {
    fn new(pair: &'a Pair, known: &'a Known, clock: StatedOffset) -> Result<Self, AnalyzeError> {
        let of = &pair.calls.run.clock;
        let has_end = of.end_ns > of.start_ns;
        let (from_ns, to_ns) = if has_end { (of.start_ns, of.end_ns) } else { (i64::MIN, i64::MAX) };
        let (first, last) = known.span;
        let [first, last] = [first, last].map(|ts| ts.saturating_add(clock.offset_ns));
        if last < from_ns || first > to_ns {
            return Err(AnalyzeError::Query(format!(
                "{} has rows from {first} to {last} ns on the clock of {}, whose calls are from {from_ns} to {to_ns} ns: they have \
                 no time in common (--offset is added to the times of the scheduler)",
                pair.scheduler.name, pair.calls.name
            )));
        }
        let (processes, offset_ns) = (&known.processes, clock.offset_ns);
        Ok(Self { pair, processes, offset_ns, from_ns, to_ns, outside_count: Cell::new(0) })
    }

    /// Moves the rows of a batch, and leaves out those that the run has, or that lie outside of its time.
    fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch, AnalyzeError> {
        let kinds = texts(batch, "kind")?;
        let (ts, dur) = (numbers::<Int64Type>(batch, "ts")?, numbers::<Int64Type>(batch, "dur")?);
        let moved =
            Int64Array::from_iter_values(ts.values().iter().map(|ts| ts.saturating_add(self.offset_ns)));
        let mut columns = self.processes.filled(batch)?;
        let pids = numbers::<UInt32Type>(&with(batch, columns.clone())?, "pid")?;
        let mut outside_count = 0;
        let mask: BooleanArray = (0..batch.num_rows())
            .map(|row| {
                let (start, kind) = (moved.value(row), kinds.value(row));
                // Numbers of call stacks are those of each recording.
                let is_known = kind == Kind::Name.name()
                    || kind == Kind::Process.name() && self.pair.with_life.contains(&pids.value(row));
                let end = dur.at(row).map_or(i64::MAX, |dur| start.saturating_add(dur));
                let is_inside = start < self.to_ns && (end > self.from_ns || start >= self.from_ns);
                outside_count += u64::from(!is_known && !is_inside);
                Some(!is_known && is_inside)
            })
            .collect();
        self.outside_count.set(self.outside_count.get() + outside_count);
        columns.push(("ts", Arc::new(moved)));
        if batch.column_by_name("stack").is_some_and(|stack| stack.null_count() < stack.len()) {
            columns.push(("stack", new_null_array(&DataType::UInt32, batch.num_rows())));
        }
        let batch = with(batch, columns)?;
        filter_record_batch(&batch, &mask).map_err(|error| AnalyzeError::Damaged(error.to_string()))
    }
}
