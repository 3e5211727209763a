//! Draws time: how threads spent the run, and the chain of one call.

use trace_schema::Nanos;

use super::{
    chart::ticks::time_shares,
    svg::{Anchor, Drawing, LINE, Plot},
};
use crate::questions::{
    chains::{Example, Link},
    timeline::{Lane, Timeline},
};
use analyze_verdict::causes::Cause;

const UP: f64 = 20.0;
const DOWN: f64 = 10.0;
const LINK: f64 = 20.0;

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
    drawing.ticks(&time_shares(since, since + span));
    drawing.finish("Share of time in calls and waiting, thread by thread")
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
    drawing.ticks(&time_shares(0.0, all));
    drawing.finish("The call from end to end, and the threads that it waited for")
}
