//! `_memory_pools`: a table of the memory of each pool of PyTorch's allocator after every event.

use analyze_engine::{rows, rows::Word};
use analyze_memory::{
    allocator::Allocator,
    event::{Action, Event},
    history::pool_of,
    input::Key,
};
use trace_schema::Kind;

use super::sink::{Replayed, Sink, non_zero, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<PoolRows>("_memory_pools", &[Kind::Alloc]);

rows! {
    /// The memory of a pool after an event at `ts` (ns).
    struct PoolRow<'a> => PoolRows {
        run: Word<'a>,
        pid: u32,
        device: i32,
        ts: i64,
        pool_owner: Option<u64>,
        pool_id: Option<u64>,
        stream: Option<u64>,
        is_small: bool,
        reserved_bytes: i64,
        active_bytes: i64,
        rounding_bytes: i64,
        free_bytes: i64,
        free_count: i64,
        largest_free_bytes: i64,
        pinned_bytes: i64,
        external_ratio: Option<f64>,
        concentration_ratio: Option<f64>,
    }
}

impl Replayed for PoolRows {
    const WANTS_POOLS: bool = true;

    fn after(sink: &mut Sink<Self>, key: Key, allocator: &Allocator, event: &Event) {
        // Memory that is still in use, even if only by another stream, is not free yet.
        // Calls of the driver alone do not tell what is free.
        if matches!(event.action, Action::FreeRequested | Action::Oom) || !allocator.knowledge().has_blocks {
            return;
        }
        let of = pool_of(allocator, event);
        let Some(pool) = allocator.pools().and_then(|pools| pools.get(&of)) else { return };
        sink.writer.push(PoolRow {
            run: Word(sink.runs.name(key.run)),
            pid: key.pid,
            device: key.device,
            ts: event.ts,
            pool_owner: non_zero(of.pool.0),
            pool_id: non_zero(of.pool.1),
            stream: non_zero(of.stream),
            is_small: of.is_small,
            reserved_bytes: pool.reserved_bytes as i64,
            active_bytes: pool.active_bytes as i64,
            rounding_bytes: pool.rounding_bytes as i64,
            free_bytes: pool.free_bytes as i64,
            free_count: pool.free_count() as i64,
            largest_free_bytes: pool.largest_free_bytes() as i64,
            pinned_bytes: pool.free_bytes.saturating_sub(pool.releasable_bytes) as i64,
            external_ratio: pool.external_ratio(),
            concentration_ratio: pool.concentration_ratio(),
        });
    }
}
