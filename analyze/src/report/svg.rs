//! Figures, drawn with plotters. Colours mean the same in every figure and in the style sheet.

use plotters::prelude::*;

use crate::{analysis::timeline::Timeline, error::AnalyzeError};

/// Of every figure.
pub(super) const WIDTH: u32 = 960;
const LANE_HEIGHT: u32 = 34;
const AXIS_HEIGHT: u32 = 44;

/// Inside CUDA calls.
const IN_CALLS: RGBColor = RGBColor(70, 140, 120);
/// Waiting for a CPU.
pub(super) const WAITING: RGBColor = RGBColor(190, 70, 50);
pub(super) const INK: RGBColor = RGBColor(70, 70, 70);

pub(super) fn failed(error: impl std::fmt::Display) -> AnalyzeError {
    AnalyzeError::Internal(format!("drawing a figure: {error}"))
}

/// plotters writes fixed sizes; a page wants them to follow its width.
pub(super) fn scalable(svg: String) -> String {
    svg.replacen("<svg ", "<svg role=\"img\" preserveAspectRatio=\"xMidYMid meet\" ", 1)
}

/// One lane a thread: share of each step inside CUDA calls (up), and waiting for a CPU (down).
pub(crate) fn timeline(timeline: &Timeline) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    let lanes = timeline.lanes.len() as u32;
    let seconds = (timeline.end_ns - timeline.start_ns) as f64 / 1e9;
    {
        let root =
            SVGBackend::with_string(&mut svg, (WIDTH, lanes * LANE_HEIGHT + AXIS_HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(150)
            .build_cartesian_2d(0.0..seconds, f64::from(lanes)..0.0)
            .map_err(failed)?;
        let name = |y: &f64| {
            timeline
                .lanes
                .get(*y as usize)
                .map_or_else(String::new, |lane| format!("{} {}", lane.comm, lane.tid))
        };
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(INK.mix(0.5))
            .label_style(("sans-serif", 13, &INK))
            .y_labels(0)
            .x_label_formatter(&|x| format!("{x:.1} s"))
            .draw()
            .map_err(failed)?;
        for (index, lane) in timeline.lanes.iter().enumerate() {
            let base = index as f64 + 0.6;
            let step = seconds / lane.in_calls_ratio.len() as f64;
            for (ratios, colour, direction) in
                [(&lane.in_calls_ratio, IN_CALLS, -0.55), (&lane.waiting_ratio, WAITING, 0.35)]
            {
                let bars =
                    ratios.iter().enumerate().filter(|(_, ratio)| **ratio > 0.002).map(|(i, ratio)| {
                        let left = i as f64 * step;
                        Rectangle::new(
                            [(left, base), (left + step, base + direction * ratio.min(1.0))],
                            colour.filled(),
                        )
                    });
                chart.draw_series(bars).map_err(failed)?;
            }
            let label = name(&(index as f64));
            let y = 8 + (index as i32) * LANE_HEIGHT as i32 + 14;
            root.draw(&Text::new(
                crate::output::harmless(&label),
                (8, y),
                ("sans-serif", 13).into_font().color(&INK),
            ))
            .map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(scalable(svg))
}
