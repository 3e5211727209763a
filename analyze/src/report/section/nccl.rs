//! Time that NCCL operations took on the threads that enqueued them.

use super::{percentile, size, time};
use crate::{
    questions::nccl::Volume,
    report::{
        data::Report,
        document::{Block, Row, Section, Table, number, word},
    },
};

/// Number of rows shown.
const SHOWN: usize = 40;

pub(super) fn build(report: &Report) -> Option<Section> {
    let volumes = &report.nccl;
    let row = |volume: &Volume| -> Row {
        let unknown = || "not known".to_owned();
        vec![
            volume.op.as_str().into(),
            volume.pid.into(),
            volume.rank.map_or_else(unknown, |rank| rank.to_string()).into(),
            volume.communicator.map_or_else(unknown, |handle| format!("{handle:#x}")).into(),
            volume.calls_count.into(),
            volume.volume_bytes.map_or_else(unknown, size).into(),
            volume.call_ns.map_or_else(unknown, |ns| time(ns as f64)).into(),
            volume.p99_call_ns.map_or_else(unknown, |ns| percentile(0.99, ns, volume.calls_count)).into(),
        ]
        .into()
    };
    let columns = [
        word("Operation"),
        number("Process"),
        number("Rank"),
        word("Communicator"),
        number("Calls"),
        number("Bytes of one rank"),
        number("Time enqueuing"),
        number("p99 of one call"),
    ];
    let sql = "SELECT * FROM nccl_volume ORDER BY call_ns DESC, pid, communicator, op";
    let blocks = if volumes.is_empty() {
        vec![Block::Note("No collective or point-to-point call of NCCL is on record.".to_owned())]
    } else {
        vec![
            Block::Table(
                Table::new(&columns, volumes.iter().take(SHOWN).map(row).collect(), sql).of(volumes.len()),
            ),
            Block::Note(
                "The calls enqueue operations. How long these took on the GPUs, and therefore the bus bandwidth, is not measured; nor is the skew of ranks known: a communicator's handle means something within its own process only, so that the ranks of an operation are not known."
                    .to_owned(),
            ),
        ]
    };
    let question = "What did collective operations cost?".to_owned();
    Some(Section { id: "nccl", short: "NCCL", question, blocks })
}
