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

use std::{collections::HashMap, sync::Arc};

use analyze_engine::derived_table::Output;
use analyze_memory::{
    allocator::Allocator,
    event::{Action, Event},
    input::{Input, Key, Listener, Replay},
    span::{BEFORE, Block, Segment, State},
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Source;
use arrow::{
    array::{
        BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, RecordBatch, StringDictionaryBuilder,
        UInt32Builder, UInt64Builder,
    },
    datatypes::{DataType, Field, Int32Type, Schema, SchemaRef},
    error::ArrowError,
};
use trace_schema::Kind;

use super::TableDef;

/// The number of rows of one batch.
const BATCH_ROWS: usize = 8192;

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

pub mod device;
pub mod history;

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
    output: Output,
}

/// A listener that turns the events of a replay into rows.
trait Sink: Listener + 'static {
    fn schema() -> SchemaRef;
    fn new(output: Output) -> Self;
}

impl<C: Columns> Sink for Filler<C>
where
    Self: Listener,
{
    fn schema() -> SchemaRef {
        C::schema()
    }

    fn new(output: Output) -> Self {
        Self { columns: C::default(), runs: Vec::new(), began: HashMap::new(), output }
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
        self.output.send(&batch)
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

/// Replays the allocators of some runs for a sink.
async fn replay<S: Sink>(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let input = Input::new(Arc::clone(source.events()), source.files());
    input.replay(Vec::new(), S::new(output)).await.map(drop)
}

/// Defines a table that a sink of a replay fills.
const fn table<S: Sink>(name: &'static str, needs: &'static [Kind]) -> TableDef {
    TableDef { name, needs, schema: S::schema, make: |source, output| Box::pin(replay::<S>(source, output)) }
}

/// The table `_memory_blocks`.
pub const BLOCKS: TableDef = table::<Filler<Blocks>>("_memory_blocks", &[Kind::Alloc]);
/// The table `_memory_segments`.
pub const SEGMENTS: TableDef = table::<Filler<Segments>>("_memory_segments", &[Kind::Alloc]);
/// The table `_memory_curve`.
pub const CURVE: TableDef = table::<Filler<Curve>>("_memory_curve", &[Kind::Alloc]);
/// The table `_memory_faults`.
pub const FAULTS: TableDef = table::<Filler<Faults>>("_memory_faults", &[]);
