//! The verdict on a function in one sentence.

use crate::questions::{
    chains::{Scheduler, Verdict},
    share::{Share, share_of},
};
use analyze_verdict::causes::Cause;

use super::percent;

/// Smallest share of a cause that is named.
const NAMED_RATIO: f64 = 0.01;

/// Returns the name of a cause for people. SQL and JSON name an unknown cause `unexplained`.
pub fn cause(cause: Cause) -> &'static str {
    if cause == Cause::Unexplained { "cause unknown" } else { cause.name() }
}

/// Describes the scheduler's part in the slow calls of a function, and their causes.
pub fn sentence(verdict: &Verdict) -> String {
    if verdict.slow_count == 0 || verdict.shares.is_empty() {
        return verdict.sentence.clone();
    }
    let own = share_of(&verdict.shares, Cause::Scheduler);
    let scheduler = match verdict.scheduler {
        Scheduler::Cleared => format!("the scheduler is not a factor ({})", percent(own)),
        Scheduler::Minor => format!("the scheduler is a minor factor ({})", percent(own)),
        Scheduler::Guilty => format!("the scheduler caused {} of the excess latency", percent(own)),
        Scheduler::Behind => format!(
            "the scheduler caused {} of the excess latency, through threads that slow calls waited for",
            percent(verdict.scheduler_behind_ratio)
        ),
        Scheduler::Inconclusive => "the scheduler's part is inconclusive".to_owned(),
    };
    let mut shares: Vec<&Share> =
        verdict.shares.iter().filter(|share| share.share_ratio >= NAMED_RATIO).collect();
    shares.sort_by(|a, b| b.share_ratio.total_cmp(&a.share_ratio));
    let causes: Vec<String> =
        shares.iter().map(|share| format!("{} {}", cause(share.cause), percent(share.share_ratio))).collect();
    let causes = match shares.as_slice() {
        [one] if one.cause == Cause::Unexplained => "cause unknown".to_owned(),
        _ => causes.join(", "),
    };
    format!(
        "{scheduler}: {} of {} slow calls were preempted or blocked during the call; {causes}",
        verdict.overlapping_count, verdict.slow_count
    )
}
