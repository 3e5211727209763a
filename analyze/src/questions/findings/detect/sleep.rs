//! Time that threads slept by their own wish: in `nanosleep`, and in waits with a time limit that ran out.

use trace_schema::Counted;

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[(
        "sleep",
        "Threads that the run waited for asked to sleep for a time, or waited for a lock or condition until a time limit ran out.",
    )],
    detect,
};

/// Number of threads that are named.
const NAMED: usize = 3;

fn detect<'a>(_: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().filter_map(of_process).collect()
}

fn of_process(ledger: &mut Ledger<'_>) -> Option<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    // An interrupt ends a futex sleep only if its time limit runs out.
    let claim =
        ledger.claim(|slice| slice.part == "sleep" || slice.part == "futex" && slice.task_pid == Some(0));
    let limits_ns: i64 = claim.slices().filter(|(slice, _)| slice.part == "futex").map(|(_, ns)| ns).sum();
    let finding = Finding::new(
        "sleep",
        Rank::Cost,
        Some(pid),
        format!("The run slept by its own wish, in a sleep or a polling loop: {}.", claim.threads(NAMED)),
    )
    .costs(claim.time_ns(), wall_ns)
    .shown_by(
        format!(
            "{}, the longest of {} ms; {} ms of all in waits whose time limit ran out",
            Counted(claim.intervals_count(), "sleep"),
            claim.slices().map(|(slice, _)| slice.longest_ns).max().unwrap_or(0) / 1_000_000,
            limits_ns / 1_000_000,
        ),
        ledger.sql("(part = 'sleep' OR part = 'futex' AND task_pid = 0)"),
        "run-time",
    )
    .to_do("Find the call (time.sleep, usleep, a loop that polls) with `py-spy dump` or gdb, and wait for the event itself.")
    .saves("at most this time: what the sleep waits for may take as long");
    (claim.time_ns() > 0).then_some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::{ProcessTime, Slice};

    #[test]
    fn a_time_limit_that_ran_out_is_a_sleep_and_a_lock_is_none() {
        let slice = |part: &str, task_pid: Option<i64>, time_ns| Slice {
            part: part.to_owned(),
            thread_comm: Some("python3".to_owned()),
            task_pid,
            time_ns,
            longest_ns: time_ns,
            intervals_count: 2,
            ..Slice::default()
        };
        let process = ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1000,
            slices: vec![
                slice("sleep", Some(0), 300),
                slice("futex", Some(0), 200),
                slice("futex", Some(7), 150),
                slice("futex", None, 100),
                slice("poll", Some(0), 50),
            ],
            ..ProcessTime::default()
        };
        let mut ledger = Ledger::new(&process);
        assert_eq!(of_process(&mut ledger).expect("a finding").cost_ns, Some(500));
        assert_eq!(ledger.left_ns(), 300);
        assert!(of_process(&mut ledger).is_none());
    }
}
