//! Time in which the driving thread waited for a lock that threads of its process pass on to each other.
//!
//! ```text
//! driving thread  ──┤────────────── asleep (futex) ──────────────┼ has the lock
//! thread B          ├── asleep (futex) ──┤─ has the lock, runs ──┤ wakes it
//! thread A          ├─ has the lock, runs ─┤ wakes B
//! ```
//! The record has no owner of a futex. A lock shows by two signs together: the driving thread and at least two others all end
//! each other's sleeps in futexes, in both directions, whereas results are passed in one; and a good part of the time lies
//! behind the thread that woke the driving one, in threads that made that one wait, whereas who makes a result runs.

use std::collections::BTreeSet;

use trace_schema::Counted;

use crate::questions::{
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::Ledger,
        records::Handoff,
    },
    where_time_went::Slice,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[(
        "lock-contention",
        "The driving thread waited in a queue of threads of its process that pass a lock on to each other.",
    )],
    detect,
};

/// Least number of sleeps that each of two threads ends of the other: fewer are handed over at the start and end of threads.
const LEAST_HANDOFFS: i64 = 8;
/// Least share of the time that lies behind the thread that woke the driving one. With one other thread ahead in the queue, a
/// wait is the rest of what the holder does and all of what the next one does: a third lies behind the waker.
const LEAST_QUEUED_RATIO: f64 = 0.2;
/// Number of threads that are named.
const NAMED: usize = 3;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().filter_map(|ledger| of_process(&facts.records.handoffs, ledger)).collect()
}

/// Returns the threads that pass a lock on to the driving thread, to each other, and back.
fn members(handoffs: &[Handoff], (pid, tid): (i64, i64)) -> BTreeSet<i64> {
    let inside = handoffs.iter().filter(|handoff| {
        handoff.is_futex
            && (handoff.sleeper.0, handoff.waker.0) == (pid, pid)
            && handoff.count >= LEAST_HANDOFFS
    });
    let edges: BTreeSet<(i64, i64)> = inside.map(|handoff| (handoff.sleeper.1, handoff.waker.1)).collect();
    let is_mutual = |a: i64, b: i64| edges.contains(&(a, b)) && edges.contains(&(b, a));
    let is_queued =
        |a: i64, b: i64| a != tid && b != tid && is_mutual(a, b) && is_mutual(a, tid) && is_mutual(b, tid);
    edges.iter().filter(|(a, b)| is_queued(*a, *b)).map(|(a, _)| *a).collect()
}

fn of_process(handoffs: &[Handoff], ledger: &mut Ledger<'_>) -> Option<Finding> {
    let process = ledger.process;
    let (pid, wall_ns) = (process.pid, process.wall_ns);
    let members = members(handoffs, (pid, process.tid));
    let is_wait = |slice: &Slice| {
        slice.waited_in.as_deref() == Some("futex")
            && slice.thread_pid == pid
            && members.contains(&slice.thread_tid)
            && matches!(
                slice.part.as_str(),
                "other_thread"
                    | "host"
                    | "disk"
                    | "page_fault"
                    | "futex"
                    | "poll"
                    | "sleep"
                    | "blocked"
                    | "ioctl"
            )
    };
    let look = ledger.look(is_wait);
    let queued_ns: i64 = look.slices().filter(|(slice, _)| slice.depth > 1).map(|(_, ns)| ns).sum();
    let queued_ratio = queued_ns as f64 / look.time_ns().max(1) as f64;
    if queued_ratio < LEAST_QUEUED_RATIO {
        return None;
    }
    let claim = ledger.claim(is_wait);
    let title = format!(
        "The thread that launches waited for a lock in a queue with {} of its process: {} had it.",
        Counted(members.len(), "other thread"),
        claim.threads(NAMED)
    );
    let mut finding = Finding::new("lock-contention", Rank::Cost, Some(pid), title)
        .costs(claim.time_ns(), wall_ns)
        .shown_by(
            format!(
                "these threads and the driving one end each other's sleeps in futexes; {:.0} % of the time lies behind \
                 the thread that woke the driving one",
                100.0 * queued_ratio
            ),
            ledger.sql(&format!("waited_in = 'futex' AND thread_pid = {pid}")),
            "run-time",
        )
        .to_do(
            "Hold the lock for less (compute outside of it), give each thread its own, or do not take it in the thread that \
             launches.",
        )
        .saves("at most this time: it is what the driving thread would not have waited");
    finding.open = "which lock it was: the owner of a futex is not on record. Python's global interpreter lock, given up \
                    within 5 ms, looks like any other."
        .to_owned();
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::ProcessTime;

    fn found(edges: &[(i64, i64)], depths: &[(i64, i64)]) -> Option<Finding> {
        let slice = |(depth, time_ns): &(i64, i64)| Slice {
            part: "other_thread".to_owned(),
            thread_pid: 7,
            thread_tid: 7 + depth,
            thread_comm: Some("holder".to_owned()),
            waited_in: Some("futex".to_owned()),
            depth: *depth,
            time_ns: *time_ns,
            ..Slice::default()
        };
        let process = ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1000,
            slices: depths.iter().map(slice).collect(),
            ..ProcessTime::default()
        };
        let handoff = |&(sleeper, waker): &(i64, i64)| Handoff {
            sleeper: (7, sleeper),
            waker: (7, waker),
            is_futex: true,
            count: LEAST_HANDOFFS,
        };
        let handoffs: Vec<Handoff> = edges.iter().map(handoff).collect();
        of_process(&handoffs, &mut Ledger::new(&process))
    }

    const ALL: [(i64, i64); 6] = [(7, 8), (8, 7), (7, 9), (9, 7), (8, 9), (9, 8)];

    #[test]
    fn threads_that_wake_each_other_and_queue_pass_a_lock_on() {
        let finding = found(&ALL, &[(1, 300), (2, 200)]).expect("a finding");
        assert_eq!(finding.cost_ns, Some(500));
        assert!(
            finding.title.contains("2 other threads of its process: holder × 2 (100.0 %)"),
            "{}",
            finding.title
        );
    }

    #[test]
    fn a_pool_and_a_pipeline_are_no_locks() {
        // Nobody waits for the thread that woke the driving one: it made a result.
        assert!(found(&ALL, &[(1, 400), (2, 40)]).is_none());
        // The threads 8 and 9 pass results on in one direction.
        assert!(found(&ALL[..5], &[(1, 300), (2, 200)]).is_none());
        // Two threads do not tell a lock from a request and its result.
        assert!(found(&ALL[..2], &[(1, 300), (2, 200)]).is_none());
    }
}
