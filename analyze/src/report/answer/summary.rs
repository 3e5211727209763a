//! How often functions were called and how long they took.

use trace_schema::Nanos;

use crate::{
    questions::{phases::Phase, summary::Line},
    report::{
        document::{Block, Document, Table, number, word},
        section::{percentile, time},
    },
};

fn functions(lines: &[Line]) -> Table {
    let shown = |ns: Option<f64>| ns.map_or_else(|| "–".to_owned(), time);
    let row = |line: &Line| {
        let of_calls = |q: f64, ns: Option<f64>| {
            ns.map_or_else(|| "–".to_owned(), |ns| percentile(q, ns, line.calls_count))
        };
        [
            line.op.clone(),
            line.stratum(),
            line.calls_count.to_string(),
            of_calls(0.5, line.p50_ns),
            of_calls(0.9, line.p90_ns),
            of_calls(0.99, line.p99_ns),
            shown(line.max_ns.map(|ns| ns as f64)),
            shown(line.total_ns.map(|ns| ns as f64)),
        ]
    };
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
    Table::texts(&columns, lines.iter().map(row))
}

fn phases(phases: &[Phase]) -> Table {
    let time = |ns: i64| Nanos(ns).to_string();
    let row = |phase: &Phase| {
        [
            phase.phase.clone(),
            phase.ranges_count.to_string(),
            time(phase.total_ns),
            phase.calls_count.to_string(),
            time(phase.calls_ns),
            time(phase.scheduler_ns),
            time(phase.blocked_ns),
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
