//! Sleeps in reads and writes of files, and for pages that were not in memory.

use trace_schema::Counted;

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        ("disk", "Threads that the run waited for slept in reads, writes, opens or syncs of files."),
        (
            "page-cache",
            "Threads that the run waited for slept until pages of mapped files or of swap were in memory.",
        ),
    ],
    detect,
};

/// Number of threads and of system calls that are named.
const NAMED: usize = 3;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    let faults = facts.info.counts.iter().find(|count| count.kind == "process" && count.op == "major_fault");
    let faults = faults.map_or(0, |count| count.rows_count);
    ledgers.iter_mut().flat_map(|ledger| of_process(faults, ledger)).collect()
}

fn of_process(faults: i64, ledger: &mut Ledger<'_>) -> Vec<Finding> {
    let (pid, wall_ns) = (ledger.process.pid, ledger.process.wall_ns);
    let files = ledger.claim(|slice| slice.part == "disk");
    let calls = files.by(|slice| slice.syscall.as_deref());
    let calls: Vec<&str> = calls.iter().take(NAMED).map(|(call, _)| *call).collect();
    let on_files = Finding::new(
        "disk",
        Rank::Cost,
        Some(pid),
        format!("The run waited for files: {} slept in {}.", files.threads(NAMED), calls.join(", ")),
    )
    .costs(files.time_ns(), wall_ns)
    .shown_by(Counted(files.intervals_count(), "sleep").to_string(), ledger.sql("part = 'disk'"), "run-time")
    .to_do("Do reads and writes in another thread than the one that launches, ahead of time, or use faster storage.")
    .saves("at most this time: it is what the run would not have waited");
    let pages = ledger.claim(|slice| slice.part == "page_fault");
    let on_pages = Finding::new(
        "page-cache",
        Rank::Cost,
        Some(pid),
        format!(
            "The run waited for pages that were not in memory: {} slept in page faults.",
            pages.threads(NAMED)
        ),
    );
    let on_pages = if faults > 0 {
        on_pages.costs(pages.time_ns(), wall_ns)
    } else {
        let why = "no major page fault is on record: the threads may have waited for another one that changed the memory map";
        on_pages.bounded(0, pages.time_ns(), wall_ns, why)
    };
    let on_pages = on_pages
        .shown_by(format!("{}; {} in the run", Counted(pages.intervals_count(), "sleep"), Counted(faults, "major page fault")), ledger.sql("part = 'page_fault'"), "run-time")
        .to_do("Read the files into the page cache before the run (vmtouch -t, cat), or give the process more memory if its pages are swapped out or evicted.")
        .saves("at most this time: it is what the run would not have waited");
    let mut findings = vec![on_files, on_pages];
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
    fn files_and_pages_are_told_apart() {
        let slice = |part: &str, syscall: Option<&str>, time_ns| Slice {
            part: part.to_owned(),
            thread_comm: Some("python3".to_owned()),
            syscall: syscall.map(str::to_owned),
            time_ns,
            intervals_count: 2,
            ..Slice::default()
        };
        let process = ProcessTime {
            pid: 7,
            tid: 7,
            wall_ns: 1000,
            slices: vec![
                slice("disk", Some("fsync"), 300),
                slice("page_fault", None, 200),
                slice("blocked", Some("read"), 100),
            ],
            ..ProcessTime::default()
        };
        let mut ledger = Ledger::new(&process);
        let found = of_process(5, &mut ledger);
        let costs: Vec<_> = found.iter().map(|finding| (finding.kind, finding.cost_ns)).collect();
        assert_eq!(costs, [("disk", Some(300)), ("page-cache", Some(200))]);
        assert_eq!(found[0].title, "The run waited for files: python3 (100.0 %) slept in fsync.");
        assert_eq!(ledger.left_ns(), 100, "a read of a pipe is none of a file");
        let found = of_process(0, &mut Ledger::new(&process));
        assert_eq!((found[1].confidence, found[1].cost_range_ns), (Confidence::Bounded, Some((0, 200))));
    }
}
