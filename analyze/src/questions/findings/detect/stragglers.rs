//! A rank that enters collective operations after all others, so that their GPUs wait for its.

use trace_schema::{Counted, Nanos};

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
    records::ranks::Ranks,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[("stragglers", "One process enters collective operations after all others, which wait for it.")],
    detect,
};

/// Least number of operations that are judged.
const LEAST_COLLECTIVES: i64 = 10;
/// Least share of operations that a straggler enters last; of two ranks alike, each is last in half of them.
const LAST_RATIO: f64 = 0.8;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    found(&facts.records.ranks, ledgers).into_iter().collect()
}

fn found(ranks: &Ranks, ledgers: &[Ledger<'_>]) -> Option<Finding> {
    let late = ranks.late.iter().max_by_key(|late| late.last_count)?;
    let is_last = late.last_count as f64 >= LAST_RATIO * ranks.collectives_count as f64;
    if ranks.collectives_count < LEAST_COLLECTIVES || !is_last {
        return None;
    }
    let wall_ns = ledgers.iter().find(|ledger| ledger.process.pid == late.pid)?.process.wall_ns;
    // Another rank cannot have waited for longer than it waited for its GPU.
    let others = ledgers.iter().filter(|ledger| ledger.process.pid != late.pid);
    let waited_ns = others
        .map(|ledger| ["sync", "copy", "nccl"].iter().map(|part| ledger.process.part_ns(part)).sum::<i64>());
    let most_ns = late.late_ns.min(waited_ns.max().unwrap_or(0));
    let others = match ranks.processes_count.saturating_sub(1) {
        1 => "the other rank".to_owned(),
        count => format!("the other {count} ranks"),
    };
    let title = format!(
        "Process {} entered {} of {} after {others} on record.",
        late.pid,
        late.last_count,
        Counted(ranks.collectives_count, "collective operation")
    );
    let why = "when the operations ran on the GPUs is not on record, nor is whether more ranks took part";
    let mut finding = Finding::new("stragglers", Rank::Cost, Some(late.pid), title)
        .bounded(0, most_ns, wall_ns, why)
        .shown_by(
            format!("it came {} after the last but one, in all", Nanos(late.late_ns)),
            "SELECT op, pid, ts FROM nccl WHERE class = 'collective' ORDER BY op, ts",
            "nccl",
        )
        .to_do("Compare the account of this process with the others': what it spends more time on delays all ranks.");
    // What the others waited for is part of their accounts.
    finding.overlaps = vec!["needless-sync", "copies", "idle-gpu"];
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{
        findings::records::ranks::Late,
        where_time_went::{Part, ProcessTime},
    };

    fn process(pid: i64, sync_ns: i64) -> ProcessTime {
        let part = Part {
            part: "sync".to_owned(),
            time_ns: sync_ns,
            share_ratio: 0.0,
            start_up_ns: None,
            gpu_idle_ns: None,
            subjects: Vec::new(),
        };
        ProcessTime {
            pid,
            tid: pid,
            wall_ns: 1_000,
            parts: vec![part],
            slices: Vec::new(),
            ..ProcessTime::default()
        }
    }

    #[test]
    fn a_rank_that_is_last_nearly_always_is_found() {
        let (one, two) = (process(1, 300), process(2, 10));
        let ledgers = [Ledger::new(&one), Ledger::new(&two)];
        let ranks = |last_count| Ranks {
            processes_count: 2,
            collectives_count: 20,
            late: vec![
                Late { pid: 1, last_count: 20 - last_count, late_ns: 10 },
                Late { pid: 2, last_count, late_ns: 500 },
            ],
        };
        let finding = found(&ranks(18), &ledgers).unwrap();
        assert_eq!((finding.pid, finding.cost_range_ns), (Some(2), Some((0, 300))));
        assert!(found(&ranks(12), &ledgers).is_none());
    }
}
