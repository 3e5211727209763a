//! What the tables of a replay of PyTorch's allocator have in common. Rows come in the order in which their spans end; spans
//! that are still open at the end of the run come last.

use std::{collections::HashMap, sync::Arc};

use analyze_engine::{
    derived_table::{Output, Writer},
    rows::Rows,
};
use analyze_memory::{
    allocator::Allocator,
    event::Event,
    input::{Input, Key, Listener, Replay},
    span::{BEFORE, Block, Segment},
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Source;
use trace_schema::Kind;

use crate::tables::def::TableDef;

/// Rows that are made while allocators are replayed; the methods are those of [`Listener`], and do nothing by default.
pub(super) trait Replayed: Rows {
    /// Whether the rows need `Allocator::pools`, which the replay otherwise does not keep.
    const WANTS_POOLS: bool = false;

    /// Called when an allocator appears at `ts` (ns) that already held memory before its first event.
    fn began(_sink: &mut Sink<Self>, _key: Key, _allocator: &Allocator, _ts: i64) {}
    /// Called after an event was replayed.
    fn after(_sink: &mut Sink<Self>, _key: Key, _allocator: &Allocator, _event: &Event) {}
    /// Called when a block leaves its state.
    fn block(_: &mut Sink<Self>, _: Key, _block: &Block, _: Option<&Segment>, _end: Option<i64>) {}
    /// Called when a segment changes its extent or is released.
    fn segment(_sink: &mut Sink<Self>, _key: Key, _segment: &Segment, _end: Option<i64>) {}
    /// Called after the last event.
    fn finished(_sink: &mut Sink<Self>, _replay: &Replay) {}
}

/// The names of the runs that were read so far, by the run's number.
#[derive(Default)]
pub(super) struct Runs(Vec<String>);

impl Runs {
    /// Returns the name of a run, or an empty string if there is no such run.
    pub(super) fn name(&self, run: u32) -> &str {
        self.0.get(run as usize).map_or("", String::as_str)
    }
}

/// The listener that makes the rows of a table.
pub(super) struct Sink<R> {
    /// Where the rows go.
    pub(super) writer: Writer<R>,
    /// The names of the runs.
    pub(super) runs: Runs,
    /// The time (ns) at which the record of an allocator begins that was in use before.
    began: HashMap<Key, i64>,
}

impl<R> Sink<R> {
    /// Returns `ts`, or the time at which the record of the allocator begins if the span began before it.
    pub(super) fn since(&self, key: Key, ts: i64) -> i64 {
        match ts {
            BEFORE => self.began.get(&key).copied().unwrap_or_default(),
            ts => ts,
        }
    }
}

impl<R: Replayed> Listener for Sink<R> {
    const WANTS_POOLS: bool = R::WANTS_POOLS;

    fn run(&mut self, run: u32, name: &str) {
        let place = run as usize;
        self.runs.0.resize(self.runs.0.len().max(place + 1), String::new());
        name.clone_into(&mut self.runs.0[place]);
    }

    fn began(&mut self, key: Key, allocator: &Allocator, ts: i64) {
        self.began.insert(key, ts);
        R::began(self, key, allocator, ts);
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        R::after(self, key, allocator, event);
    }

    fn block(&mut self, key: Key, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
        // A state that ends at the time at which it begins is left out.
        if end != Some(block.ts) {
            R::block(self, key, block, segment, end);
        }
    }

    fn segment(&mut self, key: Key, segment: &Segment, end: Option<i64>) {
        if end != Some(segment.ts) {
            R::segment(self, key, segment, end);
        }
    }

    fn flush(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
        if all {
            R::finished(self, replay);
        }
        self.writer.send(all)
    }
}

/// Returns `None`, a null in a table, for 0, which stands for the default stream or pool.
pub(super) fn non_zero(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

/// Replays the allocators of some runs for a listener.
pub(super) async fn replay(source: &Source, listener: impl Listener + 'static) -> Result<(), AnalyzeError> {
    Input::new(Arc::clone(source.events()), source.files()).replay(Vec::new(), listener).await.map(drop)
}

async fn fill<R: Replayed>(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    let sink = Sink { writer: output.writer::<R>(), runs: Runs::default(), began: HashMap::new() };
    replay(&source, sink).await
}

/// Defines a table that a replay of allocators fills.
pub(super) const fn table<R: Replayed>(name: &'static str, needs: &'static [Kind]) -> TableDef {
    TableDef { name, needs, schema: R::schema, make: |source, output| Box::pin(fill::<R>(source, output)) }
}
