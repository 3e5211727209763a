//! `_memory_segments`: a table of every segment of PyTorch's allocator, with the time for which it had one extent.

use analyze_engine::{rows, rows::Word};
use analyze_memory::{
    input::Key,
    span::{BEFORE, Segment},
};
use trace_schema::Kind;

use super::sink::{Replayed, Sink, non_zero, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<SegmentRows>("_memory_segments", &[Kind::Alloc]);

rows! {
    /// A segment with one extent, from `ts` for `dur` (ns).
    struct SegmentRow<'a> => SegmentRows {
        run: Word<'a>,
        pid: u32,
        device: i32,
        ts: i64,
        dur: Option<i64>,
        addr: u64,
        size_bytes: i64,
        is_expandable: bool,
        is_small: bool,
        stream: Option<u64>,
        pool_owner: Option<u64>,
        pool_id: Option<u64>,
        alloc_ts: Option<i64>,
        tid: Option<u32>,
        stack: Option<u32>,
        is_left_censored: bool,
    }
}

impl Replayed for SegmentRows {
    fn segment(sink: &mut Sink<Self>, key: Key, segment: &Segment, end: Option<i64>) {
        let since = sink.since(key, segment.ts);
        let is_dated = segment.alloc_ts != BEFORE;
        sink.writer.push(SegmentRow {
            run: Word(sink.runs.name(key.run)),
            pid: key.pid,
            device: key.device,
            ts: since,
            dur: end.map(|end| end.saturating_sub(since)),
            addr: segment.addr,
            size_bytes: segment.size_bytes as i64,
            is_expandable: segment.is_expandable,
            is_small: segment.is_small,
            stream: non_zero(segment.stream),
            pool_owner: non_zero(segment.pool.0),
            pool_id: non_zero(segment.pool.1),
            alloc_ts: is_dated.then_some(segment.alloc_ts),
            tid: is_dated.then_some(segment.tid),
            stack: segment.stack,
            is_left_censored: segment.ts == BEFORE,
        });
    }
}
