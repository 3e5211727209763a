//! Counters of a GPU on the timeline's axis: the maximum of each step, which holds until the next one.

use plotters::series::AreaSeries;
use trace_schema::Nanos;

use super::{
    axis::Axis,
    backend::{Area, Failure, draw as drawing, fine},
    layout::{TICKS, caption, chart, filled, grid, hovers, steps},
    mark::Mark,
};
use crate::{
    questions::{
        devices::{Counter, Device, Reading, THROTTLE_REASONS, is_throttled, reading},
        timeline::Timeline,
    },
    report::svg::LINE,
};

/// Height of a counter's plot in pixels.
const HEIGHT: f64 = 34.0;
/// Height of a counter with its caption and the gap below it, in pixels.
const PANEL: f64 = LINE + HEIGHT + 4.0;

/// Class of a counter's marks.
fn class_of(counter: &str) -> &'static str {
    match counter {
        "memory_used_bytes" => "in-use",
        "gpu_busy_percent" | "memory_busy_percent" => "busy",
        "power_milliwatts" => "power",
        THROTTLE_REASONS => "throttled",
        _ => "clock",
    }
}

/// Draws one counter. `x` is the axis of time, which counts from `origin_ns`.
fn panel(area: &Area<'_>, counter: &Counter, x: &Axis, origin_ns: i64, is_last: bool) -> Result<(), Failure> {
    let is_throttle = counter.name == THROTTLE_REASONS;
    let scale =
        if is_throttle { String::new() } else { format!("0 to {}", reading(&counter.name, counter.scale)) };
    // What the name means is said above the figure.
    let words = counter.words();
    let name = words.split_once(": ").map_or(words.as_str(), |(name, _)| name);
    caption(area, 0.0, name, &scale)?;
    let (_, below) = area.split_vertically(fine(LINE));
    let below = if is_last { below } else { below.split_vertically(fine(HEIGHT)).0 };
    let top = counter.scale.max(1) as f64;
    let mut chart = chart(&below, (x.clone(), Axis::linear(0.0..top, vec![(0.0, String::new())])), is_last)?;
    let time = |one: &Reading| (one.ts_ns - origin_ns) as f64;
    // Nothing is known before the first reading and after the last.
    let (start, end) = x.ends();
    let last = counter.readings.last().map_or(start, |last| time(last) + (end - start) * 0.002).min(end);
    let values = counter.readings.iter().map(|one| match is_throttle {
        true => (time(one), f64::from(i8::from(is_throttled(one.most)))),
        false => (time(one), one.most as f64),
    });
    if values.clone().any(|(_, value)| value > 0.0) {
        let surface = AreaSeries::new(steps(values, last), 0.0, filled());
        chart.draw_series(surface.map(|area| Mark::new(class_of(&counter.name), "", area)))?;
    }
    grid(&mut chart)?;
    let titles = counter.readings.iter().enumerate().map(|(number, one)| {
        let next = counter.readings.get(number + 1).map_or(last, time);
        let value = match one.least == one.most {
            true => reading(&counter.name, one.most),
            false => format!("{} to {}", reading(&counter.name, one.least), reading(&counter.name, one.most)),
        };
        ((time(one), next), format!("{}: {value}", Nanos(one.ts_ns - origin_ns)))
    });
    chart.draw_series(hovers(titles, (0.0, top))).map(|_| ())
}

/// Draws the counters of a GPU, below one another.
pub(in crate::report) fn draw(device: &Device, timeline: &Timeline, origin_ns: i64) -> String {
    let counters: Vec<&Counter> = device.counters.iter().filter(|counter| counter.is_drawn()).collect();
    let (start, end) = (timeline.start_ns, timeline.end_ns.max(timeline.start_ns + 1));
    let x = Axis::time((start - origin_ns) as f64..(end - origin_ns) as f64);
    let height = PANEL * counters.len() as f64 - 4.0 + TICKS;
    drawing("Counters of a GPU over time", height, |area| {
        let mut rest = area.clone();
        for (number, counter) in counters.iter().enumerate() {
            let is_last = number + 1 == counters.len();
            let (own, below) =
                if is_last { (rest.clone(), rest) } else { rest.split_vertically(fine(PANEL)) };
            panel(&own, counter, &x, origin_ns, is_last)?;
            rest = below;
        }
        Ok(())
    })
}
