//! `_calls`: a table of every call with its place on its thread, its phase, and the exact split of its time.
//!
//! Its columns are made one after the other from the calls of a batch, unlike those of the other tables, whose rows are pushed:
//! a run has millions of calls, and a query wants few of the 38 columns. Pushing rows took 1.29 times as long
//! (`SELECT count(*), sum(dur), sum(on_cpu_ns) FROM op_time`, 356,504 calls, medians of 7 in turn). Scans that share a sweep
//! share the columns, too: each is made once for all of them.

use std::{any::Any, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions,
        StringArray, UInt32Array, UInt64Array,
    },
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use super::def::TableDef;
use analyze_engine::derived_table::Output;
use analyze_run::{coverage::Coverage, error::AnalyzeError, hash::HashMap, reading::Names};
use analyze_verdict::derived::Source;
use analyze_verdict::{
    blocker::Blocker,
    call::{Call, Extra, Sink},
    schedule::Schedule,
    time_split::Parts,
};
use trace_schema::Kind;

pub(crate) const TABLE: TableDef = TableDef {
    name: "_calls",
    needs: &[Kind::Call],
    schema,
    make: |source, output| Box::pin(fill(source, output)),
};

/// Number of calls in a batch.
const BATCH_CALLS: usize = 8192;

/// Columns that are passed through and that no analysis uses.
const EXTRA: [&str; 6] = ["ret", "addr", "src_addr", "stream", "caller", "stack"];

/// Returns the type of columns with few distinct strings.
fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// Returns the name of the column of a class of blocking.
fn blocked_column(blocker: Blocker) -> String {
    format!("blocked_{}_ns", blocker.name().replace('-', "_"))
}

/// Returns the schema of the table.
fn schema() -> SchemaRef {
    use DataType::{Boolean, Int32, Int64, UInt32, UInt64, Utf8};
    let mut fields: Vec<Field> = [
        ("run", Utf8),
        ("pid", UInt32),
        ("tid", UInt32),
        ("ts", Int64),
        ("dur", Int64),
        ("op", dictionary()),
        ("layer", dictionary()),
        ("class", dictionary()),
        ("ret", Int32),
        ("addr", UInt64),
        ("src_addr", UInt64),
        ("size_bytes", Int64),
        ("direction", dictionary()),
        ("stream", UInt64),
        ("func", UInt64),
        ("caller", dictionary()),
        ("stack", UInt32),
        ("nested_in", dictionary()),
        ("child_op", dictionary()),
        ("phase", dictionary()),
        ("first_call", Boolean),
        ("depth", Int64),
        ("child_ns", Int64),
        ("on_cpu_ns", Int64),
        ("preempted_ns", Int64),
        ("runnable_ns", Int64),
        ("throttled_ns", Int64),
        ("blocked_ns", Int64),
        ("stopped_ns", Int64),
        ("unknown_ns", Int64),
        ("blocked_syscall", Int64),
    ]
    .map(|(name, ty)| Field::new(name, ty, true))
    .into();
    fields.extend(Blocker::ALL.map(|blocker| Field::new(blocked_column(blocker), Int64, true)));
    Arc::new(Schema::new(fields))
}

/// The split of a call's time by thread state.
enum Split {
    /// The parts of a call that returned.
    Known(Parts),
    /// The scheduler is not on record while the call ran, or in part only.
    Unknown,
    /// The call did not return.
    Open,
}

impl Split {
    fn known(&self) -> Option<&Parts> {
        match self {
            Self::Known(parts) => Some(parts),
            Self::Unknown | Self::Open => None,
        }
    }
}

/// The sink that collects calls into batches.
struct Calls {
    /// The scans that read the table.
    outputs: Vec<Output>,
    /// The columns that any of them asks for.
    wanted: SchemaRef,
    coverage: Coverage,
    /// The process of the last call, and whether all that the scheduler did to it is on record.
    recent: Option<((u32, u32), bool)>,
    waiting: Vec<(Call, Split)>,
}

/// Returns the columns that any of some scans asks for.
fn wanted(outputs: &[Output]) -> SchemaRef {
    let all = schema();
    let fields = all.fields().iter().filter(|field| outputs.iter().any(|output| output.wants(field.name())));
    Arc::new(Schema::new(fields.map(Arc::clone).collect::<Vec<_>>()))
}

/// Builds a dictionary array of the texts of one batch, each of which belongs to a number. The text of a number is looked up
/// once.
fn texts<'a>(
    numbers: impl Iterator<Item = Option<u32>>,
    text: impl Fn(u32) -> Option<&'a str>,
) -> Result<ArrayRef, AnalyzeError> {
    let mut words: Vec<&str> = Vec::new();
    let mut known: HashMap<&str, i32> = HashMap::default();
    let mut keys_of: HashMap<u32, Option<i32>> = HashMap::default();
    let keys: Int32Array = numbers
        .map(|number| {
            *keys_of.entry(number?).or_insert_with_key(|number| {
                // Several functions have the text of one layer.
                let text = text(*number)?;
                Some(*known.entry(text).or_insert_with(|| {
                    words.push(text);
                    words.len() as i32 - 1
                }))
            })
        })
        .collect();
    let array = DictionaryArray::try_new(keys, Arc::new(StringArray::from(words)));
    Ok(Arc::new(array.map_err(|error| AnalyzeError::Internal(error.to_string()))?))
}

impl Calls {
    fn new(output: Output, coverage: Coverage) -> Self {
        let outputs = vec![output];
        Self { wanted: wanted(&outputs), outputs, coverage, recent: None, waiting: Vec::new() }
    }

    /// Returns whether it is on record what the scheduler did to the thread of a call.
    fn is_covered(&mut self, call: &Call, schedule: &Schedule) -> bool {
        let thread = schedule.key(call.slot);
        let process = (thread.0, thread.1);
        let is_whole = match self.recent {
            Some((of, is_whole)) if of == process => is_whole,
            _ => self.coverage.has_whole_schedule(process),
        };
        self.recent = Some((process, is_whole));
        is_whole || self.coverage.has_schedule(thread, call.ts, call.end())
    }

    /// Builds the column of a name from the collected calls.
    fn column(&self, name: &str, schedule: &Schedule) -> Result<ArrayRef, AnalyzeError> {
        let names = &schedule.names;
        let calls = || self.waiting.iter().map(|(call, _)| call);
        let threads = || calls().map(|call| schedule.key(call.slot));
        let ops = || calls().map(|call| Some(call.op));
        let words =
            |get: &dyn Fn(&Call) -> Option<u32>| texts(calls().map(get), |number| Some(names.name(number)));
        let whole = |get: &dyn Fn(&Call) -> Option<i64>| -> ArrayRef {
            Arc::new(calls().map(get).collect::<Int64Array>())
        };
        let part = |get: &dyn Fn(&Parts) -> Option<i64>| -> ArrayRef {
            Arc::new(
                self.waiting.iter().map(|(_, split)| split.known().and_then(get)).collect::<Int64Array>(),
            )
        };
        let extra = |call: &Call| call.extra.as_deref().copied().unwrap_or_default();
        let unsigned = |get: &dyn Fn(Extra) -> Option<u64>| -> ArrayRef {
            Arc::new(calls().map(|call| get(extra(call))).collect::<UInt64Array>())
        };
        Ok(match name {
            "run" => Arc::new(StringArray::from_iter_values(threads().map(|(run, ..)| names.name(run)))),
            "pid" => Arc::new(UInt32Array::from_iter_values(threads().map(|(_, pid, _)| pid))),
            "tid" => Arc::new(UInt32Array::from_iter_values(threads().map(|(.., tid)| tid))),
            "ts" => whole(&|call| Some(call.ts)),
            "dur" => whole(&|call| call.dur),
            "op" => texts(ops(), |op| Some(names.name(op)))?,
            "layer" => texts(ops(), |op| names.op(op).map(|op| op.layer().name()))?,
            "class" => texts(ops(), |op| names.class(op).map(|class| class.name()))?,
            "ret" => Arc::new(calls().map(|call| extra(call).ret).collect::<Int32Array>()),
            "addr" => unsigned(&|extra| extra.addr),
            "src_addr" => unsigned(&|extra| extra.src_addr),
            "stream" => unsigned(&|extra| extra.stream),
            "caller" => words(&|call| extra(call).caller)?,
            "stack" => Arc::new(calls().map(|call| extra(call).stack).collect::<UInt32Array>()),
            "size_bytes" => whole(&|call| call.size),
            "direction" => words(&|call| call.direction)?,
            "func" => unsigned(&|extra| extra.func),
            "nested_in" => words(&|call| call.parent)?,
            "child_op" => words(&|call| call.child.map(|(op, _)| op))?,
            "phase" => words(&|call| call.phase)?,
            "first_call" => Arc::new(calls().map(|call| Some(call.is_first)).collect::<BooleanArray>()),
            "depth" => whole(&|call| Some(call.depth.into())),
            "child_ns" => whole(&|call| Some(call.child_ns)),
            "on_cpu_ns" => part(&|parts| Some(parts.on_cpu)),
            "preempted_ns" => part(&|parts| Some(parts.preempted)),
            "runnable_ns" => part(&|parts| Some(parts.runnable)),
            "throttled_ns" => part(&|parts| Some(parts.throttled)),
            "blocked_ns" => part(&|parts| Some(parts.blocked_ns())),
            "stopped_ns" => part(&|parts| Some(parts.stopped)),
            "unknown_ns" => {
                let unknown = |(call, split): &(Call, Split)| match split {
                    Split::Known(parts) => Some(parts.unknown),
                    Split::Unknown => call.dur,
                    Split::Open => None,
                };
                Arc::new(self.waiting.iter().map(unknown).collect::<Int64Array>())
            }
            "blocked_syscall" => part(&|parts| parts.blocked_syscall),
            _ => {
                let blocker = Blocker::ALL.into_iter().find(|blocker| blocked_column(*blocker) == name);
                let blocker =
                    blocker.ok_or_else(|| AnalyzeError::Internal(format!("_calls has no column {name}")))?;
                part(&|parts| Some(parts.blocked[blocker as usize]))
            }
        })
    }

    /// Sends the collected calls to every scan, as one batch of its columns. A scan that is not read any more is left out of
    /// what follows.
    fn send(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let columns = self.wanted.fields().iter().map(|field| self.column(field.name(), schedule));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.waiting.len()));
        self.waiting.clear();
        let mut unread = None;
        for output in std::mem::take(&mut self.outputs) {
            let of_output = output.schema().fields().iter().filter_map(|field| {
                let place = self.wanted.index_of(field.name()).ok()?;
                Some(Arc::clone(&columns[place]))
            });
            let batch =
                RecordBatch::try_new_with_options(Arc::clone(output.schema()), of_output.collect(), &options);
            match output.send(batch.map_err(|error| AnalyzeError::Internal(error.to_string()))?) {
                Ok(()) => self.outputs.push(output),
                Err(error) => unread = Some(error),
            }
        }
        unread.filter(|_| self.outputs.is_empty()).map_or(Ok(()), Err)
    }
}

impl Sink for Calls {
    fn join(&mut self, other: Box<dyn Sink>) -> Option<Box<dyn Sink>> {
        let any: &dyn Any = &*other;
        if !any.is::<Self>() {
            return Some(other);
        }
        let any: Box<dyn Any> = other;
        if let Ok(other) = any.downcast::<Self>() {
            self.outputs.extend(other.outputs);
            self.wanted = wanted(&self.outputs);
        }
        None
    }

    fn left(&mut self, call: &Call, parts: Option<&Parts>, schedule: &Schedule) -> Result<(), AnalyzeError> {
        let on_cpu = || call.dur.map(|on_cpu| Parts { on_cpu, ..Parts::default() });
        let is_covered = self.is_covered(call, schedule);
        // Where the scheduler is not on record, nothing is known of the thread, not even that it was running.
        let split = match parts.copied().or_else(on_cpu) {
            Some(parts) if is_covered => Split::Known(parts),
            Some(_) => Split::Unknown,
            None => Split::Open,
        };
        self.waiting.push((call.clone(), split));
        if self.waiting.len() == BATCH_CALLS { self.send(schedule) } else { Ok(()) }
    }

    fn finished(&mut self, schedule: &Schedule) -> Result<(), AnalyzeError> {
        if self.waiting.is_empty() { Ok(()) } else { self.send(schedule) }
    }
}

/// Sends the rows of the table to `output`.
async fn fill(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let extra: Vec<&'static str> = EXTRA.into_iter().filter(|name| output.wants(name)).collect();
    // Every reading has the column `func`, but only this one passes it through.
    let hands_extra = !extra.is_empty() || output.wants("func");
    let calls = |_: &mut Names, coverage| Calls::new(output, coverage);
    source.sweep(&extra, hands_extra, calls).await
}
