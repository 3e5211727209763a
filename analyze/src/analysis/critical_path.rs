//! `critical_path`: what the length of each marked range is made of, across threads.
//!
//! ```text
//! range      ├────────────────────────────────────────────────────────────┤
//! its thread ├─ cudaLaunchKernel ─┤─ on-CPU ─┤───── asleep for B ─────┤───┤
//! B                                          ├─ cudaMemcpy ─┤─ on-CPU ─┤ wakes
//! path       │ cudaLaunchKernel   │ on-CPU   │ cudaMemcpy   │ on-CPU   │   │
//! ```
//! The range's own thread is followed from end to end ([`super::walk`]); while it sleeps, the thread that woke it is, and
//! so on. Each link is cut once more by the outermost calls of its thread. The links of a range sum to it:
//! shortening one of them, and nothing else, would have shortened the range.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use super::{
    call_columns::CallColumns,
    causes::Cause,
    culprits::thread_name,
    judge::cause_of,
    schedule::ThreadKey,
    slow_rows::state_name,
    walk::{Link, walk},
};
use crate::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    functions::derived::Derived,
};

/// A range that a workload marked, and that has ended.
#[derive(Clone, Debug)]
struct Range {
    thread: ThreadKey,
    ts: i64,
    end: i64,
    name: String,
}

/// A link of a range's path, within one outermost call or outside of all.
struct Step {
    range: usize,
    link: Link,
    /// Row of the call.
    call: Option<usize>,
}

fn ranges(derived: &Derived) -> Result<Vec<Range>, AnalyzeError> {
    let mut ranges = Vec::new();
    for batch in &derived.ranges {
        let (runs, names) = (strings(batch, "run")?, strings(batch, "detail")?);
        let whole = |name| integers(batch, name);
        let (pid, tid, ts, dur) = (whole("pid")?, whole("tid")?, whole("ts")?, whole("dur")?);
        for row in 0..batch.num_rows() {
            let run = derived.schedule.names.known(runs.value(row));
            let (Some(run), Some(dur)) = (run, dur.at(row).filter(|dur| *dur > 0)) else { continue };
            ranges.push(Range {
                thread: (run, pid.value(row) as u32, tid.value(row) as u32),
                ts: ts.value(row),
                end: ts.value(row).saturating_add(dur),
                name: names.at(row).unwrap_or_default().to_owned(),
            });
        }
    }
    Ok(ranges)
}

/// Outermost calls of each thread, `[ts, end)`, with their rows; in order, not overlapping.
fn outermost(columns: &CallColumns) -> HashMap<ThreadKey, Vec<(i64, i64, usize)>> {
    let mut calls: HashMap<ThreadKey, Vec<(i64, i64, usize)>> = HashMap::new();
    for row in (0..columns.len()).filter(|row| columns.depth(*row) == 0) {
        let of_thread = calls.entry(columns.thread(row)).or_default();
        let ts = columns.ts(row);
        if let Some(last) = of_thread.last_mut() {
            last.1 = last.1.min(ts);
        }
        of_thread.push((ts, columns.dur(row).map_or(i64::MAX, |dur| ts.saturating_add(dur)), row));
    }
    calls
}

fn steps(ranges: &[Range], derived: &Derived, columns: &CallColumns) -> Vec<Step> {
    let calls = outermost(columns);
    let mut steps = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        for link in walk(&derived.schedule, range.thread, range.ts, range.end) {
            let of_thread = calls.get(&link.thread).map_or(&[][..], Vec::as_slice);
            let first = of_thread.partition_point(|call| call.1 <= link.ts);
            let mut at = link.ts;
            let mut step = |ts: i64, end: i64, call| {
                if ts < end {
                    steps.push(Step { range: index, link: Link { ts, end, ..link }, call });
                }
            };
            for (ts, end, row) in of_thread[first..].iter().take_while(|call| call.0 < link.end) {
                step(at, *ts, None);
                at = (*end).min(link.end);
                step((*ts).max(link.ts), at, Some(*row));
            }
            step(at, link.end, None);
        }
    }
    steps
}

/// Schema of [`rows`].
pub(crate) fn schema() -> SchemaRef {
    use DataType::{Int64, UInt32, Utf8};
    let fields = [
        ("run", Utf8),
        ("phase", Utf8),
        ("range_ts", Int64),
        ("ts", Int64),
        ("dur", Int64),
        ("depth", Int64),
        ("pid", UInt32),
        ("tid", UInt32),
        ("op", Utf8),
        ("state", Utf8),
        ("cause", Utf8),
        ("task_pid", UInt32),
        ("task_comm", Utf8),
    ];
    Arc::new(Schema::new(fields.map(|(name, ty)| Field::new(name, ty, true)).to_vec()))
}

/// The table.
///
/// # Errors
/// If a column cannot be read.
pub(crate) fn rows(derived: &Derived) -> Result<RecordBatch, AnalyzeError> {
    let columns = CallColumns::new(&derived.calls, &derived.schedule.names)?;
    let ranges = ranges(derived)?;
    let steps = steps(&ranges, derived, &columns);
    let wholes = |get: &dyn Fn(&Step) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(steps.iter().map(get)))
    };
    let numbers = |get: &dyn Fn(&Step) -> Option<u32>| -> ArrayRef {
        Arc::new(steps.iter().map(get).collect::<UInt32Array>())
    };
    let texts = |get: &dyn Fn(&Step) -> Option<String>| -> ArrayRef {
        Arc::new(steps.iter().map(get).collect::<StringArray>())
    };
    let arrays = vec![
        texts(&|step| Some(derived.schedule.names.name(step.link.thread.0).to_owned())),
        texts(&|step| Some(ranges[step.range].name.clone())),
        wholes(&|step| ranges[step.range].ts),
        wholes(&|step| step.link.ts),
        wholes(&|step| step.link.end - step.link.ts),
        wholes(&|step| step.link.depth as i64),
        numbers(&|step| Some(step.link.thread.1)),
        numbers(&|step| Some(step.link.thread.2)),
        texts(&|step| step.call.and_then(|row| columns.op.text(row)).map(str::to_owned)),
        texts(&|step| Some(state_name(step.link.state).to_owned())),
        texts(&|step| cause_of(&step.link).map(|cause: Cause| cause.name().to_owned())),
        numbers(&|step| step.link.task.map(|task| task.pid)),
        texts(&|step| {
            step.link
                .task
                .map(|task| thread_name(derived, step.link.thread.0, task))
                .filter(|name| !name.is_empty())
        }),
    ];
    RecordBatch::try_new(schema(), arrays).map_err(|error| AnalyzeError::Internal(error.to_string()))
}
