//! Figures, drawn with plotters. Colours mean the same in every figure and in the style sheet.

use plotters::prelude::*;
use trace_schema::Bytes;

use crate::{
    analysis::{memory::Curve, timeline::Timeline},
    error::AnalyzeError,
};

const WIDTH: u32 = 960;
const MEMORY_HEIGHT: u32 = 280;
const LANE_HEIGHT: u32 = 34;
const AXIS_HEIGHT: u32 = 44;

/// Requested by live allocations.
const LIVE: RGBColor = RGBColor(38, 110, 150);
/// Reserved by the allocator.
const RESERVED: RGBColor = RGBColor(196, 176, 120);
/// Inside CUDA calls.
const IN_CALLS: RGBColor = RGBColor(70, 140, 120);
/// Waiting for a CPU.
const WAITING: RGBColor = RGBColor(190, 70, 50);
const INK: RGBColor = RGBColor(70, 70, 70);

fn failed(error: impl std::fmt::Display) -> AnalyzeError {
    AnalyzeError::Internal(format!("drawing a figure: {error}"))
}

/// plotters writes fixed sizes; a page wants them to follow its width.
fn scalable(svg: String) -> String {
    svg.replacen("<svg ", "<svg role=\"img\" preserveAspectRatio=\"xMidYMid meet\" ", 1)
}

/// Reserved and live bytes over time; an out-of-memory is a vertical line.
pub(crate) fn memory(curve: &Curve, origin_ns: i64) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    let seconds = |ns: i64| (ns - origin_ns) as f64 / 1e9;
    let start = curve.points.first().map_or(0.0, |point| seconds(point.ts_ns)).min(0.0);
    let end = curve.points.last().map_or(1.0, |point| seconds(point.ts_ns)).max(start + 1e-6);
    let top = (curve.peak_reserved_bytes.max(curve.peak_live_bytes).max(1) as f64) * 1.08;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, MEMORY_HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(76)
            .build_cartesian_2d(start..end, 0.0..top)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK.mix(0.5))
            .label_style(("sans-serif", 13, &INK))
            .y_labels(5)
            .x_label_formatter(&|x| format!("{x:.1} s"))
            .y_label_formatter(&|y| Bytes(*y as i64).to_string())
            .draw()
            .map_err(failed)?;
        // A total holds until the next event: steps, not slopes.
        let points = |get: fn(&crate::analysis::memory::Point) -> i64| {
            let mut level = 0.0;
            curve.points.iter().flat_map(move |point| {
                let (x, before) = (seconds(point.ts_ns), level);
                level = get(point) as f64;
                [(x, before), (x, level)]
            })
        };
        chart
            .draw_series(
                AreaSeries::new(points(|p| p.reserved_bytes), 0.0, RESERVED.mix(0.45)).border_style(RESERVED),
            )
            .map_err(failed)?;
        chart
            .draw_series(AreaSeries::new(points(|p| p.live_bytes), 0.0, LIVE.mix(0.6)).border_style(LIVE))
            .map_err(failed)?;
        let ooms = curve.oom_ts_ns.iter().map(|ts| {
            let x = seconds(*ts);
            PathElement::new(vec![(x, 0.0), (x, top)], WAITING.stroke_width(2))
        });
        chart.draw_series(ooms).map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(scalable(svg))
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
