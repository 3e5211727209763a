//! The runs and figures of a baseline.

use trace_schema::Nanos;

use crate::{
    compare::{facts::RunFigures, figure::Key},
    report::document::{Block, Document, Table, number, whole, word},
};

/// Arranges the runs.
pub fn list(runs: &[RunFigures]) -> Document {
    let row = |run: &RunFigures| {
        let wall = run.figures.get(&Key::of("wall_ns", None, None));
        [
            run.name.clone(),
            run.figures.len().to_string(),
            wall.map_or_else(|| "–".to_owned(), |figure| Nanos(figure.value as i64).to_string()),
            run.facts.rows_count.to_string(),
            run.facts.lost_count.to_string(),
            run.facts.gpus.join(", "),
            run.facts.command.clone(),
        ]
    };
    let columns = [
        word("run"),
        number("figures"),
        number("wall"),
        number("events"),
        number("lost"),
        word("GPU"),
        word("command"),
    ];
    Document::answer(vec![Block::Table(Table::texts(&columns, runs.iter().map(row)))])
}

/// Arranges the figures of metrics whose names contain `metric`.
pub fn figures(runs: &[RunFigures], metric: &str) -> Document {
    let all = runs.iter().flat_map(|run| run.figures.iter().map(move |(key, figure)| (run, key, figure)));
    let shown = all.filter(|(_, key, _)| key.metric.name().contains(metric));
    let rows = shown.map(|(run, key, figure)| [run.name.clone(), key.to_string(), key.show(figure.value)]);
    let columns = [word("run"), whole("figure"), number("value")];
    Document::answer(vec![Block::Table(Table::texts(&columns, rows))])
}
