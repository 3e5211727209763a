//! `_memory_curve`: a table of the totals of PyTorch's allocator after every event.

use analyze_engine::{rows, rows::Word};
use analyze_memory::{
    allocator::Allocator,
    event::{Action, Event},
    input::Key,
};
use trace_schema::Kind;

use super::sink::{Replayed, Sink, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<CurveRows>("_memory_curve", &[Kind::Alloc]);

rows! {
    /// The totals of an allocator after an event at `ts` (ns). Usage reports do not tell all of them, and calls of the driver
    /// alone tell segments, but not the blocks in them; without such calls, usage reports tell no segments.
    struct CurveRow<'a> => CurveRows {
        run: Word<'a>,
        pid: u32,
        device: i32,
        ts: i64,
        action: Word<'a>,
        requested_bytes: Option<i64>,
        reserved_bytes: Option<i64>,
        allocated_bytes: Option<i64>,
        active_bytes: Option<i64>,
        inactive_split_bytes: Option<i64>,
        releasable_bytes: Option<i64>,
        private_releasable_bytes: Option<i64>,
        unknown_bytes: i64,
        segments_count: Option<i64>,
    }
}

fn push(sink: &mut Sink<CurveRows>, key: Key, allocator: &Allocator, ts: i64, action: &str, is_usage: bool) {
    let totals = allocator.totals();
    let (has_blocks, has_segments) = (allocator.knowledge().has_blocks, allocator.knowledge().has_segments);
    let of_blocks = |bytes| has_blocks.then_some(bytes);
    let of_segments = |value| has_segments.then_some(value);
    let of_both = |bytes| (has_blocks && has_segments).then_some(bytes);
    let of_events = |bytes| (has_blocks && !is_usage).then_some(bytes);
    sink.writer.push(CurveRow {
        run: Word(sink.runs.name(key.run)),
        pid: key.pid,
        device: key.device,
        ts,
        action: Word(action),
        requested_bytes: of_events(totals.requested_bytes),
        reserved_bytes: of_segments(totals.reserved_bytes),
        allocated_bytes: of_blocks(totals.allocated_bytes),
        active_bytes: of_events(totals.active_bytes),
        inactive_split_bytes: of_events(totals.inactive_split_bytes),
        releasable_bytes: of_both(totals.releasable_bytes),
        private_releasable_bytes: of_both(totals.private_releasable_bytes),
        unknown_bytes: totals.unknown_bytes,
        segments_count: of_segments(totals.segments_count),
    });
}

impl Replayed for CurveRows {
    fn began(sink: &mut Sink<Self>, key: Key, allocator: &Allocator, ts: i64) {
        push(sink, key, allocator, ts, "state", false);
    }

    fn after(sink: &mut Sink<Self>, key: Key, allocator: &Allocator, event: &Event) {
        if event.action != Action::Oom {
            let is_usage = matches!(event.action, Action::UsageAlloc | Action::UsageFree);
            push(sink, key, allocator, event.ts, event.action.name(), is_usage);
        }
    }
}
