//! Why slow calls were slow, by function: which causes and tasks are behind them, and which are not a factor.
//!
//! `classify` has classified every call; this module turns its verdicts into an answer about one run. Shares of
//! a function are shares of its slow calls' total excess latency, so they sum to 1. A cause is *not a factor*
//! if it accounts for at most [`NOT_A_FACTOR_RATIO`] of that excess; the figures that rule it out are given.

use rayon::prelude::*;
use serde::Serialize;

use crate::trace::Trace;
use crate::{
    questions::{
        info,
        ruled_out::{self, RuledOut, SuspectContext},
        share::{NOT_A_FACTOR_RATIO, Share, share_of, shares},
    },
    tables::chain_links::state_name,
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Derived;
use analyze_verdict::{
    causes::{self, Cause},
    classify::{Function, Percentiles, SlowCall},
    copy_cost,
    culprits::{self, Culprit, Syscall},
    groups::MIN_CALLS,
    params::Params,
    root_cause::cause_of,
    walk::Walker,
};

/// Minimum share of the excess latency of a cause that is held responsible for it.
pub const MAIN_CAUSE_RATIO: f64 = 0.05;
/// What to do about a run without scheduler rows.
pub const WITHOUT_SCHEDULE: &str = "Record with capture, or join a scheduler trace of the same time (`analyze merge CALLS.parquet \
    SCHED.parquet --out JOINED.parquet`): this run does not record what kept threads from running.";
/// Default number of slowest calls that are kept per function as examples.
pub const EXAMPLES: usize = 5;

/// The verdict on the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// The scheduler is not a factor.
    #[serde(rename = "cleared")]
    NotAFactor,
    /// The scheduler has a share above [`NOT_A_FACTOR_RATIO`], but below [`MAIN_CAUSE_RATIO`].
    Minor,
    /// The scheduler has a share of at least [`MAIN_CAUSE_RATIO`].
    #[serde(rename = "guilty")]
    MainCause,
    /// The scheduler's own share is below [`MAIN_CAUSE_RATIO`], but it delayed threads that slow calls waited
    /// for, by more than [`NOT_A_FACTOR_RATIO`] of the excess.
    Behind,
    /// There are no slow calls, or too much of the excess is inconclusive.
    Inconclusive,
}

impl Scheduler {
    /// Returns the verdict by the scheduler's own share of the excess, its share through other threads, and
    /// the inconclusive share.
    pub fn of(own_ratio: f64, behind_ratio: f64, open_ratio: f64) -> Self {
        if own_ratio >= MAIN_CAUSE_RATIO {
            Self::MainCause
        } else if behind_ratio > NOT_A_FACTOR_RATIO {
            Self::Behind
        } else if own_ratio > NOT_A_FACTOR_RATIO {
            Self::Minor
        } else if own_ratio + open_ratio > NOT_A_FACTOR_RATIO {
            Self::Inconclusive
        } else {
            Self::NotAFactor
        }
    }
}

/// One link of a chain.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Start in nanoseconds.
    pub ts_ns: i64,
    /// Length in nanoseconds.
    pub dur_ns: i64,
    /// Number of wakeups from the call's own thread: 0 is that thread, 1 the thread that woke it, and so on.
    pub depth: usize,
    /// Process ID of the link's thread.
    pub pid: u32,
    /// Thread ID of the link's thread.
    pub tid: u32,
    /// Name of the thread state.
    pub state: &'static str,
    /// The cause that the link stands for, if any.
    pub cause: Option<Cause>,
    /// Process ID of the task that had the CPU or ended the sleep, if it is known.
    pub task_pid: Option<u32>,
    /// Thread ID of that task.
    pub task_tid: Option<u32>,
    /// Name of that task.
    pub task_comm: Option<String>,
}

/// One slow call, as an example.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// Start in nanoseconds.
    pub ts_ns: i64,
    /// Duration in nanoseconds.
    pub dur_ns: i64,
    /// Baseline in nanoseconds.
    pub baseline_ns: f64,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Size in bytes, if the call has one.
    pub size_bytes: Option<i64>,
    /// True if part of the excess is attributed to the first launch of the kernel.
    pub first_call: bool,
    /// Number of calls that this one is nested in; 0 for a top-level call.
    pub depth: i64,
    /// Function of the longest nested call, if there is one.
    pub child_op: Option<String>,
    /// Causes with their shares of the excess.
    pub parts: Vec<Share>,
    /// The cause with the largest part.
    pub verdict: Cause,
    /// The root cause: the verdict, followed along the chain.
    pub root: Cause,
    /// The chain over the call's whole time; empty if the call was never off CPU.
    pub chain: Vec<Link>,
}

/// Percentiles of durations without one cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Without {
    /// The cause that is removed.
    pub cause: Cause,
    /// The percentiles without it.
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

/// The verdict on one function.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Name of the function.
    pub op: String,
    /// Name of the function's class, if it is known.
    pub class: Option<&'static str>,
    /// Number of calls that returned.
    pub calls_count: usize,
    /// Number of calls that were still open at the end of the recording.
    pub censored_count: usize,
    /// Number of slow calls.
    pub slow_count: usize,
    /// Number of slow calls during which their own thread was off CPU at any time.
    pub overlapping_count: usize,
    /// Median duration in nanoseconds.
    pub p50_ns: f64,
    /// 99th percentile of the duration in nanoseconds.
    pub p99_ns: f64,
    /// 99.9th percentile of the duration in nanoseconds.
    pub p999_ns: f64,
    /// 99th percentile in nanoseconds if no call had been preempted or had waited for a CPU.
    pub p99_without_scheduler_ns: f64,
    /// Percentiles without each cause.
    pub without: Vec<Without>,
    /// Total excess latency of the slow calls in nanoseconds.
    pub excess_ns: f64,
    /// Causes with their shares of the excess; the shares sum to 1 unless there is no excess.
    pub shares: Vec<Share>,
    /// The verdict on the scheduler.
    pub scheduler: Scheduler,
    /// Share of the excess in which threads that slow calls waited for were waiting for a CPU, from 0 to 1.
    pub scheduler_behind_ratio: f64,
    /// Cost of a copy or set by its size, if a line fits.
    pub size_line: Option<copy_cost::Line>,
    /// The slowest calls, those with most excess first.
    pub examples: Vec<Example>,
    /// The verdict in one sentence.
    pub sentence: String,
}

/// The answer for one run.
#[derive(Clone, Debug, Serialize)]
pub struct Chains {
    /// Name of the run.
    pub run: String,
    /// The definition of a slow call that was used.
    pub params: Params,
    /// The verdict on each function, those with most excess first.
    pub verdicts: Vec<Verdict>,
    /// Shares of the causes over all top-level slow calls together.
    pub overall: Vec<Share>,
    /// Excess latency of all top-level slow calls in nanoseconds.
    pub overall_excess_ns: f64,
    /// Number of top-level slow calls.
    pub overall_slow_count: usize,
    /// Share of `overall_excess_ns` in which threads that slow calls waited for were waiting for a CPU, from
    /// 0 to 1.
    pub scheduler_behind_ratio: f64,
    /// Tasks behind the off-CPU time of calls, those with most time in slow calls first.
    pub culprits: Vec<Culprit>,
    /// System calls in which calls slept.
    pub syscalls: Vec<Syscall>,
    /// Time in which threads waited for a CPU inside slow calls, over all threads of the calls' chains, in
    /// nanoseconds.
    pub waiting_in_slow_ns: i64,
    /// Causes that were examined and are not a factor.
    pub alibis: Vec<RuledOut>,
    /// Conditions that weaken the verdicts.
    pub warnings: Vec<String>,
}

/// Returns the share of the excess that some times in nanoseconds have, from 0 to 1.
fn ratio(times_ns: impl Iterator<Item = f64>, excess_ns: f64) -> f64 {
    if excess_ns > 0.0 { times_ns.sum::<f64>() / excess_ns } else { 0.0 }
}

/// Describes one slow call.
fn example(call: &SlowCall, derived: &Derived) -> Example {
    let (schedule, names) = (&derived.schedule, &derived.schedule.names);
    let (_, pid, tid) = call.call.thread(schedule);
    let mut walker = Walker::new(schedule);
    let division = derived.judgement.division(&mut walker, call);
    let is_sync = names.class(derived.judgement.kind(call).op) == Some(trace_schema::Class::Sync);
    let link = |link: &analyze_verdict::walk::Link| Link {
        ts_ns: link.ts,
        dur_ns: link.end - link.ts,
        depth: link.depth,
        pid: link.thread.1,
        tid: link.thread.2,
        state: state_name(link.state),
        cause: cause_of(link, is_sync),
        task_pid: link.task.map(|task| task.pid),
        task_tid: link.task.map(|task| task.tid),
        task_comm: link.task.map(|task| names.name(task.comm).to_owned()),
    };
    Example {
        ts_ns: call.call.ts,
        dur_ns: call.call.dur,
        baseline_ns: call.baseline_ns,
        pid,
        tid,
        size_bytes: call.call.size,
        first_call: division[Cause::FirstCall.index()] > 0.0,
        depth: call.call.depth.into(),
        child_op: call.call.child().map(|child| names.name(child).to_owned()),
        parts: shares(division, call.excess_ns),
        verdict: call.verdict,
        root: call.root,
        chain: call.chain(&mut walker).iter().map(link).collect(),
    }
}

/// Summarizes the verdict on one function with its `examples` slowest calls.
fn verdict(function: &Function, derived: &Derived, examples: usize) -> Verdict {
    let slow = &derived.judgement.slow[function.slow.clone()];
    let excess_ns: f64 = slow.iter().map(|call| call.excess_ns).sum();
    let shares = shares(function.division, excess_ns);
    let scheduler_behind_ratio = ratio(slow.iter().map(|call| call.behind_ns), excess_ns);
    let scheduler = match slow.is_empty() {
        true => Scheduler::Inconclusive,
        false => Scheduler::of(
            share_of(&shares, Cause::Scheduler),
            scheduler_behind_ratio,
            ratio(slow.iter().map(|call| call.off_cpu_open_ns), excess_ns),
        ),
    };
    let mut slowest: Vec<&SlowCall> = slow.iter().collect();
    slowest.sort_by(|a, b| b.excess_ns.total_cmp(&a.excess_ns));
    slowest.truncate(examples);
    let without: Vec<Without> = function
        .without
        .iter()
        .map(|(cause, percentiles)| Without { cause: *cause, percentiles: *percentiles })
        .collect();
    let without_scheduler = without.iter().find(|without| without.cause == Cause::Scheduler);
    let mut verdict = Verdict {
        op: derived.schedule.names.name(function.op).to_owned(),
        class: function.class.map(trace_schema::Class::name),
        calls_count: function.calls_count,
        censored_count: function.censored_count,
        slow_count: slow.len(),
        overlapping_count: slow.iter().filter(|call| call.has_chain).count(),
        p50_ns: function.percentiles.p50_ns,
        p99_ns: function.percentiles.p99_ns,
        p999_ns: function.percentiles.p999_ns,
        p99_without_scheduler_ns: without_scheduler.map_or(f64::NAN, |without| without.percentiles.p99_ns),
        without,
        excess_ns,
        shares,
        scheduler,
        scheduler_behind_ratio,
        size_line: function.size_line,
        examples: slowest.into_iter().map(|call| example(call, derived)).collect(),
        sentence: String::new(),
    };
    verdict.sentence = sentence(&verdict);
    verdict
}

/// Smallest share of a cause that the sentence names.
const NAMED_RATIO: f64 = 0.01;

/// Writes the verdict on a function as a sentence.
fn sentence(verdict: &Verdict) -> String {
    if (verdict.calls_count as u64) < MIN_CALLS {
        return format!(
            "inconclusive: {} finished calls are too few (at least {MIN_CALLS})",
            verdict.calls_count
        );
    }
    if verdict.slow_count == 0 {
        return "no slow call".to_owned();
    }
    let percent = |ratio: f64| format!("{:.1} %", 100.0 * ratio);
    let own = percent(share_of(&verdict.shares, Cause::Scheduler));
    let scheduler = match verdict.scheduler {
        Scheduler::NotAFactor => format!("the scheduler is not a factor ({own})"),
        Scheduler::Minor => format!("the scheduler is a minor factor ({own})"),
        Scheduler::MainCause => format!("the scheduler caused {own} of the excess latency"),
        Scheduler::Behind => format!(
            "the scheduler caused {} of the excess latency, through threads that slow calls waited for",
            percent(verdict.scheduler_behind_ratio)
        ),
        Scheduler::Inconclusive => "the scheduler's part is inconclusive".to_owned(),
    };
    let mut named: Vec<&Share> =
        verdict.shares.iter().filter(|share| share.share_ratio >= NAMED_RATIO).collect();
    named.sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
    let causes = match named.as_slice() {
        [] => String::new(),
        [one] if one.cause == Cause::Unexplained => "; cause unknown".to_owned(),
        all => {
            let each =
                all.iter().map(|share| format!("{} {}", share.cause.label(), percent(share.share_ratio)));
            format!("; {}", each.collect::<Vec<_>>().join(", "))
        }
    };
    format!(
        "{scheduler}: {} of {} slow calls were preempted or blocked during the call{causes}",
        verdict.overlapping_count, verdict.slow_count
    )
}

/// Describes what weakens the verdicts on this run.
fn warnings(trace: &Trace, derived: &Derived, run: u32) -> Vec<String> {
    let file = trace.files().first();
    let mut warnings = file.map_or_else(Vec::new, |file| info::warnings(&file.run));
    if file.is_some_and(|file| file.run.joined_running) {
        warnings.push(
            "recording joined processes that ran already: first launches cannot be distinguished from later ones"
                .to_owned(),
        );
    }
    let of_run = derived.faults.iter().filter(|((of, _), _)| *of == run);
    warnings.extend(of_run.map(|((_, fault), count)| format!("{} ({count} rows)", fault.name())));
    warnings
}

/// Explains the slow calls of every function of the first run. `examples` is the number of slowest calls to
/// keep per function.
pub async fn run(trace: &Trace, params: Params, examples: usize) -> Result<Chains, AnalyzeError> {
    let derived = trace.derived(params).await?;
    let (schedule, judgement) = (&derived.schedule, &derived.judgement);
    let name = trace.files().first().map_or_else(String::new, |file| file.name.clone());
    let run = schedule.names.known(&name).unwrap_or(u32::MAX);
    let of_run: Vec<&Function> = judgement.functions.iter().filter(|function| function.run == run).collect();
    let slow = || of_run.iter().flat_map(|function| &judgement.slow[function.slow.clone()]);
    let mut outermost: Vec<&SlowCall> = slow().filter(|call| call.call.depth == 0).collect();
    // The sums must not depend on the order of functions.
    outermost.sort_by_key(|call| (call.call.ts, call.call.thread(schedule)));
    let overall_excess_ns = outermost.iter().map(|call| call.excess_ns).sum();
    let verdicts = || of_run.par_iter().map(|function| verdict(function, &derived, examples)).collect();
    let over_all = || {
        let mut walker = Walker::new(schedule);
        let (mut sum, mut touched) = ([0.0; causes::COUNT], [0; causes::COUNT]);
        for call in &outermost {
            for (cause, part) in judgement.division(&mut walker, call).into_iter().enumerate() {
                sum[cause] += part;
                touched[cause] += usize::from(part > 0.0);
            }
        }
        (shares(sum, overall_excess_ns), touched, culprits::find(&derived, run, &outermost))
    };
    let (mut verdicts, (overall, touched, blame)): (Vec<Verdict>, _) = rayon::join(verdicts, over_all);
    verdicts.sort_by(|a, b| b.excess_ns.total_cmp(&a.excess_ns).then_with(|| a.op.cmp(&b.op)));
    let mut warnings = warnings(trace, &derived, run);
    if derived.with_unknown.contains(&run) {
        warnings.push(
            "this source does not record why a thread was off CPU: preemption and sleep look the same, and \
             both count against the scheduler in calls that have no reason to sleep"
                .to_owned(),
        );
    }
    let slow_threads = slow().map(|call| call.call.thread(schedule)).collect();
    let context = SuspectContext {
        derived: &derived,
        run,
        overall: &overall,
        touched,
        slow: &outermost,
        slow_threads,
        blame: &blame,
    };
    let alibis = ruled_out::find(&context);
    let open = share_of(&overall, Cause::Inconclusive);
    if open > 0.0 {
        warnings.push(format!(
            "inconclusive: while slow calls ran, events were lost or not stored, or nothing of the scheduler was \
             recorded: what caused {:.1} % of the excess is not known",
            100.0 * open
        ));
        if !schedule.threads().any(|(of, ..)| of == run) {
            warnings.push(WITHOUT_SCHEDULE.to_owned());
        }
    }
    Ok(Chains {
        run: name,
        params,
        overall_slow_count: outermost.len(),
        scheduler_behind_ratio: ratio(outermost.iter().map(|call| call.behind_ns), overall_excess_ns),
        overall,
        overall_excess_ns,
        verdicts,
        culprits: blame.culprits,
        syscalls: blame.syscalls,
        waiting_in_slow_ns: blame.waiting_in_slow_ns,
        alibis,
        warnings,
    })
}
