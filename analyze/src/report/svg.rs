//! Figures, drawn with plotters. Colours mean the same in every figure and in the style sheet.

use plotters::{coord::Shift, prelude::*};
use trace_schema::Nanos;

use crate::{
    analysis::{
        causes::Cause,
        chains::{Example, Link},
        timeline::Timeline,
    },
    error::AnalyzeError,
    output,
};

/// Of every figure.
pub(super) const WIDTH: u32 = 960;
const LANE_HEIGHT: u32 = 34;
const AXIS_HEIGHT: u32 = 44;

/// Inside CUDA calls.
const IN_CALLS: RGBColor = RGBColor(70, 140, 120);
/// Waiting for a CPU.
pub(super) const WAITING: RGBColor = RGBColor(190, 70, 50);
pub(super) const INK: RGBColor = RGBColor(70, 70, 70);

/// On CPU in a chain.
const ON_CPU: RGBColor = RGBColor(111, 143, 181);
const BLOCKED: RGBColor = RGBColor(138, 79, 158);
const THROTTLED: RGBColor = RGBColor(214, 120, 90);
const OTHER: RGBColor = RGBColor(169, 173, 179);

const FONT: (&str, i32) = ("sans-serif", 13);
/// Left of the first byte or instant.
pub(super) const LABELS: i32 = 190;
const LINK_HEIGHT: i32 = 22;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) fn text(area: &Area<'_>, words: &str, at: (i32, i32)) -> Result<(), AnalyzeError> {
    let style = FONT.into_font().color(&INK);
    area.draw(&Text::new(output::harmless(words), at, style)).map_err(failed)
}

pub(super) fn bar(
    area: &Area<'_>,
    from: (i32, i32),
    to: (i32, i32),
    colour: RGBColor,
) -> Result<(), AnalyzeError> {
    // A sliver is still to be seen.
    let to = (to.0.max(from.0 + 1), to.1);
    area.draw(&Rectangle::new([from, to], colour.filled())).map_err(failed)
}

/// Places of bytes (or times) from 0 to `all` between the labels and the right edge.
pub(super) fn scale(all: f64, left: i32, right: i32) -> impl Fn(f64) -> i32 {
    let width = f64::from(WIDTH as i32 - left - right);
    move |value| left + (value / all.max(1.0) * width).round() as i32
}

pub(super) fn failed(error: impl std::fmt::Display) -> AnalyzeError {
    AnalyzeError::Internal(format!("drawing a figure: {error}"))
}

/// plotters writes fixed sizes; a page wants them to follow its width, and a name for who does not see them. The name is
/// no string from a trace.
pub(super) fn scalable(svg: String, name: &str) -> String {
    let with = format!("<svg role=\"img\" aria-label=\"{name}\" preserveAspectRatio=\"xMidYMid meet\" ");
    svg.replacen("<svg ", &with, 1)
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
                output::harmless(&label),
                (8, y),
                ("sans-serif", 13).into_font().color(&INK),
            ))
            .map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(scalable(svg, "Share of time in calls and waiting, thread by thread"))
}

/// What a link of a chain is, by colour: what its own thread did.
fn of_link(link: &Link) -> RGBColor {
    match (link.state, link.cause) {
        ("on-cpu", _) => ON_CPU,
        (_, Some(Cause::Scheduler)) => WAITING,
        (_, Some(Cause::Throttled)) => THROTTLED,
        (_, Some(Cause::Blocked(_))) => BLOCKED,
        _ => OTHER,
    }
}

/// A slow call from end to end: a row for its thread, and one for every thread that it waited for, directly or not.
pub(super) fn chain(call: &Example) -> Result<String, AnalyzeError> {
    let mut rows: Vec<(usize, u32, u32)> =
        call.chain.iter().map(|link| (link.depth, link.pid, link.tid)).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut svg = String::new();
    {
        let height = rows.len() as i32 * LINK_HEIGHT + 26;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        let place = scale(call.dur_ns as f64, LABELS, 24);
        let at = |ns: i64| place((ns - call.ts_ns).clamp(0, call.dur_ns) as f64);
        for (number, (depth, pid, tid)) in rows.iter().enumerate() {
            let y = number as i32 * LINK_HEIGHT;
            let name = match depth {
                0 => format!("the call, thread {tid}"),
                _ => format!("woken by {pid}/{tid}"),
            };
            text(&area, &name, (4, y + 5))?;
            let links =
                call.chain.iter().filter(|link| (link.depth, link.pid, link.tid) == (*depth, *pid, *tid));
            for link in links {
                let (from, to) = (at(link.ts_ns), at(link.ts_ns + link.dur_ns));
                bar(&area, (from, y + 2), (to, y + LINK_HEIGHT - 4), of_link(link))?;
                let words = match &link.task_comm {
                    Some(comm) if link.cause.is_some() => format!("{}: {comm}", link.state),
                    _ => link.state.to_owned(),
                };
                // Seven pixels a letter.
                if to - from > 7 * words.chars().count() as i32 + 8 {
                    let style = FONT.into_font().color(&WHITE);
                    area.draw(&Text::new(output::harmless(&words), (from + 4, y + 5), style))
                        .map_err(failed)?;
                }
            }
        }
        let y = rows.len() as i32 * LINK_HEIGHT + 6;
        text(&area, "0", (LABELS, y))?;
        let end = Nanos(call.dur_ns).to_string();
        text(&area, &end, (WIDTH as i32 - 24 - 7 * end.chars().count() as i32, y))?;
        area.present().map_err(failed)?;
    }
    Ok(scalable(svg, "The call from end to end, and the threads that it waited for"))
}
