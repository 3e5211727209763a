//! Coverage: whether a run's record holds what an answer needs. A row that is absent proves something only where every row
//! was stored.
//!
//! ```text
//! metadata: lost, stored, schedules ─┐
//! processes with rows of the scheduler ─┴─► Coverage ─► has_schedule(thread, span)   has_calls(process, function, span)
//! ```
//! The rows of a scheduler trace that was joined with calls of another source are on the calls' clock up to an error. A thread
//! is on a CPU when it enters and leaves a call. If it was on a CPU for longer than the error before and after that, every
//! off-CPU interval lies inside of the call or outside of it whatever the true offset is; if not, the call has no schedule.
//!
//! ```text
//! off CPU       ░░░░░░░░
//! with error  ├░░░░░░░░░░┤
//! call          ├──────────┤  begins here: open        ├───────┤ on record
//! ```

use std::sync::Arc;

use futures::TryStreamExt;
use trace_schema::{Class, Kind, Lost, Op, Run, ScheduleSource};

use crate::{
    columns::{integers, strings},
    error::AnalyzeError,
    events::Events,
    hash::{HashMap, HashSet},
    reading::Names,
    run_file::RunFile,
    spans::Spans,
};

const WATCHED: &str = "SELECT run, CAST(pid AS BIGINT) AS pid, min(ts) AS first, max(ts + coalesce(dur, 0)) AS last \
     FROM events WHERE kind = 'off_cpu' GROUP BY run, pid";
const OFF_CPU: &str = "SELECT run, CAST(pid AS BIGINT) AS pid, CAST(tid AS BIGINT) AS tid, ts, coalesce(dur, 0) AS dur \
     FROM events WHERE kind = 'off_cpu' AND pid IN (SELECT pid FROM events WHERE kind = 'call')";

/// Names under which a recorder counts what it loses of the scheduler.
const SCHEDULER: [&str; 2] = ["off_cpu", "run"];
/// Names under which it counts losses that take nothing from calls, threads and their times.
const HARMLESS: [&str; 4] = ["stack", "fault", "process", "mark"];

/// What the scheduler has rows of.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The processes of each run, by name, and the first and last time of their rows.
    processes: HashMap<(String, u32), (i64, i64)>,
    /// For each thread with calls, by run, process and thread, the times that may be off CPU within the error of its clock.
    /// Only runs with such an error have them.
    blurred: HashMap<(String, u32, u32), Spans>,
}

impl Watched {
    /// Reads them from the events of some files.
    ///
    /// # Errors
    /// Returns an error if the events cannot be read.
    pub async fn read(events: &dyn Events, files: &[RunFile]) -> Result<Self, AnalyzeError> {
        let mut processes = HashMap::default();
        let mut batches = events.select(WATCHED);
        while let Some(batch) = batches.try_next().await? {
            let (runs, pids) = (strings(&batch, "run")?, integers(&batch, "pid")?);
            let (first, last) = (integers(&batch, "first")?, integers(&batch, "last")?);
            processes.extend((0..batch.num_rows()).map(|row| {
                ((runs.value(row).to_owned(), pids.value(row) as u32), (first.value(row), last.value(row)))
            }));
        }
        let errors = files.iter().map(|file| (file.name.as_str(), clock_error_ns(&file.run)));
        let errors: HashMap<&str, i64> = errors.filter(|(_, error_ns)| *error_ns > 0).collect();
        let blurred = if errors.is_empty() { HashMap::default() } else { blurred(events, &errors).await? };
        Ok(Self { processes, blurred })
    }
}

/// Returns the error of the scheduler's times against those of calls, in nanoseconds.
fn clock_error_ns(run: &Run) -> i64 {
    run.schedules.iter().map(|source| source.offset_error_ns).max().unwrap_or(0)
}

/// Reads the off-CPU intervals of threads with calls, each widened by the error of its run.
async fn blurred(
    events: &dyn Events,
    errors: &HashMap<&str, i64>,
) -> Result<HashMap<(String, u32, u32), Spans>, AnalyzeError> {
    let mut found: HashMap<(String, u32, u32), Vec<(i64, i64)>> = HashMap::default();
    let mut batches = events.select(OFF_CPU);
    while let Some(batch) = batches.try_next().await? {
        let runs = strings(&batch, "run")?;
        let (pids, tids) = (integers(&batch, "pid")?, integers(&batch, "tid")?);
        let (starts, lengths) = (integers(&batch, "ts")?, integers(&batch, "dur")?);
        for row in 0..batch.num_rows() {
            let Some(error_ns) = errors.get(runs.value(row)) else { continue };
            let start = starts.value(row);
            let end = start.saturating_add(lengths.value(row).max(0));
            let thread = (runs.value(row).to_owned(), pids.value(row) as u32, tids.value(row) as u32);
            let span = (start.saturating_sub(*error_ns), end.saturating_add(*error_ns));
            found.entry(thread).or_default().push(span);
        }
    }
    Ok(found.into_iter().map(|(thread, spans)| (thread, spans.into())).collect())
}

/// A span in which events are missing. An absent field stands for all.
#[derive(Clone, Copy, Debug)]
struct Hole {
    from: i64,
    to: i64,
    op: Option<u32>,
    pid: Option<u32>,
    tid: Option<u32>,
}

/// Holes in the order of their start, and for each the latest end so far, so that a search can stop early.
#[derive(Debug, Default)]
struct Holes {
    all: Vec<Hole>,
    ends: Vec<i64>,
}

impl Holes {
    fn new(mut all: Vec<Hole>) -> Self {
        all.sort_unstable_by_key(|hole| hole.from);
        let latest = |latest: &mut i64, hole: &Hole| {
            *latest = hole.to.max(*latest);
            Some(*latest)
        };
        let ends = all.iter().scan(i64::MIN, latest).collect();
        Self { all, ends }
    }

    /// Returns whether a hole that `is_meant` accepts overlaps `[from, to)`; an empty span is a moment.
    fn overlap(&self, from: i64, to: i64, is_meant: impl Fn(&Hole) -> bool) -> bool {
        let first = self.ends.partition_point(|end| *end <= from);
        let last = self.all.partition_point(|hole| hole.from < to.max(from.saturating_add(1)));
        self.all.get(first..last).unwrap_or_default().iter().any(|hole| hole.to > from && is_meant(hole))
    }
}

#[derive(Debug, Default)]
struct OfRun {
    watched: HashSet<u32>,
    schedule: Holes,
    calls: Holes,
    is_without_kernel_launches: bool,
}

/// Times that may be off CPU within the error of the scheduler's clock, by run, process and thread. Only threads of runs with
/// such an error have them. Runs are numbers of [`Names`].
#[derive(Clone, Debug, Default)]
pub struct Blur(Arc<HashMap<(u32, u32, u32), Spans>>);

impl Blur {
    /// Returns whether it is not known if off-CPU intervals lie inside of a call from `from` to `to`, in nanoseconds, or
    /// outside of it: the thread may be off CPU at one of the two, where it must be on a CPU.
    pub fn touches(&self, thread: (u32, u32, u32), from: i64, to: i64) -> bool {
        self.0.get(&thread).is_some_and(|spans| spans.contains(from) || spans.contains(to))
    }
}

/// Returns the times for which no source of the scheduler has the rows of a process, for each process that one of them has.
fn outside(sources: &[ScheduleSource]) -> Vec<Hole> {
    let mut windows: HashMap<u32, Vec<(i64, i64)>> = HashMap::default();
    for source in sources {
        let from = source.from_ns.map_or(i64::MIN, |from| from.saturating_add(source.offset_error_ns));
        let to = source.to_ns.map_or(i64::MAX, |to| to.saturating_sub(source.offset_error_ns));
        for pid in &source.pids {
            windows.entry(*pid).or_default().push((from, to));
        }
    }
    let mut holes = Vec::new();
    for (pid, mut windows) in windows {
        windows.sort_unstable();
        let mut hole = |from, to| {
            if from < to {
                holes.push(Hole { from, to, op: None, pid: Some(pid), tid: None });
            }
        };
        let mut at = i64::MIN;
        for (from, to) in windows {
            hole(at, from);
            at = at.max(to);
        }
        hole(at, i64::MAX);
    }
    holes
}

/// What some runs recorded of their threads and calls. Runs and functions are numbers of [`Names`].
#[derive(Debug, Default)]
pub struct Coverage {
    runs: HashMap<u32, OfRun>,
    blur: Blur,
}

/// Returns whether a symbol is the function `op` or one of its versions (`_v2`, `_ptsz`).
pub fn is_version_of(symbol: &str, op: &str) -> bool {
    let version = symbol.strip_prefix(op);
    version.is_some_and(|rest| rest.is_empty() || rest.starts_with("_v") || rest.starts_with("_pt"))
}

/// Launches of graphs, which every profile of `capture` probes. The other launches are those of kernels.
pub const GRAPH_LAUNCHES: [Op; 2] = [Op::CudaGraphLaunch, Op::CuGraphLaunch];

/// Returns whether launches of kernels can have rows in a run: its recorder placed a probe in a function that makes them, or
/// it is of a source that places no probes. If not, there may be launches between any two of its calls.
pub fn probes_kernel_launches(run: &Run) -> bool {
    let mut launches =
        Op::ALL.iter().filter(|op| op.class() == Class::Launch && !GRAPH_LAUNCHES.contains(op));
    let is_probed = |op: &Op| {
        let mut placed = run.probes.iter().filter(|probe| probe.error.is_none());
        placed.any(|probe| is_version_of(&probe.symbol, op.name()))
    };
    run.probes.is_empty() || launches.any(is_probed)
}

/// Returns the function of a probed symbol.
fn function(symbol: &str) -> Option<&'static str> {
    Op::ALL.iter().map(|op| op.name()).find(|op| is_version_of(symbol, op))
}

impl Coverage {
    /// Collects the coverage of the runs of some files.
    pub fn of_files(files: &[RunFile], watched: &Watched, names: &mut Names) -> Self {
        Self::new(files.iter().map(|file| (file.name.as_str(), &file.run)), watched, names)
    }

    /// Collects the coverage of runs, which are given by name.
    pub fn new<'a>(
        runs: impl Iterator<Item = (&'a str, &'a Run)>,
        watched: &Watched,
        names: &mut Names,
    ) -> Self {
        let some = |id: u32| (id != 0).then_some(id);
        let mut found: HashMap<u32, OfRun> = HashMap::default();
        for (name, run) in runs {
            let lost = || run.lost.iter().filter(|lost| lost.count > 0);
            let is_scheduler = |lost: &&Lost| SCHEDULER.contains(&lost.probe.as_str());
            let is_call = |lost: &&Lost| !is_scheduler(lost) && !HARMLESS.contains(&lost.probe.as_str());
            let hole =
                |lost: &Lost, op| Hole { from: lost.from_ns, to: lost.to_ns, op, pid: None, tid: None };
            let mut schedule: Vec<Hole> = lost().filter(is_scheduler).map(|lost| hole(lost, None)).collect();
            let mut calls: Vec<Hole> = lost()
                .filter(is_call)
                .map(|lost| hole(lost, function(&lost.probe).map(|op| names.number(op))))
                .collect();
            for stored in run.stored.iter().filter(|stored| !stored.is_whole()) {
                let op = (!stored.op.is_empty()).then(|| names.number(&stored.op));
                let (from, to) = (stored.from_ns, stored.to_ns);
                let hole = Hole { from, to, op, pid: some(stored.pid), tid: some(stored.tid) };
                if stored.is_of(Kind::OffCpu) {
                    schedule.push(Hole { op: None, ..hole });
                } else if stored.is_of(Kind::Call) {
                    calls.push(hole);
                }
            }
            // A recorder watches from its beginning to its end. Another source's rows may cover a part of the run.
            schedule.extend(outside(&run.schedules));
            if run.schedules.is_empty() && !run.knows_schedule_span() {
                let of_run =
                    watched.processes.iter().filter(|((of, _), _)| of == name).map(|(_, span)| *span);
                let span = of_run.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
                let hole = |from, to| Hole { from, to, op: None, pid: None, tid: None };
                schedule.extend(
                    span.into_iter().flat_map(|(first, last)| [hole(i64::MIN, first), hole(last, i64::MAX)]),
                );
            }
            let (schedule, calls) = (Holes::new(schedule), Holes::new(calls));
            let is_without_kernel_launches = !probes_kernel_launches(run);
            let of_run = OfRun { schedule, calls, is_without_kernel_launches, ..OfRun::default() };
            found.insert(names.number(name), of_run);
        }
        // Rows without a file have no metadata, and nothing of them was lost.
        for (name, pid) in watched.processes.keys() {
            found.entry(names.number(name)).or_default().watched.insert(*pid);
        }
        let blurred = watched.blurred.iter();
        let blurred =
            blurred.map(|((name, pid, tid), spans)| ((names.number(name), *pid, *tid), spans.clone()));
        Self { runs: found, blur: Blur(Arc::new(blurred.collect())) }
    }

    /// Returns what the error of the scheduler's clock leaves open.
    pub fn blur(&self) -> &Blur {
        &self.blur
    }

    /// Returns whether switches or calls of a process may lack their rows, in a run that has rows of the scheduler.
    pub fn is_partial(&self, (run, pid): (u32, u32)) -> bool {
        self.runs.get(&run).is_some_and(|of_run| {
            let has_holes = || !of_run.schedule.all.is_empty() || !of_run.calls.all.is_empty();
            !of_run.watched.is_empty()
                && (!of_run.watched.contains(&pid) || has_holes() || !self.blur.0.is_empty())
        })
    }

    /// Returns whether [`Self::has_schedule`] is true of every thread of a process at any time.
    pub fn has_whole_schedule(&self, (run, pid): (u32, u32)) -> bool {
        let is_whole = |of_run: &OfRun| of_run.watched.contains(&pid) && of_run.schedule.all.is_empty();
        self.blur.0.is_empty() && self.runs.get(&run).is_some_and(is_whole)
    }

    /// Returns whether every switch of a thread in `[from, to)`, in nanoseconds on the clock of the scheduler, has its row: run,
    /// process and thread.
    pub fn has_switches(&self, (run, pid, tid): (u32, u32, u32), from: i64, to: i64) -> bool {
        let Some(of_run) = self.runs.get(&run) else { return false };
        let is_meant = |hole: &Hole| {
            hole.pid.is_none_or(|other| other == pid) && hole.tid.is_none_or(|other| other == tid)
        };
        of_run.watched.contains(&pid) && !of_run.schedule.overlap(from, to, is_meant)
    }

    /// Returns whether it is on record what the scheduler did to a thread in `[from, to)`, in nanoseconds, which begins and ends
    /// where a call of the thread does: run, process and thread.
    pub fn has_schedule(&self, thread: (u32, u32, u32), from: i64, to: i64) -> bool {
        self.has_switches(thread, from, to) && !self.blur.touches(thread, from, to)
    }

    /// Returns whether every call that a process made in `[from, to)`, in nanoseconds, has its row: of the functions that
    /// `wanted` selects, and of all if a loss does not say of which.
    pub fn has_calls(
        &self,
        (run, pid): (u32, u32),
        from: i64,
        to: i64,
        wanted: impl Fn(u32) -> bool,
    ) -> bool {
        let is_meant = |hole: &Hole| hole.pid.is_none_or(|other| other == pid) && hole.op.is_none_or(&wanted);
        self.runs.get(&run).is_none_or(|of_run| !of_run.calls.overlap(from, to, is_meant))
    }

    /// Returns whether launches of kernels can have rows in a run, as [`probes_kernel_launches`] does.
    pub fn has_kernel_launches(&self, run: u32) -> bool {
        self.runs.get(&run).is_none_or(|of_run| !of_run.is_without_kernel_launches)
    }

    /// Returns whether every call of a run has its row, as [`Self::has_calls`] does for a span of one process.
    pub fn has_all_calls(&self, run: u32, wanted: impl Fn(u32) -> bool) -> bool {
        self.runs
            .get(&run)
            .is_none_or(|of_run| !of_run.calls.all.iter().any(|hole| hole.op.is_none_or(&wanted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace_schema::Stored;

    #[test]
    fn losses_weaken_what_they_touch() {
        let lost = |probe: &str, from_ns, to_ns| Lost { probe: probe.to_owned(), from_ns, to_ns, count: 3 };
        let stored = |kind: Kind, op: &str, tid, made: Option<u64>| Stored {
            kind: kind.name().to_owned(),
            op: op.to_owned(),
            pid: 1,
            tid,
            from_ns: 1_000,
            to_ns: 2_000,
            made_count: made,
            stored_count: 5,
        };
        let run = Run {
            lost: vec![
                lost("stack", 0, 100),
                lost("mark", 0, 100),
                lost("off_cpu", 10, 40),
                lost("off_cpu", 20, 30),
                lost("cudaFree", 50, 60),
                Lost { count: 0, ..lost("run", 70, 80) },
            ],
            stored: vec![
                stored(Kind::Call, "cudaLaunchKernel", 0, Some(9)),
                stored(Kind::Call, "cudaMalloc", 0, Some(5)),
                stored(Kind::OffCpu, "", 7, None),
            ],
            ..Run::default()
        };
        let mut names = Names::default();
        let processes = [(("r".to_owned(), 1), (5, 2_900))].into_iter().collect();
        let watched = Watched { processes, ..Watched::default() };
        let coverage = Coverage::new([("r", &run)].into_iter(), &watched, &mut names);
        let r = names.number("r");
        let schedule = |tid, from, to| coverage.has_schedule((r, 1, tid), from, to);
        assert!(schedule(1, 0, 10) && !schedule(1, 0, 11) && !schedule(1, 39, 41) && schedule(1, 40, 900));
        assert!(!schedule(1, 15, 15) && schedule(1, 9, 9), "a moment");
        assert!(!schedule(7, 1_500, 1_501) && schedule(8, 1_500, 1_501) && schedule(7, 2_000, 3_000));
        assert!(!coverage.has_schedule((r, 2, 1), 0, 1), "nothing of that process is on record");
        assert!(coverage.is_partial((r, 1)) && coverage.is_partial((r, 2)));
        assert!(!coverage.has_whole_schedule((r, 1)), "it has losses");
        let recorded = Run { probes: vec![trace_schema::AttachedProbe::default()], ..Run::default() };
        let without_losses = Coverage::new([("r", &recorded)].into_iter(), &watched, &mut names);
        let of_process = |pid| without_losses.has_whole_schedule((r, pid));
        assert!(of_process(1) && !of_process(2) && without_losses.has_schedule((r, 1, 9), 0, i64::MAX));
        let whole = Coverage::new([("r", &Run::default())].into_iter(), &Watched::default(), &mut names);
        assert!(!whole.is_partial((r, 1)), "no call of the run has its schedule");
        let [launch, malloc, free] =
            ["cudaLaunchKernel", "cudaMalloc", "cudaFree"].map(|name| names.number(name));
        let calls = |op, from, to| coverage.has_calls((r, 1), from, to, |other| other == op);
        assert!(
            calls(free, 0, 50) && !calls(free, 55, 56) && calls(launch, 55, 56),
            "a loss is of its function"
        );
        let all_calls = |op| coverage.has_all_calls(r, |other| other == op);
        assert!(all_calls(malloc) && !all_calls(launch) && !all_calls(free));
        assert!(!calls(launch, 1_999, 2_001) && calls(malloc, 1_000, 2_000) && calls(launch, 2_000, 2_001));
    }

    #[test]
    fn a_recorder_without_probes_in_launches_has_none() {
        let run = |symbols: &[(&str, Option<&str>)]| Run {
            probes: symbols
                .iter()
                .map(|(symbol, error)| trace_schema::AttachedProbe {
                    symbol: (*symbol).to_owned(),
                    error: error.map(str::to_owned),
                    ..trace_schema::AttachedProbe::default()
                })
                .collect(),
            ..Run::default()
        };
        let runs = [
            ("light", run(&[("cudaGraphLaunch_ptsz", None), ("cudaFree", None)])),
            ("failed", run(&[("cudaLaunchKernel", Some("no room"))])),
            ("full", run(&[("cudaFree", None), ("cudaLaunchKernel_ptsz", None)])),
            ("imported", Run::default()),
        ];
        let mut names = Names::default();
        let each = runs.iter().map(|(name, run)| (*name, run));
        let coverage = Coverage::new(each, &Watched::default(), &mut names);
        let found = runs.each_ref().map(|(name, _)| coverage.has_kernel_launches(names.number(name)));
        assert_eq!(found, [false, false, true, true]);
    }

    #[test]
    fn rows_of_another_source_cover_what_lies_between_them() {
        let mut names = Names::default();
        let rows = [((1, 2), (20, 60)), ((1, 3), (10, 50)), ((2, 2), (10, 50))];
        let rows = rows.into_iter().map(|((run, pid), span)| ((format!("r{run}"), pid), span));
        let imported = Run::default();
        let recorded = Run { probes: vec![trace_schema::AttachedProbe::default()], ..Run::default() };
        let runs = [("r1", &imported), ("r2", &recorded)];
        let watched = Watched { processes: rows.collect(), ..Watched::default() };
        let coverage = Coverage::new(runs.into_iter(), &watched, &mut names);
        let has = |run: &str, from, to| coverage.has_schedule((names.known(run).unwrap(), 2, 2), from, to);
        assert!(has("r1", 10, 60) && !has("r1", 9, 12) && !has("r1", 59, 61));
        assert!(has("r2", 0, 1_000));
    }
    #[test]
    fn what_is_smaller_than_the_error_of_a_clock_is_open() {
        let mut names = Names::default();
        let source = ScheduleSource {
            pids: vec![1],
            from_ns: Some(0),
            to_ns: Some(1_000),
            offset_error_ns: 5,
            ..ScheduleSource::default()
        };
        // The calls' recorder knows nothing of the scheduler of the other source, and sees process 2 itself.
        let probes = vec![trace_schema::AttachedProbe::default()];
        let run = Run { probes, schedules: vec![source], ..Run::default() };
        let of = |pid| ("r".to_owned(), pid);
        let watched = Watched {
            processes: [(of(1), (0, 1_000)), (of(2), (0, 1_000))].into_iter().collect(),
            blurred: [(("r".to_owned(), 1, 1), vec![(95, 205), (395, 405)].into())].into_iter().collect(),
        };
        let coverage = Coverage::new([("r", &run)].into_iter(), &watched, &mut names);
        let r = names.number("r");
        let has = |pid, from, to| coverage.has_schedule((r, pid, pid), from, to);
        assert!(
            has(1, 94, 206) && has(1, 206, 394) && has(1, 406, 900),
            "every interval is inside or outside"
        );
        for (from, to) in [(95, 300), (150, 300), (205, 300), (300, 395), (300, 405), (50, 150)] {
            assert!(!has(1, from, to), "{from} to {to}");
        }
        assert!(!has(1, 4, 50) && has(1, 5, 50) && has(1, 500, 995) && !has(1, 500, 996), "its rows end");
        assert!(has(2, -100, 2_000), "the other process is of the recorder");
        // Two sources that follow one another cover what either of them covers.
        let source = |from_ns, to_ns| ScheduleSource {
            pids: vec![1],
            from_ns: Some(from_ns),
            to_ns: Some(to_ns),
            ..ScheduleSource::default()
        };
        let run = Run { schedules: vec![source(700, 900), source(0, 500)], ..Run::default() };
        let coverage = Coverage::new([("r", &run)].into_iter(), &watched, &mut names);
        let has = |from, to| coverage.has_schedule((r, 1, 7), from, to);
        assert!(has(0, 500) && has(700, 900) && !has(400, 501) && !has(699, 800) && !has(800, 901));
    }
}
