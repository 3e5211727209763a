//! When a series of runs changed.

use crate::{
    compare::{
        change::signed,
        samples::Level,
        trend::{Point, Series},
    },
    report::{
        document::{Block, Document, Table, number, whole, word},
        form::terminal::spark,
    },
};

/// Largest number of characters of a series' line.
const LINE: usize = 24;

fn row(series: &Series) -> [String; 4] {
    let (least, most) =
        series.values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
    let scaled: Vec<f64> =
        series.values.iter().map(|v| if most > least { (v - least) / (most - least) } else { 0.0 }).collect();
    let range = match series.values.is_empty() {
        true => "–".to_owned(),
        false => format!("{} to {}", series.key.show(least), series.key.show(most)),
    };
    let count = series.values.len();
    [series.key.to_string(), count.to_string(), range, spark(&scaled, count.min(LINE))]
}

fn change((series, point): (&Series, &Point)) -> [String; 6] {
    [
        point.run.clone(),
        series.key.to_string(),
        series.key.show(point.before),
        series.key.show(point.after),
        point.change_ratio.map_or_else(|| "from 0".to_owned(), signed),
        format!("{:.3}", point.p),
    ]
}

/// Returns each run's figure beside the level of the runs before it.
fn windows(all: &[Series]) -> Table {
    let row = |(series, place): (&Series, usize)| {
        let (window, value) = (series.windows[place], series.values[place]);
        let shown = |of: fn(Level) -> f64| {
            window.level.map_or_else(|| "–".to_owned(), |level| series.key.show(of(level)))
        };
        let verdict = match (window.is_outlier, window.is_worse) {
            (false, _) => "",
            (true, true) => "outlier, worse",
            (true, false) => "outlier, better",
        };
        [
            series.runs[place].clone(),
            series.key.to_string(),
            series.key.show(value),
            shown(|level| level.median),
            shown(|level| level.mad),
            verdict.to_owned(),
        ]
    };
    let columns =
        [word("run"), whole("figure"), number("value"), number("median"), number("MAD"), whole("outlier")];
    let places = all.iter().flat_map(|series| (0..series.windows.len()).map(move |place| (series, place)));
    Table::texts(&columns, places.map(row))
}

/// Says which runs are not in a series because the percentile rests on few calls there; `None` if all are.
fn few_calls(series: &Series) -> Option<Block> {
    let least = series.key.metric.declaration().min_calls?;
    let (count, key) = (series.few_calls_count, &series.key);
    let (runs, have) = if count == 1 { ("run", "has") } else { ("runs", "have") };
    (count > 0).then(|| {
        Block::Note(format!(
            "{key}: {count} {runs} {have} fewer than the {least} calls that it needs, and no value."
        ))
    })
}

/// Arranges the series and their change points.
pub fn document(all: &[Series]) -> Document {
    let columns = [whole("figure"), number("runs"), word("from"), whole("in order")];
    let points = all.iter().flat_map(|series| series.points.iter().map(move |point| (series, point)));
    let changes: Vec<[String; 6]> = points.map(change).collect();
    let changes = if changes.is_empty() {
        let is_known = all.iter().any(|series| !series.is_short());
        Block::Note(if is_known { "No change." } else { "Too few runs to tell levels apart." }.to_owned())
    } else {
        let columns = [
            word("changed with"),
            whole("figure"),
            number("before"),
            number("after"),
            number("by"),
            number("p"),
        ];
        Block::Table(Table::texts(&columns, changes))
    };
    let mut blocks = vec![Block::Table(Table::texts(&columns, all.iter().map(row)))];
    blocks.extend(all.iter().filter_map(few_calls));
    blocks.push(changes);
    if all.iter().any(|series| !series.windows.is_empty()) {
        blocks.push(Block::Table(windows(all)));
    }
    Document::answer(blocks)
}
