//! How many runs are enough, and how often gates err.

use crate::{
    compare::simulate::{self, Line, Power},
    report::{
        document::{Block, Column, Document, Table, number, word},
        section::percent,
    },
};

fn shown(ratio: impl Into<Option<f64>>) -> String {
    ratio.into().map_or_else(|| "–".to_owned(), percent)
}

/// Arranges how often changes would be found with each number of runs a side. `runs_count` runs were recorded.
pub fn plan(powers: &[Power], runs_count: usize, comparisons: usize) -> Document {
    let changes: Vec<String> =
        simulate::CHANGES.iter().map(|change| format!("+{:.0}%", 100.0 * change)).collect();
    let mut columns = vec![number("runs a side"), number("false alarms"), number("undecided")];
    columns.extend(changes.iter().map(|change| Column { name: change.clone().into(), ..number("") }));
    let row = |power: &Power| {
        let first = [power.runs_a_side.to_string(), shown(power.false_ratio), shown(power.undecided_ratio)];
        let found = changes.iter().map(|change| shown(power.found.get(change).copied()));
        first.into_iter().chain(found).collect::<Vec<_>>()
    };
    let enough = |change: &String| {
        let enough = powers.iter().find(|power| power.found.get(change).is_some_and(|found| *found >= 0.9));
        match enough {
            Some(power) => format!("{change}: {} runs a side find it nine times in ten.", power.runs_a_side),
            None => format!(
                "{change}: not even {} runs a side find it nine times in ten.",
                simulate::RUNS[simulate::RUNS.len() - 1]
            ),
        }
    };
    Document::answer(vec![
        Block::Note(format!(
            "How often a change of all times would be found, by runs like these {runs_count} ({comparisons} simulated comparisons each):"
        )),
        Block::Table(Table::texts(&columns, powers.iter().map(row))),
        Block::List(changes.iter().map(enough).collect()),
    ])
}

/// Arranges how often comparisons called a regression.
pub fn calibration(lines: &[Line], comparisons: usize) -> Document {
    let row = |line: &Line| {
        [
            line.noise.name().to_owned(),
            line.runs_a_side.to_string(),
            format!("{:.0} %", 100.0 * line.change_ratio),
            shown(line.gates_ratio),
            shown(line.undecided_ratio),
            shown(line.pooled_ranks_ratio),
            shown(line.pooled_means_ratio),
            shown(line.percent_ratio),
        ]
    };
    let columns = [
        word("runs come from"),
        number("a side"),
        number("slower by"),
        number("gates"),
        number("undecided"),
        number("ranks of calls"),
        number("means of calls"),
        number("> 5 %"),
    ];
    Document::answer(vec![
        Block::Note(format!(
            "Share of {comparisons} comparisons called a regression; where nothing is slower, each is a false alarm:"
        )),
        Block::Table(Table::texts(&columns, lines.iter().map(row))),
    ])
}
