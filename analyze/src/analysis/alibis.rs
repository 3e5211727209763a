//! Suspects that were looked at and cleared, each with the figure that clears it.
//!
//! What is no evidence clears nobody and accuses nobody: counts in a window, load of the machine, sleep of
//! other threads. Those are listed with what of them lay inside slow calls.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use trace_schema::Nanos;

use super::{
    causes::Cause,
    chains::{CLEARED_RATIO, Share, share_of},
    culprits::Blame,
    judge::SlowCall,
    schedule::{State, ThreadKey},
};
use crate::functions::derived::Derived;

/// A suspect that is cleared.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Alibi {
    pub(crate) suspect: String,
    /// Its part in the excess of slow calls.
    pub(crate) total_ns: f64,
    pub(crate) share_ratio: f64,
    /// The figures, in words.
    pub(crate) figure: String,
}

/// The usual suspects.
const SUSPECTS: [Cause; 9] = [
    Cause::Scheduler,
    Cause::Throttled,
    Cause::Blocked(super::blocker::Blocker::Futex),
    Cause::Blocked(super::blocker::Blocker::PageFault),
    Cause::Blocked(super::blocker::Blocker::Disk),
    Cause::Blocked(super::blocker::Blocker::Ioctl),
    Cause::Size,
    Cause::FirstCall,
    Cause::Nested,
];

/// Finds them for one run. `slow`: its outermost slow calls.
pub(crate) fn find(
    derived: &Derived,
    run: u32,
    overall: &[Share],
    slow: &[&SlowCall],
    blame: &Blame,
) -> Vec<Alibi> {
    if slow.is_empty() {
        return Vec::new();
    }
    // Without scheduler events there is nothing that could clear anybody; without reasons only the scheduler.
    let scheduled = derived.schedule.threads().any(|key| key.0 == run);
    let reasons = !derived
        .schedule
        .threads()
        .filter(|key| key.0 == run)
        .any(|key| derived.schedule.pieces(key).iter().any(|piece| piece.state == State::Unknown));
    let is_on_record = |cause: Cause| match cause {
        Cause::Scheduler => scheduled,
        Cause::Throttled | Cause::Blocked(_) => scheduled && reasons,
        _ => true,
    };
    // Who is at the root of a chain is not cleared, though the call itself waited for somebody else.
    let excess: f64 = slow.iter().map(|call| call.excess_ns).sum();
    let behind = |cause: Cause| match cause.is_off_cpu() {
        true => blame.behind_ns(cause) as f64 / excess.max(1.0),
        false => 0.0,
    };
    let mut alibis: Vec<Alibi> = SUSPECTS
        .into_iter()
        .filter(|cause| is_on_record(*cause))
        .filter(|cause| share_of(overall, *cause) <= CLEARED_RATIO && behind(*cause) <= CLEARED_RATIO)
        .map(|cause| {
            let index = cause.index();
            let total_ns: f64 = slow.iter().map(|call| call.division[index]).sum();
            let touched = slow.iter().filter(|call| call.division[index] > 0.0).count();
            Alibi {
                suspect: cause.name().to_owned(),
                total_ns,
                share_ratio: share_of(overall, cause),
                figure: format!(
                    "{touched} of {} slow calls had any of it, {} in all",
                    slow.len(),
                    Nanos(total_ns as i64)
                ),
            }
        })
        .collect();
    if scheduled {
        alibis.extend(other_threads(derived, run, slow));
        alibis.extend(other_tasks(derived, run, blame));
    }
    alibis
}

/// Threads that made no slow call: what they slept is no evidence, unless a slow call waited for them.
fn other_threads(derived: &Derived, run: u32, slow: &[&SlowCall]) -> Option<Alibi> {
    let links = || slow.iter().flat_map(|call| &call.links);
    let accused: HashSet<ThreadKey> =
        links().filter(|link| link.depth == 0).map(|link| link.thread).collect();
    let behind: HashMap<ThreadKey, i64> =
        links().filter(|link| link.depth > 0).fold(HashMap::new(), |mut totals, link| {
            *totals.entry(link.thread).or_default() += link.end - link.ts;
            totals
        });
    let helpers: Vec<ThreadKey> = derived
        .schedule
        .threads()
        .filter(|key| key.0 == run && !accused.contains(key) && !behind.contains_key(key))
        .collect();
    let asleep: i64 = helpers
        .iter()
        .flat_map(|key| derived.schedule.pieces(*key))
        .filter(|piece| piece.end < i64::MAX && matches!(piece.state, State::Blocked(_)))
        .map(|piece| piece.end - piece.ts)
        .sum();
    (!helpers.is_empty()).then(|| Alibi {
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

/// Tasks that ran on CPUs which were waited for, but not while a slow call waited.
fn other_tasks(derived: &Derived, run: u32, blame: &Blame) -> Option<Alibi> {
    let mut tasks = HashSet::new();
    let mut ran = 0;
    for (_, stints) in derived.schedule.stints().filter(|(of, _)| *of == run) {
        for stint in stints.iter().filter(|stint| !blame.holders.contains(&stint.task.pid)) {
            tasks.insert(stint.task.pid);
            ran += stint.end - stint.ts;
        }
    }
    (!tasks.is_empty()).then(|| Alibi {
        suspect: "other processes".to_owned(),
        total_ns: 0.0,
        share_ratio: 0.0,
        figure: format!(
            "{} of them ran for {} on CPUs that traced threads waited for at some time; none of it while a slow call waited",
            tasks.len(),
            Nanos(ran)
        ),
    })
}
