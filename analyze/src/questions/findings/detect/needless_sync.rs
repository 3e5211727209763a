//! Waits for the GPU after which the host keeps the GPU waiting.
//!
//! ```text
//! host  ┤ launches ├─ waits for the GPU ─┤── runs on a CPU ──┤ launches ├─ waits ─┤
//! GPU        ├──── works ────────────────┤       idle        ├── works ───────────┤
//! ```
//! Each nanosecond in which the host ran while the GPU had nothing to do could have passed during the wait, as far as that is as
//! long. A wait at the end of a step that the GPU bounds costs nothing by this rule: the next launch follows at once. Nor does
//! one that is followed by a sleep, such as for a data loader: without the wait, the sleep would have been longer.

use std::collections::BTreeSet;

use trace_schema::{Class, Counted, Nanos, Op};

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, LEAST_SHARE_RATIO, Rank},
    ledger::Ledger,
    records::gpu::{GpuRecord, Overlap},
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[(
        "needless-sync",
        "The host waits for the GPU again and again, and does only then what it could have done meanwhile.",
    )],
    detect,
};

/// Least number of waits in one function that recur: fewer are a few epochs or checkpoints, and no loop.
const LEAST_WAITS: i64 = 10;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().filter_map(|ledger| of_process(&facts.records.gpu, ledger)).collect()
}

fn class(op: &str) -> Option<Class> {
    Op::from_name(op).map(Op::class)
}

/// Returns whether the GPU has nothing to do after a wait in a function: it waits for the whole device, or all launches of the
/// process and all waits are on one stream. After a wait for an event there may be work behind the event.
fn drains(gpu: &GpuRecord, pid: i64, op: &str) -> bool {
    let is_of_device = |op: &str| matches!(op, "cudaDeviceSynchronize" | "cuCtxSynchronize");
    let is_of_event = |op: &str| matches!(op, "cudaEventSynchronize" | "cuEventSynchronize");
    if is_of_device(op) || is_of_event(op) {
        return is_of_device(op);
    }
    let launched = gpu.streams(pid, |sums| class(&sums.op) == Some(Class::Launch));
    let waited = gpu.streams(pid, |sums| {
        class(&sums.op) == Some(Class::Sync) && !is_of_device(&sums.op) && !is_of_event(&sums.op)
    });
    launched.len() == 1 && waited.is_subset(&launched)
}

fn of_process(gpu: &GpuRecord, ledger: &mut Ledger<'_>) -> Option<Finding> {
    let process = ledger.process;
    let (pid, wall_ns) = (process.pid, process.wall_ns);
    // PyTorch's backward pass launches on a thread of its own: the thread that waits need not be the one that launches most,
    // but it is in the account.
    let is_accounted = |overlap: &Overlap| {
        let is_one = |op: Option<&str>, tid: i64| tid == overlap.tid && op == Some(overlap.op.as_str());
        process.slices.iter().any(|slice| is_one(slice.op.as_deref(), slice.thread_tid))
    };
    let recurs = |overlap: &&Overlap| {
        overlap.pid == pid
            && overlap.waits_count >= LEAST_WAITS
            && is_accounted(overlap)
            && drains(gpu, pid, &overlap.op)
    };
    let found: Vec<&Overlap> = gpu.overlaps.iter().filter(recurs).collect();
    let sum = |of: fn(&Overlap) -> i64| found.iter().fold(0_i64, |sum, one| sum.saturating_add(of(one)));
    let (least_ns, most_ns) = (sum(|one| one.least_ns), sum(|one| one.most_ns));
    if (least_ns as f64) < LEAST_SHARE_RATIO * wall_ns as f64 {
        return None;
    }
    let ops: BTreeSet<&str> = found.iter().map(|overlap| overlap.op.as_str()).collect();
    let claim = ledger.claim_at_most(most_ns, |slice| {
        matches!(slice.part.as_str(), "sync" | "copy")
            && slice.op.as_deref().is_some_and(|op| ops.contains(op) || class(op) == Some(Class::Sync))
    });
    let (most_ns, least_ns) = (claim.time_ns(), least_ns.min(claim.time_ns()));
    let main = found.first()?;
    let title = format!(
        "The process waited for the GPU {}, mostly in {}, and only then did on the CPU what the next launch needed.",
        Counted(sum(|one| one.waits_count), "time"),
        main.op
    );
    let waited = format!(
        "{} in these waits; after them, the thread ran for {} until it launched again, counted up to the length of each wait",
        Nanos(sum(|one| one.waited_ns)),
        Nanos(least_ns)
    );
    let sql = format!("SELECT * FROM sync_overlap WHERE pid = {pid} ORDER BY most_ns DESC");
    let why =
        "the GPU surely had no work until the next launch, and may have had too little until the next wait";
    Some(
        Finding::new("needless-sync", Rank::Cost, Some(pid), title)
            .bounded(least_ns, most_ns, wall_ns, why)
            .shown_by(waited, sql, "run-time")
            .to_do(
                "Do not read results from the GPU in each step (.item(), .cpu(), print, torch.cuda.synchronize()), or \
                 do so every 100 steps; torch.cuda.set_sync_debug_mode(\"warn\") names the lines.",
            )
            .saves(format!("{} to {}", Nanos(least_ns), Nanos(most_ns))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{
        findings::records::gpu::LaunchSums,
        where_time_went::{ProcessTime, Slice},
    };

    fn process(waited_in: &str) -> ProcessTime {
        let slice = |part: &str, op: &str, time_ns| Slice {
            part: part.to_owned(),
            op: Some(op.to_owned()),
            thread_pid: 7,
            thread_tid: 8,
            time_ns,
            intervals_count: 1,
            ..Slice::default()
        };
        ProcessTime {
            pid: 7,
            tid: 8,
            wall_ns: 10_000,
            slices: vec![slice("sync", waited_in, 5_000), slice("launch", "cudaLaunchKernel", 100)],
            ..ProcessTime::default()
        }
    }

    fn record(op: &str, least_ns: i64, streams: &[Option<i64>]) -> GpuRecord {
        let call = |op: &str, stream: Option<i64>| LaunchSums {
            pid: 7,
            op: op.to_owned(),
            stream,
            func: None,
            blocks_count: None,
            calls_count: 100,
        };
        let mut launches: Vec<LaunchSums> =
            streams.iter().map(|stream| call("cudaLaunchKernel", *stream)).collect();
        launches.push(call("cudaStreamSynchronize", None));
        let op = op.to_owned();
        let overlap =
            Overlap { pid: 7, tid: 8, op, waits_count: 100, waited_ns: 5_000, least_ns, most_ns: 3_000 };
        GpuRecord { launches, overlaps: vec![overlap], ..GpuRecord::default() }
    }

    #[test]
    fn what_could_have_passed_during_the_waits_is_the_cost() {
        let process = process("cudaStreamSynchronize");
        let mut ledger = Ledger::new(&process);
        let gpu = record("cudaStreamSynchronize", 2_000, &[None]);
        let found = of_process(&gpu, &mut ledger).unwrap();
        assert_eq!((found.cost_ns, found.cost_range_ns), (Some(3_000), Some((2_000, 3_000))));
        assert_eq!(ledger.left_ns(), 2_100);
    }

    #[test]
    fn waits_after_which_the_gpu_has_work_are_none() {
        let found = |gpu: &GpuRecord| {
            let process = process(&gpu.overlaps[0].op);
            of_process(gpu, &mut Ledger::new(&process)).is_some()
        };
        assert!(found(&record("cudaDeviceSynchronize", 2_000, &[None, Some(3)])));
        // The next launch followed at once; a second stream has work; work is behind the event.
        assert!(!found(&record("cudaStreamSynchronize", 100, &[None])));
        assert!(!found(&record("cudaStreamSynchronize", 2_000, &[None, Some(3)])));
        assert!(!found(&record("cudaStreamSynchronize", 2_000, &[Some(3)])));
        assert!(!found(&record("cudaEventSynchronize", 2_000, &[None])));
    }
}
