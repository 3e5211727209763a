//! Latency of the slow functions on one logarithmic axis: median, 99th and 99.9th percentile, and how much
//! of the 99th percentile is time without a CPU.

use plotters::element::{Circle, PathElement};

use super::{
    axis::Axis,
    backend::{draw as drawing, fine},
    layout::{TICKS, caption, chart, filled, grid, stroke, verticals},
    mark::Mark,
};
use crate::{
    questions::chains::Verdict,
    report::{section::percentile, svg::LINE},
};

/// Largest number of functions that are drawn.
pub(in crate::report) const SHOWN: usize = 8;
/// Height of a row with its caption, in pixels.
const ROW: f64 = LINE + 14.0;
/// Place of a row's marks within it, from its top, as a share of its height.
const MIDDLE: f64 = (LINE + 7.0) / ROW;

/// Draws a row per function; there must be at least one.
pub(in crate::report) fn draw(verdicts: &[&Verdict], has_schedule: bool) -> String {
    let (least, most) = verdicts.iter().fold((f64::INFINITY, 1.0_f64), |(least, most), verdict| {
        (least.min(verdict.p50_ns), most.max(verdict.p999_ns))
    });
    let x = Axis::log_duration(least * 0.8..most * 1.25);
    let rows = verdicts.len().max(1) as f64;
    drawing("Percentiles of the latency of slow functions", ROW * rows + TICKS, |area| {
        // Rows count from the top.
        let mut chart = chart(area, (x.clone(), Axis::linear(rows..0.0, Vec::new())), true)?;
        verticals(&mut chart, &x, (0.0, rows))?;
        grid(&mut chart)?;
        for (number, verdict) in verdicts.iter().enumerate() {
            let (row, op) = (number as f64, &verdict.op);
            let at = row + MIDDLE;
            let (p50, p99, p999) = (verdict.p50_ns, verdict.p99_ns, verdict.p999_ns);
            let shown = |q: f64, ns: f64| percentile(q, ns, verdict.calls_count as i64);
            let right = format!("{} / {} / {}", shown(0.5, p50), shown(0.99, p99), shown(0.999, p999));
            caption(area, ROW * row, op, &right)?;
            let span =
                |from: f64, to: f64, width| PathElement::new(vec![(from, at), (to, at)], stroke(width));
            let title = format!(
                "{op}: p50 {}, p99 {}, p99.9 {}",
                shown(0.5, p50),
                shown(0.99, p99),
                shown(0.999, p999)
            );
            chart.draw_series([Mark::new("not-known", title, span(p50, p999, 2))])?;
            let without = verdict.p99_without_scheduler_ns;
            if has_schedule && without < p99 {
                let title = format!("{op}: p99 {} without the scheduler", shown(0.99, without));
                chart.draw_series([Mark::new("scheduler", title, span(without, p99, 5))])?;
            }
            for (name, q, value, class) in
                [("p50", 0.5, p50, "host"), ("p99", 0.99, p99, "used"), ("p99.9", 0.999, p999, "not-known")]
            {
                let dot = Circle::new((value, at), fine(4.0), filled());
                chart.draw_series([Mark::new(class, format!("{op}: {name} {}", shown(q, value)), dot)])?;
            }
        }
        Ok(())
    })
}
