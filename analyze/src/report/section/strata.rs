//! All functions by group, largest total first.

use super::{percentile, time};
use crate::{
    questions::summary::Line,
    report::{
        data::Report,
        document::{Block, Row, Section, Table, number, word},
    },
};

/// Number of groups shown.
const SHOWN: usize = 60;

/// Builds the section.
pub(super) fn build(report: &Report) -> Option<Section> {
    let lines = &report.strata;
    let cell = |ns: Option<f64>| ns.map_or_else(|| "–".to_owned(), time);
    let row = |line: &Line| -> Row {
        let of_calls = |q: f64, ns: Option<f64>| {
            ns.map_or_else(|| "–".to_owned(), |ns| percentile(q, ns, line.calls_count))
        };
        vec![
            (&line.op).into(),
            line.stratum().into(),
            line.calls_count.into(),
            of_calls(0.5, line.p50_ns).into(),
            of_calls(0.9, line.p90_ns).into(),
            of_calls(0.99, line.p99_ns).into(),
            cell(line.max_ns.map(|ns| ns as f64)).into(),
            cell(line.total_ns.map(|ns| ns as f64)).into(),
        ]
        .into()
    };
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
