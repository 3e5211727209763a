//! Draws time: how threads spent the run, the GPU counters meanwhile, and the chain of one call.

use trace_schema::Nanos;

use super::svg::{Anchor, Drawing, LINE, Plot, time_ticks};
use crate::questions::{
    chains::{Example, Link},
    devices::{Counter, Device, Reading, THROTTLE_REASONS, is_throttled, reading},
    timeline::{Lane, Timeline},
};
use analyze_verdict::causes::Cause;

const UP: f64 = 20.0;
const DOWN: f64 = 10.0;
const LINK: f64 = 20.0;
/// Height of a counter's lane, in pixels.
const COUNTER: f64 = 34.0;

/// Formats a share in whole percent.
fn percent(ratio: f64) -> String {
    format!("{:.0} %", 100.0 * ratio)
}

/// Draws one thread: the share of each step inside CUDA calls (upwards) and waiting for a CPU (downwards).
fn lane(lane: &Lane, since_ns: f64, span_ns: f64, has_schedule: bool) -> Plot {
    let mut plot = Plot::default();
    let steps = lane.in_calls_ratio.len().max(1);
    let place = |step: usize| step as f64 / steps as f64;
    let surface = |ratios: &[f64], height: f64| -> Vec<(f64, f64)> {
        let shown = |ratio: &f64| if *ratio > 0.002 { UP + (ratio.min(1.0) * height) } else { UP };
        ratios.iter().enumerate().map(|(step, ratio)| (place(step), shown(ratio))).collect()
    };
    plot.steps("in-calls", UP, &surface(&lane.in_calls_ratio, -UP), 1.0);
    plot.steps("scheduler", UP, &surface(&lane.waiting_ratio, DOWN), 1.0);
    let words = |step: usize| {
        let waiting = lane.waiting_ratio.get(step).copied().unwrap_or_default();
        let waiting = if has_schedule { percent(waiting.min(1.0)) } else { "not known how much".to_owned() };
        (percent(lane.in_calls_ratio[step].min(1.0)), waiting)
    };
    // Consecutive steps with the same description share one tooltip.
    let mut from = 0;
    for step in 1..=steps {
        if step == steps || words(step) != words(from) {
            let (calls, waiting) = words(from);
            let at = |step: usize| Nanos((since_ns + place(step) * span_ns) as i64);
            let title = format!(
                "{} to {}: {calls} inside CUDA calls, {waiting} waiting for a CPU",
                at(from),
                at(step)
            );
            plot.hover((place(from), place(step)), (0.0, UP + DOWN), &title);
            from = step;
        }
    }
    plot
}

/// Draws one lane per thread. `origin_ns` is the time at which recording began.
pub(super) fn timeline(timeline: &Timeline, origin_ns: i64, has_schedule: bool) -> String {
    let mut drawing = Drawing::new();
    let since = (timeline.start_ns - origin_ns) as f64;
    let span = (timeline.end_ns - timeline.start_ns) as f64;
    for one in &timeline.lanes {
        drawing.label(0.0, Anchor::Start, &format!("{} {}/{}", one.comm, one.pid, one.tid));
        drawing.label(1.0, Anchor::End, &format!("{} in calls", Nanos(one.calls_ns)));
        drawing.y += LINE;
        drawing.plot(UP + DOWN, &lane(one, since, span, has_schedule));
        drawing.y += 4.0;
    }
    drawing.ticks(&time_ticks(since, since + span));
    drawing.finish("Share of time in calls and waiting, thread by thread")
}

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

/// Draws one counter on the timeline's axis: the maximum of each step, which holds until the next one.
fn counter(counter: &Counter, timeline: &Timeline, origin_ns: i64) -> Plot {
    let mut plot = Plot::default();
    let span = (timeline.end_ns - timeline.start_ns).max(1) as f64;
    let place = |ts: i64| ((ts - timeline.start_ns) as f64 / span).clamp(0.0, 1.0);
    let top = counter.scale.max(1) as f64;
    let height = |value: i64| COUNTER - COUNTER * (value as f64 / top).clamp(0.0, 1.0);
    // Nothing is known before the first sample and after the last.
    let end = counter.readings.last().map_or(0.0, |last| place(last.ts_ns) + 0.002).min(1.0);
    let shown = |one: &Reading| match counter.name.as_str() {
        THROTTLE_REASONS => height(i64::from(is_throttled(one.most))),
        _ => height(one.most),
    };
    let steps: Vec<(f64, f64)> = counter.readings.iter().map(|one| (place(one.ts_ns), shown(one))).collect();
    plot.line("grid", COUNTER - 1.0);
    plot.steps(class_of(&counter.name), COUNTER, &steps, end);
    for (number, one) in counter.readings.iter().enumerate() {
        let to = counter.readings.get(number + 1).map_or(end, |next| place(next.ts_ns));
        let value = match one.least == one.most {
            true => reading(&counter.name, one.most),
            false => format!("{} to {}", reading(&counter.name, one.least), reading(&counter.name, one.most)),
        };
        let title = format!("{}: {value}", Nanos(one.ts_ns - origin_ns));
        plot.hover((place(one.ts_ns), to), (0.0, COUNTER), &title);
    }
    plot
}

/// Draws the counters of a GPU on the timeline's axis.
pub(super) fn device(device: &Device, timeline: &Timeline, origin_ns: i64) -> String {
    let mut drawing = Drawing::new();
    for one in device.counters.iter().filter(|counter| counter.is_drawn()) {
        drawing.label(0.0, Anchor::Start, &one.words());
        if one.name != THROTTLE_REASONS {
            drawing.label(1.0, Anchor::End, &format!("0 to {}", reading(&one.name, one.scale)));
        }
        drawing.y += LINE;
        drawing.plot(COUNTER, &counter(one, timeline, origin_ns));
        drawing.y += 4.0;
    }
    let since = (timeline.start_ns - origin_ns) as f64;
    drawing.ticks(&time_ticks(since, since + (timeline.end_ns - timeline.start_ns) as f64));
    drawing.finish("Counters of a GPU over time")
}

/// Class of a chain link, by what its own thread did.
fn of_link(link: &Link) -> &'static str {
    match (link.state, link.cause) {
        ("on-cpu", _) => "on-cpu",
        (_, Some(Cause::Scheduler)) => "scheduler",
        (_, Some(Cause::Throttled)) => "throttled",
        (_, Some(Cause::Blocked(_))) => "blocked",
        ("stopped", _) => "stopped",
        _ => "not-known",
    }
}

/// Label of a chain link.
fn words(link: &Link) -> String {
    match &link.task_comm {
        Some(comm) if link.cause.is_some() => format!("{}: {comm}", link.state),
        _ => link.state.to_owned(),
    }
}

/// Number of places in a row, each of which shows one link.
const PLACES: f64 = 400.0;

/// Returns the longest of the links that begin at the same place, and their number, for each place.
fn thinned<'a>(links: impl Iterator<Item = &'a Link>, all_ns: f64) -> Vec<(&'a Link, usize)> {
    let mut shown: Vec<(i64, &Link, usize)> = Vec::new();
    let mut first = None;
    for link in links {
        let origin = *first.get_or_insert(link.ts_ns);
        let place = ((link.ts_ns - origin) as f64 / all_ns * PLACES) as i64;
        match shown.last_mut() {
            Some((at, most, count)) if *at == place => {
                *count += 1;
                if link.dur_ns > most.dur_ns {
                    *most = link;
                }
            }
            _ => shown.push((place, link, 1)),
        }
    }
    shown.into_iter().map(|(_, link, count)| (link, count)).collect()
}

/// Draws a slow call from start to end: a row for its thread, and one for each thread that it waited for,
/// directly or indirectly.
pub(super) fn chain(call: &Example) -> String {
    let mut rows: Vec<(usize, u32, u32)> =
        call.chain.iter().map(|link| (link.depth, link.pid, link.tid)).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut drawing = Drawing::new();
    let all = call.dur_ns.max(1) as f64;
    let at = |ns: i64| ((ns - call.ts_ns) as f64 / all).clamp(0.0, 1.0);
    for (depth, pid, tid) in rows {
        drawing.label(
            0.0,
            Anchor::Start,
            &match depth {
                0 => format!("the call, thread {pid}/{tid}"),
                _ => format!("woken by {pid}/{tid}"),
            },
        );
        drawing.y += LINE;
        let mut plot = Plot::default();
        let links = || call.chain.iter().filter(|link| (link.depth, link.pid, link.tid) == (depth, pid, tid));
        for (shown, count) in thinned(links(), all) {
            let x = (at(shown.ts_ns), at(shown.ts_ns + shown.dur_ns));
            let cause = shown.cause.map_or_else(String::new, |cause| format!(" ({})", cause.name()));
            let more = match count {
                1 => String::new(),
                count => format!("; the longest of {count} at this place"),
            };
            let title = format!(
                "{} for {}, {} after the call began{cause}{more}",
                words(shown),
                Nanos(shown.dur_ns),
                Nanos(shown.ts_ns - call.ts_ns)
            );
            plot.bar(of_link(shown), x, (0.0, LINK), &title);
        }
        plot.line("grid", LINK - 0.5);
        let y = drawing.y;
        drawing.plot(LINK, &plot);
        for link in links() {
            drawing.inside((at(link.ts_ns), at(link.ts_ns + link.dur_ns)), y, LINK, &words(link));
        }
        drawing.y += 4.0;
    }
    drawing.ticks(&time_ticks(0.0, all));
    drawing.finish("The call from end to end, and the threads that it waited for")
}
