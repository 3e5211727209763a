//! Decides which calls were slow, and why they were.
//!
//! A call is *slow* if it took more than [`Params::slow_factor`] times what calls of its kind usually take
//! (`groups`), and at least [`Params::slow_by_ns`] more. This excess latency is divided among the causes
//! (`causes`). The off-CPU part of it is followed to its root cause (`walk`): of all that kept the call from
//! running, the cause and the task with the largest part.

use std::{ops::Range, sync::Arc};

use rayon::prelude::*;
use serde::Serialize;
use trace_schema::Class;

use crate::{
    causes::{self, Cause, Division, Evidence, divide, largest},
    copy_cost::{CostBounds, Line, Points},
    groups::{Baseline, Groups, Kind},
    measure::{Candidate, Function as Measured, LineKey, Measure, is_sized},
    missing::Missing,
    params::Params,
    root_cause::{cause_of, root},
    schedule::{Schedule, Task},
    time_split::Parts,
    walk::{Link, Walker},
};
use analyze_run::{
    coverage::Coverage,
    hash::HashMap,
    multiset::{Counted, counted, counted_of, quantiles},
};

/// One slow call.
#[derive(Clone, Debug)]
pub struct SlowCall {
    /// The call.
    pub call: Candidate,
    /// Baseline in nanoseconds.
    pub baseline_ns: f64,
    /// Excess latency in nanoseconds: the duration above the baseline.
    pub excess_ns: f64,
    /// The cause with the largest part of the excess.
    pub verdict: Cause,
    /// The root cause: the cause with the largest part along the call's chain, if the verdict is an off-CPU
    /// cause; otherwise the verdict.
    pub root: Cause,
    /// The task at the root cause, if there is one and it is known.
    pub culprit: Option<Task>,
    /// True if the call was off CPU for some of its time, so that it has a chain.
    pub has_chain: bool,
    /// Time in nanoseconds in which threads that the call waited for were preempted or runnable: what the
    /// scheduler did to the call through other threads. At most the excess; zero for a call whose purpose is
    /// to wait.
    pub behind_ns: f64,
    /// Part of the excess in nanoseconds that off-CPU time may have, for all that is on record: all that is inconclusive
    /// where the scheduler is not on record, off-CPU time without a reason in a call whose purpose is to wait, and time blocked
    /// that may be usual.
    pub off_cpu_open_ns: f64,
}

impl SlowCall {
    /// Returns the chain over the call's whole time; empty if the call was never off CPU.
    pub fn chain<'a>(&self, walker: &'a mut Walker<'_>) -> &'a [Link] {
        match self.has_chain {
            true => walker.walk(self.call.slot(), self.call.ts, self.call.end()),
            false => &[],
        }
    }
}

/// Percentiles of durations, in nanoseconds; `NaN` if there are no calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
}

impl Percentiles {
    fn of(base: &Counted, minus: &Counted, plus: &Counted) -> Self {
        let [p50_ns, p99_ns, p999_ns] = quantiles(base, minus, plus, [0.5, 0.99, 0.999]);
        Self { p50_ns, p99_ns, p999_ns }
    }
}

/// One function in one run.
#[derive(Clone, Debug)]
pub struct Function {
    /// Number of the run in `Names`.
    pub run: u32,
    /// Number of the function in `Names`.
    pub op: u32,
    /// Class of the function, if it is known.
    pub class: Option<Class>,
    /// Number of calls that returned.
    pub calls_count: usize,
    /// Number of calls that were still open at the end of the recording.
    pub censored_count: usize,
    /// Slow calls, as a range of indices into [`Judgement::slow`], sorted by thread and time.
    pub slow: Range<usize>,
    /// Sum of the divisions of the slow calls' excess, in nanoseconds.
    pub division: Division,
    /// Percentiles of the durations of all calls that returned.
    pub percentiles: Percentiles,
    /// Percentiles without one cause each. The time that the scheduler took is removed from all calls; that
    /// of other causes is removed from slow calls only.
    pub without: Vec<(Cause, Percentiles)>,
    /// Cost of a copy or set by its size, if a line fits: the best fit over the directions.
    pub size_line: Option<Line>,
}

/// The verdicts on all calls.
#[derive(Debug)]
pub struct Judgement {
    /// The functions, sorted by run and function.
    pub functions: Vec<Function>,
    /// The slow calls, sorted by run, function, thread and time.
    pub slow: Vec<SlowCall>,
    kinds: Vec<Kind>,
    baselines: Vec<Baseline>,
    lines: HashMap<LineKey, Line>,
    /// Bounds of the costs of those copies of which rows of the scheduler are missing.
    cost_bounds: HashMap<LineKey, CostBounds>,
    coverage: Arc<Coverage>,
}

/// Returns the time of other threads in a chain in which they waited for a CPU, in nanoseconds, at most
/// `excess_ns`.
fn behind_ns(links: &[Link], verdict: Cause, excess_ns: f64) -> f64 {
    let through_others = links.iter().filter(|link| link.depth > 0 && verdict != Cause::GpuWait);
    let waits = through_others.filter(|link| cause_of(link, true) == Some(Cause::Scheduler));
    (waits.map(|link| link.end - link.ts).sum::<i64>() as f64).min(excess_ns)
}

impl Judgement {
    /// Returns the kind of a slow call.
    pub fn kind(&self, call: &SlowCall) -> Kind {
        self.kinds[call.call.kind as usize]
    }

    /// Returns the least and the most that the bytes of a call cost, in nanoseconds.
    fn cost(&self, kind: Kind, size: Option<i64>, class: Option<Class>, baseline: &Baseline) -> [f64; 2] {
        // Where no line fits, the calls of the same size class give the cost.
        let of_group = |own: Option<f64>| if is_sized(class) { own.unwrap_or(0.0) } else { 0.0 };
        let without = [of_group(baseline.group_own_least()), of_group(baseline.group_own)];
        let Some(size) = size else { return without };
        let key = (kind.run, kind.op, kind.direction);
        match (self.cost_bounds.get(&key), self.lines.get(&key)) {
            (Some(bounds), _) => bounds.at(size as f64, without),
            (None, Some(line)) => [line.at(size as f64); 2],
            (None, None) => without,
        }
    }

    /// Collects the measurements by which a call's excess is divided among the causes.
    fn evidence(
        &self,
        schedule: &Schedule,
        call: &Candidate,
        excess: f64,
        parts: &Parts,
    ) -> (Evidence, Missing) {
        let kind = self.kinds[call.kind as usize];
        let baseline = &self.baselines[call.kind as usize];
        let class = schedule.names.class(kind.op);
        let [cost_least, cost_most] = self.cost(kind, call.size, class, baseline);
        let (size, size_most) = (cost_least - baseline.expected(), cost_most - baseline.expected_least());
        let nested_ns = call.nested_ns as f64;
        let (nested, nested_most) = (nested_ns - baseline.nested_most(), nested_ns - baseline.kind.nested);
        let blocked = causes::above(&parts.blocked, &baseline.blocked_most());
        let blocked_most = causes::above(&parts.blocked, &baseline.kind.blocked);
        let missing = self.missing(schedule, call);
        let evidence = Evidence {
            excess,
            synchronises: class == Some(Class::Sync),
            waiting: (parts.preempted + parts.runnable) as f64,
            throttled: parts.throttled as f64,
            blocked,
            blocked_open: std::array::from_fn(|class| blocked_most[class] - blocked[class]),
            stopped: parts.stopped as f64,
            unknown: parts.unknown as f64,
            size,
            size_open: size_most.max(0.0) - size.max(0.0),
            first_call: kind.first_call,
            nested,
            nested_open: nested_most.max(0.0) - nested.max(0.0),
            unseen: if missing.switches { parts.on_cpu as f64 } else { 0.0 },
            is_uncovered: missing.is_any() || !self.has_launches(schedule, call, class),
        };
        (evidence, missing)
    }

    /// Splits the time of a call by thread state. Where the error of the scheduler's clock leaves open which off-CPU intervals
    /// are in the call, it has none of them; it is uncovered.
    fn parts(&self, walker: &mut Walker<'_>, call: &Candidate) -> Parts {
        let thread = call.thread(walker.schedule());
        match self.coverage.blur().touches(thread, call.ts, call.end()) {
            true => Parts { on_cpu: call.dur, ..Parts::default() },
            false => walker.parts(call.slot(), call.ts, call.end()),
        }
    }

    /// Determines what the record may lack that would have caused the call's excess.
    fn missing(&self, schedule: &Schedule, call: &Candidate) -> Missing {
        let op = self.kinds[call.kind as usize].op;
        Missing::of(&self.coverage, &schedule.names, call.thread(schedule), op, (call.ts, call.end()))
    }

    /// Returns whether the launches before a launch are on record, one of which may have been the first of its kernel.
    fn has_launches(&self, schedule: &Schedule, call: &Candidate, class: Option<Class>) -> bool {
        let (run, pid, _) = call.thread(schedule);
        let is_launch = |op| schedule.names.class(op) == class;
        class != Some(Class::Launch) || self.coverage.has_calls((run, pid), i64::MIN, call.ts, is_launch)
    }

    /// Divides the excess of a slow call among the causes, in nanoseconds.
    pub fn division(&self, walker: &mut Walker<'_>, call: &SlowCall) -> Division {
        let parts = self.parts(walker, &call.call);
        divide(&self.evidence(walker.schedule(), &call.call, call.excess_ns, &parts).0)
    }

    /// Returns the verdict on a call; `None` if it is not slow.
    fn judge_call(&self, walker: &mut Walker<'_>, params: Params, call: &Candidate) -> Option<SlowCall> {
        let baseline = &self.baselines[call.kind as usize];
        if !params.is_slow(call.dur, baseline) {
            return None;
        }
        let (baseline_ns, excess_ns) = (baseline.expected(), call.dur as f64 - baseline.expected());
        let parts = self.parts(walker, call);
        let (evidence, missing) = self.evidence(walker.schedule(), call, excess_ns, &parts);
        let division = divide(&evidence);
        let verdict = largest(&division);
        let open = division[Cause::Inconclusive.index()];
        let without_reason = if evidence.synchronises { evidence.unknown } else { 0.0 };
        let off_cpu_open = without_reason + evidence.blocked_open.iter().sum::<f64>();
        let mut slow = SlowCall {
            call: *call,
            baseline_ns,
            excess_ns,
            verdict,
            root: verdict,
            culprit: None,
            has_chain: parts.on_cpu < call.dur,
            behind_ns: 0.0,
            off_cpu_open_ns: if missing.switches { open } else { open.min(off_cpu_open) },
        };
        let links = slow.chain(walker);
        slow.behind_ns = behind_ns(links, verdict, excess_ns);
        if let Some((root, culprit)) = root(links, evidence.synchronises).filter(|_| verdict.is_off_cpu()) {
            (slow.root, slow.culprit) = (root, culprit);
        }
        Some(slow)
    }

    /// Summarizes one function of a run.
    fn function(
        &self,
        schedule: &Schedule,
        (run, op): (u32, u32),
        (of, groups): (&Measured, &Groups),
        slow: Range<usize>,
    ) -> Function {
        let durations = of.durations(groups);
        let calls_count = durations.iter().map(|set| set.count()).sum::<u64>();
        let durations = counted_of(&durations);
        let none = Counted::new();
        let disturbed = (counted_of(&[&of.disturbed]), counted_of(&[&of.undisturbed]));
        let mut without = vec![(Cause::Scheduler, Percentiles::of(&durations, &disturbed.0, &disturbed.1))];
        let calls = &self.slow[slow.clone()];
        let mut walker = Walker::new(schedule);
        let mut by_cause = vec![(Vec::new(), Vec::new()); causes::COUNT];
        let mut sum = [0.0; causes::COUNT];
        for call in calls {
            let division = self.division(&mut walker, call);
            sum.iter_mut().zip(division).for_each(|(sum, part)| *sum += part);
            for (part, (minus, plus)) in division.iter().zip(&mut by_cause).filter(|(part, _)| **part != 0.0)
            {
                minus.push(call.call.dur as f64);
                plus.push(call.call.dur as f64 - part);
            }
        }
        for (cause, (minus, plus)) in Cause::ALL.into_iter().zip(by_cause) {
            if cause != Cause::Scheduler && !minus.is_empty() {
                without.push((cause, Percentiles::of(&durations, &counted(minus), &counted(plus))));
            }
        }
        let lines = self.lines.iter().filter(|((of_run, of_op, _), _)| (*of_run, *of_op) == (run, op));
        Function {
            run,
            op,
            class: schedule.names.class(op),
            calls_count: calls_count as usize,
            censored_count: of.censored_count,
            slow,
            division: sum,
            percentiles: Percentiles::of(&durations, &none, &none),
            without,
            size_line: lines.map(|(_, line)| *line).max_by(|a, b| a.r_squared.total_cmp(&b.r_squared)),
        }
    }
}

/// Classifies all calls of some runs. If a call that was not kept as a candidate turns out to be slow, it
/// returns the limits in nanoseconds above which a call of each kind is slow, for another reading.
pub fn classify(
    mut measure: Measure,
    schedule: &Schedule,
    params: Params,
) -> Result<(Judgement, Measure), HashMap<Kind, f64>> {
    let baselines = measure.groups.baselines();
    let kinds: Vec<Kind> = measure.groups.kinds().collect();
    if measure.longest_let_go().zip(&baselines).any(|(dur, baseline)| params.is_slow(dur, baseline)) {
        let limits = baselines.iter().map(|baseline| params.limit_ns(baseline.expected()));
        return Err(kinds.into_iter().zip(limits).collect());
    }
    let points = std::mem::take(&mut measure.points);
    let lines: Vec<_> = points.into_par_iter().map(Points::fit).collect();
    let cost_bounds = measure.lines.iter().filter_map(|(key, index)| Some((*key, lines[*index].1?)));
    let cost_bounds = cost_bounds.collect();
    let lines = measure.lines.iter().filter_map(|(key, index)| Some((*key, lines[*index].0?)));
    let mut judgement = Judgement {
        functions: Vec::new(),
        slow: Vec::new(),
        lines: lines.collect(),
        cost_bounds,
        kinds,
        baselines,
        coverage: Arc::clone(&measure.coverage),
    };
    let candidates = std::mem::take(&mut measure.candidates);
    let judged = candidates
        .par_iter()
        .map_init(|| Walker::new(schedule), |walker, call| judgement.judge_call(walker, params, call));
    let mut slow: Vec<SlowCall> = judged.flatten_iter().collect();
    drop(candidates);
    slow.par_sort_by_key(|slow| {
        let kind = judgement.kind(slow);
        ((kind.run, kind.op), slow.call.thread(schedule), slow.call.ts, slow.call.depth)
    });
    judgement.slow = slow;
    let function_of = |call: &SlowCall| {
        let kind = judgement.kind(call);
        (kind.run, kind.op)
    };
    let functions: Vec<_> = measure.functions.iter().collect();
    let functions = functions.par_iter().map(|(key, index)| {
        let start = judgement.slow.partition_point(|call| function_of(call) < **key);
        let end = judgement.slow.partition_point(|call| function_of(call) <= **key);
        let of = (&measure.of_functions[**index], &measure.groups);
        judgement.function(schedule, **key, of, start..end)
    });
    judgement.functions = functions.collect();
    Ok((judgement, measure))
}

#[cfg(test)]
mod tests;
