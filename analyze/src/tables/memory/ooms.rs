//! `_memory_ooms`: a table of the requests that PyTorch's allocator could not serve.

use std::vec::Drain;

use analyze_engine::{derived_table::Writer, rows, rows::Word};
use analyze_memory::{history::History, input::Replay, oom::Oom};

use super::{
    history::{HistoryRows, table},
    sink::non_zero,
};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<OomRows>("_memory_ooms");

rows! {
    /// A failed request at `ts` (ns), with the memory that was there.
    struct OomRow<'a> => OomRows {
        run: Word<'a>,
        pid: u32,
        device: i32,
        ts: i64,
        tid: u32,
        requested_bytes: i64,
        block_bytes: i64,
        segment_bytes: i64,
        device_free_bytes: i64,
        is_limited: bool,
        stream: Option<u64>,
        reserved_bytes: i64,
        allocated_bytes: i64,
        pending_bytes: i64,
        pinned_bytes: i64,
        private_bytes: i64,
        pool_free_bytes: i64,
        largest_free_bytes: i64,
        other_stream_bytes: i64,
        is_expandable: bool,
        expandable_helps: Option<bool>,
        hole_addr: Option<u64>,
        hole_bytes: Option<i64>,
        hole_in_use_bytes: Option<i64>,
        hole_in_use_count: Option<i64>,
        segments_count: Option<i64>,
        segments_in_use_bytes: Option<i64>,
        segments_in_use_count: Option<i64>,
    }
}

impl HistoryRows for OomRows {
    type Entry = Oom;

    fn entries(history: &mut History) -> Drain<'_, Oom> {
        history.ooms.drain(..)
    }

    fn row(writer: &mut Writer<Self>, oom: &Oom, replay: &Replay) {
        let (key, totals, before) = (oom.key, &oom.totals, &oom.before);
        writer.push(OomRow {
            run: Word(replay.name(key.run)),
            pid: key.pid,
            device: key.device,
            ts: oom.ts,
            tid: oom.tid,
            requested_bytes: oom.requested_bytes as i64,
            block_bytes: oom.block_bytes as i64,
            segment_bytes: oom.segment_bytes as i64,
            device_free_bytes: oom.device_free_bytes as i64,
            is_limited: oom.is_limited(),
            stream: non_zero(oom.pool.stream),
            reserved_bytes: totals.reserved_bytes,
            allocated_bytes: totals.allocated_bytes,
            pending_bytes: totals.active_bytes - totals.allocated_bytes,
            pinned_bytes: oom.pinned_bytes as i64,
            private_bytes: totals.private_releasable_bytes,
            pool_free_bytes: before.free_bytes as i64,
            largest_free_bytes: before.largest_free_bytes as i64,
            other_stream_bytes: before.other_stream_bytes as i64,
            is_expandable: oom.is_expandable,
            expandable_helps: oom.expandable_helps,
            hole_addr: oom.hole.map(|hole| hole.addr),
            hole_bytes: oom.hole.map(|hole| hole.size_bytes as i64),
            hole_in_use_bytes: oom.hole.map(|hole| hole.in_use_bytes as i64),
            hole_in_use_count: oom.hole.map(|hole| hole.in_use_count as i64),
            segments_count: oom.segments.map(|of| of.segments_count as i64),
            segments_in_use_bytes: oom.segments.map(|of| of.in_use_bytes as i64),
            segments_in_use_count: oom.segments.map(|of| of.in_use_count as i64),
        });
    }
}
