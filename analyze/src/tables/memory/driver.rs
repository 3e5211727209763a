//! `_memory_driver`: a table of every range of memory that a process reserved from the driver.

use analyze_engine::{derived_table::Writer, rows, rows::Word};
use analyze_memory::device::input::{Ended, Replay};
use trace_schema::Kind;

use super::{
    device_replay::{OfDevices, table},
    sink::non_zero,
};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<AllocationRows>("_memory_driver", &[Kind::Call]);

rows! {
    /// A range of memory that was reserved from `ts` for `dur` (ns).
    struct AllocationRow<'a> => AllocationRows {
        run: Word<'a>,
        pid: u32,
        tid: u32,
        device: Option<i32>,
        ts: i64,
        dur: Option<i64>,
        library: Word<'a>,
        manner: Word<'a>,
        addr: Option<u64>,
        size_bytes: i64,
    }
}

impl OfDevices for AllocationRows {
    type Entry = Ended;

    fn complete(replay: &mut Replay) -> Vec<Self::Entry> {
        std::mem::take(&mut replay.ended)
    }

    fn row(writer: &mut Writer<Self>, ended: &Self::Entry, replay: &Replay) {
        let piece = &ended.piece;
        writer.push(AllocationRow {
            run: Word(replay.name(ended.run)),
            pid: ended.pid,
            tid: piece.tid,
            device: ended.device,
            ts: piece.ts,
            dur: ended.end.map(|end| end.saturating_sub(piece.ts)),
            library: Word(replay.library(piece.library)),
            manner: Word(piece.manner.name()),
            addr: non_zero(piece.addr),
            size_bytes: piece.size_bytes as i64,
        });
    }
}
