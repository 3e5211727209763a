//! Tables that the replay of PyTorch's allocator derives from `events`. Their rows are streamed while the
//! replay runs:
//!
//! - `_memory_blocks`, `_memory_segments`: every block and segment, with the time for which it was in one
//!   state;
//! - `_memory_curve`: the totals after every event;
//! - `_memory_faults`: the number of events that contradict the replayed state;
//! - `_memory_pools`, `_memory_requests`, `_memory_releases`, `_memory_ooms`: see the module `story`;
//! - `_memory_ledger`, `_memory_driver`, `_memory_pauses`: the memory of whole GPUs, see the module `device`.
//!
//! Rows come in the order in which their spans end; spans that are still open at the end of the run come last.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
};

use arrow::{
    array::{
        BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, RecordBatch, StringDictionaryBuilder,
        UInt32Builder, UInt64Builder,
    },
    datatypes::{DataType, Field, Int32Type, Schema, SchemaRef},
    error::ArrowError,
};
use datafusion::{
    catalog::streaming::StreamingTable,
    error::DataFusionError,
    execution::{SendableRecordBatchStream, SessionState, TaskContext},
    physical_plan::{stream::RecordBatchReceiverStream, streaming::PartitionStream},
    prelude::SessionContext,
};
use parking_lot::RwLock;
use tokio::sync::mpsc::Sender;
use trace_schema::Kind;

use crate::{
    error::AnalyzeError,
    memory::{
        allocator::Allocator,
        event::{Action, Event},
        input::{Input, Key, Listener, Replay},
        span::{BEFORE, Block, Segment, State},
    },
    trace::RunFile,
};

/// The number of rows of one batch.
const BATCH_ROWS: usize = 8192;

/// The tables in the order in which they are registered, each with the kinds of event without which it has no
/// rows.
pub const NAMES: [(&str, &[Kind]); 11] = [
    ("_memory_blocks", &[Kind::Alloc]),
    ("_memory_segments", &[Kind::Alloc]),
    ("_memory_curve", &[Kind::Alloc]),
    ("_memory_faults", &[]),
    ("_memory_pools", &[Kind::Alloc]),
    ("_memory_requests", &[Kind::Alloc]),
    ("_memory_releases", &[Kind::Alloc]),
    ("_memory_ooms", &[Kind::Alloc]),
    ("_memory_ledger", &[Kind::Sample]),
    ("_memory_driver", &[Kind::Call]),
    ("_memory_pauses", &[Kind::Call]),
];

fn text() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

type Text = StringDictionaryBuilder<Int32Type>;

/// The column builders of one table.
trait Columns: Default + Send + 'static {
    fn schema() -> SchemaRef;
    fn run(&mut self, name: &str, count: usize);
    fn take(&mut self) -> Result<RecordBatch, ArrowError>;
}

macro_rules! table {
    ($name:ident { $($column:ident: $builder:ty, $ty:expr;)* }) => {
        /// The column builders of this table.
        #[derive(Default)]
        pub(super) struct $name { $($column: $builder),* }

        impl Columns for $name {
            fn schema() -> SchemaRef {
                Arc::new(Schema::new(vec![$(Field::new(stringify!($column), $ty, true)),*]))
            }

            fn run(&mut self, name: &str, count: usize) {
                self.run.append_values(name, count);
            }

            fn take(&mut self) -> Result<RecordBatch, ArrowError> {
                RecordBatch::try_new(Self::schema(), vec![$(Arc::new(self.$column.finish())),*])
            }
        }
    };
}

mod device;
mod story;

table!(Blocks {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    ts: Int64Builder, DataType::Int64;
    dur: Int64Builder, DataType::Int64;
    state: Text, text();
    addr: UInt64Builder, DataType::UInt64;
    size_bytes: Int64Builder, DataType::Int64;
    requested_bytes: Int64Builder, DataType::Int64;
    segment_addr: UInt64Builder, DataType::UInt64;
    stream: UInt64Builder, DataType::UInt64;
    pool_owner: UInt64Builder, DataType::UInt64;
    pool_id: UInt64Builder, DataType::UInt64;
    alloc_ts: Int64Builder, DataType::Int64;
    tid: UInt32Builder, DataType::UInt32;
    stack: UInt32Builder, DataType::UInt32;
    is_left_censored: BooleanBuilder, DataType::Boolean;
});

table!(Segments {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    ts: Int64Builder, DataType::Int64;
    dur: Int64Builder, DataType::Int64;
    addr: UInt64Builder, DataType::UInt64;
    size_bytes: Int64Builder, DataType::Int64;
    is_expandable: BooleanBuilder, DataType::Boolean;
    is_small: BooleanBuilder, DataType::Boolean;
    stream: UInt64Builder, DataType::UInt64;
    pool_owner: UInt64Builder, DataType::UInt64;
    pool_id: UInt64Builder, DataType::UInt64;
    alloc_ts: Int64Builder, DataType::Int64;
    tid: UInt32Builder, DataType::UInt32;
    stack: UInt32Builder, DataType::UInt32;
    is_left_censored: BooleanBuilder, DataType::Boolean;
});

table!(Curve {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    ts: Int64Builder, DataType::Int64;
    action: Text, text();
    requested_bytes: Int64Builder, DataType::Int64;
    reserved_bytes: Int64Builder, DataType::Int64;
    allocated_bytes: Int64Builder, DataType::Int64;
    active_bytes: Int64Builder, DataType::Int64;
    inactive_split_bytes: Int64Builder, DataType::Int64;
    releasable_bytes: Int64Builder, DataType::Int64;
    private_releasable_bytes: Int64Builder, DataType::Int64;
    unknown_bytes: Int64Builder, DataType::Int64;
    segments_count: Int64Builder, DataType::Int64;
});

table!(Faults {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    problem: Text, text();
    events_count: Int64Builder, DataType::Int64;
});

/// Fills the columns of a table while a replay runs.
struct Filler<C> {
    columns: C,
    /// The number of each row's run; the replay has the name for it.
    runs: Vec<u32>,
    /// The time (ns) at which the record of an allocator begins that was in use before.
    began: HashMap<Key, i64>,
    sender: Sender<Result<RecordBatch, DataFusionError>>,
}

/// A listener that turns the events of a replay into rows.
trait Sink: Listener + 'static {
    fn schema() -> SchemaRef;
    fn new(sender: Sender<Result<RecordBatch, DataFusionError>>) -> Self;
}

impl<C: Columns> Sink for Filler<C>
where
    Self: Listener,
{
    fn schema() -> SchemaRef {
        C::schema()
    }

    fn new(sender: Sender<Result<RecordBatch, DataFusionError>>) -> Self {
        Self { columns: C::default(), runs: Vec::new(), began: HashMap::new(), sender }
    }
}

impl<C: Columns> Filler<C> {
    fn send(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
        if self.runs.is_empty() || (!all && self.runs.len() < BATCH_ROWS) {
            return Ok(());
        }
        for rows in self.runs.chunk_by(|a, b| a == b) {
            self.columns.run(replay.name(rows[0]), rows.len());
        }
        self.runs.clear();
        let batch = self.columns.take().map_err(|error| AnalyzeError::Internal(error.to_string()))?;
        // The reader of the table may have stopped early, as with a LIMIT.
        let gone = |_| AnalyzeError::Internal("a table is not read any more".to_owned());
        self.sender.blocking_send(Ok(batch)).map_err(gone)
    }

    /// Returns `ts`, or the time at which the record of the allocator begins if the span began before it.
    fn since(&self, key: Key, ts: i64) -> i64 {
        match ts {
            BEFORE => self.began.get(&key).copied().unwrap_or_default(),
            ts => ts,
        }
    }
}

/// Returns `None`, a null in a table, for 0, which stands for the default stream or pool.
fn non_zero(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

/// The methods that tables of spans have in common.
macro_rules! spans {
    () => {
        fn began(&mut self, key: Key, _: &Allocator, ts: i64) {
            self.began.insert(key, ts);
        }

        fn flush(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
            self.send(replay, all)
        }
    };
}

impl Listener for Filler<Blocks> {
    spans!();

    fn block(&mut self, key: Key, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
        // A state that ends at the time at which it begins is left out.
        if end == Some(block.ts) {
            return;
        }
        let since = self.since(key, block.ts);
        self.runs.push(key.run);
        let columns = &mut self.columns;
        columns.pid.append_value(key.pid);
        columns.device.append_value(key.device);
        columns.ts.append_value(since);
        columns.dur.append_option(end.map(|end| end.saturating_sub(since)));
        columns.state.append_value(block.state.name());
        columns.addr.append_value(block.addr);
        columns.size_bytes.append_value(block.size_bytes as i64);
        let is_told = !matches!(block.state, State::Inactive | State::Unknown);
        let requested = block.requested_bytes.filter(|_| is_told);
        columns.requested_bytes.append_option(requested.map(|bytes| bytes as i64));
        columns.segment_addr.append_option(segment.map(|segment| segment.addr));
        columns.stream.append_option(non_zero(block.stream));
        let (owner, id) = segment.map(|segment| segment.pool).unwrap_or_default();
        columns.pool_owner.append_option(non_zero(owner));
        columns.pool_id.append_option(non_zero(id));
        let is_dated = is_told && block.alloc_ts != BEFORE;
        columns.alloc_ts.append_option(is_dated.then_some(block.alloc_ts));
        columns.tid.append_option(is_dated.then_some(block.tid));
        columns.stack.append_option(block.stack.filter(|_| is_told));
        columns.is_left_censored.append_value(block.ts == BEFORE);
    }
}

impl Listener for Filler<Segments> {
    spans!();

    fn segment(&mut self, key: Key, segment: &Segment, end: Option<i64>) {
        if end == Some(segment.ts) {
            return;
        }
        let since = self.since(key, segment.ts);
        self.runs.push(key.run);
        let columns = &mut self.columns;
        columns.pid.append_value(key.pid);
        columns.device.append_value(key.device);
        columns.ts.append_value(since);
        columns.dur.append_option(end.map(|end| end.saturating_sub(since)));
        columns.addr.append_value(segment.addr);
        columns.size_bytes.append_value(segment.size_bytes as i64);
        columns.is_expandable.append_value(segment.is_expandable);
        columns.is_small.append_value(segment.is_small);
        columns.stream.append_option(non_zero(segment.stream));
        columns.pool_owner.append_option(non_zero(segment.pool.0));
        columns.pool_id.append_option(non_zero(segment.pool.1));
        let is_dated = segment.alloc_ts != BEFORE;
        columns.alloc_ts.append_option(is_dated.then_some(segment.alloc_ts));
        columns.tid.append_option(is_dated.then_some(segment.tid));
        columns.stack.append_option(segment.stack);
        columns.is_left_censored.append_value(segment.ts == BEFORE);
    }
}

impl Filler<Curve> {
    fn row(&mut self, key: Key, allocator: &Allocator, ts: i64, action: &str, is_usage: bool) {
        self.runs.push(key.run);
        let totals = allocator.totals();
        let columns = &mut self.columns;
        columns.pid.append_value(key.pid);
        columns.device.append_value(key.device);
        columns.ts.append_value(ts);
        columns.action.append_value(action);
        columns.requested_bytes.append_option((!is_usage).then_some(totals.requested_bytes));
        columns.reserved_bytes.append_value(totals.reserved_bytes);
        columns.allocated_bytes.append_value(totals.allocated_bytes);
        columns.active_bytes.append_option((!is_usage).then_some(totals.active_bytes));
        columns.inactive_split_bytes.append_option((!is_usage).then_some(totals.inactive_split_bytes));
        columns.releasable_bytes.append_value(totals.releasable_bytes);
        columns.private_releasable_bytes.append_value(totals.private_releasable_bytes);
        columns.unknown_bytes.append_value(totals.unknown_bytes);
        columns.segments_count.append_value(totals.segments_count);
    }
}

impl Listener for Filler<Curve> {
    fn began(&mut self, key: Key, allocator: &Allocator, ts: i64) {
        self.row(key, allocator, ts, "state", false);
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        if event.action == Action::Oom {
            return;
        }
        let is_usage = matches!(event.action, Action::UsageAlloc | Action::UsageFree);
        self.row(key, allocator, event.ts, event.action.name(), is_usage);
    }

    fn flush(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
        self.send(replay, all)
    }
}

impl Listener for Filler<Faults> {
    fn flush(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
        if !all {
            return Ok(());
        }
        for (key, allocator) in replay.allocators() {
            for (fault, count) in allocator.faults() {
                self.runs.push(key.run);
                self.columns.pid.append_value(key.pid);
                self.columns.device.append_value(key.device);
                self.columns.problem.append_value(fault.name());
                self.columns.events_count.append_value(*count as i64);
            }
        }
        self.send(replay, true)
    }
}

/// The session and the files from which the tables read.
#[derive(Clone)]
struct Source {
    // The reference is weak because the session owns the tables.
    state: Weak<RwLock<SessionState>>,
    files: Arc<Vec<RunFile>>,
}

impl Source {
    /// Returns a session that has `events`.
    fn context(&self) -> Result<SessionContext, DataFusionError> {
        let gone = || DataFusionError::Internal("the session of the memory tables is gone".to_owned());
        let state = self.state.upgrade().ok_or_else(gone)?.read().clone();
        Ok(SessionContext::new_with_state(state))
    }
}

/// One table.
struct Table<S> {
    source: Source,
    schema: SchemaRef,
    sink: std::marker::PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for Table<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl<S: Sink> PartitionStream for Table<S> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let sink = S::new(builder.tx());
        let source = self.source.clone();
        builder.spawn(async move {
            let input = Input::new(source.context()?, &source.files);
            input.replay(Vec::new(), sink).await.map(drop).map_err(external)
        });
        builder.build()
    }
}

fn external(error: AnalyzeError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn table<S: Sink>(source: &Source) -> Result<Arc<StreamingTable>, AnalyzeError> {
    let table = Table::<S> { source: source.clone(), schema: S::schema(), sink: std::marker::PhantomData };
    Ok(Arc::new(StreamingTable::try_new(S::schema(), vec![Arc::new(table)])?))
}

/// Registers the tables.
///
/// # Errors
/// Returns an error if a name is taken, which is an internal error.
pub fn register(context: &SessionContext, files: &[RunFile]) -> Result<(), AnalyzeError> {
    let source = Source { state: context.state_weak_ref(), files: Arc::new(files.to_vec()) };
    let tables = [
        table::<Filler<Blocks>>(&source)?,
        table::<Filler<Segments>>(&source)?,
        table::<Filler<Curve>>(&source)?,
        table::<Filler<Faults>>(&source)?,
        table::<Filler<story::Pools>>(&source)?,
        table::<story::Told<story::Requests>>(&source)?,
        table::<story::Told<story::Releases>>(&source)?,
        table::<story::Told<story::Ooms>>(&source)?,
        device::table::<device::Ledger>(&source)?,
        device::table::<device::Pieces>(&source)?,
        device::table::<device::Paused>(&source)?,
    ];
    for ((name, _), table) in NAMES.into_iter().zip(tables) {
        context.register_table(name, table)?;
    }
    Ok(())
}
