//! `_memory_requests`: a table of every segment that PyTorch's allocator allocated or released, and why.

use std::vec::Drain;

use analyze_engine::{derived_table::Writer, rows, rows::Word};
use analyze_memory::{
    history::{Change, History},
    input::Replay,
};

use super::{
    history::{HistoryRows, table},
    sink::non_zero,
};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<RequestRows>("_memory_requests");

rows! {
    /// A change of the segments at `ts` (ns), with its pool before the change.
    struct RequestRow<'a> => RequestRows {
        run: Word<'a>,
        pid: u32,
        device: i32,
        ts: i64,
        tid: u32,
        action: Word<'a>,
        cause: Word<'a>,
        addr: u64,
        size_bytes: i64,
        pool_owner: Option<u64>,
        pool_id: Option<u64>,
        stream: Option<u64>,
        is_small: bool,
        requested_bytes: Option<i64>,
        block_bytes: Option<i64>,
        pool_reserved_bytes: i64,
        pool_peak_bytes: i64,
        pool_free_bytes: i64,
        largest_free_bytes: i64,
        other_stream_bytes: i64,
        stack: Option<u32>,
    }
}

impl HistoryRows for RequestRows {
    type Entry = Change;

    fn entries(history: &mut History) -> Drain<'_, Change> {
        history.changes.drain(..)
    }

    fn row(writer: &mut Writer<Self>, change: &Change, replay: &Replay) {
        let (key, pool, before) = (change.key, &change.pool, &change.before);
        let request = change.request.as_ref();
        writer.push(RequestRow {
            run: Word(replay.name(key.run)),
            pid: key.pid,
            device: key.device,
            ts: change.ts,
            tid: change.tid,
            action: Word(change.action.name()),
            cause: Word(change.cause.name()),
            addr: change.addr,
            size_bytes: change.size_bytes as i64,
            pool_owner: non_zero(pool.pool.0),
            pool_id: non_zero(pool.pool.1),
            stream: non_zero(pool.stream),
            is_small: pool.is_small,
            requested_bytes: request.map(|request| request.requested_bytes as i64),
            block_bytes: request.map(|request| request.block_bytes as i64),
            pool_reserved_bytes: before.reserved_bytes as i64,
            pool_peak_bytes: before.peak_bytes as i64,
            pool_free_bytes: before.free_bytes as i64,
            largest_free_bytes: before.largest_free_bytes as i64,
            other_stream_bytes: before.other_stream_bytes as i64,
            stack: request.and_then(|request| request.stack),
        });
    }
}
