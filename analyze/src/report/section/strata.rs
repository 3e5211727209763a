//! All functions by group, largest total first.

use trace_schema::Nanos;

use super::{at_least, percentile};
use crate::{
    questions::summary::Line,
    report::{
        data::Report,
        document::{Block, Cell, Row, Section, Table, number, word},
    },
};

/// Number of groups shown.
const SHOWN: usize = 60;

/// Returns the cells of a group: its function, what distinguishes it, its number of calls, and their durations.
pub(in crate::report) fn cells(line: &Line) -> [String; 8] {
    let least =
        |ns: Option<i64>| ns.map_or_else(|| "–".to_owned(), |ns| at_least(line.is_partial, Nanos(ns)));
    let of_calls =
        |q: f64, ns: Option<f64>| ns.map_or_else(|| "–".to_owned(), |ns| percentile(q, ns, line.calls_count));
    [
        line.op.clone(),
        line.stratum(),
        at_least(line.is_partial, line.calls_count),
        of_calls(0.5, line.p50_ns),
        of_calls(0.9, line.p90_ns),
        of_calls(0.99, line.p99_ns),
        least(line.max_ns),
        least(line.total_ns),
    ]
}

pub(super) fn build(report: &Report) -> Option<Section> {
    let lines = &report.strata;
    let row = |line: &Line| Row::from(Vec::from(cells(line).map(Cell::from)));
    let columns = [
        word("Function"),
        word("Group"),
        number("Calls"),
        number("p50"),
        number("p90"),
        number("p99"),
        number("Longest"),
        number("Total"),
    ];
    let rows = lines.iter().take(SHOWN).map(row).collect();
    let table = Table::new(&columns, rows, "SELECT * FROM op_summary ORDER BY total_ns DESC").of(lines.len());
    Some(Section {
        id: "strata",
        short: "All calls",
        question: "How long did every kind of call take?".to_owned(),
        blocks: vec![Block::Table(table)],
    })
}
