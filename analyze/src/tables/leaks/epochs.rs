//! `_memory_epochs`: a table with one row per allocator and bound of its epochs.

use analyze_engine::{derived_table::Writer, rows};
use analyze_memory::leaks::growth::Growth;

use super::of_growth::{OfGrowth, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<EpochRows>("_memory_epochs");

rows! {
    /// The memory of an allocator where an epoch ends.
    struct EpochRow<'a> => EpochRows {
        run: &'a str,
        pid: u32,
        device: i32,
        epoch: i64,
        ts: i64,
        is_warm_up: bool,
        live_bytes: i64,
        pending_bytes: i64,
        reserved_bytes: i64,
        releasable_bytes: i64,
        pinned_bytes: i64,
        unknown_bytes: i64,
        survived_count: i64,
        survived_bytes: i64,
    }
}

impl OfGrowth for EpochRows {
    fn add(writer: &mut Writer<Self>, growth: &Growth) {
        for (epoch, point) in growth.points.iter().enumerate() {
            writer.push(EpochRow {
                run: &growth.run,
                pid: growth.pid,
                device: growth.device,
                epoch: epoch as i64,
                ts: point.ts_ns,
                is_warm_up: epoch <= growth.warm_up_count,
                live_bytes: point.live_bytes,
                pending_bytes: point.pending_bytes,
                reserved_bytes: point.reserved_bytes,
                releasable_bytes: point.releasable_bytes,
                pinned_bytes: point.pinned_bytes,
                unknown_bytes: point.unknown_bytes,
                survived_count: point.survived_count as i64,
                survived_bytes: point.survived_bytes,
            });
        }
    }
}
