//! Time before the first launch, where it is most of a run.

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
};

pub(super) const DETECTOR: Detector =
    Detector { kinds: &[("start-up", "Most of the run passed before the first launch.")], detect };

/// Least share of the wall time from which on the start is most of a run.
const LEAST_RATIO: f64 = 0.5;
/// Number of parts that are named.
const NAMED: usize = 3;

fn detect<'a>(_: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().filter_map(of_process).collect()
}

fn of_process(ledger: &mut Ledger<'_>) -> Option<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    let before_ns = ledger.process.start_up_ns.unwrap_or(0);
    if before_ns == 0 || (before_ns as f64) < LEAST_RATIO * wall_ns as f64 {
        return None;
    }
    let claim = ledger.claim(|slice| slice.is_start_up == Some(true));
    let parts = claim.by(|slice| Some(slice.part.as_str()));
    let whole_ns = claim.time_ns().max(1) as f64;
    let name = |(part, ns): &(&str, i64)| format!("{part} ({:.0} %)", 100.0 * *ns as f64 / whole_ns);
    let named: Vec<String> = parts.iter().take(NAMED).map(name).collect();
    let finding = Finding::new(
        "start-up",
        Rank::Note,
        Some(pid),
        "Most of the run passed before the first launch: imports, contexts, loading of code and data.".to_owned(),
    )
    .costs(claim.time_ns(), wall_ns)
    .shown_by(
        format!("time before the first launch by part: {}", named.join(", ")),
        ledger.sql("stage = 'start-up'"),
        "run-time",
    )
    .to_do(
        "Record for longer to see the steady state. If the start itself matters, see `python -X importtime`, and keep the process \
         alive between jobs.",
    );
    (claim.time_ns() > 0).then_some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::{ProcessTime, Slice};

    fn process(start_up_ns: i64) -> ProcessTime {
        let slice = |part: &str, is_start_up, time_ns| Slice {
            part: part.to_owned(),
            is_start_up: Some(is_start_up),
            time_ns,
            ..Slice::default()
        };
        ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1000,
            start_up_ns: Some(start_up_ns),
            slices: vec![
                slice("host", true, start_up_ns - 100),
                slice("module", true, 100),
                slice("host", false, 1000 - start_up_ns),
            ],
            ..ProcessTime::default()
        }
    }

    #[test]
    fn the_start_is_told_where_it_is_most_of_the_run() {
        let long = process(500);
        let mut ledger = Ledger::new(&long);
        let finding = of_process(&mut ledger).expect("a finding");
        assert_eq!((finding.cost_ns, finding.rank, ledger.left_ns()), (Some(500), Rank::Note, 500));
        assert!(
            finding.evidence[0].text.ends_with("host (80 %), module (20 %)"),
            "{}",
            finding.evidence[0].text
        );
        assert!(of_process(&mut Ledger::new(&process(499))).is_none());
    }
}
