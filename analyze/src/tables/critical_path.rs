//! `critical_path`: what the length of each marked range is made of, across threads.
//!
//! ```text
//! range      ├────────────────────────────────────────────────────────────┤
//! its thread ├─ cudaLaunchKernel ─┤─ on-CPU ─┤───── asleep for B ─────┤───┤
//! B                                          ├─ cudaMemcpy ─┤─ on-CPU ─┤ wakes
//! path       │ cudaLaunchKernel   │ on-CPU   │ cudaMemcpy   │ on-CPU   │   │
//! ```
//! The path follows the range's own thread (`walk`) from end to end. While that thread sleeps, the path
//! follows the thread that woke it, and so on. Each link is cut once more at the top-level calls of its
//! thread. The links of a range sum to its length: shortening one of them, and nothing else, would have
//! shortened the range.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use crate::tables::TableDef;
use crate::tables::slow_calls::state_name;
use analyze_engine::derived_table::Output;
use analyze_run::{
    error::AnalyzeError,
    reading::{Names, TASK_COLUMNS},
};
use analyze_verdict::derived::Source;
use analyze_verdict::{
    call::{Call, Marked, Sink},
    causes::Cause,
    root_cause::cause_of,
    schedule::Schedule,
    time_split::Parts,
    walk::{Link, Walker},
};
use trace_schema::Kind;

/// A link of a range's path, inside one top-level call or outside of all.
struct Step<'a> {
    range: &'a Marked,
    link: Link,
    /// Function of the top-level call, if the link is inside one.
    op: Option<u32>,
}

/// A top-level call over `[ts, end)`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Outermost {
    ts: i64,
    end: i64,
    op: u32,
}

/// The sink that collects ranges and calls. It keeps every top-level call at 24 bytes each, because a path
/// can lead to any thread.
struct Paths {
    output: Output,
    ranges: Vec<Marked>,
    /// Top-level calls by the number of the thread; those of a thread are sorted and do not overlap.
    calls: Vec<Vec<Outermost>>,
}

/// Returns the path of a range that has ended.
fn steps<'a>(range: &'a Marked, walker: &mut Walker<'_>, calls: &[Vec<Outermost>]) -> Vec<Step<'a>> {
    let (schedule, mut steps) = (walker.schedule(), Vec::new());
    let end = range.dur.map_or(range.ts, |dur| range.ts.saturating_add(dur));
    for link in walker.walk(range.slot, range.ts, end) {
        let slot = schedule.known_slot(link.thread);
        let of_thread = slot.and_then(|slot| calls.get(slot)).map_or(&[][..], Vec::as_slice);
        let first = of_thread.partition_point(|call| call.end <= link.ts);
        let mut at = link.ts;
        let mut step = |ts: i64, end: i64, op| {
            if ts < end {
                steps.push(Step { range, link: Link { ts, end, ..*link }, op });
            }
        };
        for call in of_thread[first..].iter().take_while(|call| call.ts < link.end) {
            step(at, call.ts, None);
            at = call.end.min(link.end);
            step(call.ts.max(link.ts), at, Some(call.op));
        }
        step(at, link.end, None);
    }
    steps
}

/// The table.
pub const TABLE: TableDef = TableDef {
    name: "_critical_path",
    needs: &[Kind::Mark],
    schema: schema,
    make: |source, output| Box::pin(fill(source, output)),
};

/// Returns the schema of the table.
pub fn schema() -> SchemaRef {
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

fn rows(steps: &[Step<'_>], names: &Names) -> Result<RecordBatch, AnalyzeError> {
    let wholes = |get: &dyn Fn(&Step<'_>) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(steps.iter().map(get)))
    };
    let numbers = |get: &dyn Fn(&Step<'_>) -> Option<u32>| -> ArrayRef {
        Arc::new(steps.iter().map(get).collect::<UInt32Array>())
    };
    let texts = |get: &dyn for<'a> Fn(&'a Step<'_>) -> Option<&'a str>| -> ArrayRef {
        Arc::new(steps.iter().map(|step| get(step).map(str::to_owned)).collect::<StringArray>())
    };
    let words = |get: &dyn Fn(&Step<'_>) -> Option<u32>| -> ArrayRef {
        Arc::new(steps.iter().map(|step| get(step).map(|word| names.name(word))).collect::<StringArray>())
    };
    let named =
        |step: &Step<'_>| step.link.task.map(|task| task.comm).filter(|comm| !names.name(*comm).is_empty());
    let arrays = vec![
        words(&|step| Some(step.link.thread.0)),
        words(&|step| Some(step.range.name)),
        wholes(&|step| step.range.ts),
        wholes(&|step| step.link.ts),
        wholes(&|step| step.link.end - step.link.ts),
        wholes(&|step| step.link.depth as i64),
        numbers(&|step| Some(step.link.thread.1)),
        numbers(&|step| Some(step.link.thread.2)),
        words(&|step| step.op),
        texts(&|step| Some(state_name(step.link.state))),
        texts(&|step| cause_of(&step.link).map(Cause::name)),
        numbers(&|step| step.link.task.map(|task| task.pid)),
        words(&named),
    ];
    RecordBatch::try_new(schema(), arrays).map_err(|error| AnalyzeError::Internal(error.to_string()))
}

impl Sink for Paths {
    fn entered(&mut self, call: &Call, _: &Schedule) -> Result<(), AnalyzeError> {
        if call.depth > 0 {
            return Ok(());
        }
        if self.calls.len() <= call.slot {
            self.calls.resize_with(call.slot + 1, Vec::new);
        }
        let of_thread = &mut self.calls[call.slot];
        if let Some(last) = of_thread.last_mut() {
            last.end = last.end.min(call.ts);
        }
        of_thread.push(Outermost { ts: call.ts, end: call.end(), op: call.op });
        Ok(())
    }

    fn left(&mut self, _: &Call, _: Option<&Parts>, _: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }

    fn marked(&mut self, range: &Marked) {
        if range.dur.is_some_and(|dur| dur > 0) {
            self.ranges.push(*range);
        }
    }

    fn finished(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let mut walker = Walker::new(schedule);
        let mut ranges = self.ranges.iter();
        ranges.try_for_each(|range| {
            self.output.send(&rows(&steps(range, &mut walker, &self.calls), &schedule.names)?)
        })
    }
}

/// Sends the rows of the table to `output`.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let paths = |_: &mut Names| Paths { output, ranges: Vec::new(), calls: Vec::new() };
    source.sweep(TASK_COLUMNS, false, paths).await?;
    Ok(())
}
