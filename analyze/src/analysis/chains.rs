//! Why slow calls were slow, function by function, and who is innocent.
//!
//! A call is *slow* if it took more than [`Params::slow_factor`] times its function's median. Its excess
//! over the median is divided among [`super::causes`]; the shares of a function are those of its slow calls' whole
//! excess, so they sum to 1. The scheduler is *cleared* when it accounts for at most [`CLEARED_RATIO`] of
//! that, with the figures that clear it: how many slow calls overlap any off-CPU time of their own thread,
//! and the percentile that would remain without that time.

use std::collections::HashMap;

use serde::Serialize;

use super::{
    causes::{Cause, Evidence, divide},
    copy_cost,
    holders::{self, Interval, Stint},
    info,
};
use crate::{
    columns::{Cell, booleans, floats, integers, strings},
    error::AnalyzeError,
    trace::Trace,
};

/// Fewer calls of a function allow no statement.
pub(crate) const MIN_CALLS: usize = 10;
/// Up to this share of the slow excess the scheduler is cleared.
pub(crate) const CLEARED_RATIO: f64 = 0.01;
/// From this share on it is guilty.
pub(crate) const GUILTY_RATIO: f64 = 0.05;
/// Slowest calls kept per function, for reading.
const EXAMPLES: usize = 5;
/// Culprits kept.
const CULPRITS: usize = 10;

/// What counts as slow.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Params {
    /// Multiple of the function's median.
    pub(crate) slow_factor: f64,
    /// The run begins in the middle of its processes' lives: the first launch seen of a kernel need not be its first.
    pub(crate) joined_running: bool,
}

impl Params {
    /// For one run, with this factor.
    pub(crate) fn of(trace: &Trace, slow_factor: f64) -> Self {
        Self { slow_factor, joined_running: trace.files().iter().any(|file| file.run.joined_running) }
    }
}

/// A share of something.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Share {
    pub(crate) cause: Cause,
    pub(crate) total_ns: f64,
    pub(crate) share_ratio: f64,
}

/// What the scheduler is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scheduler {
    /// It has an alibi.
    Cleared,
    /// Its share is small, but not nothing.
    Minor,
    /// It took a real share.
    Guilty,
    /// There is nothing to judge, or not enough.
    Inconclusive,
}

/// One slow call.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Example {
    pub(crate) ts_ns: i64,
    pub(crate) dur_ns: i64,
    pub(crate) pid: i64,
    pub(crate) tid: i64,
    pub(crate) size_bytes: Option<i64>,
    pub(crate) first_call: bool,
    /// Calls around it.
    pub(crate) depth: i64,
    /// Nested call of longest duration.
    pub(crate) child_op: Option<String>,
    pub(crate) parts: Vec<Share>,
}

/// Verdict on one function.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) op: String,
    pub(crate) class: Option<String>,
    pub(crate) calls_count: usize,
    pub(crate) censored_count: usize,
    pub(crate) slow_count: usize,
    /// Slow calls that overlap any off-CPU time of their own thread.
    pub(crate) overlapping_count: usize,
    /// Slow calls of which off-CPU time explains more than half of the excess.
    pub(crate) mostly_off_cpu_count: usize,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    /// 99th percentile if no call had lost the CPU against its will.
    pub(crate) p99_without_scheduler_ns: f64,
    pub(crate) excess_ns: f64,
    /// Causes with their shares of the excess; they sum to 1 if there is any.
    pub(crate) shares: Vec<Share>,
    pub(crate) scheduler: Scheduler,
    /// Cost of bytes, where the function copies or sets and the sizes tell.
    pub(crate) size_line: Option<copy_cost::Line>,
    pub(crate) examples: Vec<Example>,
    /// The verdict in a sentence.
    pub(crate) sentence: String,
}

/// A task that held a CPU while a slow call waited for it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Culprit {
    pub(crate) pid: i64,
    pub(crate) comm: String,
    pub(crate) held_ns: i64,
    /// Share of all waiting inside slow calls.
    pub(crate) share_ratio: f64,
}

/// Answer for one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Chains {
    pub(crate) run: String,
    pub(crate) params: Params,
    pub(crate) verdicts: Vec<Verdict>,
    /// Shares over all outermost slow calls together.
    pub(crate) overall: Vec<Share>,
    pub(crate) overall_excess_ns: f64,
    pub(crate) overall_slow_count: usize,
    pub(crate) culprits: Vec<Culprit>,
    pub(crate) waiting_in_slow_ns: i64,
    pub(crate) warnings: Vec<String>,
}

/// One call with what the query tells of it.
#[derive(Clone, Debug)]
struct Call {
    ts: i64,
    dur: Option<i64>,
    pid: i64,
    tid: i64,
    size: Option<i64>,
    direction: Option<String>,
    first: bool,
    preempted: f64,
    runnable: f64,
    blocked: f64,
    stopped: f64,
    unknown: f64,
    child: Option<String>,
    child_ns: f64,
    depth: i64,
}

impl Call {
    fn off_cpu(&self) -> f64 {
        self.preempted + self.runnable + self.blocked + self.stopped + self.unknown
    }
}

const QUERY: &str = "SELECT c.op, o.class, c.ts, c.dur, c.pid, c.tid, c.size_bytes, c.direction, c.depth, c.child_op, c.child_ns, \
     c.preempted_ns, c.runnable_ns, c.blocked_ns, c.stopped_ns, c.unknown_ns, c.first_call \
     FROM _calls c LEFT JOIN _ops o ON o.op = c.op";

/// The yardstick of one function: a row of the view `op_baseline`.
#[derive(Clone, Copy, Debug, Default)]
struct Baseline {
    p50: f64,
    p99: f64,
    p99_without: f64,
    usual_nested: f64,
}

async fn baselines(trace: &Trace) -> Result<HashMap<String, Baseline>, AnalyzeError> {
    let mut baselines = HashMap::new();
    for batch in &trace.batches("SELECT * FROM op_baseline").await? {
        let (op, p50, p99) = (strings(batch, "op")?, floats(batch, "p50_ns")?, floats(batch, "p99_ns")?);
        let without = floats(batch, "p99_without_scheduler_ns")?;
        let nested = floats(batch, "usual_nested_ns")?;
        for row in 0..batch.num_rows() {
            let baseline = Baseline {
                p50: p50.value(row),
                p99: p99.value(row),
                p99_without: without.value(row),
                usual_nested: nested.value(row),
            };
            baselines.insert(op.value(row).to_owned(), baseline);
        }
    }
    Ok(baselines)
}

/// Calls by function, with its class.
type Functions = HashMap<String, (Option<String>, Vec<Call>)>;

async fn calls(trace: &Trace) -> Result<Functions, AnalyzeError> {
    let mut functions = Functions::new();
    for batch in &trace.batches(QUERY).await? {
        let whole = |name| integers(batch, name);
        let text = |name| strings(batch, name);
        let (op, class, direction, child) =
            (text("op")?, text("class")?, text("direction")?, text("child_op")?);
        let (ts, dur, pid, tid) = (whole("ts")?, whole("dur")?, whole("pid")?, whole("tid")?);
        let (size, depth, child_ns) = (whole("size_bytes")?, whole("depth")?, whole("child_ns")?);
        let (preempted, runnable) = (whole("preempted_ns")?, whole("runnable_ns")?);
        let (blocked, stopped, unknown) = (whole("blocked_ns")?, whole("stopped_ns")?, whole("unknown_ns")?);
        let first = booleans(batch, "first_call")?;
        let ns = |array: &arrow::array::Int64Array, row| array.at(row).unwrap_or_default() as f64;
        for row in 0..batch.num_rows() {
            let function = functions
                .entry(op.value(row).to_owned())
                .or_insert_with(|| (class.at(row).map(str::to_owned), Vec::new()));
            function.1.push(Call {
                ts: ts.value(row),
                dur: dur.at(row),
                pid: pid.value(row),
                tid: tid.value(row),
                size: size.at(row),
                direction: direction.at(row).map(str::to_owned),
                first: first.at(row).unwrap_or(false),
                preempted: ns(&preempted, row),
                runnable: ns(&runnable, row),
                blocked: ns(&blocked, row),
                stopped: ns(&stopped, row),
                unknown: ns(&unknown, row),
                child: child.at(row).map(str::to_owned),
                child_ns: ns(&child_ns, row),
                depth: depth.value(row),
            });
        }
    }
    Ok(functions)
}

fn sum_up(parts: impl Iterator<Item = [(Cause, f64); 9]>, excess: f64) -> Vec<Share> {
    let mut totals = Cause::ALL.map(|cause| (cause, 0.0));
    for call in parts {
        for (total, (_, part)) in totals.iter_mut().zip(call) {
            total.1 += part;
        }
    }
    let ratio = |ns: f64| if excess > 0.0 { ns / excess } else { 0.0 };
    totals
        .into_iter()
        .filter(|(_, ns)| *ns > 0.0)
        .map(|(cause, total_ns)| Share { cause, total_ns, share_ratio: ratio(total_ns) })
        .collect()
}

/// A slow call with its division.
struct Slow<'a> {
    call: &'a Call,
    excess: f64,
    parts: [(Cause, f64); 9],
}

/// Everything about one function.
fn judge<'a>(
    op: &str,
    class: Option<&str>,
    calls: &'a [Call],
    class_of: &HashMap<String, Option<String>>,
    baseline: Baseline,
    params: Params,
) -> (Verdict, Vec<Slow<'a>>) {
    let synchronises = class == Some("sync");
    let finished: Vec<(&Call, f64)> =
        calls.iter().filter_map(|call| call.dur.map(|dur| (call, dur as f64))).collect();

    let sized = matches!(class, Some("copy" | "set"));
    let mut lines: HashMap<Option<&str>, Option<copy_cost::Line>> = HashMap::new();
    if sized {
        let mut points: HashMap<Option<&str>, Vec<(f64, f64)>> = HashMap::new();
        for (call, dur) in &finished {
            if let Some(size) = call.size {
                points
                    .entry(call.direction.as_deref())
                    .or_default()
                    .push((size as f64, dur - call.off_cpu()));
            }
        }
        lines = points.into_iter().map(|(direction, points)| (direction, copy_cost::fit(&points))).collect();
    }
    let other_kind = |child: &Option<String>| {
        child.as_ref().is_some_and(|child| class_of.get(child).cloned().flatten().as_deref() != class)
    };

    let enough = finished.len() >= MIN_CALLS;
    let slow: Vec<Slow> = finished
        .iter()
        .filter(|(_, dur)| enough && *dur > params.slow_factor * baseline.p50)
        .map(|(call, dur)| {
            let expected = lines
                .get(&call.direction.as_deref())
                .copied()
                .flatten()
                .zip(call.size)
                .map_or(0.0, |(line, size)| line.fixed_ns + line.ns_per_byte * size as f64);
            let evidence = Evidence {
                excess: dur - baseline.p50,
                synchronises,
                preempted: call.preempted,
                runnable: call.runnable,
                blocked: call.blocked,
                stopped: call.stopped,
                unknown: call.unknown,
                size: expected - baseline.p50,
                first_call: call.first,
                nested: if other_kind(&call.child) { call.child_ns - baseline.usual_nested } else { 0.0 },
            };
            Slow { call, excess: evidence.excess, parts: divide(&evidence) }
        })
        .collect();
    let excess: f64 = slow.iter().map(|slow| slow.excess).sum();
    let shares = sum_up(slow.iter().map(|slow| slow.parts), excess);
    let scheduler_ratio =
        shares.iter().find(|share| share.cause == Cause::Scheduler).map_or(0.0, |share| share.share_ratio);
    let scheduler = match (enough && !slow.is_empty(), scheduler_ratio) {
        (false, _) => Scheduler::Inconclusive,
        (true, ratio) if ratio <= CLEARED_RATIO => Scheduler::Cleared,
        (true, ratio) if ratio < GUILTY_RATIO => Scheduler::Minor,
        (true, _) => Scheduler::Guilty,
    };
    let mut examples: Vec<&Slow> = slow.iter().collect();
    examples.sort_by(|a, b| b.excess.total_cmp(&a.excess).then(a.call.ts.cmp(&b.call.ts)));
    let examples = examples.into_iter().take(EXAMPLES).map(example).collect();
    let mut verdict = Verdict {
        op: op.to_owned(),
        class: class.map(str::to_owned),
        calls_count: finished.len(),
        censored_count: calls.len() - finished.len(),
        slow_count: slow.len(),
        overlapping_count: slow.iter().filter(|slow| slow.call.off_cpu() > 0.0).count(),
        mostly_off_cpu_count: slow.iter().filter(|slow| slow.call.off_cpu() > slow.excess / 2.0).count(),
        p50_ns: baseline.p50,
        p99_ns: baseline.p99,
        p99_without_scheduler_ns: baseline.p99_without,
        excess_ns: excess,
        shares,
        scheduler,
        size_line: lines.into_values().flatten().max_by(|a, b| a.r_squared.total_cmp(&b.r_squared)),
        examples,
        sentence: String::new(),
    };
    verdict.sentence = sentence(&verdict, scheduler_ratio);
    (verdict, slow)
}

fn example(slow: &Slow) -> Example {
    Example {
        ts_ns: slow.call.ts,
        dur_ns: slow.call.dur.unwrap_or_default(),
        pid: slow.call.pid,
        tid: slow.call.tid,
        size_bytes: slow.call.size,
        first_call: slow.call.first,
        depth: slow.call.depth,
        child_op: slow.call.child.clone(),
        parts: sum_up(std::iter::once(slow.parts), slow.excess),
    }
}

fn sentence(verdict: &Verdict, scheduler_ratio: f64) -> String {
    if verdict.calls_count < MIN_CALLS {
        return format!(
            "inconclusive: {} finished calls are too few (at least {MIN_CALLS})",
            verdict.calls_count
        );
    }
    if verdict.slow_count == 0 {
        return "no slow call".to_owned();
    }
    let mut explained: Vec<&Share> =
        verdict.shares.iter().filter(|share| share.share_ratio >= 0.01).collect();
    explained.sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
    let causes: Vec<String> = explained
        .iter()
        .map(|share| format!("{} {:.1} %", share.cause.name(), 100.0 * share.share_ratio))
        .collect();
    let scheduler = match verdict.scheduler {
        Scheduler::Cleared => "the scheduler has an alibi".to_owned(),
        Scheduler::Minor => format!("the scheduler had a minor part ({:.1} %)", 100.0 * scheduler_ratio),
        Scheduler::Guilty => format!("the scheduler is guilty of {:.1} %", 100.0 * scheduler_ratio),
        Scheduler::Inconclusive => "nothing to say of the scheduler".to_owned(),
    };
    format!(
        "{scheduler}: {} of {} slow calls overlap off-CPU time; explained by {}",
        verdict.overlapping_count,
        verdict.slow_count,
        causes.join(", ")
    )
}

/// Waits inside slow calls by CPU, and all stints by CPU, to find who held it.
async fn culprits(trace: &Trace, slow: &[Slow<'_>]) -> Result<(Vec<Culprit>, i64), AnalyzeError> {
    let mut calls: HashMap<(i64, i64), Vec<Interval>> = HashMap::new();
    for slow in slow {
        let (start, dur) = (slow.call.ts, slow.call.dur.unwrap_or_default());
        calls.entry((slow.call.pid, slow.call.tid)).or_default().push(Interval { start, end: start + dur });
    }
    for intervals in calls.values_mut() {
        intervals.sort_by_key(|interval| interval.start);
    }
    let mut waits: HashMap<i64, Vec<Interval>> = HashMap::new();
    let mut waiting = 0;
    let query = "SELECT pid, tid, cpu, ts + dur - runnable_ns AS start, ts + dur AS end_ns FROM off_cpu \
         WHERE dur IS NOT NULL AND runnable_ns > 0 AND state <> 'stopped' ORDER BY ts";
    for batch in trace.batches(query).await? {
        let (pid, tid, cpu) = (integers(&batch, "pid")?, integers(&batch, "tid")?, integers(&batch, "cpu")?);
        let (start, end) = (integers(&batch, "start")?, integers(&batch, "end_ns")?);
        for row in 0..batch.num_rows() {
            let Some(calls) = calls.get(&(pid.value(row), tid.value(row))) else { continue };
            let first = calls.partition_point(|call| call.end <= start.value(row));
            for call in calls[first..].iter().take_while(|call| call.start < end.value(row)) {
                let wait =
                    Interval { start: start.value(row).max(call.start), end: end.value(row).min(call.end) };
                waiting += wait.end - wait.start;
                waits.entry(cpu.at(row).unwrap_or(-1)).or_default().push(wait);
            }
        }
    }
    let mut stints: HashMap<i64, Vec<Stint>> = HashMap::new();
    for batch in trace
        .batches("SELECT cpu, ts, dur, pid, comm FROM events WHERE kind = 'run' ORDER BY cpu, ts")
        .await?
    {
        let (cpu, ts, dur) = (integers(&batch, "cpu")?, integers(&batch, "ts")?, integers(&batch, "dur")?);
        let (pid, comm) = (integers(&batch, "pid")?, strings(&batch, "comm")?);
        for row in 0..batch.num_rows() {
            stints.entry(cpu.at(row).unwrap_or(-1)).or_default().push(Stint {
                when: Interval { start: ts.value(row), end: ts.value(row) + dur.value(row) },
                pid: pid.value(row),
                comm: comm.at(row).unwrap_or_default().to_owned(),
            });
        }
    }
    let mut culprits: Vec<Culprit> = holders::held(&waits, &stints)
        .into_iter()
        .map(|((pid, comm), held_ns)| Culprit {
            pid,
            comm,
            held_ns,
            share_ratio: held_ns as f64 / (waiting as f64).max(1.0),
        })
        .collect();
    culprits.sort_by(|a, b| b.held_ns.cmp(&a.held_ns).then(a.pid.cmp(&b.pid)));
    culprits.truncate(CULPRITS);
    Ok((culprits, waiting))
}

/// Judges every function of one run.
///
/// # Errors
/// If the run's data cannot be read.
pub(crate) async fn run(trace: &Trace, params: Params) -> Result<Chains, AnalyzeError> {
    let mut functions = calls(trace).await?;
    if params.joined_running {
        functions.values_mut().flat_map(|(_, calls)| calls).for_each(|call| call.first = false);
    }
    let baselines = baselines(trace).await?;
    let class_of: HashMap<String, Option<String>> =
        functions.iter().map(|(op, (class, _))| (op.clone(), class.clone())).collect();
    let mut verdicts = Vec::new();
    let mut outermost = Vec::new();
    for (op, (class, calls)) in &functions {
        let (verdict, slow) = judge(
            op,
            class.as_deref(),
            calls,
            &class_of,
            baselines.get(op).copied().unwrap_or_default(),
            params,
        );
        verdicts.push(verdict);
        outermost.extend(slow.into_iter().filter(|slow| slow.call.depth == 0));
    }
    verdicts.sort_by(|a, b| b.excess_ns.total_cmp(&a.excess_ns).then_with(|| a.op.cmp(&b.op)));
    // A function's map order must not show in the sums.
    outermost.sort_by_key(|slow| (slow.call.ts, slow.call.tid));
    let overall_excess_ns = outermost.iter().map(|slow| slow.excess).sum();
    let (culprits, waiting_in_slow_ns) = culprits(trace, &outermost).await?;
    let file = trace.files().first();
    let mut warnings = file.map_or_else(Vec::new, |file| info::warnings(&file.run));
    if params.joined_running {
        warnings.push(
            "recording joined processes that ran already: first launches cannot be told from later ones"
                .to_owned(),
        );
    }
    if functions.values().flat_map(|(_, calls)| calls).any(|call| call.unknown > 0.0) {
        warnings.push(
            "this source does not record why a thread was off CPU: preemption and sleep look the same, and \
             both count against the scheduler in calls that have no reason to sleep"
                .to_owned(),
        );
    }
    Ok(Chains {
        run: file.map_or_else(String::new, |file| file.name.clone()),
        params,
        overall: sum_up(outermost.iter().map(|slow| slow.parts), overall_excess_ns),
        overall_excess_ns,
        overall_slow_count: outermost.len(),
        verdicts,
        culprits,
        waiting_in_slow_ns,
        warnings,
    })
}
