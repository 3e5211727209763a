//! Writes the content that only imported profiles have: GPU work, and operators and functions of the host.

use std::collections::HashMap;

use futures::TryStreamExt;

use super::{
    columns::{Args, Keys, flow, point},
    model::{Group, Sink, Slice, Timeline, Value},
};
use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    symbols::demangle,
};

/// GPU work, with the first call that has its correlation ID, in the process of the work. If that process is
/// unknown (0), the call must be in the only process that has calls with this ID.
const CAUSED_WORK: &str = "
    WITH numbered AS (
        SELECT pid, tid, ts, CAST(op AS VARCHAR) AS op, correlation,
            row_number() OVER (PARTITION BY pid, correlation ORDER BY ts, tid, op) AS number
        FROM events WHERE kind = 'call' AND correlation IS NOT NULL
    ), call AS (
        SELECT pid, tid, ts, op, correlation FROM numbered WHERE number = 1
    ), alone AS (
        SELECT correlation, min(pid) AS pid FROM call GROUP BY correlation HAVING min(pid) = max(pid)
    ), device AS (
        SELECT d.pid, d.tid, d.ts, d.dur, CAST(d.op AS VARCHAR) AS op, d.detail, d.device, CAST(d.stream AS BIGINT) AS stream,
            d.size_bytes, d.direction, d.correlation, CASE WHEN d.pid > 0 THEN d.pid ELSE o.pid END AS caller_pid
        FROM (SELECT * FROM events WHERE kind = 'device') d
        LEFT JOIN alone o ON d.pid = 0 AND o.correlation = d.correlation
    ), work AS (
        SELECT d.pid, d.tid, d.ts, d.dur, d.op, d.detail, d.device, d.stream, d.size_bytes, d.direction,
            CAST(d.correlation AS BIGINT) AS correlation, c.pid AS call_pid, c.tid AS call_tid, c.ts AS call_ts, c.op AS call_op
        FROM device d LEFT JOIN call c ON c.pid = d.caller_pid AND c.correlation = d.correlation
    )";

/// Returns the query for the number of works of each call that caused any, in the order of the calls.
pub(super) fn works_count_query() -> String {
    format!(
        "{CAUSED_WORK}
        SELECT call_pid, call_tid, call_ts, call_op, count(*) AS works_count FROM work WHERE call_ts IS NOT NULL
        GROUP BY call_pid, call_tid, call_ts, call_op ORDER BY call_ts"
    )
}

/// ID of the flow from a call to its work with this number. Calls have no recorded depth here, so a depth is
/// used that no call has.
pub(super) fn work_flow([pid, tid, ts, _]: [i64; 4], number: i64) -> u64 {
    flow([pid, tid, ts, -1], number)
}

/// Writes GPU work, on one track per stream.
pub(super) async fn work<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let query = format!(
        "{CAUSED_WORK}
        SELECT *, row_number() OVER (PARTITION BY call_pid, call_tid, call_ts, call_op ORDER BY ts, dur, device, stream) AS number
        FROM work ORDER BY ts, dur DESC"
    );
    let mut batches = trace.sorted(&query);
    // A kernel runs many times, so its demangled name is kept.
    let mut names: HashMap<String, String> = HashMap::new();
    while let Some(batch) = batches.try_next().await? {
        let column = |name| integers(&batch, name);
        let (ts, dur, number) = (column("ts")?, column("dur")?, column("number")?);
        let (device, stream) = (column("device")?, column("stream")?);
        let call = [column("call_pid")?, column("call_tid")?, column("call_ts")?];
        let (op, detail) = (strings(&batch, "op")?, strings(&batch, "detail")?);
        let args = Args::new(&batch, &["op", "direction"], &["size_bytes", "correlation", "call_ts"], &[])?;
        let mut values: Vec<(&str, Value<'_>)> = Vec::new();
        for row in 0..batch.num_rows() {
            args.at(row, &mut values);
            let name = detail.at(row).unwrap_or(op.value(row));
            let name = names.entry(name.to_owned()).or_insert_with(|| demangle(name));
            let caused = match call.each_ref().map(|column| column.at(row)) {
                [Some(pid), Some(tid), Some(ts)] => Some(work_flow([pid, tid, ts, 0], number.value(row))),
                _ => None,
            };
            let slice =
                Slice { dur: dur.at(row), ended_flow: caused, ..point(ts.value(row), name, "gpu", &values) };
            to.slice(None, Group::Work(device.at(row), stream.at(row)), &slice)?;
        }
    }
    Ok(())
}

/// Writes operators and functions of the host. Those without a duration become instants.
pub(super) async fn host<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let query = "SELECT pid, tid, ts, dur, CAST(op AS VARCHAR) AS op, detail FROM events WHERE kind = 'host' \
         ORDER BY ts, dur DESC";
    let mut batches = trace.sorted(query);
    while let Some(batch) = batches.try_next().await? {
        let (keys, dur) = (Keys::new(&batch)?, integers(&batch, "dur")?);
        let (op, detail) = (strings(&batch, "op")?, strings(&batch, "detail")?);
        for row in 0..batch.num_rows() {
            let args = [("op", Value::Text(op.value(row)))];
            let name = detail.at(row).unwrap_or(op.value(row));
            let slice = Slice { dur: dur.at(row), ..point(keys.ts.value(row), name, "host", &args) };
            let (pid, tid) = keys.thread(row);
            match (slice.dur, pid) {
                (Some(_), 0) => to.slice(None, Group::Host, &slice)?,
                (Some(_), _) => to.slice(keys.owner(row), Group::Host, &slice)?,
                (None, 0) => to.moment(&slice)?,
                (None, _) => {
                    let track = to.thread(pid, tid)?;
                    to.instant(track, &slice)?;
                }
            }
        }
    }
    Ok(())
}
