//! Time in which the driving thread waited for another thread, and no other detector knows for what.

use trace_schema::Counted;

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        ("waiting-for-thread", "The driving thread waited for other threads, which ran."),
        ("unknown-wait", "Threads slept in futexes, and the record does not lead to who ended the sleeps."),
    ],
    detect,
};

/// Number of threads that are named.
const NAMED: usize = 3;

fn detect<'a>(_: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().flat_map(of_process).collect()
}

fn of_process(ledger: &mut Ledger<'_>) -> Vec<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    let ran = ledger.claim(|slice| matches!(slice.part.as_str(), "other_thread" | "gil"));
    let tid = ran.slices().max_by_key(|(_, ns)| *ns).map_or(pid, |(slice, _)| slice.thread_tid);
    let waits = ran.waits_count();
    let futex = ledger.claim(|slice| slice.part == "futex");
    let mut findings = vec![
        Finding::new(
            "waiting-for-thread",
            Rank::Cost,
            Some(pid),
            format!("The thread that launches waited for other threads, which ran: {}.", ran.threads(NAMED)),
        )
        .costs(ran.time_ns(), wall_ns)
        .shown_by(format!("{} that these threads ended, directly or through others", Counted(waits, "sleep")), ledger.sql("part IN ('other_thread', 'gil')"), "run-time")
        .to_do(format!(
            "See what thread {tid} computes (perf record -t {tid}, py-spy dump), and whether its result is needed then: launch \
             other work before waiting for it, or make it earlier."
        ))
        .saves("at most this time: it is what the driving thread would not have waited"),
        Finding::new(
            "unknown-wait",
            Rank::Cost,
            Some(pid),
            format!("Threads slept for a lock or for another thread: {}.", futex.threads(NAMED)),
        )
        .costs(futex.time_ns(), wall_ns)
        .inconclusive("the record does not lead to who ended these sleeps: that task is not traced, waited for this thread itself, or is not on record")
        .shown_by(Counted(futex.intervals_count(), "sleep").to_string(), ledger.sql("part = 'futex'"), "run-time")
        .to_do("Record with --sched all, and the processes that this one works with, too."),
    ];
    findings.retain(|finding| finding.cost_ns > Some(0));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{
        findings::finding::Confidence,
        where_time_went::{ProcessTime, Slice},
    };

    #[test]
    fn threads_that_ran_are_named_and_sleeps_without_a_waker_are_inconclusive() {
        let slice = |part: &str, tid, time_ns| Slice {
            part: part.to_owned(),
            thread_tid: tid,
            thread_comm: Some(format!("{part}-{tid}")),
            time_ns,
            waits_count: 3,
            intervals_count: 3,
            ..Slice::default()
        };
        let process = ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1000,
            slices: vec![
                slice("other_thread", 8, 300),
                slice("other_thread", 9, 100),
                slice("futex", 7, 50),
                slice("host", 7, 400),
            ],
            ..ProcessTime::default()
        };
        let mut ledger = Ledger::new(&process);
        let found = of_process(&mut ledger);
        assert_eq!((found[0].cost_ns, found[1].cost_ns, ledger.left_ns()), (Some(400), Some(50), 400));
        assert!(
            found[0].title.ends_with("other_thread-8 (75.0 %), other_thread-9 (25.0 %)."),
            "{}",
            found[0].title
        );
        assert!(found[0].to_do.contains("perf record -t 8"));
        assert_eq!(found[1].confidence, Confidence::Inconclusive);
        assert!(of_process(&mut ledger).is_empty());
    }
}
