//! Tables that the replay of PyTorch's allocator derives from `events`, streamed as it goes:
//!
//! - `_memory_blocks`, `_memory_segments`: every block and segment, with the time for which it was what it was;
//! - `_memory_curve`: sums after every event;
//! - `_memory_pools`, `_memory_requests`, `_memory_releases`, `_memory_ooms`: see [`story`];
//! - `_memory_ledger`, `_memory_driver`, `_memory_pauses`: of whole GPUs, see [`device`].
//!
//! Rows come in the order in which they end; what is there at the end of the run comes last.

use std::{
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
use futures::StreamExt;
use parking_lot::RwLock;
use trace_schema::Run;

use crate::{
    error::AnalyzeError,
    memory::{
        allocator::Allocator,
        event::{Action, Event},
        input::{Key, Listener, Replay},
        span::{Block, Segment, State},
    },
    trace::RunFile,
};

/// Rows of one batch.
const BATCH_ROWS: usize = 8192;

/// The names of the tables, in the order in which they are registered.
pub(crate) const NAMES: [&str; 10] = [
    "_memory_blocks",
    "_memory_segments",
    "_memory_curve",
    "_memory_pools",
    "_memory_requests",
    "_memory_releases",
    "_memory_ooms",
    "_memory_ledger",
    "_memory_driver",
    "_memory_pauses",
];

fn text() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

type Text = StringDictionaryBuilder<Int32Type>;

/// The columns of a table, as they are filled.
trait Columns: Default + Send + 'static {
    fn schema() -> SchemaRef;
    /// The first one: names of runs.
    fn run(&mut self) -> &mut Text;
    fn batch(&mut self) -> Result<RecordBatch, ArrowError>;
}

macro_rules! table {
    ($name:ident { $($column:ident: $builder:ty, $ty:expr;)* }) => {
        /// Builders of its columns.
        #[derive(Default)]
        pub(super) struct $name { $($column: $builder),* }

        impl Columns for $name {
            fn schema() -> SchemaRef {
                Arc::new(Schema::new(vec![$(Field::new(stringify!($column), $ty, true)),*]))
            }

            fn run(&mut self) -> &mut Text {
                &mut self.run
            }

            fn batch(&mut self) -> Result<RecordBatch, ArrowError> {
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

/// Fills one of the tables.
trait Filler: Listener + Default + Send + 'static {
    fn schema() -> SchemaRef;
    /// The rows so far, if they are enough for a batch or `all` are wanted.
    fn take(&mut self, names: &Replay, all: bool) -> Result<Option<RecordBatch>, ArrowError>;
}

/// Rows with the numbers of their runs, which the replay has names for.
#[derive(Default)]
struct Filled<B> {
    columns: B,
    runs: Vec<u32>,
}

impl<B: Columns> Filled<B> {
    /// The rows so far, if they are enough for a batch or `all` are wanted. `name`: of a run.
    fn take<'a>(
        &mut self,
        name: impl Fn(u32) -> &'a str,
        all: bool,
    ) -> Result<Option<RecordBatch>, ArrowError> {
        if self.runs.is_empty() || (!all && self.runs.len() < BATCH_ROWS) {
            return Ok(None);
        }
        for run in self.runs.drain(..) {
            self.columns.run().append_value(name(run));
        }
        self.columns.batch().map(Some)
    }
}

impl<B: Columns> Filler for Filled<B>
where
    Self: Listener,
{
    fn schema() -> SchemaRef {
        B::schema()
    }

    fn take(&mut self, names: &Replay, all: bool) -> Result<Option<RecordBatch>, ArrowError> {
        Self::take(self, |run| names.name(run), all)
    }
}

/// 0 stands for the default stream and pool, null in a table.
fn non_zero(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

impl Listener for Filled<Blocks> {
    fn block(&mut self, key: Key, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
        // What ends as it begins was no state to be in.
        if end == Some(block.ts) {
            return;
        }
        self.runs.push(key.run);
        let columns = &mut self.columns;
        columns.pid.append_value(key.pid);
        columns.device.append_value(key.device);
        columns.ts.append_value(block.ts);
        columns.dur.append_option(end.map(|end| end.saturating_sub(block.ts)));
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
        columns.alloc_ts.append_option(is_told.then_some(block.alloc_ts));
        columns.tid.append_option(is_told.then_some(block.tid));
        columns.stack.append_option(block.stack.filter(|_| is_told));
    }
}

impl Listener for Filled<Segments> {
    fn segment(&mut self, key: Key, segment: &Segment, end: Option<i64>) {
        if end == Some(segment.ts) {
            return;
        }
        self.runs.push(key.run);
        let columns = &mut self.columns;
        columns.pid.append_value(key.pid);
        columns.device.append_value(key.device);
        columns.ts.append_value(segment.ts);
        columns.dur.append_option(end.map(|end| end.saturating_sub(segment.ts)));
        columns.addr.append_value(segment.addr);
        columns.size_bytes.append_value(segment.size_bytes as i64);
        columns.is_expandable.append_value(segment.is_expandable);
        columns.is_small.append_value(segment.is_small);
        columns.stream.append_option(non_zero(segment.stream));
        columns.pool_owner.append_option(non_zero(segment.pool.0));
        columns.pool_id.append_option(non_zero(segment.pool.1));
        columns.alloc_ts.append_value(segment.alloc_ts);
        columns.tid.append_value(segment.tid);
        columns.stack.append_option(segment.stack);
    }
}

impl Listener for Filled<Curve> {
    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        if event.action == Action::Oom {
            return;
        }
        let is_usage = matches!(event.action, Action::UsageAlloc | Action::UsageFree);
        self.runs.push(key.run);
        let totals = allocator.totals();
        let columns = &mut self.columns;
        columns.pid.append_value(key.pid);
        columns.device.append_value(key.device);
        columns.ts.append_value(event.ts);
        columns.action.append_value(event.action.name());
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

/// Where the tables come from.
#[derive(Clone)]
struct Source {
    // Weak: the session owns the tables.
    state: Weak<RwLock<SessionState>>,
    runs: Arc<Vec<(String, Run)>>,
}

impl Source {
    /// A session with the events.
    fn context(&self) -> Result<SessionContext, DataFusionError> {
        let gone = || DataFusionError::Internal("the session of the memory tables is gone".to_owned());
        let state = self.state.upgrade().ok_or_else(gone)?.read().clone();
        Ok(SessionContext::new_with_state(state))
    }
}

/// One table.
struct Table<F> {
    source: Source,
    schema: SchemaRef,
    filler: std::marker::PhantomData<fn() -> F>,
}

impl<F> fmt::Debug for Table<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl<F: Filler> PartitionStream for Table<F> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let sender = builder.tx();
        let source = self.source.clone();
        builder.spawn(async move {
            let context = source.context()?;
            let mut replay = Replay::new(&source.runs, Vec::new());
            let mut filler = F::default();
            let mut input = replay.start(&context).await.map_err(external)?;
            while let Some(batch) = input.next().await {
                replay.batch(&batch?, &mut filler).map_err(external)?;
                if let Some(rows) = filler.take(&replay, false)? {
                    // Nobody may want the rest.
                    if sender.send(Ok(rows)).await.is_err() {
                        return Ok(());
                    }
                }
            }
            replay.finish(&mut filler);
            if let Some(rows) = filler.take(&replay, true)? {
                let _ = sender.send(Ok(rows)).await;
            }
            Ok(())
        });
        builder.build()
    }
}

fn external(error: AnalyzeError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn table<F: Filler>(source: &Source) -> Result<Arc<StreamingTable>, AnalyzeError> {
    let table = Table::<F> { source: source.clone(), schema: F::schema(), filler: std::marker::PhantomData };
    Ok(Arc::new(StreamingTable::try_new(F::schema(), vec![Arc::new(table)])?))
}

/// Registers the tables.
///
/// # Errors
/// If a name is taken: a defect of this program.
pub(crate) fn register(context: &SessionContext, files: &[RunFile]) -> Result<(), AnalyzeError> {
    let runs = files.iter().map(|file| (file.name.clone(), file.run.clone())).collect();
    let source = Source { state: context.state_weak_ref(), runs: Arc::new(runs) };
    let tables = [
        table::<Filled<Blocks>>(&source)?,
        table::<Filled<Segments>>(&source)?,
        table::<Filled<Curve>>(&source)?,
        table::<Filled<story::Pools>>(&source)?,
        table::<story::Told<story::Requests>>(&source)?,
        table::<story::Told<story::Releases>>(&source)?,
        table::<story::Told<story::Ooms>>(&source)?,
        device::table::<device::Ledger>(&source)?,
        device::table::<device::Pieces>(&source)?,
        device::table::<device::Paused>(&source)?,
    ];
    for (name, table) in NAMES.into_iter().zip(tables) {
        context.register_table(name, table)?;
    }
    Ok(())
}
