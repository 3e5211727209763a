//! Gates as a forest plot: a row each, its change with its interval, around no change.

use plotters::prelude::*;

use super::svg::{INK, LABELS, WAITING, WIDTH, bar, failed, scalable, text};
use crate::{
    compare::{
        gate::Limit,
        judge::{Judged, Outcome, signed},
    },
    error::AnalyzeError,
};

const ROW: i32 = 26;
const RIGHT: i32 = 150;
const PASS: RGBColor = RGBColor(70, 140, 120);
const OPEN: RGBColor = RGBColor(169, 173, 179);
/// More is drawn as this much.
const MOST: f64 = 2.0;

/// Those with an interval.
pub(super) fn draw(gates: &[&Judged]) -> Result<String, AnalyzeError> {
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
    let left = LABELS + 60;
    let half = (WIDTH as i32 - left - RIGHT) / 2;
    let at = |ratio: f64| left + half + ((ratio / reach).clamp(-1.0, 1.0) * f64::from(half)).round() as i32;
    let mut svg = String::new();
    {
        let height = gates.len() as i32 * ROW + 30;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        bar(&area, (at(0.0), 0), (at(0.0) + 1, height - 26), INK)?;
        for (number, gate) in gates.iter().enumerate() {
            let Some((low, high)) = ends(gate) else { continue };
            let y = number as i32 * ROW;
            let colour = match gate.outcome {
                Outcome::Regression => WAITING,
                Outcome::Pass => PASS,
                Outcome::Inconclusive | Outcome::Suspect => OPEN,
            };
            text(&area, &gate.key.to_string(), (4, y + 5))?;
            bar(&area, (at(low), y + 10), (at(high), y + 13), colour)?;
            if let Some(limit) = limit(gate) {
                bar(&area, (at(limit), y + 4), (at(limit) + 1, y + 19), INK)?;
            }
            if let Some(change) = &gate.change {
                let ratio = change.change_ratio.unwrap_or_default();
                area.draw(&Circle::new((at(ratio), y + 11), 4, colour.filled())).map_err(failed)?;
                text(&area, &change.shown(), (WIDTH as i32 - RIGHT + 20, y + 5))?;
            }
        }
        let y = gates.len() as i32 * ROW + 6;
        text(&area, &signed(-reach), (at(-reach), y))?;
        text(&area, "no change", (at(0.0) - 28, y))?;
        text(&area, &signed(reach), (at(reach) - 40, y))?;
        area.present().map_err(failed)?;
    }
    Ok(scalable(svg, "Change of each gate's figure with its interval"))
}
