//! Figures over a series of runs: a dot per run, a line per level, and a vertical line where a level ends.

use plotters::element::{Circle, PathElement};

use super::{
    axis::Axis,
    backend::{Area, Failure, draw as drawing, fine},
    layout::{TICKS, caption, chart, filled, grid, stroke},
    mark::Mark,
};
use crate::{
    compare::{change::signed, trend::Series},
    report::svg::LINE,
};

/// Height of a figure's plot in pixels.
const HEIGHT: f64 = 90.0;
/// Height of a figure with its caption and its labels, in pixels.
const PANEL: f64 = LINE + HEIGHT + TICKS + 8.0;

/// Levels of a series: the first run of each, the run after its last, and its median.
fn levels(series: &Series) -> Vec<(usize, usize, f64)> {
    let starts = [0].into_iter().chain(series.points.iter().map(|point| point.place));
    let ends = series.points.iter().map(|point| point.place).chain([series.values.len()]);
    let first = series.points.first().map(|point| point.before);
    let medians = first.into_iter().chain(series.points.iter().map(|point| point.after));
    starts.zip(ends).zip(medians).map(|((start, end), median)| (start, end, median)).collect()
}

/// Draws one figure over its runs.
fn panel(area: &Area<'_>, series: &Series) -> Result<(), Failure> {
    let count = series.values.len();
    let (least, most) = series
        .values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(*value), b.max(*value)));
    let changes = match series.points.len() {
        0 if series.is_short() => "too few runs".to_owned(),
        0 => "no change".to_owned(),
        1 => "1 change".to_owned(),
        changes => format!("{changes} changes"),
    };
    caption(area, 0.0, &series.key.to_string(), &changes)?;
    if count == 0 {
        return Ok(());
    }
    // Each run has the room of one on the axis; its number, from 1, is in the middle. Before the first is room
    // for the labels of heights.
    let every = count.div_ceil(8);
    let numbers = (0..count).step_by(every).map(|run| (run as f64 + 0.5, format!("run {}", run + 1)));
    let x = Axis::linear(-0.1 * count as f64..count as f64, numbers.collect());
    let room = if most > least { (most - least) * 0.12 } else { most.abs().max(1.0) * 0.1 };
    let (low, high) = (least - room, most + 2.0 * room);
    let mut heights = vec![(least, series.key.show(least))];
    if most > least {
        heights.push((most, series.key.show(most)));
    }
    let (_, below) = area.split_vertically(fine(LINE));
    let (own, _) = below.split_vertically(fine(HEIGHT + TICKS));
    let mut chart = chart(&own, (x, Axis::linear(low..high, heights)), true)?;
    grid(&mut chart)?;
    for (start, end, median) in levels(series) {
        let title = format!("runs {} to {end}: median {}", start + 1, series.key.show(median));
        let line = PathElement::new(vec![(start as f64, median), (end as f64, median)], stroke(2));
        chart.draw_series([Mark::new("pass", title, line)])?;
    }
    for point in &series.points {
        let by = point.change_ratio.map_or_else(|| "from 0".to_owned(), signed);
        let (before, after) = (series.key.show(point.before), series.key.show(point.after));
        let title = format!("from {} on: {before} to {after}, {by} (p = {:.3})", point.run, point.p);
        let place = point.place as f64;
        let line = PathElement::new(vec![(place, low), (place, high)], stroke(2));
        chart.draw_series([Mark::new("regression", title, line)])?;
    }
    let dots = series.runs.iter().zip(&series.values).enumerate().map(|(number, (run, value))| {
        let dot = Circle::new((number as f64 + 0.5, *value), fine(3.0), filled());
        Mark::new("host", format!("{run}: {}", series.key.show(*value)), dot)
    });
    chart.draw_series(dots).map(|_| ())
}

/// Draws figures over a series of runs, below one another, with their change points, as an SVG file.
pub fn draw(all: &[Series]) -> String {
    drawing("Figures over a series of runs, with their change points", PANEL * all.len() as f64, |area| {
        let mut rest = area.clone();
        for series in all {
            let (own, below) = rest.split_vertically(fine(PANEL));
            panel(&own, series)?;
            rest = below;
        }
        Ok(())
    })
}
