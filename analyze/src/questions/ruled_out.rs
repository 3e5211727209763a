//! Causes that were examined and found not to be a factor, each with the figure that rules it out.
//!
//! Counts in a window, the load of the machine, and the sleep of other threads are evidence neither for nor
//! against a cause. They are listed with the part of them that lies inside slow calls. A cause is ruled out only if
//! the source records what would show it: of sleep that a thread slept, and, where it matters, who ended it and in
//! which system call it was.

use serde::Serialize;
use trace_schema::Nanos;

use crate::questions::share::{NOT_A_FACTOR_RATIO, Share, share_of};
use analyze_run::hash::HashSet;
use analyze_verdict::derived::Derived;
use analyze_verdict::{
    blocker::Blocker,
    causes::{self, Cause},
    classify::SlowCall,
    culprits::Blame,
    measure::is_sized,
    schedule::ThreadKey,
    thread_state::{State, ThreadState},
};

/// A cause that is not a factor.
#[derive(Clone, Debug, Serialize)]
pub struct RuledOut {
    /// Name of the cause, or of the other threads or processes that are ruled out.
    pub suspect: String,
    /// Its part of the excess latency of top-level slow calls, in nanoseconds.
    pub total_ns: f64,
    /// Share of that excess, from 0 to 1.
    pub share_ratio: f64,
    /// The figures that rule it out, in words.
    pub figure: String,
}

/// The causes that are examined.
const SUSPECTS: [Cause; 9] = [
    Cause::Scheduler,
    Cause::Throttled,
    Cause::Blocked(Blocker::Futex),
    Cause::Blocked(Blocker::PageFault),
    Cause::Blocked(Blocker::Disk),
    Cause::Blocked(Blocker::Ioctl),
    Cause::Size,
    Cause::FirstCall,
    Cause::Nested,
];

/// The data of one run in which causes are ruled out.
pub struct SuspectContext<'a> {
    /// The verdicts and the schedule of all runs.
    pub derived: &'a Derived,
    /// Number of the run in `Names`.
    pub run: u32,
    /// Shares of the causes in the excess latency of top-level slow calls.
    pub overall: &'a [Share],
    /// Number of top-level slow calls with any part of a cause, in the order of [`Cause::ALL`].
    pub touched: [usize; causes::COUNT],
    /// The top-level slow calls.
    pub slow: &'a [&'a SlowCall],
    /// Threads that made a slow call, nested or top-level.
    pub slow_threads: HashSet<ThreadKey>,
    /// The tasks and threads behind the off-CPU time of slow calls.
    pub blame: &'a Blame,
}

impl SuspectContext<'_> {
    /// Returns whether a sleep that is on record has what is asked for.
    fn has_sleep_with(&self, what: impl Fn(&ThreadState) -> bool) -> bool {
        let schedule = &self.derived.schedule;
        let of_run = schedule.threads().filter(|key| key.0 == self.run);
        let mut states = of_run.flat_map(|key| schedule.thread_states(key));
        states.any(|thread_state| matches!(thread_state.state, State::Blocked(_)) && what(thread_state))
    }

    /// Returns whether it is on record what threads slept in: their system calls, or that no slow call slept in one
    /// that is not known.
    fn knows_sleeps(&self) -> bool {
        let slept = |blocker| self.touched[Cause::Blocked(blocker).index()] > 0;
        !slept(Blocker::Other) && !slept(Blocker::PageFault)
            || self.has_sleep_with(|thread_state| thread_state.syscall().is_some())
    }

    /// Returns whether the run has the data that would show this cause.
    fn is_on_record(&self, cause: Cause) -> bool {
        let of_run = || self.derived.schedule.threads().filter(|key| key.0 == self.run);
        let info = self.derived.run(self.run);
        match cause {
            Cause::Scheduler => of_run().next().is_some(),
            Cause::Throttled => info.is_some_and(|run| run.throttling_is_recorded),
            Cause::Blocked(blocker) => {
                of_run().next().is_some()
                    && !self.derived.schedule.is_without_reasons(self.run)
                    && (blocker == Blocker::PageFault || self.knows_sleeps())
            }
            Cause::FirstCall => {
                info.is_none_or(|run| !run.joined_running) && self.derived.with_first.contains(&self.run)
            }
            Cause::Size => self.slow.iter().all(|call| {
                let class = self.derived.schedule.names.class(self.derived.judgement.kind(call).op);
                !is_sized(class) || call.call.size.is_some()
            }),
            _ => true,
        }
    }
}

/// Returns the causes, threads and processes that are not a factor in slow calls; none if there is no slow
/// call.
pub fn find(context: &SuspectContext<'_>) -> Vec<RuledOut> {
    let SuspectContext { overall, slow, blame, .. } = context;
    if slow.is_empty() {
        return Vec::new();
    }
    // The inconclusive share may belong to any cause; where the scheduler is on record, to none of time off CPU.
    let excess: f64 = slow.iter().map(|call| call.excess_ns).sum();
    let off_cpu_open = slow.iter().map(|call| call.off_cpu_open_ns).sum::<f64>() / excess.max(1.0);
    let open = |cause: Cause| match cause.is_off_cpu() {
        true => off_cpu_open,
        false => share_of(overall, Cause::Inconclusive),
    };
    // A cause found further along a chain is not ruled out, even if the call itself waited for another
    // thread.
    let behind = |cause: Cause| match cause.is_off_cpu() {
        true => blame.behind_ns(cause) as f64 / excess.max(1.0),
        false => 0.0,
    };
    let mut ruled_out: Vec<RuledOut> = SUSPECTS
        .into_iter()
        .filter(|cause| context.is_on_record(*cause))
        .filter(|cause| open(*cause) + behind(*cause) + share_of(overall, *cause) <= NOT_A_FACTOR_RATIO)
        .map(|cause| {
            let share = overall.iter().find(|share| share.cause == cause);
            let total_ns = share.map_or(0.0, |share| share.total_ns);
            RuledOut {
                suspect: cause.name().to_owned(),
                total_ns,
                share_ratio: share.map_or(0.0, |share| share.share_ratio),
                figure: format!(
                    "{} of {} slow calls had any of it, {} in all",
                    context.touched[cause.index()],
                    slow.len(),
                    Nanos(total_ns as i64)
                ),
            }
        })
        .collect();
    if context.is_on_record(Cause::Scheduler) && off_cpu_open <= NOT_A_FACTOR_RATIO {
        ruled_out.extend(other_threads(context));
        ruled_out.extend(other_tasks(context));
    }
    ruled_out
}

/// Rules out threads that made no slow call: their sleep is no evidence unless a slow call waited for them. A source
/// that records neither sleep nor who ended it says nothing of that.
fn other_threads(context: &SuspectContext<'_>) -> Option<RuledOut> {
    let schedule = &context.derived.schedule;
    let has_waker = |thread_state: &ThreadState| schedule.waker(thread_state).is_some();
    if schedule.is_without_reasons(context.run) || !context.has_sleep_with(has_waker) {
        return None;
    }
    let helpers: Vec<ThreadKey> = schedule
        .threads()
        .filter(|key| {
            key.0 == context.run
                && !context.slow_threads.contains(key)
                && !context.blame.involved.contains(key)
        })
        .collect();
    let asleep = helpers
        .iter()
        .flat_map(|key| schedule.thread_states(*key))
        .filter(|thread_state| thread_state.end < i64::MAX && matches!(thread_state.state, State::Blocked(_)))
        .fold(0_i64, |total, thread_state| total.saturating_add(thread_state.end - thread_state.ts));
    (!helpers.is_empty()).then(|| RuledOut {
        suspect: "sleep of other threads".to_owned(),
        total_ns: 0.0,
        share_ratio: 0.0,
        figure: format!(
            "{} threads that made no slow call slept {} in all; no slow call waited for one of them",
            helpers.len(),
            Nanos(asleep)
        ),
    })
}

/// Rules out other processes that had a CPU, but not while a slow call waited for it.
fn other_tasks(context: &SuspectContext<'_>) -> Option<RuledOut> {
    let schedule = &context.derived.schedule;
    let own: HashSet<u32> =
        schedule.threads().filter(|key| key.0 == context.run).map(|(_, pid, _)| pid).collect();
    let mut tasks = HashSet::default();
    let mut ran = 0_i64;
    let is_ruled_out = |pid: u32| !context.blame.holders.contains(&pid) && !own.contains(&pid);
    for (task, ns) in schedule.ran(context.run).filter(|(task, _)| is_ruled_out(task.pid)) {
        tasks.insert(task.pid);
        ran = ran.saturating_add(ns);
    }
    (!tasks.is_empty()).then(|| RuledOut {
        suspect: "other processes".to_owned(),
        total_ns: 0.0,
        share_ratio: 0.0,
        figure: format!(
            "{} of them had a CPU for {} in all; no slow call waited for a CPU that one of them had",
            tasks.len(),
            Nanos(ran)
        ),
    })
}
