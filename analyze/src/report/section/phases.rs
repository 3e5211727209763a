//! Phases that the workload named.

use super::{at_least, time};
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
    let phases = &report.phases;
    let if_recorded = |ns: Option<String>| ns.unwrap_or_else(|| "–".to_owned());
    let row = |phase: &Phase| -> Row {
        let least = |ns: i64| at_least(phase.is_partial, time(ns as f64));
        vec![
            (&phase.phase).into(),
            phase.ranges_count.into(),
            time(phase.total_ns as f64).into(),
            at_least(phase.is_partial, phase.calls_count).into(),
            at_least(phase.is_partial, phase.launches_count).into(),
            least(phase.calls_ns).into(),
            if_recorded(phase.scheduler_ns.map(least)).into(),
            if_recorded(phase.blocked_ns.map(least)).into(),
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
