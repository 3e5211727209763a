//! Phases that the workload named.

use super::{if_known, time};
use crate::{
    questions::phases::Phase,
    report::{
        data::Report,
        document::{Block, Row, Section, Table, number, word},
    },
};

/// Largest number of rows shown.
const SHOWN: usize = 40;

/// Builds the section; `None` if the workload named no phase.
pub(super) fn build(report: &Report) -> Option<Section> {
    let (phases, has_schedule) = (&report.phases, report.has_schedule);
    let row = |phase: &Phase| -> Row {
        vec![
            (&phase.phase).into(),
            phase.ranges_count.into(),
            time(phase.total_ns as f64).into(),
            phase.calls_count.into(),
            phase.launches_count.into(),
            time(phase.calls_ns as f64).into(),
            if_known(has_schedule, time(phase.scheduler_ns as f64)).into(),
            if_known(has_schedule, time(phase.blocked_ns as f64)).into(),
        ]
        .into()
    };
    let columns = [
        word("Phase"),
        number("Ranges"),
        number("Total"),
        number("Calls"),
        number("Launches"),
        number("In calls"),
        number("… waiting for a CPU"),
        number("… blocked"),
    ];
    let rows = phases.iter().take(SHOWN).map(row).collect();
    let note = "As the workload named them. A call belongs to the innermost range that it began in.";
    (!phases.is_empty()).then(|| Section {
        id: "phases",
        short: "Phases",
        question: "What did the workload's own phases cost?".to_owned(),
        blocks: vec![
            Block::Table(
                Table::new(&columns, rows, "SELECT * FROM phases ORDER BY total_ns DESC").of(phases.len()),
            ),
            Block::Note(note.to_owned()),
        ],
    })
}
