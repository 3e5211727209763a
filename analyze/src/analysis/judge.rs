//! Judges every call: which were slow, and why.
//!
//! A call is *slow* if it took more than [`Params::slow_factor`] times what calls of its kind usually take
//! ([`super::strata`]), and at least [`Params::slow_by_ns`] more. That excess is divided among the causes
//! ([`super::causes`]); what of it was off-CPU time is followed to its root ([`super::walk`]): of all that kept
//! the call from running, the cause and the task with the largest part.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use trace_schema::Class;

use super::{
    call_columns::CallColumns,
    causes::{self, Cause, Division, Evidence, divide, largest},
    copy_cost::{self, Line},
    schedule::{State, Task},
    strata::{Baseline, Kind, MIN_CALLS, Sample, Strata},
    time_split::Parts,
    walk::{Link, walk},
};
use crate::{error::AnalyzeError, functions::derived::Derived};

/// What counts as slow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Params {
    /// Multiple of what is usual.
    pub(crate) slow_factor: f64,
    /// Nanoseconds above what is usual.
    pub(crate) slow_by_ns: i64,
}

impl Default for Params {
    fn default() -> Self {
        Self { slow_factor: 3.0, slow_by_ns: 0 }
    }
}

/// One slow call.
#[derive(Clone, Debug)]
pub(crate) struct SlowCall {
    /// Its row in `_calls`.
    pub(crate) row: usize,
    /// Its place among the finished calls of its function.
    place: usize,
    /// What it should have taken.
    pub(crate) baseline_ns: f64,
    pub(crate) excess_ns: f64,
    /// The excess, divided.
    pub(crate) division: Division,
    /// The cause with the largest part.
    pub(crate) verdict: Cause,
    /// The same, but followed along its chain.
    pub(crate) root: Cause,
    /// The task at the root.
    pub(crate) culprit: Option<Task>,
    /// Its time from end to end, if any of it was off CPU.
    pub(crate) links: Vec<Link>,
}

/// The 50th, 99th and 99.9th percentile of durations, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
}

impl Percentiles {
    fn of(mut values: Vec<f64>) -> Self {
        let mut at = |q| super::quantile::quantile(&mut values, q);
        Self { p50_ns: at(0.5), p99_ns: at(0.99), p999_ns: at(0.999) }
    }
}

/// One function of one run.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) run: u32,
    pub(crate) op: String,
    pub(crate) class: Option<Class>,
    pub(crate) calls_count: usize,
    pub(crate) censored_count: usize,
    /// Its slow calls, by thread and time: places in [`Judgement::slow`].
    pub(crate) slow: Vec<usize>,
    pub(crate) percentiles: Percentiles,
    /// What they would be without one cause: of off-CPU time by the scheduler, in all calls; else in slow ones.
    pub(crate) without: Vec<(Cause, Percentiles)>,
    /// Cost of bytes, where the function copies or sets and the sizes tell: the best over its directions.
    pub(crate) size_line: Option<Line>,
}

/// All verdicts.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// By run and function.
    pub(crate) functions: Vec<Function>,
    /// By function, thread and time.
    pub(crate) slow: Vec<SlowCall>,
}

/// The root of a chain: what kept the thread from running longest, and who.
pub(crate) fn root(links: &[Link]) -> Option<(Cause, Option<Task>)> {
    let mut totals: BTreeMap<(Cause, Option<Task>), i64> = BTreeMap::new();
    for link in links {
        if let Some(cause) = cause_of(link) {
            let total = totals.entry((cause, blamed(link))).or_default();
            *total = total.saturating_add(link.end - link.ts);
        }
    }
    let mut causes: BTreeMap<Cause, i64> = BTreeMap::new();
    for ((cause, _), ns) in &totals {
        let total = causes.entry(*cause).or_default();
        *total = total.saturating_add(*ns);
    }
    let (cause, _) = causes.into_iter().rev().max_by_key(|(_, ns)| *ns)?;
    let tasks = totals.into_iter().filter(|((of, task), _)| *of == cause && task.is_some());
    let task = tasks.rev().max_by_key(|(_, ns)| *ns).and_then(|((_, task), _)| task);
    Some((cause, task))
}

/// The cause that a link is; `None`: its thread ran, and nobody waited for that.
pub(crate) fn cause_of(link: &Link) -> Option<Cause> {
    match link.state {
        // A thread that another one waited for was at work.
        State::OnCpu => link.slept_in.map(Cause::Blocked),
        State::Preempted | State::Runnable => Some(Cause::Scheduler),
        State::Throttled => Some(Cause::Throttled),
        State::Blocked(blocker) => Some(Cause::Blocked(blocker)),
        State::Stopped => Some(Cause::Recorder),
        State::Unknown => None,
    }
}

impl SlowCall {
    /// Time that the threads which the call waited for could have run and had no CPU: what the scheduler did to
    /// it through others. None for a call whose purpose is to wait.
    pub(crate) fn behind_ns(&self) -> f64 {
        let through_others =
            self.links.iter().filter(|link| link.depth > 0 && self.verdict != Cause::GpuWait);
        let waits = through_others.filter(|link| cause_of(link) == Some(Cause::Scheduler));
        (waits.map(|link| link.end - link.ts).sum::<i64>() as f64).min(self.excess_ns)
    }
}

/// The task that a link is put down to.
pub(crate) fn blamed(link: &Link) -> Option<Task> {
    match link.state {
        State::OnCpu => {
            let (_, pid, tid) = link.thread;
            Some(Task { pid, tid, comm: u32::MAX })
        }
        _ => link.task,
    }
}

/// Times of one run in which events were lost.
fn lost_intervals(derived: &Derived, run: u32) -> Vec<(i64, i64)> {
    let mut lost: Vec<(i64, i64)> = derived
        .run(run)
        .into_iter()
        .flat_map(|run| run.lost.iter().filter(|lost| lost.count > 0))
        .map(|lost| (lost.from_ns, lost.to_ns))
        .collect();
    lost.sort_unstable();
    lost
}

/// What is known of every call before any is judged.
struct Facts<'a> {
    columns: &'a CallColumns,
    /// Runs that began in the middle of their processes' lives: no launch in them is known to be a first one.
    joined: HashSet<u32>,
}

impl Facts<'_> {
    fn first(&self, row: usize) -> bool {
        self.columns.first(row) && !self.joined.contains(&self.columns.thread(row).0)
    }

    /// Time in nested calls, if the longest of them is of another class.
    fn nested_ns(&self, row: usize) -> f64 {
        match self.columns.child_class(row) {
            Some(class) if class != self.columns.class(row) => self.columns.child_ns(row) as f64,
            _ => 0.0,
        }
    }

    fn kind(&self, row: usize) -> Kind {
        let size = self.columns.size(row).filter(|_| self.columns.is_sized(row));
        Kind {
            op: self.columns.op.at(row).unwrap_or_default(),
            direction: self.columns.direction.at(row),
            nested: Some(self.columns.depth(row) > 0),
            phase: self.columns.phase.at(row),
            size_class: size.and_then(|size| u64::try_from(size).ok()?.checked_ilog2()),
            first_call: self.first(row),
        }
    }

    /// What the scheduler took of a call against its will.
    fn taken(&self, row: usize, parts: &Parts) -> i64 {
        let unknown = if self.columns.is_sync(row) { 0 } else { parts.unknown };
        parts.preempted + parts.runnable + parts.throttled + parts.stopped + unknown
    }
}

/// Lines through the own running times of copies, by run, function and direction.
fn lines(facts: &Facts<'_>) -> Lines {
    let columns = facts.columns;
    let mut points: Points = HashMap::new();
    for row in (0..columns.len()).filter(|row| facts.columns.is_sized(*row)) {
        if let (Some(_), Some(size), Some(op)) = (columns.dur(row), columns.size(row), columns.op.at(row)) {
            let key = (columns.thread(row).0, op, columns.direction.at(row));
            points.entry(key).or_default().push((size as f64, columns.parts(row).on_cpu as f64));
        }
    }
    points.into_iter().filter_map(|(key, points)| Some((key, copy_cost::fit(&points)?))).collect()
}

/// Sizes and times, by run, function and direction.
type Points = HashMap<(u32, u32, Option<u32>), Vec<(f64, f64)>>;
/// Cost of bytes, by run, function and direction.
type Lines = HashMap<(u32, u32, Option<u32>), Line>;

/// The calls of one function of one run.
#[derive(Default)]
struct Calls {
    /// Rows of finished ones.
    finished: Vec<usize>,
    censored_count: usize,
}

/// Yardsticks for every call of every run.
struct Yardsticks {
    lines: Lines,
    /// The kind of each call, a place in its run's baselines.
    kinds: Vec<u32>,
    baselines: HashMap<u32, Vec<Baseline>>,
}

/// Calls by run and function, and what is usual for each.
fn measure(facts: &Facts<'_>) -> (BTreeMap<(u32, u32), Calls>, Yardsticks) {
    let columns = facts.columns;
    let mut strata: HashMap<u32, Strata> = HashMap::new();
    let mut functions: BTreeMap<(u32, u32), Calls> = BTreeMap::new();
    let mut kinds = Vec::with_capacity(columns.len());
    for row in 0..columns.len() {
        let run = columns.thread(row).0;
        let calls = functions.entry((run, columns.op.at(row).unwrap_or_default())).or_default();
        let Some(dur) = columns.dur(row) else {
            calls.censored_count += 1;
            kinds.push(0);
            continue;
        };
        calls.finished.push(row);
        let parts = columns.parts(row);
        let sample = Sample {
            own: (dur - facts.taken(row, &parts)) as f64,
            nested: facts.nested_ns(row),
            blocked: parts.blocked.map(|ns| ns as f64),
        };
        kinds.push(strata.entry(run).or_default().add(facts.kind(row), &sample));
    }
    let baselines = strata.iter().map(|(run, strata)| (*run, strata.baselines())).collect();
    (functions, Yardsticks { lines: lines(facts), kinds, baselines })
}

/// Judges one finished call; `None`: it was not slow. `place`: its place among those of its function.
/// `doubtful`: the record of its process has a hole where it ran.
fn judge_call(
    derived: &Derived,
    facts: &Facts<'_>,
    yardsticks: &Yardsticks,
    params: Params,
    (row, place): (usize, usize),
    doubtful: impl FnOnce(i64, i64) -> bool,
) -> Option<SlowCall> {
    let columns = facts.columns;
    let (thread, ts, dur) = (columns.thread(row), columns.ts(row), columns.dur(row)?);
    let baseline = yardsticks.baselines.get(&thread.0)?.get(yardsticks.kinds[row] as usize)?;
    let expected = baseline.expected();
    let excess = dur as f64 - expected;
    let is_slow = baseline.kind.calls_count >= MIN_CALLS
        && dur as f64 > params.slow_factor * expected
        && excess >= params.slow_by_ns as f64
        && excess > 0.0;
    if !is_slow {
        return None;
    }
    let parts = columns.parts(row);
    let op = columns.op.at(row)?;
    let line = columns.size(row).zip(yardsticks.lines.get(&(thread.0, op, columns.direction.at(row))));
    let size_cost = match line {
        Some((size, line)) => line.fixed_ns + line.ns_per_byte * size as f64,
        // Where no line fits, calls of the same size class tell.
        None if facts.columns.is_sized(row) => baseline.stratum_own.unwrap_or(0.0),
        None => 0.0,
    };
    let evidence = Evidence {
        excess,
        synchronises: facts.columns.is_sync(row),
        waiting: (parts.preempted + parts.runnable) as f64,
        throttled: parts.throttled as f64,
        blocked: causes::above(&parts.blocked, &baseline.kind.blocked),
        stopped: parts.stopped as f64,
        unknown: parts.unknown as f64,
        size: size_cost - expected,
        first_call: facts.first(row),
        nested: facts.nested_ns(row) - baseline.kind.nested,
        doubtful: doubtful(ts, ts + dur),
    };
    let division = divide(&evidence);
    let verdict = largest(&division);
    let links = if parts.on_cpu < dur { walk(&derived.schedule, thread, ts, ts + dur) } else { Vec::new() };
    let (root, culprit) = root(&links).filter(|_| verdict.is_off_cpu()).unwrap_or((verdict, None));
    Some(SlowCall {
        row,
        place,
        baseline_ns: expected,
        excess_ns: excess,
        division,
        verdict,
        root,
        culprit,
        links,
    })
}

/// Judges all calls.
///
/// # Errors
/// If a column cannot be read.
pub(crate) fn judge(derived: &Derived, params: Params) -> Result<Judgement, AnalyzeError> {
    let schedule = &derived.schedule;
    let columns = CallColumns::new(&derived.calls, &schedule.names)?;
    let joined = derived.runs.iter().filter(|(_, run)| run.joined_running);
    let facts = Facts {
        columns: &columns,
        joined: joined.filter_map(|(name, _)| schedule.names.known(name)).collect(),
    };
    let (functions, yardsticks) = measure(&facts);
    let watched: HashSet<(u32, u32)> = schedule.threads().map(|(run, pid, _)| (run, pid)).collect();
    let mut judgement = Judgement { functions: Vec::new(), slow: Vec::new() };
    for ((run, op), calls) in functions {
        let lost = lost_intervals(derived, run);
        let first_slow = judgement.slow.len();
        for (place, row) in calls.finished.iter().copied().enumerate() {
            let doubtful = |ts, end| {
                !watched.contains(&(run, columns.thread(row).1))
                    || lost.iter().any(|(from, to)| *from < end && ts < *to)
            };
            judgement.slow.extend(judge_call(derived, &facts, &yardsticks, params, (row, place), doubtful));
        }
        let durations: Vec<f64> =
            calls.finished.iter().map(|row| columns.dur(*row).unwrap_or_default() as f64).collect();
        let undisturbed = calls.finished.iter().zip(&durations).map(|(row, dur)| {
            let parts = columns.parts(*row);
            dur - (facts.taken(*row, &parts) - parts.throttled - parts.stopped) as f64
        });
        let without = counterfactuals(&judgement.slow[first_slow..], &durations, undisturbed.collect());
        let of_function =
            yardsticks.lines.iter().filter(|((of_run, of_op, _), _)| (*of_run, *of_op) == (run, op));
        judgement.functions.push(Function {
            run,
            op: columns.op.word(op).to_owned(),
            class: columns.class_of(op),
            calls_count: calls.finished.len(),
            censored_count: calls.censored_count,
            slow: (first_slow..judgement.slow.len()).collect(),
            percentiles: Percentiles::of(durations),
            without,
            size_line: of_function.map(|(_, line)| *line).max_by(|a, b| a.r_squared.total_cmp(&b.r_squared)),
        });
    }
    Ok(judgement)
}

/// Percentiles without each cause that has a part in a slow call; without the scheduler always, in all calls.
fn counterfactuals(slow: &[SlowCall], durations: &[f64], undisturbed: Vec<f64>) -> Vec<(Cause, Percentiles)> {
    let mut found = vec![(Cause::Scheduler, Percentiles::of(undisturbed))];
    for cause in Cause::ALL {
        let index = cause.index();
        if cause == Cause::Scheduler || slow.iter().all(|call| call.division[index] == 0.0) {
            continue;
        }
        let mut durations = durations.to_vec();
        for call in slow {
            durations[call.place] -= call.division[index];
        }
        found.push((cause, Percentiles::of(durations)));
    }
    found
}
