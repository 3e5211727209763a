//! `launch_gaps`: the time of a thread between one launch and the next, during which it gave the GPU no new
//! work.
//!
//! ```text
//! thread  ┤ launch ├──on-CPU──┤─ sync ─├─ preempted ─├──on-CPU──┤ cudaMalloc ├──┤ launch ├
//! gap              ├──────────────────────────────────────────────────────────┤
//! ```
//! A gap is cut from end to end: time in another top-level call belongs to the class of that call, and the
//! rest to what the thread did, so the parts of a gap sum to its length. A trace without device rows does not
//! tell whether the GPU was idle meanwhile, because work may have been queued.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use trace_schema::Class;

use crate::tables::TableDef;
use analyze_engine::derived_table::Output;
use analyze_run::{error::AnalyzeError, reading::Names};
use analyze_verdict::derived::Source;
use analyze_verdict::{
    blocker::Blocker,
    call::{Call, Sink},
    schedule::{Schedule, ThreadKey},
    thread_state::{LATEST, ThreadState},
    time_split::{Parts, parts},
};
use trace_schema::Kind;

/// Number of gaps in a batch.
const BATCH_GAPS: usize = 8192;

/// Names of the parts, in the order of columns.
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

/// One gap, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Gap {
    thread: ThreadKey,
    ts: i64,
    end: i64,
    /// Function of the launch that ends the gap, and the phase that this launch began in.
    next: u32,
    phase: Option<u32>,
    parts: [i64; PARTS.len()],
}

/// Returns the index of the part that a call of this class belongs to.
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
    /// Adds the time from `from` to `to`, in which the thread was in no call.
    fn outside(&mut self, pieces: &[ThreadState], from: i64, to: i64) {
        if from >= to {
            return;
        }
        let parts = parts(pieces, LATEST, from, to);
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

/// The table.
pub const TABLE: TableDef = TableDef {
    name: "_launch_gaps",
    needs: &[Kind::Call],
    schema: schema,
    make: |source, output| Box::pin(fill(source, output)),
};

/// Returns the schema of the table.
pub fn schema() -> SchemaRef {
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

/// The state of one thread during the reading.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The gap since the last launch, if there was one.
    open: Option<Gap>,
    /// The latest end of the thread's calls so far.
    at: i64,
}

/// The sink that collects gaps into batches.
struct Gaps {
    output: Output,
    /// State by the number of the thread.
    places: Vec<Place>,
    found: Vec<Gap>,
}

impl Gaps {
    /// Processes a top-level call.
    fn outermost(&mut self, call: &Call, schedule: &Schedule) {
        if self.places.len() <= call.slot {
            self.places.resize(call.slot + 1, Place { open: None, at: i64::MIN });
        }
        let Place { open, at } = &mut self.places[call.slot];
        let class = schedule.names.class(call.op);
        let is_launch = class == Some(Class::Launch);
        if let Some(gap) = open {
            gap.outside(schedule.pieces_of(call.slot), *at, call.ts);
            if is_launch {
                self.found.push(Gap { end: call.ts.max(*at), next: call.op, phase: call.phase, ..*gap });
            }
        }
        // What follows a call that never returned is not a gap.
        if call.dur.is_none() {
            *open = None;
            return;
        }
        let end = call.end();
        if is_launch {
            // A launch may overlap a longer call; the gap then begins at that call's end.
            let ts = end.max(*at);
            let (next, phase, parts) = (call.op, None, [0; PARTS.len()]);
            let thread = schedule.key(call.slot);
            *open = Some(Gap { thread, ts, end: ts, next, phase, parts });
        } else if let Some(gap) = open {
            // Time in which calls overlap counts once.
            gap.parts[part_of(class)] += (end - call.ts.max(*at)).max(0);
        }
        *at = end.max(*at);
    }

    /// Sends the collected gaps as one batch.
    fn send(&mut self, names: &Names) -> Result<(), AnalyzeError> {
        let gaps = std::mem::take(&mut self.found);
        let numbers = |get: fn(&Gap) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(gaps.iter().map(get)))
        };
        let wholes = |get: &dyn Fn(&Gap) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(gaps.iter().map(get)))
        };
        let words = |get: &dyn Fn(&Gap) -> Option<u32>| -> ArrayRef {
            Arc::new(gaps.iter().map(|gap| get(gap).map(|word| names.name(word))).collect::<StringArray>())
        };
        let mut arrays: Vec<ArrayRef> = vec![
            words(&|gap| Some(gap.thread.0)),
            numbers(|gap| gap.thread.1),
            numbers(|gap| gap.thread.2),
            wholes(&|gap| gap.ts),
            wholes(&|gap| gap.end - gap.ts),
            words(&|gap| Some(gap.next)),
            words(&|gap| gap.phase),
        ];
        arrays.extend((0..PARTS.len()).map(|part| wholes(&|gap| gap.parts[part])));
        let batch = RecordBatch::try_new(schema(), arrays);
        self.output.send(&batch.map_err(|error| AnalyzeError::Internal(error.to_string()))?)
    }
}

impl Sink for Gaps {
    fn entered(&mut self, call: &Call, schedule: &Schedule) -> Result<(), AnalyzeError> {
        if call.depth == 0 {
            self.outermost(call, schedule);
        }
        if self.found.len() >= BATCH_GAPS { self.send(&schedule.names) } else { Ok(()) }
    }

    fn left(&mut self, _: &Call, _: Option<&Parts>, _: &Schedule) -> Result<(), AnalyzeError> {
        Ok(())
    }

    fn finished(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        self.send(&schedule.names)
    }
}

/// Sends the rows of the table to `output`.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let gaps = |_: &mut Names| Gaps { output, places: Vec::new(), found: Vec::new() };
    source.sweep(&[], false, gaps).await?;
    Ok(())
}
