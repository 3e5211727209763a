//! What the tables of the history of PyTorch's allocator have in common: why segments were allocated and released, what each
//! release returned to the driver, and every failed request.

use std::{sync::Arc, vec::Drain};

use analyze_engine::{
    derived_table::{Output, Writer},
    rows::Rows,
};
use analyze_memory::{
    allocator::Allocator,
    event::Event,
    history::History,
    input::{IpcCollect, Key, Listener, Replay},
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::derived::Source;
use trace_schema::Kind;

use super::sink::replay;
use crate::tables::def::TableDef;

/// Rows that are made of one kind of entries of a [`History`].
pub(super) trait HistoryRows: Rows {
    /// The entry that one row describes.
    type Entry;
    /// Takes the entries so far.
    fn entries(history: &mut History) -> Drain<'_, Self::Entry>;
    /// Adds the row of an entry.
    fn row(writer: &mut Writer<Self>, entry: &Self::Entry, replay: &Replay);
}

/// The listener that makes the rows of a table.
struct Sink<R> {
    history: History,
    writer: Writer<R>,
}

impl<R: HistoryRows> Listener for Sink<R> {
    const WANTS_POOLS: bool = true;

    fn before(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        self.history.before(key, allocator, event);
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        self.history.after(key, allocator, event);
    }

    fn empty_cache(&mut self, run: u32, pid: u32, tid: u32, ts: i64, replay: &Replay) {
        self.history.empty_cache(run, pid, tid, ts, replay);
    }

    fn ipc_collect(&mut self, run: u32, pid: u32, call: &IpcCollect, is_whole: bool, replay: &Replay) {
        self.history.ipc_collect(run, pid, call, is_whole, replay);
    }

    fn handle_closed(&mut self, run: u32, pid: u32, tid: u32, ts: i64, addr: u64, is_driver: bool) {
        self.history.handle_closed(run, pid, tid, ts, addr, is_driver);
    }

    fn refused(&mut self, run: u32, pid: u32, tid: u32) {
        self.history.refused(run, pid, tid);
    }

    fn end(&mut self) {
        self.history.end();
    }

    fn flush(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
        for entry in R::entries(&mut self.history) {
            R::row(&mut self.writer, &entry, replay);
        }
        // Entries of other kinds belong to other tables.
        self.history.forget();
        self.writer.send(all)
    }
}

async fn fill<R: HistoryRows>(source: Arc<Source>, output: Output) -> Result<(), AnalyzeError> {
    replay(&source, Sink { history: History::default(), writer: output.writer::<R>() }).await
}

/// Defines a table that the history of allocators fills.
pub(super) const fn table<R: HistoryRows>(name: &'static str) -> TableDef {
    TableDef {
        name,
        needs: &[Kind::Alloc],
        schema: R::schema,
        make: |source, output| Box::pin(fill::<R>(source, output)),
    }
}
