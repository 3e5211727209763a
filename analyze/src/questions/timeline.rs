//! How each thread spent the run, in equal steps of time: the share inside CUDA calls, and the share waiting
//! for a CPU.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use serde::Serialize;

use crate::trace::Trace;
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
};

/// Returns the length of the intersection of `[a, b)` and `[c, d)`.
fn overlap(a: i64, b: i64, c: i64, d: i64) -> i64 {
    b.min(d).saturating_sub(a.max(c)).max(0)
}

/// Number of steps of a timeline.
pub const STEPS: usize = 240;
/// Maximum number of threads in a timeline: those with most time in calls.
pub const THREADS: usize = 12;

/// One thread, step by step.
#[derive(Clone, Debug, Serialize)]
pub struct Lane {
    /// Process ID.
    pub pid: i64,
    /// Thread ID.
    pub tid: i64,
    /// Name of the thread; empty if it is not known.
    pub comm: String,
    /// Time in top-level calls over the run, in nanoseconds.
    pub calls_ns: i64,
    /// Share of each step spent in top-level calls, from 0 to 1.
    pub in_calls_ratio: Vec<f64>,
    /// Share of each step in which the thread could run and waited for a CPU, from 0 to 1.
    pub waiting_ratio: Vec<f64>,
}

/// The timeline of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timeline {
    /// Start of the first call or allocation, in nanoseconds.
    pub start_ns: i64,
    /// End of the last call or allocation, in nanoseconds.
    pub end_ns: i64,
    /// The threads with most time in calls, in that order.
    pub lanes: Vec<Lane>,
    /// Number of threads with calls, including those without a lane.
    pub threads_count: usize,
}

/// Computes the timeline of one run from its first call or allocation to the end of the last one.
pub async fn run(trace: &Trace, (start_ns, end_ns): (i64, i64)) -> Result<Timeline, AnalyzeError> {
    let mut timeline = Timeline { start_ns, end_ns, ..Timeline::default() };
    let step = ((timeline.end_ns - timeline.start_ns) as f64 / STEPS as f64).max(1.0);
    let mut lanes: BTreeMap<(i64, i64), Lane> = BTreeMap::new();
    // Nested calls would count twice; the top-level calls contain them.
    let calls = "SELECT pid, tid, ts, dur, CAST(NULL AS BIGINT) AS runnable_ns FROM op_time WHERE depth = 0";
    let waits = "SELECT pid, tid, ts + dur - runnable_ns AS ts, runnable_ns AS dur, runnable_ns FROM off_cpu \
                 WHERE dur IS NOT NULL AND runnable_ns > 0";
    for (query, waiting) in [(calls, false), (waits, true)] {
        // One row after the other: never all of them at once.
        let mut batches = trace.events().select(query);
        while let Some(batch) = batches.try_next().await? {
            let (pid, tid) = (integers(&batch, "pid")?, integers(&batch, "tid")?);
            let (ts, dur) = (integers(&batch, "ts")?, integers(&batch, "dur")?);
            for row in 0..batch.num_rows() {
                let key = (pid.value(row), tid.value(row));
                if waiting && !lanes.contains_key(&key) {
                    continue;
                }
                let lane = lanes.entry(key).or_insert_with(|| Lane {
                    pid: key.0,
                    tid: key.1,
                    comm: String::new(),
                    calls_ns: 0,
                    in_calls_ratio: vec![0.0; STEPS],
                    waiting_ratio: vec![0.0; STEPS],
                });
                let (start, end) = (ts.value(row), ts.value(row) + dur.value(row));
                let target = if waiting {
                    &mut lane.waiting_ratio
                } else {
                    lane.calls_ns += dur.value(row);
                    &mut lane.in_calls_ratio
                };
                let first = ((start - timeline.start_ns).max(0) as f64 / step) as usize;
                for (index, share) in target.iter_mut().enumerate().skip(first.min(STEPS)) {
                    let from = timeline.start_ns + (index as f64 * step) as i64;
                    if from >= end {
                        break;
                    }
                    *share += overlap(start, end, from, from + step as i64) as f64 / step;
                }
            }
        }
    }
    for batch in trace.batches("SELECT pid, tid, comm FROM threads").await? {
        let (pid, tid, comm) = (integers(&batch, "pid")?, integers(&batch, "tid")?, strings(&batch, "comm")?);
        for row in 0..batch.num_rows() {
            if let Some(lane) = lanes.get_mut(&(pid.value(row), tid.value(row))) {
                lane.comm = comm.value(row).to_owned();
            }
        }
    }
    timeline.threads_count = lanes.len();
    timeline.lanes = lanes.into_values().collect();
    timeline.lanes.sort_by_key(|lane| (std::cmp::Reverse(lane.calls_ns), lane.pid, lane.tid));
    timeline.lanes.truncate(THREADS);
    Ok(timeline)
}
