//! `_memory_ledger`: a table of every reading of a device's used memory, split among the processes and libraries that hold it.

use analyze_engine::{derived_table::Writer, rows, rows::Word};
use analyze_memory::device::{input::Replay, ledger::Account};
use trace_schema::Kind;

use super::device_replay::{OfDevices, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<LineRows>("_memory_ledger", &[Kind::Sample]);

rows! {
    /// A part of the used memory of a device at `ts` (ns).
    struct LineRow<'a> => LineRows {
        run: Word<'a>,
        ts: i64,
        device: i32,
        part: Word<'a>,
        pid: Option<u32>,
        library: Option<Word<'a>>,
        size_bytes: i64,
    }
}

impl OfDevices for LineRows {
    type Entry = (u32, Account);

    fn complete(replay: &mut Replay) -> Vec<Self::Entry> {
        std::mem::take(&mut replay.accounts)
    }

    fn row(writer: &mut Writer<Self>, (run, account): &Self::Entry, replay: &Replay) {
        for line in &account.lines {
            writer.push(LineRow {
                run: Word(replay.name(*run)),
                ts: account.ts,
                device: account.device,
                part: Word(replay.part(line).name()),
                pid: line.pid,
                library: line.library.map(|library| Word(replay.library(library))),
                size_bytes: line.bytes,
            });
        }
    }
}
