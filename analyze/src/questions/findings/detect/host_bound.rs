//! Time that the driving thread spent in host code, such as Python, while the GPU had nothing to do.
//!
//! With a profile of the GPU, that time is on record. Without one, a run whose driving thread hardly ever waits for the GPU is
//! bound by its host, and the record says only that the GPU had at most this much time to spare.

use crate::questions::{
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::Ledger,
    },
    where_time_went::Slice,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[("host-bound", "Host code outside of CUDA calls took most of the time after the first launch.")],
    detect,
};

/// Least share of the time after the first launch that is in host code.
const LEAST_RATIO: f64 = 0.5;
/// Largest share of that time that the thread waits for the GPU, if no profile tells what the GPU did.
const MOST_SYNC_RATIO: f64 = 0.02;

fn detect<'a>(_: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().filter_map(of_process).collect()
}

fn of_process(ledger: &mut Ledger<'_>) -> Option<Finding> {
    let process = ledger.process;
    let (pid, wall_ns) = (process.pid, process.wall_ns);
    let running_ns = wall_ns.saturating_sub(process.start_up_ns?).max(1) as f64;
    // Pauses are host code, too, where they are too few for a finding of their own.
    let is_host = |slice: &Slice| {
        slice.part == "host" && matches!(slice.stage.as_deref(), Some("running" | "host-pause"))
    };
    let look = ledger.look(is_host);
    if (look.time_ns() as f64) < LEAST_RATIO * running_ns {
        return None;
    }
    let finding = Finding::new(
        "host-bound",
        Rank::Note,
        Some(pid),
        "Host code outside of CUDA calls, such as Python, sets the pace of the run.".to_owned(),
    )
    .shown_by(
        format!("{:.0} % of the time after the first launch", 100.0 * look.time_ns() as f64 / running_ns),
        ledger.sql("part = 'host' AND stage IN ('running', 'host-pause')"),
        "run-time",
    )
    .to_do(
        "Launch more work per line of Python: larger batches, torch.compile(mode=\"reduce-overhead\") or CUDA graphs; or profile \
         the host code (py-spy record).",
    );
    cost(finding, ledger, is_host)
}

/// Claims time in host code, and sets what it costs: the time in which the GPU was idle, or, without a profile of the GPU, at most
/// all of it. `None` if the GPU was never idle, or if the thread waits for the GPU, so that its host code costs nothing.
pub(super) fn cost<'a>(
    finding: Finding,
    ledger: &mut Ledger<'a>,
    is_host: impl Fn(&Slice) -> bool,
) -> Option<Finding> {
    let process = ledger.process;
    let wall_ns = process.wall_ns;
    let running_ns = wall_ns.saturating_sub(process.start_up_ns?).max(1) as f64;
    if process.gpu_busy_ns.is_some() {
        let look = ledger.look(&is_host);
        let idle_ns = look
            .slices()
            .fold(0, |sum: i64, (slice, ns)| sum.saturating_add(slice.gpu_idle_ns.unwrap_or(0).min(ns)));
        let claim = ledger.claim_at_most(idle_ns, is_host);
        return (claim.time_ns() > 0).then(|| finding.costs(claim.time_ns(), wall_ns));
    }
    if process.part_ns("sync") as f64 > MOST_SYNC_RATIO * running_ns {
        return None;
    }
    let claim = ledger.claim(is_host);
    let why = "what the GPU did meanwhile is not on record: join a profile with `analyze align`";
    Some(finding.bounded(0, claim.time_ns(), wall_ns, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{
        findings::finding::Confidence,
        where_time_went::{Part, ProcessTime},
    };

    /// Makes a process with 100 ns of start-up and 900 ns after it, of which some are in host code, and some in synchronization.
    fn process(host_ns: i64, sync_ns: i64, idle_ns: Option<i64>) -> ProcessTime {
        let slice = |part: &str, stage: &str, time_ns| Slice {
            part: part.to_owned(),
            stage: Some(stage.to_owned()),
            time_ns,
            gpu_idle_ns: idle_ns,
            ..Slice::default()
        };
        let sync = Part {
            part: "sync".to_owned(),
            time_ns: sync_ns,
            share_ratio: 0.0,
            start_up_ns: None,
            gpu_idle_ns: None,
            subjects: Vec::new(),
        };
        ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1000,
            start_up_ns: Some(100),
            gpu_busy_ns: idle_ns,
            parts: vec![sync],
            slices: vec![
                slice("host", "running", host_ns),
                slice("launch", "running", 900 - host_ns - sync_ns),
                slice("sync", "running", sync_ns),
                slice("host", "start-up", 100),
            ],
            ..ProcessTime::default()
        }
    }

    #[test]
    fn idle_time_is_measured_with_a_profile_and_bounded_without() {
        let profiled = process(600, 200, Some(250));
        let found = of_process(&mut Ledger::new(&profiled)).expect("a finding");
        assert_eq!(
            (found.cost_ns, found.confidence, found.rank),
            (Some(250), Confidence::Measured, Rank::Note)
        );
        let alone = process(600, 10, None);
        let found = of_process(&mut Ledger::new(&alone)).expect("a finding");
        assert_eq!((found.cost_range_ns, found.confidence), (Some((0, 600)), Confidence::Bounded));
    }

    #[test]
    fn a_run_that_waits_for_its_gpu_or_spends_little_in_host_code_is_not_host_bound() {
        assert!(of_process(&mut Ledger::new(&process(600, 100, None))).is_none());
        assert!(of_process(&mut Ledger::new(&process(400, 0, None))).is_none());
        assert!(of_process(&mut Ledger::new(&process(600, 200, Some(0)))).is_none());
    }
}
