//! Time in which threads of the run waited for CPython's global interpreter lock.
//!
//! The account recognises such a wait by CPython's own protocol: a futex sleep of the switch interval that a timer ends, and
//! after it the holder. What it finds in the process itself is claimed whole; a lock in another process, such as a worker of a
//! data loader, is what that process did while this one waited for it.

use trace_schema::Counted;

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[(
        "gil-contention",
        "Threads of a process slept for Python's global interpreter lock while another one of it kept the lock.",
    )],
    detect,
};

/// Number of threads that are named.
const NAMED: usize = 3;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    let is_python = |pid: i64| {
        let run = &facts.info.provenance;
        let process = run.processes.iter().find(|process| i64::from(process.pid) == pid);
        let commands = process.map_or(&run.command, |process| &process.command).iter();
        let threads = run.threads.iter().filter(|thread| i64::from(thread.pid) == pid);
        commands.chain(threads.map(|thread| &thread.comm)).any(|name| name.contains("python"))
    };
    ledgers.iter_mut().filter_map(|ledger| of_process(is_python(ledger.process.pid), ledger)).collect()
}

fn of_process(is_python: bool, ledger: &mut Ledger<'_>) -> Option<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    let claim = ledger.claim(|slice| slice.part == "gil" && slice.thread_pid == pid);
    let (cost_ns, holders) = (claim.time_ns(), claim.threads(NAMED));
    let waits = claim.waits_count();
    let title = format!("Python threads waited for the global interpreter lock (GIL) that {holders} had.");
    let finding = Finding::new("gil-contention", Rank::Cost, Some(pid), title);
    let finding = if is_python {
        finding.costs(cost_ns, wall_ns)
    } else {
        let why = "nothing on record says that the process runs CPython: a lock that is asked for every 5 ms looks the same";
        finding.bounded(0, cost_ns, wall_ns, why)
    };
    (cost_ns > 0).then(|| {
        finding
            .shown_by(
                format!(
                    "{} that a timer ended after the switch interval of 5 ms, while the holder ran",
                    Counted(waits, "sleep")
                ),
                ledger.sql("part = 'gil'"),
                "run-time",
            )
            .to_do(
                "Move what that thread computes into a process of its own (multiprocessing, ProcessPoolExecutor) or into \
                 code that releases the lock, such as NumPy or native code.",
            )
            .saves("at most this time: it is what the run would not have waited for the lock")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{
        findings::finding::Confidence,
        where_time_went::{ProcessTime, Slice},
    };

    fn process(part: &str) -> ProcessTime {
        let slice = Slice {
            part: part.to_owned(),
            thread_pid: 7,
            thread_tid: 9,
            thread_comm: Some("gil-hog".to_owned()),
            time_ns: 400,
            waits_count: 80,
            ..Slice::default()
        };
        ProcessTime { pid: 7, tid: 7, wall_ns: 1000, slices: vec![slice], ..ProcessTime::default() }
    }

    #[test]
    fn the_holder_is_named_and_other_waits_are_left() {
        let process = process("gil");
        let found = of_process(true, &mut Ledger::new(&process)).expect("a finding");
        assert_eq!((found.cost_ns, found.confidence), (Some(400), Confidence::Measured));
        assert!(found.title.contains("that gil-hog (100.0 %) had"), "{}", found.title);
        let found = of_process(false, &mut Ledger::new(&process)).expect("a finding");
        assert_eq!((found.cost_range_ns, found.confidence), (Some((0, 400)), Confidence::Bounded));
    }

    #[test]
    fn waits_for_other_locks_are_not_claimed() {
        let process = process("other_thread");
        let mut ledger = Ledger::new(&process);
        assert!(of_process(true, &mut ledger).is_none());
        assert_eq!(ledger.left_ns(), 400);
    }
}
