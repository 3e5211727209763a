//! The runs and figures of a baseline.

use trace_schema::Nanos;

use crate::{
    compare::{
        figure::Key,
        runs::{About, Runs},
    },
    report::document::{Block, Document, Table, number, whole, word},
};

/// Arranges the runs.
pub fn list(runs: &Runs) -> Document {
    let row = |(place, run): (usize, &About)| {
        let wall = runs.get(place, &Key::of("wall_ns", None, None));
        [
            run.name.clone(),
            run.figures_count.to_string(),
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
    Document::answer(vec![Block::Table(Table::texts(&columns, runs.each().iter().enumerate().map(row)))])
}

/// Arranges the figures of metrics whose names contain `metric`.
pub fn figures(runs: &Runs, metric: &str) -> Document {
    let figures = |(place, run)| runs.of_run(place).map(move |(key, figure)| (run, key, figure));
    let all = runs.each().iter().enumerate().flat_map(figures);
    let shown = all.filter(|(_, key, _)| key.metric.name().contains(metric));
    let rows = shown.map(|(run, key, figure)| [run.name.clone(), key.to_string(), key.show(figure.value)]);
    let columns = [word("run"), whole("figure"), number("value")];
    Document::answer(vec![Block::Table(Table::texts(&columns, rows))])
}
