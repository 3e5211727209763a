//! Copies between host and GPU that the calling thread carries out or waits for.
//!
//! Memory is pinned if a call on record returned or registered it, and a copy's host address tells which it is. A copy from
//! pageable memory goes through a buffer of CUDA's own, by the calling thread, although the call is named asynchronous.

use std::collections::BTreeSet;

use trace_schema::{Bytes, Counted, Nanos};

use crate::questions::{
    findings::{
        facts::{Detector, Facts},
        finding::{Finding, Rank},
        ledger::Ledger,
        records::gpu::{GpuRecord, HostCopy},
    },
    where_time_went::Slice,
};

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        (
            "pageable-copies",
            "The process copies from pageable memory to the GPU, which its own thread carries out.",
        ),
        ("copies", "A thread spends its time in copies between host and GPU."),
    ],
    detect,
};

/// Least number of copies that recur: fewer are those of a model that is loaded or stored.
const LEAST_COPIES: i64 = 10;
/// What pinned memory transfers at over PCIe 4.0 with 16 lanes, in bytes per nanosecond: what is left of the time if nothing overlaps.
const PINNED_RATE: f64 = 25.0;
/// What copies from or to pageable memory transfer at least at, in bytes per nanosecond: pages that the process touches for the
/// first time are the slowest.
const PAGEABLE_RATE: f64 = 1.0;
/// What PCIe 5.0 with 16 lanes transfers at most, in bytes per nanosecond. A call that is faster did not wait for its copy.
const FASTEST_RATE: f64 = 64.0;

fn detect<'a>(facts: &Facts<'a>, ledgers: &mut [Ledger<'a>]) -> Vec<Finding> {
    ledgers.iter_mut().flat_map(|ledger| of_process(&facts.records.gpu, ledger)).collect()
}

/// Sums of some copies.
struct Sums<'a> {
    /// Threads with their functions.
    ops: BTreeSet<(i64, &'a str)>,
    calls_count: i64,
    copied_bytes: i64,
    total_ns: i64,
    /// Time in nanoseconds if every copy had been as fast for its size as the fastest of its function: a copy from pageable memory
    /// waits for the work before it, too, and the fastest waited least.
    without_wait_ns: i64,
    /// Time in nanoseconds that the bytes take if every copy is as slow as copies of its kind are.
    slowest_ns: i64,
}

impl Sums<'_> {
    /// Returns the time in nanoseconds that the bytes take at a rate in bytes per nanosecond.
    fn at_rate_ns(&self, rate: f64) -> i64 {
        (self.copied_bytes as f64 / rate).round() as i64
    }

    /// Returns whether a slice is of one of the threads in one of its functions.
    fn has(&self, slice: &Slice) -> bool {
        slice.op.as_deref().is_some_and(|op| self.ops.contains(&(slice.thread_tid, op)))
    }

    fn is_waited_for(&self) -> bool {
        self.total_ns >= self.at_rate_ns(FASTEST_RATE)
    }

    /// Returns whether half of the time can be that of the bytes. Else the calls waited for the kernels before their copies.
    fn is_copying(&self) -> bool {
        self.slowest_ns.saturating_mul(2) >= self.total_ns
    }

    fn words(&self) -> String {
        format!(
            "{} in {} of {}, {} in all: {:.1} GB/s",
            Bytes(self.copied_bytes),
            Counted(self.calls_count, "call"),
            self.ops.iter().map(|(_, op)| *op).collect::<Vec<_>>().join(", "),
            Nanos(self.total_ns),
            self.copied_bytes as f64 / self.total_ns.max(1) as f64
        )
    }
}

fn of_process(gpu: &GpuRecord, ledger: &mut Ledger<'_>) -> Vec<Finding> {
    let process = ledger.process;
    let (pid, wall_ns) = (process.pid, process.wall_ns);
    // Copies of the driver that are nested in those of the runtime are not in the account.
    let slices = process.slices.iter().filter(|slice| slice.part == "copy");
    let outermost: BTreeSet<(i64, &str)> =
        slices.filter_map(|slice| Some((slice.thread_tid, slice.op.as_deref()?))).collect();
    let sum = |is_wanted: &dyn Fn(&HostCopy) -> bool| {
        let own = |copy: &&HostCopy| copy.pid == pid && outermost.contains(&(copy.tid, copy.op.as_str()));
        let copies = gpu.copies.iter().filter(own).filter(|copy| is_wanted(copy));
        let none =
            Sums { ops: BTreeSet::new(), calls_count: 0, copied_bytes: 0, total_ns: 0, without_wait_ns: 0, slowest_ns: 0 };
        copies.fold(none, |mut sums, copy| {
            sums.ops.insert((copy.tid, copy.op.as_str()));
            sums.calls_count = sums.calls_count.saturating_add(copy.calls_count);
            sums.copied_bytes = sums.copied_bytes.saturating_add(copy.copied_bytes);
            sums.total_ns = sums.total_ns.saturating_add(copy.total_ns);
            let fastest_ns = copy.copied_bytes as f64 * copy.least_ps_per_byte as f64 / 1000.0;
            sums.without_wait_ns = sums.without_wait_ns.saturating_add(fastest_ns.round() as i64);
            let rate = if copy.is_pinned { PINNED_RATE } else { PAGEABLE_RATE };
            sums.slowest_ns = sums.slowest_ns.saturating_add((copy.copied_bytes as f64 / rate).round() as i64);
            sums
        })
    };
    let sql = |direction: &str| {
        format!(
            "SELECT op, direction, count(*) AS calls_count, sum(size_bytes) AS copied_bytes, sum(dur) AS total_ns FROM ops \
             WHERE pid = {pid} AND class = 'copy' AND depth = 0 AND direction IN ({direction}) GROUP BY op, direction"
        )
    };
    let is_pageable = |copy: &HostCopy| copy.is_to_gpu && !copy.is_pinned && !gpu.joined_running;
    let mut findings = Vec::new();
    let pageable = sum(&is_pageable);
    if pageable.calls_count >= LEAST_COPIES && pageable.is_waited_for() {
        let claim =
            ledger.claim_at_most(pageable.total_ns, |slice| slice.part == "copy" && pageable.has(slice));
        let most_ns = claim.time_ns();
        let copied_ns = pageable.without_wait_ns.min(most_ns);
        let least_ns = copied_ns.saturating_sub(pageable.at_rate_ns(PINNED_RATE)).max(0);
        let title =
            "The process copies from pageable memory to the GPU, and its thread waits for the copies.";
        findings.push(
            Finding::new("pageable-copies", Rank::Cost, Some(pid), title.to_owned())
                .bounded(least_ns, most_ns, wall_ns, "how much of copies from pinned memory would overlap, and how long the calls waited for work before them, is not on record")
                .shown_by(pageable.words(), sql("'h2d'"), "run-time")
                .to_do("Pin the memory (DataLoader(pin_memory=True), Tensor.pin_memory(), cudaHostAlloc) and copy with non_blocking=True.")
                .saves(format!("{} to {}", Nanos(least_ns), Nanos(most_ns))),
        );
    }
    let others = sum(&|copy| !is_pageable(copy));
    let bytes_ns = others.at_rate_ns(FASTEST_RATE);
    if others.calls_count >= LEAST_COPIES && others.is_waited_for() && others.is_copying() {
        let claim = ledger.claim_at_most(others.total_ns, |slice| slice.part == "copy" && others.has(slice));
        let (most_ns, least_ns) = (claim.time_ns(), bytes_ns.min(claim.time_ns()));
        let title = "The process waits for copies between host and GPU in its loop.";
        findings.push(
            Finding::new("copies", Rank::Cost, Some(pid), title.to_owned())
                .bounded(least_ns, most_ns, wall_ns, "a copy to the host also waits for the kernels before it")
                .shown_by(others.words(), sql("'h2d', 'd2h'"), "run-time")
                .to_do("Keep the data on the GPU, copy less often, or copy from and to pinned memory with non_blocking=True on a stream of its own."),
        );
    }
    findings.retain(|finding| finding.cost_ns > Some(0));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::where_time_went::ProcessTime;

    const SECOND: i64 = 1_000_000_000;

    fn found(copies: Vec<HostCopy>, joined_running: bool) -> Vec<(&'static str, Option<(i64, i64)>)> {
        let process = ProcessTime {
            pid: 7,
            tid: 8,
            wall_ns: 20 * SECOND,
            slices: vec![Slice {
                part: "copy".to_owned(),
                op: Some("cudaMemcpyAsync".to_owned()),
                thread_pid: 7,
                thread_tid: 8,
                time_ns: 10 * SECOND,
                intervals_count: 100,
                ..Slice::default()
            }],
            ..ProcessTime::default()
        };
        let gpu = GpuRecord { copies, joined_running, ..GpuRecord::default() };
        let findings = of_process(&gpu, &mut Ledger::new(&process));
        findings.iter().map(|finding| (finding.kind, finding.cost_range_ns)).collect()
    }

    fn copy(op: &str, is_to_gpu: bool, is_pinned: bool, copied_bytes: i64) -> HostCopy {
        let op = op.to_owned();
        HostCopy {
            pid: 7,
            tid: 8,
            op,
            is_to_gpu,
            is_pinned,
            calls_count: 100,
            copied_bytes,
            total_ns: 8 * SECOND,
            least_ps_per_byte: 8_000 * SECOND / copied_bytes,
        }
    }

    #[test]
    fn copies_from_memory_that_no_call_pinned_are_pageable() {
        let pageable = || copy("cudaMemcpyAsync", true, false, 50 * SECOND);
        let nested = copy("cuMemcpyHtoDAsync", true, false, 50 * SECOND);
        let expected = [("pageable-copies", Some((6 * SECOND, 8 * SECOND)))];
        assert_eq!(found(vec![pageable(), nested], false), expected);
        // It may have been pinned before the recording began.
        assert_eq!(found(vec![pageable()], true), [("copies", Some((781_250_000, 8 * SECOND)))]);
    }

    #[test]
    fn calls_that_do_not_wait_for_their_bytes_are_none() {
        assert!(found(vec![copy("cudaMemcpyAsync", true, true, 4_000 * SECOND)], false).is_empty());
        // Few bytes: the time is that of the kernels before the copy.
        assert!(found(vec![copy("cudaMemcpyAsync", false, false, SECOND)], false).is_empty());
        let back = copy("cudaMemcpyAsync", false, false, 64 * SECOND);
        assert_eq!(found(vec![back], false), [("copies", Some((SECOND, 8 * SECOND)))]);
    }
}
