//! Calls that launch, copy, wait and allocate, summed up by process; what GPUs ran; and throttled clocks.

use std::collections::{BTreeMap, BTreeSet};

use trace_schema::{Class, Kind, Op};

use crate::{
    questions::{
        devices::{self, THROTTLE_REASONS},
        info::Present,
        kernels::{self, Kernels},
    },
    trace::{Together, Trace},
};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// Least size in bytes of a copy that is looked at: CUDA copies up to this size from pageable memory through a buffer of its own
/// and returns at once, so that pinned memory would save nothing.
pub(super) const LEAST_COPY_BYTES: i64 = 65_536;
/// Functions that return pinned memory, or pin memory that is there.
const PINNING: [&str; 6] = [
    "cudaHostAlloc",
    "cudaMallocHost",
    "cudaHostRegister",
    "cuMemHostAlloc",
    "cuMemAllocHost",
    "cuMemHostRegister",
];
const SM_CLOCK: &str = "sm_clock_mhz";

/// Launches of one kernel with one number of blocks, or calls of one synchronizing function on one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSums {
    /// Process ID.
    pub pid: i64,
    /// Function that was called.
    pub op: String,
    /// Handle of the stream; `None` is the default stream.
    pub stream: Option<i64>,
    /// Handle of the kernel, if it is on record.
    pub func: Option<i64>,
    /// Number of blocks of the grid, if it is on record.
    pub blocks_count: Option<i64>,
    /// Number of calls.
    pub calls_count: i64,
}

/// Copies of a thread between the GPU and pinned or pageable host memory, by one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCopy {
    /// Process ID.
    pub pid: i64,
    /// Thread ID.
    pub tid: i64,
    /// Function that was called.
    pub op: String,
    /// Whether the copies go to the GPU; otherwise they go to the host.
    pub is_to_gpu: bool,
    /// Whether the host memory was pinned by a call on record.
    pub is_pinned: bool,
    /// Number of copies of more than 64 KiB.
    pub calls_count: i64,
    /// Sum of their sizes in bytes.
    pub copied_bytes: i64,
    /// Sum of the durations of the calls in nanoseconds.
    pub total_ns: i64,
    /// Duration of the fastest of these calls for its size, in picoseconds per byte.
    pub least_ps_per_byte: i64,
}

/// Calls of one function in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSums {
    /// Process ID.
    pub pid: i64,
    /// Function.
    pub op: String,
    /// Number of calls.
    pub calls_count: i64,
    /// Number of calls that returned an error.
    pub failed_count: i64,
    /// Number of calls in the second half of the time in which the process launched work: start-up and warm-up are over.
    pub late_count: i64,
    /// Sum of the durations of those in nanoseconds.
    pub late_ns: i64,
}

/// What a thread could have done while it waited in one function: a row of the view `sync_overlap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Process ID.
    pub pid: i64,
    /// Thread ID.
    pub tid: i64,
    /// Function of the waits.
    pub op: String,
    /// Number of waits.
    pub waits_count: i64,
    /// Sum of their durations in nanoseconds.
    pub waited_ns: i64,
    /// Least time in nanoseconds that could have been spent during them, if the GPU had nothing to do after them.
    pub least_ns: i64,
    /// Largest such time in nanoseconds.
    pub most_ns: i64,
}

/// The time in which heat or hardware held the clock of a GPU down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// NVML's index of the GPU.
    pub device: i64,
    /// All bits of the reasons that were read then.
    pub reasons: i64,
    /// Number of readings with such a reason.
    pub readings_count: i64,
    /// Time in nanoseconds from each of them to the next reading.
    pub time_ns: i64,
    /// Time in nanoseconds that work bound by the clock of the multiprocessors took longer than at the fastest clock that was read.
    pub slowed_ns: i64,
    /// The fastest clock that was read, and the slowest while a reason was on, in MHz; `None` if none is on record.
    pub clocks_mhz: Option<(i64, i64)>,
}

/// What is read of calls and GPUs.
#[derive(Clone, Debug, Default)]
pub struct GpuRecord {
    /// Launches and synchronizing calls, nested ones included.
    pub launches: Vec<LaunchSums>,
    /// Copies of more than 64 KiB between GPU and host, nested ones included.
    pub copies: Vec<HostCopy>,
    /// Calls that allocate, free, map, and build graphs, nested ones included; empty if no launch is on record.
    pub calls: Vec<CallSums>,
    /// Waits for the GPU, by thread and function.
    pub overlaps: Vec<Overlap>,
    /// Whether processes ran before recording began, so that memory may be pinned by calls that are not on record.
    pub joined_running: bool,
    /// Kernels that GPUs ran; `None` if no profile of the GPU is on record.
    pub kernels: Option<Kernels>,
    /// GPUs whose clock was held down.
    pub throttled: Vec<Throttled>,
}

impl GpuRecord {
    /// Returns the future of them without the launches, copies and calls; what the run has no rows of is not looked for. The
    /// waits are a part of `together`, which is made of `trace`.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub fn read<'a>(
        trace: &'a Trace,
        together: &'a Together,
        present: &'a Present,
    ) -> impl Future<Output = Result<Self, AnalyzeError>> + Send + 'a {
        let calls = together.trace();
        let mut waits = Op::ALL.iter().filter(|op| matches!(op.class(), Class::Sync | Class::Copy));
        let has_waits = waits.any(|op| present.has(Kind::Call, op.name()));
        let waits =
            together.part(async move { if has_waits { overlaps(calls).await } else { Ok(Vec::new()) } });
        let has_kernels = present.has(Kind::Device, "kernel");
        async move {
            let (overlaps, kernels, throttled) = tokio::try_join!(
                waits,
                async { if has_kernels { kernels::run(trace).await.map(Some) } else { Ok(None) } },
                throttled(trace, present),
            )?;
            let joined_running = trace.files().iter().any(|file| file.run.joined_running);
            Ok(Self { overlaps, joined_running, kernels, throttled, ..Self::default() })
        }
    }

    /// Returns the streams of some launches or waits of a process.
    pub fn streams(&self, pid: i64, is_wanted: impl Fn(&LaunchSums) -> bool) -> BTreeSet<Option<i64>> {
        let calls = self.launches.iter().filter(|sums| sums.pid == pid && is_wanted(sums));
        calls.map(|sums| sums.stream).collect()
    }
}

async fn overlaps(trace: &Trace) -> Result<Vec<Overlap>, AnalyzeError> {
    let query = "SELECT CAST(pid AS BIGINT) AS pid, CAST(tid AS BIGINT) AS tid, op, waits_count, waited_ns, least_ns, most_ns \
         FROM sync_overlap";
    let mut found = Vec::new();
    for batch in &trace.batches(query).await? {
        let whole = |name| integers(batch, name);
        let (pids, tids, ops) = (whole("pid")?, whole("tid")?, strings(batch, "op")?);
        let (waits, waited) = (whole("waits_count")?, whole("waited_ns")?);
        let (least, most) = (whole("least_ns")?, whole("most_ns")?);
        found.extend((0..batch.num_rows()).map(|row| Overlap {
            pid: pids.value(row),
            tid: tids.value(row),
            op: ops.value(row).to_owned(),
            waits_count: waits.value(row),
            waited_ns: waited.value(row),
            least_ns: least.value(row),
            most_ns: most.value(row),
        }));
    }
    found.sort_by(|a, b| b.most_ns.cmp(&a.most_ns).then_with(|| a.op.cmp(&b.op)));
    Ok(found)
}

/// Ends of the memory that calls pinned, by process and start, in bytes.
#[derive(Debug, Default)]
pub(super) struct Pinned(BTreeMap<(i64, i64), i64>);

impl Pinned {
    /// Adds what a call pinned. Memory that was pinned once counts as pinned for the whole run.
    pub(super) fn add(&mut self, pid: i64, addr: i64, size_bytes: i64) {
        let end = self.0.entry((pid, addr)).or_default();
        *end = (*end).max(addr.saturating_add(size_bytes));
    }

    /// Returns whether an address of a process is in memory that was pinned.
    pub(super) fn has(&self, pid: i64, addr: i64) -> bool {
        let below = self.0.range((pid, i64::MIN)..=(pid, addr)).next_back();
        below.is_some_and(|(_, end)| addr < *end)
    }

    /// Reads them from the calls that pin memory, if there are any.
    pub(super) async fn read(trace: &Trace, present: &Present) -> Result<Self, AnalyzeError> {
        let mut pinned = Self::default();
        let ops = PINNING.iter().filter(|op| present.has(Kind::Call, op));
        let ops: Vec<String> = ops.map(|op| format!("'{op}'")).collect();
        if ops.is_empty() {
            return Ok(pinned);
        }
        let query = format!(
            "SELECT CAST(pid AS BIGINT) AS pid, addr, max(size_bytes) AS size_bytes FROM events WHERE kind = 'call' \
             AND op IN ({}) AND coalesce(ret, 0) = 0 AND addr IS NOT NULL AND size_bytes IS NOT NULL GROUP BY 1, 2",
            ops.join(", ")
        );
        for batch in &trace.batches(&query).await? {
            let whole = |name| integers(batch, name);
            let (pids, addrs, sizes) = (whole("pid")?, whole("addr")?, whole("size_bytes")?);
            for row in 0..batch.num_rows() {
                pinned.add(pids.value(row), addrs.value(row), sizes.value(row));
            }
        }
        Ok(pinned)
    }
}

/// A reading of a GPU: time in nanoseconds, bits of reasons, and clock in MHz, as far as they were read at that time.
type Reading = (i64, Option<i64>, Option<i64>);

/// Sums up the readings of one GPU, in order of time. Reasons are taken to last until the next ones are read, with the clock
/// that was read last.
fn throttled_time(device: i64, readings: &[Reading]) -> Throttled {
    let mut sum = Throttled { device, ..Throttled::default() };
    let fastest = readings.iter().filter_map(|(_, _, clock)| *clock).max();
    let mut last_clock = None;
    let mut with_clock = Vec::new();
    for (ts, reasons, clock) in readings {
        last_clock = clock.or(last_clock);
        with_clock.extend(reasons.map(|reasons| (*ts, reasons, last_clock)));
    }
    for (one, next) in with_clock.iter().zip(with_clock.iter().skip(1)) {
        let (ts, reasons, clock) = *one;
        if !devices::is_fault(reasons) {
            continue;
        }
        let dur_ns = next.0.saturating_sub(ts);
        sum.reasons |= reasons;
        sum.readings_count += 1;
        sum.time_ns = sum.time_ns.saturating_add(dur_ns);
        if let (Some(clock), Some(fastest)) = (clock, fastest) {
            let lost_ratio = 1.0 - clock as f64 / fastest.max(1) as f64;
            sum.slowed_ns = sum.slowed_ns.saturating_add((dur_ns as f64 * lost_ratio).round() as i64);
            let slowest = sum.clocks_mhz.map_or(clock, |(_, slowest)| slowest.min(clock));
            sum.clocks_mhz = Some((fastest, slowest));
        }
    }
    sum
}

async fn throttled(trace: &Trace, present: &Present) -> Result<Vec<Throttled>, AnalyzeError> {
    if !present.has(Kind::Sample, THROTTLE_REASONS) {
        return Ok(Vec::new());
    }
    let query = format!(
        "SELECT device, ts, max(CASE WHEN op = '{THROTTLE_REASONS}' THEN value END) AS reasons, \
         max(CASE WHEN op = '{SM_CLOCK}' THEN value END) AS clock FROM events WHERE kind = 'sample' \
         AND op IN ('{THROTTLE_REASONS}', '{SM_CLOCK}') AND device IS NOT NULL GROUP BY device, ts ORDER BY device, ts"
    );
    let mut readings: BTreeMap<i64, Vec<Reading>> = BTreeMap::new();
    for batch in &trace.batches(&query).await? {
        let whole = |name| integers(batch, name);
        let (devices, times) = (whole("device")?, whole("ts")?);
        let (reasons, clocks) = (whole("reasons")?, whole("clock")?);
        for row in 0..batch.num_rows() {
            let reading = (times.value(row), reasons.at(row), clocks.at(row));
            readings.entry(devices.value(row)).or_default().push(reading);
        }
    }
    let sums = readings.iter().map(|(device, readings)| throttled_time(*device, readings));
    Ok(sums.filter(|sum| sum.readings_count > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_is_that_of_its_process() {
        let mut pinned = Pinned::default();
        pinned.add(1, 1000, 100);
        pinned.add(1, 5000, 10);
        pinned.add(1, 1000, 50);
        assert!(pinned.has(1, 1000) && pinned.has(1, 1099) && pinned.has(1, 5009));
        assert!(!pinned.has(1, 999) && !pinned.has(1, 1100) && !pinned.has(1, 5010) && !pinned.has(2, 1000));
    }

    #[test]
    fn a_clock_that_is_held_down_costs_by_its_share() {
        let second = 1_000_000_000;
        let readings = [
            (0, Some(0), Some(2000)),
            (second - 5, None, Some(1500)),
            (second, Some(0x20), None),
            (2 * second, Some(0x1), Some(300)),
            (3 * second, Some(0x40), Some(1000)),
            (4 * second, Some(0x1), Some(2000)),
            (5 * second, Some(0x40), Some(1000)),
        ];
        let sum = throttled_time(3, &readings);
        assert_eq!((sum.device, sum.reasons, sum.readings_count), (3, 0x60, 2));
        assert_eq!((sum.time_ns, sum.slowed_ns), (2 * second, 750_000_000));
        assert_eq!(sum.clocks_mhz, Some((2000, 1000)));
    }
}
