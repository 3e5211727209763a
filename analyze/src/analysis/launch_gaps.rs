//! `launch_gaps`: the time of a thread between one launch and the next, in which it gave the GPU nothing new.
//!
//! ```text
//! thread  ┤ launch ├──on-CPU──┤─ sync ─├─ preempted ─├──on-CPU──┤ cudaMalloc ├──┤ launch ├
//! gap              ├──────────────────────────────────────────────────────────┤
//! ```
//! A gap is cut from end to end: time in another outermost call belongs to the class of that call, the
//! rest to what the thread did, so its parts sum to it. Whether the GPU starved meanwhile is not in a trace
//! without device rows: work may have been queued.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use trace_schema::Class;

use super::{
    blocker::Blocker,
    call_columns::CallColumns,
    schedule::{Piece, ThreadKey},
    time_split::parts,
};
use crate::{error::AnalyzeError, functions::derived::Derived};

/// The parts, in the order of columns.
const PARTS: [&str; 12] = [
    "host_ns",
    "sync_ns",
    "alloc_ns",
    "copy_ns",
    "nccl_ns",
    "other_call_ns",
    "waiting_ns",
    "throttled_ns",
    "page_fault_ns",
    "blocked_ns",
    "stopped_ns",
    "unknown_ns",
];

/// One gap.
#[derive(Clone, Copy, Debug)]
struct Gap {
    thread: ThreadKey,
    ts: i64,
    end: i64,
    /// The launch that ends it: a row of `_calls`.
    next: usize,
    parts: [i64; PARTS.len()],
}

/// The part of a gap that a call in it is.
fn part_of(class: Option<Class>) -> usize {
    match class {
        Some(Class::Sync) => 1,
        Some(Class::Alloc | Class::Free | Class::Map) => 2,
        Some(Class::Copy | Class::Set) => 3,
        Some(Class::Collective | Class::PointToPoint | Class::Communicator) => 4,
        _ => 5,
    }
}

impl Gap {
    /// Adds time outside of calls.
    fn outside(&mut self, pieces: &[Piece], from: i64, to: i64) {
        if from >= to {
            return;
        }
        let parts = parts(pieces, from, to);
        let page_fault = parts.blocked[Blocker::PageFault as usize];
        let own = [
            parts.preempted + parts.runnable,
            parts.throttled,
            page_fault,
            parts.blocked_ns() - page_fault,
            parts.stopped,
            parts.unknown,
        ];
        self.parts[0] += parts.on_cpu;
        for (part, ns) in self.parts[6..].iter_mut().zip(own) {
            *part += ns;
        }
    }
}

/// Schema of [`rows`].
pub(crate) fn schema() -> SchemaRef {
    use DataType::{Int64, UInt32, Utf8};
    let mut fields: Vec<Field> = [
        ("run", Utf8),
        ("pid", UInt32),
        ("tid", UInt32),
        ("ts", Int64),
        ("dur", Int64),
        ("next_op", Utf8),
        ("phase", Utf8),
    ]
    .map(|(name, ty)| Field::new(name, ty, true))
    .into();
    fields.extend(PARTS.map(|name| Field::new(name, Int64, true)));
    Arc::new(Schema::new(fields))
}

fn gaps(derived: &Derived, columns: &CallColumns) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut open: Option<Gap> = None;
    let mut last = None;
    let mut at = i64::MIN;
    let outermost = (0..columns.len()).filter(|row| columns.depth(*row) == 0);
    for row in outermost {
        let thread = columns.thread(row);
        if last != Some(thread) {
            (last, open, at) = (Some(thread), None, i64::MIN);
        }
        let (ts, is_launch) = (columns.ts(row), columns.class(row) == Some(Class::Launch));
        if let Some(gap) = &mut open {
            gap.outside(derived.schedule.pieces(thread), at, ts);
            if is_launch {
                gaps.push(Gap { end: ts.max(at), next: row, ..*gap });
            }
        }
        // A call that never returned is followed by nothing.
        let Some(dur) = columns.dur(row) else {
            open = None;
            continue;
        };
        let end = ts.saturating_add(dur);
        if is_launch {
            // A launch that crosses a longer call leaves its end to that.
            let ts = end.max(at);
            open = Some(Gap { thread, ts, end: ts, next: row, parts: [0; PARTS.len()] });
        } else if let Some(gap) = &mut open {
            // Calls that cross take their time once.
            gap.parts[part_of(columns.class(row))] += (end - ts.max(at)).max(0);
        }
        at = end.max(at);
    }
    gaps
}

/// The table.
///
/// # Errors
/// If a column cannot be read.
pub(crate) fn rows(derived: &Derived) -> Result<RecordBatch, AnalyzeError> {
    let names = &derived.schedule.names;
    let columns = CallColumns::new(&derived.calls, names)?;
    let gaps = gaps(derived, &columns);
    let numbers =
        |get: fn(&Gap) -> u32| -> ArrayRef { Arc::new(UInt32Array::from_iter_values(gaps.iter().map(get))) };
    let wholes = |get: &dyn Fn(&Gap) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(gaps.iter().map(get)))
    };
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(gaps.iter().map(|gap| Some(names.name(gap.thread.0))).collect::<StringArray>()),
        numbers(|gap| gap.thread.1),
        numbers(|gap| gap.thread.2),
        wholes(&|gap| gap.ts),
        wholes(&|gap| gap.end - gap.ts),
        Arc::new(gaps.iter().map(|gap| columns.op.text(gap.next)).collect::<StringArray>()),
        Arc::new(gaps.iter().map(|gap| columns.phase.text(gap.next)).collect::<StringArray>()),
    ];
    arrays.extend((0..PARTS.len()).map(|part| wholes(&|gap| gap.parts[part])));
    RecordBatch::try_new(schema(), arrays).map_err(|error| AnalyzeError::Internal(error.to_string()))
}
