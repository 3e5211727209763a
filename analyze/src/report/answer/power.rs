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
    let decided = match powers.iter().find(|power| power.undecided_ratio <= 0.1) {
        Some(power) => format!("No change: {} runs a side decide nine times in ten.", power.runs_a_side),
        None => format!(
            "No change: not even {} runs a side decide nine times in ten. More runs do, and so do gates with larger limits and a --resolution.",
            simulate::RUNS[simulate::RUNS.len() - 1]
        ),
    };
    Document::answer(vec![
        Block::Note(format!(
            "How often a change of all times would be found, by runs like these {runs_count} ({comparisons} simulated comparisons each). Without a change a gate passes once its interval excludes one beyond its limit; until then it is undecided:"
        )),
        Block::Table(Table::texts(&columns, powers.iter().map(row))),
        Block::List(changes.iter().map(enough).chain([decided]).collect()),
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
            shown(line.false_pass_ratio),
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
        number("false passes"),
        number("ranks of calls"),
        number("means of calls"),
        number("> 5 %"),
    ];
    Document::answer(vec![
        Block::Note(format!(
            "Share of {comparisons} comparisons called a regression; where nothing is slower, each is a false alarm. In a false pass a gate on a time passes although the change is beyond its limit:"
        )),
        Block::Table(Table::texts(&columns, lines.iter().map(row))),
    ])
}
