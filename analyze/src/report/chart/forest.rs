//! Forest plot of gates: each row is the change of one gate's figure with its confidence interval, on one
//! axis with no change in the middle.

use plotters::element::{ErrorBar, PathElement};

use super::{
    axis::Axis,
    backend::{draw as drawing, fine},
    layout::{TICKS, caption, chart, grid, stroke, verticals},
    mark::Mark,
    ticks,
};
use crate::{
    compare::{
        change::signed,
        gate::Limit,
        judge::{Judged, Outcome},
    },
    report::svg::LINE,
};

/// Height of a row with its caption, in pixels.
const ROW: f64 = LINE + 18.0;
/// Place of a row's marks within it, from its top, as a share of its height.
const MIDDLE: f64 = (LINE + 8.0) / ROW;
/// Largest relative change that is drawn; larger ones are clamped to it.
const MOST: f64 = 2.0;

/// Ends of a gate's confidence interval.
fn ends(gate: &Judged) -> Option<(f64, f64)> {
    gate.change.as_ref().and_then(|change| change.low_ratio.zip(change.high_ratio))
}

/// Relative change at which a gate fails.
fn limit(gate: &Judged) -> Option<f64> {
    match gate.gate.limit {
        Limit::Ratio(limit) if gate.gate.may_not_fall => Some(-limit),
        Limit::Ratio(limit) => Some(limit),
        Limit::By(_) => None,
    }
}

/// Draws the gates whose change has a confidence interval.
pub(in crate::report) fn draw(gates: &[&Judged]) -> String {
    let gates: Vec<(&Judged, (f64, f64))> =
        gates.iter().filter_map(|gate| Some((*gate, ends(gate)?))).collect();
    let ends = gates.iter().flat_map(|(gate, (low, high))| [Some(*low), Some(*high), limit(gate)]);
    let reach = ends.flatten().map(f64::abs).fold(0.02, f64::max).min(MOST) * 1.02;
    let x = Axis::linear(-reach..reach, ticks::changes(reach));
    let rows = gates.len().max(1) as f64;
    drawing("Change of each gate's figure with its interval", ROW * rows + TICKS, |area| {
        // Rows count from the top.
        let mut chart = chart(area, (x.clone(), Axis::linear(rows..0.0, Vec::new())), true)?;
        verticals(&mut chart, &x, (0.0, rows))?;
        grid(&mut chart)?;
        let unchanged = PathElement::new(vec![(0.0, 0.0), (0.0, rows)], stroke(1));
        chart.draw_series([Mark::new("used", "no change, 0 %", unchanged)])?;
        for (number, (gate, (low, high))) in gates.iter().enumerate() {
            let class = match gate.outcome {
                Outcome::Regression => "regression",
                Outcome::Pass => "pass",
                Outcome::Inconclusive | Outcome::Suspect => "not-known",
            };
            let change = gate.change.as_ref();
            let shown = change.map_or_else(String::new, |change| change.shown());
            let (row, name) = (number as f64, gate.key.to_string());
            caption(area, ROW * row, &name, &shown)?;
            let at = row + MIDDLE;
            if let Some(limit) = limit(gate) {
                let title = format!("{name}: limit {}", signed(limit));
                let line = PathElement::new(vec![(limit, at - 0.22), (limit, at + 0.22)], stroke(2));
                chart.draw_series([Mark::new("used", title, line)])?;
            }
            let title = format!("{name}: {shown}, 95 % interval {} to {}", signed(*low), signed(*high));
            let estimate = change.and_then(|change| change.change_ratio);
            match estimate {
                Some(ratio) => {
                    let bar = ErrorBar::new_horizontal(at, *low, ratio, *high, stroke(2), fine(10.0) as u32);
                    chart.draw_series([Mark::new(class, title, bar)])?
                }
                None => {
                    let ends = PathElement::new(vec![(*low, at), (*high, at)], stroke(2));
                    chart.draw_series([Mark::new(class, title, ends)])?
                }
            };
        }
        Ok(())
    })
}
