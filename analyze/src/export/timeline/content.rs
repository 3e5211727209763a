//! Writes the content of a timeline, view by view.

use std::collections::HashMap;

use futures::TryStreamExt;

use super::{
    calls,
    columns::{Args, Keys, flow, point},
    imported,
    model::{Group, Kind, Sink, Slice, Timeline, Value},
};
use crate::{questions::info, trace::Trace};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};
use analyze_verdict::blocker::syscall_name;

const LINKS: &str = "
    SELECT call_pid, call_tid, call_ts, call_depth, op, ts, dur, pid AS waiting_pid, tid AS waiting_tid, state, cause, task_pid AS pid,
        task_tid AS tid, task_comm,
        row_number() OVER (PARTITION BY call_pid, call_tid, call_ts, call_depth ORDER BY ts, depth) AS number
    FROM chain_links WHERE task_tid > 0
    ORDER BY ts, dur DESC, pid, tid, call_pid, call_tid, call_ts, call_depth";

const OFF_CPU: &str = "
    SELECT pid, tid, ts, dur, state, syscall, waker_comm, next_comm, waker_pid, waker_tid, next_pid, next_tid, blocked_ns, runnable_ns,
        cpu
    FROM off_cpu ORDER BY ts, dur DESC";

const MARKS: &str = "SELECT pid, tid, ts, dur, name, op FROM marks ORDER BY ts, coalesce(dur, 9223372036854775807) DESC, name";

const EVENTS: &str =
    "SELECT pid, tid, ts, op, detail, CAST(addr AS BIGINT) AS addr FROM process_events ORDER BY ts";

const REQUESTS: &str = "
    SELECT pid, tid, ts, device, requested_bytes, device_free_bytes, largest_free_bytes FROM memory_ooms ORDER BY ts";

/// Writes the whole content of the timeline.
///
/// # Errors
/// Returns an error if the data cannot be read, or if the timeline cannot be written.
pub(super) async fn write<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    recording(trace, to).await?;
    calls::write(trace, to).await?;
    off_cpu(trace, to).await?;
    marks(trace, to).await?;
    links(trace, to).await?;
    imported::work(trace, to).await?;
    imported::host(trace, to).await?;
    events(trace, to).await?;
    memory(trace, to).await?;
    samples(trace, to).await?;
    lost(to)
}

/// Writes the circumstances as an instant at the beginning: what must be known to read any number.
async fn recording<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let run = to.run.clone();
    let begun = to.sink.begin_run(&run);
    to.written(begun)?;
    let mut ts = run.clock.start_ns;
    if ts == 0 {
        for batch in trace.batches("SELECT min(ts) AS ts FROM events").await? {
            ts = integers(&batch, "ts")?.at(0).unwrap_or_default();
        }
    }
    let command = run.command.join(" ");
    let gpus: Vec<String> =
        run.gpus.iter().map(|gpu| format!("{}, driver {}", gpu.name, gpu.driver)).collect();
    let gpus = gpus.join("; ");
    let warnings = info::warnings(&run);
    let mut args = vec![
        ("producer", Value::Text(&run.producer)),
        ("command", Value::Text(&command)),
        ("host", Value::Text(&run.host.name)),
        ("kernel", Value::Text(&run.host.kernel)),
        ("gpus", Value::Text(&gpus)),
    ];
    let names: Vec<String> = (1..=warnings.len()).map(|number| format!("note_{number}")).collect();
    args.extend(names.iter().zip(&warnings).map(|(name, text)| (name.as_str(), Value::Text(text.as_str()))));
    let track = to.track(None, Kind::Child { name: "recording" })?;
    to.instant(track, &point(ts, "recording begins", "recording", &args))
}

async fn off_cpu<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let mut batches = trace.sorted(OFF_CPU);
    while let Some(batch) = batches.try_next().await? {
        let keys = Keys::new(&batch)?;
        let (dur, syscall) = (integers(&batch, "dur")?, integers(&batch, "syscall")?);
        let state = strings(&batch, "state")?;
        let args = Args::new(
            &batch,
            &["waker_comm", "next_comm"],
            &[
                "syscall",
                "blocked_ns",
                "runnable_ns",
                "cpu",
                "waker_pid",
                "waker_tid",
                "next_pid",
                "next_tid",
            ],
            &[],
        )?;
        let mut values = Vec::new();
        for row in 0..batch.num_rows() {
            args.at(row, &mut values);
            let name = off_cpu_name(state.value(row), syscall.at(row));
            let slice = Slice { dur: dur.at(row), ..point(keys.ts.value(row), &name, "off_cpu", &values) };
            to.slice(keys.owner(row), Group::OffCpu, &slice)?;
        }
    }
    Ok(())
}

/// Name of an off-CPU interval: its state and system call.
pub(in crate::export) fn off_cpu_name(state: &str, syscall: Option<i64>) -> String {
    match syscall.map(|number| (number, syscall_name(number))) {
        Some((_, Some(name))) => format!("{state} ({name})"),
        Some((number, None)) => format!("{state} (system call {number})"),
        None => state.to_owned(),
    }
}

async fn marks<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let mut batches = trace.sorted(MARKS);
    while let Some(batch) = batches.try_next().await? {
        let keys = Keys::new(&batch)?;
        let (dur, op, name) = (integers(&batch, "dur")?, strings(&batch, "op")?, strings(&batch, "name")?);
        for row in 0..batch.num_rows() {
            let name = name.at(row).unwrap_or_default();
            let slice = Slice { dur: dur.at(row), ..point(keys.ts.value(row), name, "mark", &[]) };
            if op.value(row) == "range" {
                to.slice(keys.owner(row), Group::Marks, &slice)?;
            } else {
                let (pid, tid) = keys.thread(row);
                let track = to.thread(pid, tid)?;
                to.instant(track, &slice)?;
            }
        }
    }
    Ok(())
}

/// Writes chain links to the threads that slow calls waited for.
async fn links<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let mut batches = trace.sorted(LINKS);
    while let Some(batch) = batches.try_next().await? {
        let keys = Keys::new(&batch)?;
        let column = |name| integers(&batch, name);
        let (dur, number) = (column("dur")?, column("number")?);
        let call = [column("call_pid")?, column("call_tid")?, column("call_ts")?, column("call_depth")?];
        let (op, comm) = (strings(&batch, "op")?, strings(&batch, "task_comm")?);
        let args = Args::new(
            &batch,
            &["cause", "state"],
            &["waiting_pid", "waiting_tid", "call_pid", "call_tid", "call_ts"],
            &[],
        )?;
        let mut values = Vec::new();
        for row in 0..batch.num_rows() {
            args.at(row, &mut values);
            let (pid, tid) = keys.thread(row);
            if let Some(comm) = comm.at(row) {
                to.name(pid, tid, comm);
            }
            let name = format!("delayed {}", op.value(row));
            let slice = Slice {
                dur: dur.at(row),
                ended_flow: Some(flow([0, 1, 2, 3].map(|key| call[key].value(row)), number.value(row))),
                ..point(keys.ts.value(row), &name, "chain", &values)
            };
            to.slice(keys.owner(row), Group::Delays, &slice)?;
        }
    }
    Ok(())
}

/// Writes lifecycle events of processes, and allocations that failed.
async fn events<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let mut batches = trace.sorted(EVENTS);
    while let Some(batch) = batches.try_next().await? {
        let (keys, op) = (Keys::new(&batch)?, strings(&batch, "op")?);
        let args = Args::new(&batch, &["detail"], &["addr"], &[])?;
        let mut values = Vec::new();
        for row in 0..batch.num_rows() {
            args.at(row, &mut values);
            let (pid, tid) = keys.thread(row);
            let track = to.thread(pid, tid)?;
            to.instant(track, &point(keys.ts.value(row), op.value(row), "process", &values))?;
        }
    }
    let mut batches = trace.sorted(REQUESTS);
    while let Some(batch) = batches.try_next().await? {
        let keys = Keys::new(&batch)?;
        let numbers = ["device", "requested_bytes", "device_free_bytes", "largest_free_bytes"];
        let args = Args::new(&batch, &[], &numbers, &[])?;
        let mut values = Vec::new();
        for row in 0..batch.num_rows() {
            args.at(row, &mut values);
            let (pid, tid) = keys.thread(row);
            let track = to.thread(pid, tid)?;
            to.instant(track, &point(keys.ts.value(row), "out of memory", "alloc", &values))?;
        }
    }
    Ok(())
}

/// Writes the memory of each allocator after each of its events.
async fn memory<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    // The query does not sort: rows arrive in the order of events, which also orders events of the same time.
    let query = "SELECT pid, device, ts, reserved_bytes, coalesce(active_bytes, allocated_bytes) AS in_use_bytes FROM memory_curve";
    let mut batches = trace.sorted(query);
    let mut last = HashMap::new();
    while let Some(batch) = batches.try_next().await? {
        let column = |name| integers(&batch, name);
        let (pid, device, ts) = (column("pid")?, column("device")?, column("ts")?);
        let values =
            [("reserved_bytes", column("reserved_bytes")?), ("in_use_bytes", column("in_use_bytes")?)];
        for row in 0..batch.num_rows() {
            let device = device.at(row).unwrap_or_default();
            for (name, values) in &values {
                let key = (pid.value(row), device, *name);
                // Most events do not change the reserved size.
                if let Some(value) = values.at(row)
                    && last.insert(key, value) != Some(value)
                {
                    let name = format!("GPU {device} allocator {name}");
                    to.value(Some(pid.value(row) as u32), &name, ts.value(row), value)?;
                }
            }
        }
    }
    Ok(())
}

async fn samples<S: Sink>(trace: &Trace, to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let mut batches = trace.sorted("SELECT ts, counter, device, pid, value FROM samples ORDER BY ts");
    while let Some(batch) = batches.try_next().await? {
        let column = |name| integers(&batch, name);
        let (ts, device, pid, value) = (column("ts")?, column("device")?, column("pid")?, column("value")?);
        let counter = strings(&batch, "counter")?;
        for row in 0..batch.num_rows() {
            let counter = counter.value(row);
            let name = device.at(row).map_or_else(|| counter.to_owned(), |n| format!("GPU {n} {counter}"));
            if let Some(value) = value.at(row) {
                to.value(pid.at(row).map(|pid| pid as u32), &name, ts.value(row), value)?;
            }
        }
    }
    Ok(())
}

fn lost<S: Sink>(to: &mut Timeline<S>) -> Result<(), AnalyzeError> {
    let mut lost = to.run.lost.clone();
    lost.sort_by_key(|lost| (lost.from_ns, -lost.to_ns));
    for lost in &lost {
        let args = [("lost_count", Value::Int(lost.count as i64))];
        let dur = Some(lost.to_ns.saturating_sub(lost.from_ns));
        let slice = Slice { dur, ..point(lost.from_ns, &lost.probe, "lost", &args) };
        to.slice(None, Group::Lost, &slice)?;
    }
    Ok(())
}
