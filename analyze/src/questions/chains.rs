//! Why slow calls were slow, function by function, who is guilty and who is innocent.
//!
//! [`analyze_verdict::classify`] has judged every call; here its verdicts become an answer about one run. Shares of a function
//! are those of its slow calls' whole excess, so they sum to 1. A suspect is *cleared* when it accounts for
//! at most [`CLEARED_RATIO`] of that, with the figures that clear it.

use rayon::prelude::*;
use serde::Serialize;

use crate::trace::Trace;
use crate::{
    questions::{
        info,
        ruled_out::{self, Alibi, Court},
    },
    tables::slow_calls::state_name,
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Derived;
use analyze_verdict::{
    causes::{self, Cause, Division},
    classify::{self, Function, Params, Percentiles, SlowCall},
    copy_cost,
    culprits::{self, Culprit, Syscall},
    groups::MIN_CALLS,
    walk::Walker,
};

/// Up to this share of the slow excess a suspect is cleared.
pub const CLEARED_RATIO: f64 = 0.01;
/// From this share on it is guilty.
pub const GUILTY_RATIO: f64 = 0.05;
/// Slowest calls kept per function, for reading, unless more are asked for.
pub const EXAMPLES: usize = 5;

/// A share of something.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Share {
    pub cause: Cause,
    pub total_ns: f64,
    pub share_ratio: f64,
}

/// What the scheduler is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// It has an alibi.
    Cleared,
    /// Its share is small, but not nothing.
    Minor,
    /// It took a real share.
    Guilty,
    /// Not in the calls' own time, but it kept threads waiting that slow calls waited for.
    Behind,
    /// There is nothing to judge, or not enough.
    Inconclusive,
}

impl Scheduler {
    /// What it is, by its share of the excess, the share that it is behind, and what the trace leaves open.
    pub fn of(own_ratio: f64, behind_ratio: f64, open_ratio: f64) -> Self {
        if own_ratio >= GUILTY_RATIO {
            Self::Guilty
        } else if behind_ratio > CLEARED_RATIO {
            Self::Behind
        } else if own_ratio > CLEARED_RATIO {
            Self::Minor
        } else if own_ratio + open_ratio > CLEARED_RATIO {
            Self::Inconclusive
        } else {
            Self::Cleared
        }
    }
}

/// One link of a chain.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    pub ts_ns: i64,
    pub dur_ns: i64,
    /// 0: the call's own thread; 1: the thread that woke it; and so on.
    pub depth: usize,
    pub pid: u32,
    pub tid: u32,
    pub state: &'static str,
    pub cause: Option<Cause>,
    pub task_pid: Option<u32>,
    pub task_tid: Option<u32>,
    pub task_comm: Option<String>,
}

/// One slow call.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    pub ts_ns: i64,
    pub dur_ns: i64,
    pub baseline_ns: f64,
    pub pid: u32,
    pub tid: u32,
    pub size_bytes: Option<i64>,
    pub first_call: bool,
    /// Calls around it.
    pub depth: i64,
    /// Nested call of longest duration.
    pub child_op: Option<String>,
    pub parts: Vec<Share>,
    pub verdict: Cause,
    /// The verdict, followed along the chain.
    pub root: Cause,
    /// Its time from end to end, if any of it was off CPU.
    pub chain: Vec<Link>,
}

/// Percentiles without one cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Without {
    pub cause: Cause,
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

/// Verdict on one function.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub op: String,
    pub class: Option<&'static str>,
    pub calls_count: usize,
    pub censored_count: usize,
    pub slow_count: usize,
    /// Slow calls that overlap any off-CPU time of their own thread.
    pub overlapping_count: usize,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    /// 99th percentile if no call had lost the CPU against its will.
    pub p99_without_scheduler_ns: f64,
    /// The percentiles without each cause.
    pub without: Vec<Without>,
    pub excess_ns: f64,
    /// Causes with their shares of the excess; they sum to 1 if there is any.
    pub shares: Vec<Share>,
    pub scheduler: Scheduler,
    /// Share of the excess in which threads that slow calls waited for had no CPU.
    pub scheduler_behind_ratio: f64,
    /// Cost of bytes, where the function copies or sets and the sizes tell.
    pub size_line: Option<copy_cost::Line>,
    pub examples: Vec<Example>,
    /// The verdict in a sentence.
    pub sentence: String,
}

/// Answer for one run.
#[derive(Clone, Debug, Serialize)]
pub struct Chains {
    pub run: String,
    pub params: Params,
    pub verdicts: Vec<Verdict>,
    /// Shares over all outermost slow calls together.
    pub overall: Vec<Share>,
    pub overall_excess_ns: f64,
    pub overall_slow_count: usize,
    /// Share of all that excess in which threads that slow calls waited for had no CPU.
    pub scheduler_behind_ratio: f64,
    /// Who is behind the off-CPU time of calls.
    pub culprits: Vec<Culprit>,
    /// System calls in which calls slept.
    pub syscalls: Vec<Syscall>,
    pub waiting_in_slow_ns: i64,
    /// Suspects that were looked at and cleared.
    pub alibis: Vec<Alibi>,
    pub warnings: Vec<String>,
}

/// Shares of the causes in a division.
pub fn shares(division: Division, excess: f64) -> Vec<Share> {
    let ratio = |ns: f64| if excess > 0.0 { ns / excess } else { 0.0 };
    let all = Cause::ALL.into_iter().zip(division).filter(|(_, ns)| *ns > 0.0);
    all.map(|(cause, total_ns)| Share { cause, total_ns, share_ratio: ratio(total_ns) }).collect()
}

/// Share of the excess that the scheduler is behind, through other threads.
fn behind_ratio<'a>(slow: impl Iterator<Item = &'a SlowCall>, excess: f64) -> f64 {
    let behind: f64 = slow.map(|call| call.behind_ns).sum();
    if excess > 0.0 { behind / excess } else { 0.0 }
}

/// The share of one cause.
pub fn share_of(shares: &[Share], cause: Cause) -> f64 {
    shares.iter().find(|share| share.cause == cause).map_or(0.0, |share| share.share_ratio)
}

fn example(call: &SlowCall, derived: &Derived) -> Example {
    let (schedule, names) = (&derived.schedule, &derived.schedule.names);
    let (_, pid, tid) = call.call.thread(schedule);
    let mut walker = Walker::new(schedule);
    let division = derived.judgement.division(&mut walker, call);
    let link = |link: &analyze_verdict::walk::Link| Link {
        ts_ns: link.ts,
        dur_ns: link.end - link.ts,
        depth: link.depth,
        pid: link.thread.1,
        tid: link.thread.2,
        state: state_name(link.state),
        cause: classify::cause_of(link),
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

fn verdict(function: &Function, derived: &Derived, examples: usize) -> Verdict {
    let slow = &derived.judgement.slow[function.slow.clone()];
    let excess_ns: f64 = slow.iter().map(|call| call.excess_ns).sum();
    let shares = shares(function.division, excess_ns);
    let scheduler_behind_ratio = behind_ratio(slow.iter(), excess_ns);
    let scheduler = match slow.is_empty() {
        true => Scheduler::Inconclusive,
        false => Scheduler::of(
            share_of(&shares, Cause::Scheduler),
            scheduler_behind_ratio,
            share_of(&shares, Cause::Inconclusive),
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
    let mut explained: Vec<&Share> =
        verdict.shares.iter().filter(|share| share.share_ratio >= 0.01).collect();
    explained.sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
    let causes: Vec<String> = explained
        .iter()
        .map(|share| format!("{} {:.1} %", share.cause.name(), 100.0 * share.share_ratio))
        .collect();
    let percent = 100.0 * share_of(&verdict.shares, Cause::Scheduler);
    let scheduler = match verdict.scheduler {
        Scheduler::Cleared => "the scheduler has an alibi".to_owned(),
        Scheduler::Minor => format!("the scheduler had a minor part ({percent:.1} %)"),
        Scheduler::Guilty => format!("the scheduler is guilty of {percent:.1} %"),
        Scheduler::Behind => format!(
            "the scheduler is behind {:.1} %, through threads that slow calls waited for",
            100.0 * verdict.scheduler_behind_ratio
        ),
        Scheduler::Inconclusive => "nothing to say of the scheduler".to_owned(),
    };
    format!(
        "{scheduler}: {} of {} slow calls overlap off-CPU time; explained by {}",
        verdict.overlapping_count,
        verdict.slow_count,
        causes.join(", ")
    )
}

/// What weakens the verdicts on this run.
fn warnings(trace: &Trace, derived: &Derived, run: u32) -> Vec<String> {
    let file = trace.files().first();
    let mut warnings = file.map_or_else(Vec::new, |file| info::warnings(&file.run));
    if file.is_some_and(|file| file.run.joined_running) {
        warnings.push(
            "recording joined processes that ran already: first launches cannot be told from later ones"
                .to_owned(),
        );
    }
    let of_run = derived.faults.iter().filter(|((of, _), _)| *of == run);
    warnings.extend(of_run.map(|((_, fault), count)| format!("{} ({count} rows)", fault.name())));
    warnings
}

/// Judges every function of the first run. `examples`: slowest calls kept per function.
///
/// # Errors
/// If the run's data cannot be read.
pub async fn run(trace: &Trace, params: Params, examples: usize) -> Result<Chains, AnalyzeError> {
    let derived = trace.derived(params).await?;
    let (schedule, judgement) = (&derived.schedule, &derived.judgement);
    let name = trace.files().first().map_or_else(String::new, |file| file.name.clone());
    let run = schedule.names.known(&name).unwrap_or(u32::MAX);
    let of_run: Vec<&Function> = judgement.functions.iter().filter(|function| function.run == run).collect();
    let slow = || of_run.iter().flat_map(|function| &judgement.slow[function.slow.clone()]);
    let mut outermost: Vec<&SlowCall> = slow().filter(|call| call.call.depth == 0).collect();
    // The order of functions must not show in the sums.
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
    let accused = slow().map(|call| call.call.thread(schedule)).collect();
    let court = Court {
        derived: &derived,
        run,
        overall: &overall,
        touched,
        slow: &outermost,
        accused,
        blame: &blame,
    };
    let alibis = ruled_out::find(&court);
    let open = share_of(&overall, Cause::Inconclusive);
    if open > 0.0 {
        warnings.push(format!(
            "inconclusive: while slow calls ran, events were lost, or nothing of the scheduler was recorded: \
             {:.1} % of the excess could be anybody's",
            100.0 * open
        ));
    }
    Ok(Chains {
        run: name,
        params,
        overall_slow_count: outermost.len(),
        scheduler_behind_ratio: behind_ratio(outermost.iter().copied(), overall_excess_ns),
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
