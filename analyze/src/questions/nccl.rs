//! NCCL operations by communicator, from the view `nccl_volume`, with the rank that the calling process has
//! in each communicator. The calls only enqueue the operations: what the ranks or the links did meanwhile is
//! not in them.

use serde::Serialize;

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
};

/// The calls of one NCCL operation on one communicator in one process.
#[derive(Clone, Debug, Serialize)]
pub struct Volume {
    /// Process ID.
    pub pid: i64,
    /// Rank of the process in the communicator; `None` if the communicator was created before the recording
    /// began, or if the source does not record ranks.
    pub rank: Option<i64>,
    /// Handle of the communicator, which has a meaning only within its process.
    pub communicator: Option<i64>,
    /// Name of the NCCL function.
    pub op: String,
    /// Number of calls.
    pub calls_count: i64,
    /// Bytes that this rank passed to the calls.
    pub volume_bytes: Option<i64>,
    /// Total time in the calls in nanoseconds, that is, the time to enqueue the operations.
    pub call_ns: Option<i64>,
    /// 99th percentile of the time in one call, in nanoseconds.
    pub p99_call_ns: Option<f64>,
}

/// Returns the operations of one run, those with most time in calls first; the list is empty if the run has
/// no NCCL calls.
pub async fn run(trace: &Trace) -> Result<Vec<Volume>, AnalyzeError> {
    let query = "SELECT v.*, r.rank FROM nccl_volume v LEFT JOIN \
         (SELECT run, pid, communicator, max(peer) AS rank FROM events \
          WHERE kind = 'call' AND op LIKE 'ncclCommInit%' AND communicator IS NOT NULL GROUP BY run, pid, communicator) r \
         ON r.run = v.run AND r.pid = v.pid AND r.communicator = v.communicator \
         ORDER BY v.call_ns DESC NULLS LAST, v.pid, v.communicator, v.op";
    let mut volumes = Vec::new();
    for batch in trace.batches(query).await? {
        let whole = |name| integers(&batch, name);
        let (pid, rank, communicator) = (whole("pid")?, whole("rank")?, whole("communicator")?);
        let (calls, bytes, ns) = (whole("calls_count")?, whole("volume_bytes")?, whole("call_ns")?);
        let (ops, p99) = (strings(&batch, "op")?, floats(&batch, "p99_call_ns")?);
        volumes.extend((0..batch.num_rows()).map(|row| Volume {
            pid: pid.value(row),
            rank: rank.at(row),
            communicator: communicator.at(row),
            op: ops.value(row).to_owned(),
            calls_count: calls.value(row),
            volume_bytes: bytes.at(row),
            call_ns: ns.at(row),
            p99_call_ns: p99.at(row),
        }));
    }
    Ok(volumes)
}
