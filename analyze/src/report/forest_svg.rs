//! Draws gates as a forest plot: each row is the change of one gate's figure with its confidence interval,
//! centred on no change.

use super::svg::{Anchor, Drawing, LINE, Plot};
use crate::compare::{
    gate::Limit,
    judge::{Judged, Outcome, signed},
};

const ROW: f64 = 14.0;
/// Largest relative change that is drawn; larger ones are clamped to it.
const MOST: f64 = 2.0;

/// Draws the gates whose change has a confidence interval.
pub(super) fn draw(gates: &[&Judged]) -> String {
    let ends =
        |gate: &&Judged| gate.change.as_ref().and_then(|change| change.low_ratio.zip(change.high_ratio));
    let limit = |gate: &Judged| match gate.gate.limit {
        Limit::Ratio(limit) if gate.gate.may_not_fall => Some(-limit),
        Limit::Ratio(limit) => Some(limit),
        Limit::By(_) => None,
    };
    let reach = gates
        .iter()
        .flat_map(|gate| {
            ends(gate)
                .into_iter()
                .flat_map(|(low, high)| [low.abs(), high.abs()])
                .chain(limit(gate).map(f64::abs))
        })
        .fold(0.02, f64::max)
        .min(MOST);
    // No change is in the middle.
    let at = |ratio: f64| 0.5 + (ratio / reach).clamp(-1.0, 1.0) / 2.0;
    let mut drawing = Drawing::new();
    for gate in gates {
        let Some((low, high)) = ends(gate) else { continue };
        let class = match gate.outcome {
            Outcome::Regression => "regression",
            Outcome::Pass => "pass",
            Outcome::Inconclusive | Outcome::Suspect => "not-known",
        };
        let shown = gate.change.as_ref().map_or_else(String::new, |change| change.shown());
        drawing.label(0.0, Anchor::Start, &gate.key.to_string());
        drawing.label(1.0, Anchor::End, &shown);
        drawing.y += LINE;
        let mut plot = Plot::default();
        plot.line("grid", ROW / 2.0);
        plot.bar("used", (at(0.0), at(0.0)), (0.0, ROW), "no change");
        let title = format!("{}: {shown}, from {} to {}", gate.key, signed(low), signed(high));
        plot.bar(class, (at(low), at(high)), (ROW / 2.0 - 2.0, ROW / 2.0 + 2.0), &title);
        if let Some(limit) = limit(gate) {
            plot.bar("used", (at(limit), at(limit)), (2.0, ROW - 2.0), &format!("limit {}", signed(limit)));
        }
        if let Some(ratio) = gate.change.as_ref().and_then(|change| change.change_ratio) {
            plot.bar(class, (at(ratio) - 0.004, at(ratio) + 0.004), (1.0, ROW - 1.0), &title);
        }
        drawing.plot(ROW, &plot);
        drawing.y += 4.0;
    }
    drawing.ticks(&[(0.0, signed(-reach)), (0.5, "no change".to_owned()), (1.0, signed(reach))]);
    drawing.finish("Change of each gate's figure with its interval")
}
