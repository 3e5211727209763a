//! `_memory_faults`: a table of the number of events that contradict the replayed state of PyTorch's allocator.

use analyze_engine::{rows, rows::Word};
use analyze_memory::input::Replay;

use super::sink::{Replayed, Sink, table};
use crate::tables::def::TableDef;

pub(crate) const TABLE: TableDef = table::<FaultRows>("_memory_faults", &[]);

rows! {
    /// The number of events of an allocator that contradict its state in one way.
    struct FaultRow<'a> => FaultRows {
        run: Word<'a>,
        pid: u32,
        device: i32,
        problem: Word<'a>,
        events_count: i64,
    }
}

impl Replayed for FaultRows {
    fn finished(sink: &mut Sink<Self>, replay: &Replay) {
        for (key, allocator) in replay.allocators() {
            for (fault, count) in allocator.faults() {
                sink.writer.push(FaultRow {
                    run: Word(replay.name(key.run)),
                    pid: key.pid,
                    device: key.device,
                    problem: Word(fault.name()),
                    events_count: *count as i64,
                });
            }
        }
    }
}
