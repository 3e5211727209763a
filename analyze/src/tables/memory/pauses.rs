//! `_memory_pauses`: a table of the times at which a process paused or resumed memory of a device.

use analyze_engine::{derived_table::Writer, rows, rows::Word};
use analyze_memory::device::{input::Replay, pauses::Pause};
use trace_schema::Kind;

use super::device_replay::{OfDevices, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<PauseRows>("_memory_pauses", &[Kind::Call]);

rows! {
    /// A pause or a resume, from `ts` for `dur` (ns), with the memory of the process before and after.
    struct PauseRow<'a> => PauseRows {
        run: Word<'a>,
        pid: u32,
        tid: u32,
        ts: i64,
        dur: i64,
        action: Word<'a>,
        library: Word<'a>,
        size_bytes: i64,
        calls_count: i64,
        call_p50_ns: Option<i64>,
        call_max_ns: Option<i64>,
        before_bytes: i64,
        after_bytes: i64,
        missing_bytes: i64,
        missing_count: i64,
    }
}

impl OfDevices for PauseRows {
    type Entry = (u32, Pause);

    fn complete(replay: &mut Replay) -> Vec<Self::Entry> {
        std::mem::take(&mut replay.paused)
    }

    fn row(writer: &mut Writer<Self>, (run, pause): &Self::Entry, replay: &Replay) {
        let durs = pause.durs();
        writer.push(PauseRow {
            run: Word(replay.name(*run)),
            pid: pause.pid,
            tid: pause.tid,
            ts: pause.ts,
            dur: pause.end_ts().saturating_sub(pause.ts),
            action: Word(pause.way.name()),
            library: Word(replay.library(pause.library)),
            size_bytes: pause.bytes() as i64,
            calls_count: durs.len() as i64,
            // This is the lower median, so it is the duration of an actual call.
            call_p50_ns: durs.get(durs.len().saturating_sub(1) / 2).copied(),
            call_max_ns: durs.last().copied(),
            before_bytes: pause.before_bytes,
            after_bytes: pause.after_bytes(),
            missing_bytes: pause.missing_bytes as i64,
            missing_count: pause.missing_count as i64,
        });
    }
}
