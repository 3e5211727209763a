//! NCCL's operations as their processes handed them over: the view `nccl_volume`, with the rank that each communicator's
//! process has in it. What ranks or links did meanwhile is not in the calls.

use serde::Serialize;

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
};

/// One operation on one communicator.
#[derive(Clone, Debug, Serialize)]
pub struct Volume {
    pub pid: i64,
    /// Of its process in the communicator; `None`: it began before recording, or its source does not tell.
    pub rank: Option<i64>,
    /// A handle: it means something within its process only.
    pub communicator: Option<i64>,
    pub op: String,
    pub calls_count: i64,
    /// Of one rank.
    pub volume_bytes: Option<i64>,
    /// Time of handing over.
    pub call_ns: Option<i64>,
    pub p99_call_ns: Option<f64>,
}

/// Answers for one run, longest in calls first; nothing: no such call is on record.
///
/// # Errors
/// If the run's data cannot be read.
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
