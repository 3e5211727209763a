//! Writes the calls of a timeline, with the verdicts on slow ones and the GPU work that they caused.
//!
//! Verdicts, links of chains and work come from queries of their own in the order of time, beside the calls: a join would
//! keep one side in memory, and the planner takes the calls for it.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use futures::TryStreamExt;

use super::{
    beside::{Beside, Row},
    columns::{Args, Keys, flow},
    imported::{work_flow, works_count_query},
    model::{Group, Sink, Slice, Timeline, Value},
};
use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
    symbols::demangle,
};

/// Outer calls come before those nested in them.
const CALLS: &str = "
    SELECT pid, tid, ts, dur, depth, op, layer, class, direction, caller, phase, func, size_bytes, stream, ret, on_cpu_ns,
        preempted_ns, runnable_ns, throttled_ns, blocked_ns, stopped_ns, unknown_ns
    FROM _calls ORDER BY ts, depth";

const SLOW: &str = "
    SELECT pid, tid, ts, depth, verdict, root, CAST(excess_ns AS BIGINT) AS excess_ns, verdict_share_ratio
    FROM slow_calls ORDER BY ts";

const LINKS_COUNT: &str = "
    SELECT call_pid, call_tid, call_ts, call_depth, count(*) AS links_count FROM chain_links WHERE task_tid > 0
    GROUP BY call_pid, call_tid, call_ts, call_depth ORDER BY call_ts";

/// Columns of texts that become arguments, and those of numbers.
const TEXTS: [&str; 3] = ["direction", "caller", "phase"];
const NUMBERS: [&str; 10] = [
    "size_bytes",
    "stream",
    "ret",
    "on_cpu_ns",
    "preempted_ns",
    "runnable_ns",
    "throttled_ns",
    "blocked_ns",
    "stopped_ns",
    "unknown_ns",
];

/// What tells a call from others that began at the same time: process, thread and depth.
type CallKey = (i64, i64, i64);
/// What tells a call from others by its function, where no depth is known.
type NamedKey = (i64, i64, String);

/// The verdict on a slow call.
struct Slow {
    verdict: Option<String>,
    root: Option<String>,
    excess_ns: Option<i64>,
    verdict_share_ratio: Option<f64>,
}

fn read_slow(batch: &RecordBatch) -> Result<Vec<Row<CallKey, Slow>>, AnalyzeError> {
    let column = |name| integers(batch, name);
    let (pid, tid, ts, depth) = (column("pid")?, column("tid")?, column("ts")?, column("depth")?);
    let (verdict, root) = (strings(batch, "verdict")?, strings(batch, "root")?);
    let (excess_ns, share) = (column("excess_ns")?, floats(batch, "verdict_share_ratio")?);
    let row = |row| {
        let slow = Slow {
            verdict: verdict.at(row).map(str::to_owned),
            root: root.at(row).map(str::to_owned),
            excess_ns: excess_ns.at(row),
            verdict_share_ratio: share.at(row),
        };
        (ts.value(row), (pid.value(row), tid.value(row), depth.value(row)), slow)
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

fn read_links(batch: &RecordBatch) -> Result<Vec<Row<CallKey, i64>>, AnalyzeError> {
    let column = |name| integers(batch, name);
    let (pid, tid, ts) = (column("call_pid")?, column("call_tid")?, column("call_ts")?);
    let (depth, count) = (column("call_depth")?, column("links_count")?);
    let row = |row| (ts.value(row), (pid.value(row), tid.value(row), depth.value(row)), count.value(row));
    Ok((0..batch.num_rows()).map(row).collect())
}

fn read_works(batch: &RecordBatch) -> Result<Vec<Row<NamedKey, i64>>, AnalyzeError> {
    let column = |name| integers(batch, name);
    let (pid, tid, ts) = (column("call_pid")?, column("call_tid")?, column("call_ts")?);
    let (op, count) = (strings(batch, "call_op")?, column("works_count")?);
    let row =
        |row| (ts.value(row), (pid.value(row), tid.value(row), op.value(row).to_owned()), count.value(row));
    Ok((0..batch.num_rows()).map(row).collect())
}

/// Returns the demangled names of kernels by process and handle.
async fn kernels(trace: &Trace) -> Result<HashMap<(i64, i64), String>, AnalyzeError> {
    let mut kernels = HashMap::new();
    for batch in trace.batches("SELECT pid, func, name FROM kernels").await? {
        let (pid, func) = (integers(&batch, "pid")?, integers(&batch, "func")?);
        let name = strings(&batch, "name")?;
        for row in 0..batch.num_rows() {
            if let (Some(func), Some(name)) = (func.at(row), name.at(row)) {
                kernels.insert((pid.value(row), func), demangle(name));
            }
        }
    }
    Ok(kernels)
}

/// Writes all calls.
///
/// # Errors
/// Returns an error if the data cannot be read, or if the timeline cannot be written.
pub(super) async fn write<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let kernels = kernels(trace).await?;
    let mut slow = Beside::new(trace.sorted(SLOW), read_slow);
    let mut links = Beside::new(trace.sorted(LINKS_COUNT), read_links);
    let mut works = Beside::new(trace.sorted(&works_count_query()), read_works);
    let mut batches = trace.sorted(CALLS);
    while let Some(batch) = batches.try_next().await? {
        let keys = Keys::new(&batch)?;
        let (dur, depth) = (integers(&batch, "dur")?, integers(&batch, "depth")?);
        let (op, layer) = (strings(&batch, "op")?, strings(&batch, "layer")?);
        let (class, func) = (strings(&batch, "class")?, integers(&batch, "func")?);
        let texts = Args::new(&batch, &TEXTS, &[], &[])?;
        let numbers = Args::new(&batch, &[], &NUMBERS, &[])?;
        let (mut named_texts, mut named_numbers) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let ts = keys.ts.value(row);
            slow.advance(ts).await?;
            links.advance(ts).await?;
            works.advance(ts).await?;
            let (pid, tid) = keys.thread(row);
            let (pid, tid, depth) = (i64::from(pid), i64::from(tid), depth.value(row));
            let slow = slow.get(&(pid, tid, depth));
            let links_count = links.get(&(pid, tid, depth)).copied().unwrap_or(0);
            let works_count = match works.is_empty() {
                true => 0,
                false => works.get(&(pid, tid, op.value(row).to_owned())).copied().unwrap_or(0),
            };
            let kernel = func.at(row).filter(|_| class.at(row) == Some("launch"));
            let kernel = kernel.and_then(|func| kernels.get(&(pid, func)));
            texts.at(row, &mut named_texts);
            numbers.at(row, &mut named_numbers);
            let mut values: Vec<(&str, Value<'_>)> = named_texts.clone();
            let verdict = slow.and_then(|slow| slow.verdict.as_deref());
            let root = slow.and_then(|slow| slow.root.as_deref());
            values.extend(verdict.map(|text| ("verdict", Value::Text(text))));
            values.extend(root.map(|text| ("root", Value::Text(text))));
            values.extend_from_slice(&named_numbers);
            values.extend(slow.and_then(|slow| Some(("excess_ns", Value::Int(slow.excess_ns?)))));
            let share = slow.and_then(|slow| slow.verdict_share_ratio);
            values.extend(share.map(|share| ("verdict_share_ratio", Value::Float(share))));
            values.extend(kernel.map(|name| ("kernel_name", Value::Text(name))));
            let call = [pid, tid, ts, depth];
            let to_links = (1..=links_count).map(|number| flow(call, number));
            let to_work = (1..=works_count).map(|number| work_flow(call, number));
            let flows: Vec<u64> = to_links.chain(to_work).collect();
            let slice = Slice {
                ts,
                dur: dur.at(row),
                name: op.value(row),
                category: layer.at(row).unwrap_or("call"),
                args: &values,
                flows: &flows,
                ended_flow: None,
            };
            to.slice(keys.owner(row), Group::Calls, &slice)?;
        }
    }
    Ok(())
}
