//! `_memory_blocks`: a table of every block of PyTorch's allocator, with the time for which it was in one state.

use analyze_engine::{rows, rows::Word};
use analyze_memory::{
    input::Key,
    span::{BEFORE, Block, Segment, State},
};
use trace_schema::Kind;

use super::sink::{Replayed, Sink, non_zero, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<BlockRows>("_memory_blocks", &[Kind::Alloc]);

rows! {
    /// A block in one state, from `ts` for `dur` (ns).
    struct BlockRow<'a> => BlockRows {
        run: Word<'a>,
        pid: u32,
        device: i32,
        ts: i64,
        dur: Option<i64>,
        state: Word<'a>,
        addr: u64,
        size_bytes: i64,
        requested_bytes: Option<i64>,
        segment_addr: Option<u64>,
        stream: Option<u64>,
        pool_owner: Option<u64>,
        pool_id: Option<u64>,
        alloc_ts: Option<i64>,
        tid: Option<u32>,
        stack: Option<u32>,
        is_left_censored: bool,
    }
}

impl Replayed for BlockRows {
    fn block(sink: &mut Sink<Self>, key: Key, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
        let since = sink.since(key, block.ts);
        let is_told = !matches!(block.state, State::Inactive | State::Unknown);
        let is_dated = is_told && block.alloc_ts != BEFORE;
        let (owner, id) = segment.map(|segment| segment.pool).unwrap_or_default();
        sink.writer.push(BlockRow {
            run: Word(sink.runs.name(key.run)),
            pid: key.pid,
            device: key.device,
            ts: since,
            dur: end.map(|end| end.saturating_sub(since)),
            state: Word(block.state.name()),
            addr: block.addr,
            size_bytes: block.size_bytes as i64,
            requested_bytes: block.requested_bytes.filter(|_| is_told).map(|bytes| bytes as i64),
            segment_addr: segment.map(|segment| segment.addr),
            stream: non_zero(block.stream),
            pool_owner: non_zero(owner),
            pool_id: non_zero(id),
            alloc_ts: is_dated.then_some(block.alloc_ts),
            tid: is_dated.then_some(block.tid),
            stack: block.stack.filter(|_| is_told),
            is_left_censored: block.ts == BEFORE,
        });
    }
}
