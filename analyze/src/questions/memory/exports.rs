//! Active bytes in segments for which other processes were given CUDA IPC handles, over time. The memory that
//! those processes have opened is part of it, and PyTorch keeps that memory until they close it. The record
//! does not tell which block a handle was created for.

use std::collections::HashMap;

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, integers},
    error::AnalyzeError,
};

const QUERY: &str = "
WITH e AS (
    SELECT run, pid, device, segment_addr, ts + segment_dur_ns AS until, min(ts) AS ts
    FROM memory_exports WHERE segment_addr IS NOT NULL GROUP BY run, pid, device, segment_addr, ts + segment_dur_ns
)
SELECT
    CAST(b.pid AS BIGINT) AS pid, CAST(b.device AS BIGINT) AS device, b.size_bytes,
    CASE WHEN b.ts > e.ts THEN b.ts ELSE e.ts END AS ts,
    CASE WHEN e.until IS NULL OR b.ts + b.dur < e.until THEN b.ts + b.dur ELSE e.until END AS until
FROM memory_blocks b
JOIN e ON b.run = e.run AND b.pid = e.pid AND b.device = e.device AND b.segment_addr = e.segment_addr
WHERE b.state IN ('active_allocated', 'active_pending_free')
    AND (b.dur IS NULL OR b.ts + b.dur > e.ts) AND (e.until IS NULL OR b.ts < e.until)";

/// Exported bytes over time, by process and device: each value with the time (ns) from which it holds.
#[derive(Debug, Default)]
pub struct Exports(HashMap<(u32, i32), Vec<(i64, i64)>>);

impl Exports {
    /// Computes the exported bytes of one run.
    pub async fn of(trace: &Trace) -> Result<Self, AnalyzeError> {
        let any = "SELECT 1 FROM events WHERE op IN ('cudaIpcGetMemHandle', 'cuIpcGetMemHandle') LIMIT 1";
        if trace.batches(any).await?.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(Self::default());
        }
        let mut changes: HashMap<(u32, i32), Vec<(i64, i64)>> = HashMap::new();
        for batch in trace.batches(QUERY).await? {
            let [pid, device, size, ts, until] =
                ["pid", "device", "size_bytes", "ts", "until"].map(|name| integers(&batch, name));
            let (pid, device, size, ts, until) = (pid?, device?, size?, ts?, until?);
            for row in 0..batch.num_rows() {
                let of = changes.entry((pid.value(row) as u32, device.value(row) as i32)).or_default();
                of.push((ts.value(row), size.value(row)));
                of.extend(until.at(row).map(|until| (until, -size.value(row))));
            }
        }
        for of in changes.values_mut() {
            of.sort_unstable();
            let mut sum = 0_i64;
            for (_, change) in of {
                sum = sum.saturating_add(*change);
                *change = sum;
            }
        }
        Ok(Self(changes))
    }

    /// Returns the exported bytes of a process on a device after everything that happened until `ts` (ns).
    pub fn at(&self, pid: u32, device: i32, ts: i64) -> i64 {
        let sums = self.0.get(&(pid, device)).map_or(&[][..], Vec::as_slice);
        let passed = sums.partition_point(|(of, _)| *of <= ts);
        passed.checked_sub(1).map_or(0, |last| sums[last].1)
    }
}
