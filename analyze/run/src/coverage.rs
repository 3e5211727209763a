//! Coverage: whether a run's record holds what an answer needs. A row that is absent proves something only where every row
//! was stored.
//!
//! ```text
//! metadata: lost, stored ─┐
//! processes with rows of the scheduler ─┴─► Coverage ─► has_schedule(thread, span)   has_calls(process, function, span)
//! ```

use futures::TryStreamExt;
use trace_schema::{Kind, Lost, Op, Run};

use crate::{
    columns::{integers, strings},
    error::AnalyzeError,
    events::Events,
    hash::{HashMap, HashSet},
    reading::Names,
    run_file::RunFile,
};

const WATCHED: &str = "SELECT run, CAST(pid AS BIGINT) AS pid, min(ts) AS first, max(ts + coalesce(dur, 0)) AS last \
     FROM events WHERE kind = 'off_cpu' GROUP BY run, pid";

/// Names under which a recorder counts what it loses of the scheduler.
const SCHEDULER: [&str; 2] = ["off_cpu", "run"];
/// Names under which it counts losses that take nothing from calls, threads and their times.
const HARMLESS: [&str; 3] = ["stack", "fault", "process"];

/// The processes of each run, by name, of which the scheduler has rows, and the first and last time of these rows.
#[derive(Clone, Debug, Default)]
pub struct Watched(HashMap<(String, u32), (i64, i64)>);

impl Watched {
    /// Reads them.
    ///
    /// # Errors
    /// Returns an error if the events cannot be read.
    pub async fn read(events: &dyn Events) -> Result<Self, AnalyzeError> {
        let mut found = HashMap::default();
        let mut batches = events.select(WATCHED);
        while let Some(batch) = batches.try_next().await? {
            let (runs, pids) = (strings(&batch, "run")?, integers(&batch, "pid")?);
            let (first, last) = (integers(&batch, "first")?, integers(&batch, "last")?);
            found.extend((0..batch.num_rows()).map(|row| {
                ((runs.value(row).to_owned(), pids.value(row) as u32), (first.value(row), last.value(row)))
            }));
        }
        Ok(Self(found))
    }
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
}

/// What some runs recorded of their threads and calls. Runs and functions are numbers of [`Names`].
#[derive(Debug, Default)]
pub struct Coverage(HashMap<u32, OfRun>);

/// Returns the function of a probed symbol, which may have a suffix of its version.
fn function(symbol: &str) -> Option<&'static str> {
    let is_of = |op: &Op| {
        let version = symbol.strip_prefix(op.name());
        version.is_some_and(|rest| rest.is_empty() || rest.starts_with("_v") || rest.starts_with("_pt"))
    };
    Op::ALL.iter().copied().find(is_of).map(Op::name)
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
            let is_counted = run.stored.iter().any(|stored| stored.is_of(Kind::OffCpu));
            if run.probes.is_empty() && !is_counted {
                let of_run = watched.0.iter().filter(|((of, _), _)| of == name).map(|(_, span)| *span);
                let span = of_run.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
                let hole = |from, to| Hole { from, to, op: None, pid: None, tid: None };
                schedule.extend(
                    span.into_iter().flat_map(|(first, last)| [hole(i64::MIN, first), hole(last, i64::MAX)]),
                );
            }
            let (schedule, calls) = (Holes::new(schedule), Holes::new(calls));
            found.insert(names.number(name), OfRun { watched: HashSet::default(), schedule, calls });
        }
        // Rows without a file have no metadata, and nothing of them was lost.
        for (name, pid) in watched.0.keys() {
            found.entry(names.number(name)).or_default().watched.insert(*pid);
        }
        Self(found)
    }

    /// Returns whether every switch of a thread in `[from, to)`, in nanoseconds, has its row: run, process and thread.
    pub fn has_schedule(&self, (run, pid, tid): (u32, u32, u32), from: i64, to: i64) -> bool {
        let Some(of_run) = self.0.get(&run) else { return false };
        let is_meant = |hole: &Hole| {
            hole.pid.is_none_or(|other| other == pid) && hole.tid.is_none_or(|other| other == tid)
        };
        of_run.watched.contains(&pid) && !of_run.schedule.overlap(from, to, is_meant)
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
        self.0.get(&run).is_none_or(|of_run| !of_run.calls.overlap(from, to, is_meant))
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
        let watched = Watched([(("r".to_owned(), 1), (5, 2_900))].into_iter().collect());
        let coverage = Coverage::new([("r", &run)].into_iter(), &watched, &mut names);
        let r = names.number("r");
        let schedule = |tid, from, to| coverage.has_schedule((r, 1, tid), from, to);
        assert!(schedule(1, 0, 10) && !schedule(1, 0, 11) && !schedule(1, 39, 41) && schedule(1, 40, 900));
        assert!(!schedule(1, 15, 15) && schedule(1, 9, 9), "a moment");
        assert!(!schedule(7, 1_500, 1_501) && schedule(8, 1_500, 1_501) && schedule(7, 2_000, 3_000));
        assert!(!coverage.has_schedule((r, 2, 1), 0, 1), "nothing of that process is on record");
        let [launch, malloc, free] =
            ["cudaLaunchKernel", "cudaMalloc", "cudaFree"].map(|name| names.number(name));
        let calls = |op, from, to| coverage.has_calls((r, 1), from, to, |other| other == op);
        assert!(
            calls(free, 0, 50) && !calls(free, 55, 56) && calls(launch, 55, 56),
            "a loss is of its function"
        );
        assert!(!calls(launch, 1_999, 2_001) && calls(malloc, 1_000, 2_000) && calls(launch, 2_000, 2_001));
    }
    #[test]
    fn rows_of_another_source_cover_what_lies_between_them() {
        let mut names = Names::default();
        let rows = [((1, 2), (20, 60)), ((1, 3), (10, 50)), ((2, 2), (10, 50))];
        let rows = rows.into_iter().map(|((run, pid), span)| ((format!("r{run}"), pid), span));
        let imported = Run::default();
        let recorded = Run { probes: vec![trace_schema::AttachedProbe::default()], ..Run::default() };
        let runs = [("r1", &imported), ("r2", &recorded)];
        let coverage = Coverage::new(runs.into_iter(), &Watched(rows.collect()), &mut names);
        let has = |run: &str, from, to| coverage.has_schedule((names.known(run).unwrap(), 2, 2), from, to);
        assert!(has("r1", 10, 60) && !has("r1", 9, 12) && !has("r1", 59, 61));
        assert!(has("r2", 0, 1_000));
    }
}
