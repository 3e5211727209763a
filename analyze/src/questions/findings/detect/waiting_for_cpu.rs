//! Time in which the process could have run, and another task had the CPU.

use trace_schema::Counted;

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        ("waiting-for-cpu", "Threads that the run waited for were runnable while other tasks had their CPU."),
        ("cpu-quota", "The process's control group had used up its CPU quota."),
        ("stopped", "The process was stopped by a signal."),
    ],
    detect,
};

/// Number of tasks that are named, and the least share of the waiting in percent that such a task had.
const NAMED: usize = 3;
const LEAST_PERCENT: f64 = 1.0;

fn detect<'a>(_: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().flat_map(of_process).collect()
}

fn of_process(ledger: &mut Ledger<'_>) -> Vec<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    // What the recorder costs is no fault of the run, and is among the warnings.
    let waiting = ledger.claim(|slice| slice.part == "waiting_for_cpu" && !slice.is_by_recorder());
    let tasks = waiting.by(|slice| slice.task_comm.as_deref());
    let share = |ns: i64| 100.0 * ns as f64 / waiting.time_ns().max(1) as f64;
    let named: Vec<String> = tasks
        .iter()
        .take(NAMED)
        .filter(|(_, ns)| share(*ns) >= LEAST_PERCENT)
        .map(|(task, ns)| format!("{task} ({:.1} %)", share(*ns)))
        .collect();
    let by = if named.is_empty() { String::new() } else { format!(" that {} had", named.join(", ")) };
    let mut findings = vec![
        Finding::new("waiting-for-cpu", Rank::Cost, Some(pid), format!("The process waited for a CPU{by}."))
            .costs(waiting.time_ns(), wall_ns)
            .shown_by(
                format!("{} in which a thread was runnable", Counted(waiting.intervals_count(), "interval")),
                ledger.sql("part = 'waiting_for_cpu'"),
                "run-time",
            )
            .to_do(
                "Give the process CPUs that these tasks do not use (taskset, cpuset), or run them elsewhere.",
            )
            .saves("at most this time: it is what the process would not have waited"),
    ];
    for (kind, part, title, to_do) in [
        (
            "cpu-quota",
            "throttled",
            "The process's control group had used up its CPU quota.",
            "Raise the quota of the control group (cpu.max; in Kubernetes, the CPU limit).",
        ),
        (
            "stopped",
            "stopped",
            "The process was stopped by a signal.",
            "Find who stops it: a recorder does while libraries are loaded, a debugger or a job scheduler may.",
        ),
    ] {
        let claim = ledger.claim(|slice| slice.part == part && !slice.is_by_recorder());
        let finding = Finding::new(kind, Rank::Cost, Some(pid), title.to_owned())
            .costs(claim.time_ns(), wall_ns)
            .shown_by(
                Counted(claim.intervals_count(), "interval").to_string(),
                ledger.sql(&format!("part = '{part}'")),
                "run-time",
            )
            .to_do(to_do);
        findings.push(finding);
    }
    findings.retain(|finding| finding.cost_ns > Some(0));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::{ProcessTime, Slice};

    #[test]
    fn the_task_that_had_the_cpu_is_named_with_its_share() {
        let slice = |part: &str, task: &str, time_ns| Slice {
            part: part.to_owned(),
            task_comm: Some(task.to_owned()),
            time_ns,
            intervals_count: 1,
            ..Slice::default()
        };
        let process = ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1000,
            slices: vec![
                slice("waiting_for_cpu", "hog", 300),
                slice("host", "hog", 200),
                slice("waiting_for_cpu", "make", 100),
                slice("throttled", "", 50),
            ],
            ..ProcessTime::default()
        };
        let mut ledger = Ledger::new(&process);
        let found = of_process(&mut ledger);
        let kinds: Vec<(&str, Option<i64>)> =
            found.iter().map(|finding| (finding.kind, finding.cost_ns)).collect();
        assert_eq!(kinds, [("waiting-for-cpu", Some(400)), ("cpu-quota", Some(50))]);
        assert_eq!(found[0].title, "The process waited for a CPU that hog (75.0 %), make (25.0 %) had.");
        assert_eq!(found[0].share_ratio, Some(0.4));
        assert_eq!(ledger.left_ns(), 200);
    }
}
