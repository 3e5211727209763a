//! How often functions were called and how long they took.

use trace_schema::Nanos;

use crate::{
    questions::{phases::Phase, summary::Line},
    report::{
        document::{Block, Document, Table, number, word},
        section::{at_least, cells},
    },
};

fn functions(lines: &[Line]) -> Table {
    let columns = [
        word("op"),
        word("group"),
        number("n"),
        number("p50"),
        number("p90"),
        number("p99"),
        number("max"),
        number("total"),
    ];
    Table::texts(&columns, lines.iter().map(cells))
}

fn phases(phases: &[Phase]) -> Table {
    let if_recorded = |ns: Option<String>| ns.unwrap_or_else(|| "–".to_owned());
    let row = |phase: &Phase| {
        let least = |ns: i64| at_least(phase.is_partial, Nanos(ns));
        [
            phase.phase.clone(),
            phase.ranges_count.to_string(),
            Nanos(phase.total_ns).to_string(),
            at_least(phase.is_partial, phase.calls_count),
            least(phase.calls_ns),
            if_recorded(phase.scheduler_ns.map(least)),
            if_recorded(phase.blocked_ns.map(least)),
        ]
    };
    let columns = [
        word("phase"),
        number("n"),
        number("total"),
        number("calls"),
        number("in calls"),
        number("scheduler"),
        number("blocked"),
    ];
    Table::texts(&columns, phases.iter().map(row))
}

/// Arranges functions by group, and the workload's phases if it named any.
pub fn document(lines: &[Line], all_phases: &[Phase], warnings: Vec<String>) -> Document {
    let mut blocks = vec![Block::Table(functions(lines))];
    if !all_phases.is_empty() {
        blocks.push(Block::Table(phases(all_phases)));
    }
    blocks.push(Block::Warnings(warnings));
    Document::answer(blocks)
}
