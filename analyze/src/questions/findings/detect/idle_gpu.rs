//! A GPU that has nothing to do for most of the time that a profile covers.

use trace_schema::Nanos;

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[("idle-gpu", "The GPU has no work of the process for most of the profile.")],
    detect,
};

/// Least share of the profiled time in which the GPU had nothing to do.
const IDLE_RATIO: f64 = 0.5;
/// Number of parts that are named.
const NAMED: usize = 3;

fn detect<'a>(_: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter().filter_map(of_process).collect()
}

fn of_process(ledger: &Ledger<'_>) -> Option<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    let busy_ns = ledger.process.gpu_busy_ns?;
    let idle = ledger.process.parts.iter().filter_map(|part| part.gpu_idle_ns.map(|ns| (part, ns)));
    let mut idle: Vec<_> = idle.filter(|(_, ns)| *ns > 0).collect();
    idle.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let idle_ns = idle.iter().fold(0_i64, |sum, (_, ns)| sum.saturating_add(*ns));
    let span_ns = busy_ns.saturating_add(idle_ns);
    if (idle_ns as f64) < IDLE_RATIO * span_ns.max(1) as f64 {
        return None;
    }
    let percent = |ns: i64| 100.0 * ns as f64 / idle_ns.max(1) as f64;
    let by: Vec<String> = idle
        .iter()
        .take(NAMED)
        .map(|(part, ns)| format!("for {:.0} % of it, the process {}", percent(*ns), part.meaning()))
        .collect();
    let title = format!(
        "The GPU had no work for {:.0} % of the {} that its profile covers.",
        100.0 * idle_ns as f64 / span_ns.max(1) as f64,
        Nanos(span_ns)
    );
    let mut finding = Finding::new("idle-gpu", Rank::Cost, Some(pid), title)
        .costs(idle_ns, wall_ns)
        .shown_by(
            by.join("; "),
            format!("SELECT part, sum(gpu_idle_ns) AS gpu_idle_ns FROM run_time WHERE pid = {pid} GROUP BY part ORDER BY 2 DESC"),
            "kernels",
        )
        .to_do("Shorten what the host did meanwhile, or give the GPU work ahead of need: larger batches, prefetching, CUDA graphs.");
    // Idle time is part of what the host spent, which other findings claim by its cause.
    finding.overlaps =
        vec!["tiny-kernels", "needless-sync", "waiting-for-cpu", "allocation-in-loop", "pageable-copies"];
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::{Part, ProcessTime};

    fn process(busy_ns: Option<i64>) -> ProcessTime {
        let part = |name: &str, gpu_idle_ns| Part {
            part: name.to_owned(),
            time_ns: 500,
            share_ratio: 0.5,
            start_up_ns: None,
            gpu_idle_ns: busy_ns.map(|_| gpu_idle_ns),
            subjects: Vec::new(),
        };
        ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1_000,
            gpu_busy_ns: busy_ns,
            parts: vec![part("launch", 100), part("host", 300)],
            slices: Vec::new(),
            ..ProcessTime::default()
        }
    }

    #[test]
    fn most_of_a_profile_without_work_is_found() {
        let of = |busy_ns| of_process(&Ledger::new(&process(busy_ns)));
        let finding = of(Some(100)).unwrap();
        assert_eq!((finding.cost_ns, finding.share_ratio), (Some(400), Some(0.4)));
        assert!(finding.title.contains("80 %"));
        assert!(finding.evidence[0].text.starts_with("for 75 % of it, the process ran host code"));
        assert!(of(Some(500)).is_none() && of(None).is_none());
    }
}
