//! Draws memory: over time by class, by owner on a device, by address at the peak, and by lifetime of blocks.

use trace_schema::{Bytes, Nanos};

use super::svg::{Anchor, Drawing, LINE, Plot, size_ticks, time_ticks};
use crate::questions::memory::{
    curve::{Curve, Point},
    map::Map,
    state::Device,
};

const CURVE: f64 = 260.0;
const BAR: f64 = 16.0;
/// Height of a row for a segment or a block's lifetime, in pixels.
const THIN: f64 = 14.0;
/// Number of places on the curve that have a tooltip.
const PLACES: usize = 240;

/// Height of the stack up to and including a class, in bytes.
type Height = fn(&Point) -> i64;

/// Formats a size.
fn size(bytes: i64) -> String {
    Bytes(bytes).to_string()
}

/// Describes the curve at one moment, by classes that sum to what was reserved.
fn words(point: &Point, origin_ns: i64) -> String {
    let classes = [
        ("in use", point.in_use_bytes),
        ("free, pinned", point.pinned_bytes),
        ("could be given back", point.releasable_bytes),
        ("private pools", point.private_bytes),
        ("not known", point.unknown_bytes),
    ];
    let classes = classes.into_iter().filter(|(_, bytes)| *bytes != 0);
    let classes: Vec<String> = classes.map(|(name, bytes)| format!("{} {name}", size(bytes))).collect();
    let at = Nanos(point.ts_ns - origin_ns);
    format!("{at}: {} reserved: {}", size(point.reserved_bytes), classes.join(", "))
}

/// Draws the reserved memory over time by class. A failed allocation is a vertical line.
pub(super) fn curve(curve: &Curve, origin_ns: i64) -> String {
    let start = curve.points.first().map_or(0, |point| point.ts_ns);
    let end = curve.points.last().map_or(1, |point| point.ts_ns).max(start + 1);
    let place = |ns: i64| ((ns - start) as f64 / (end - start) as f64).clamp(0.0, 1.0);
    let top = curve.peak_reserved_bytes.max(1) as f64 * 1.08;
    let height = |bytes: f64| CURVE - CURVE * bytes / top;
    let mut plot = Plot::default();
    // The classes are drawn from the top of the stack down: each covers those below it.
    let classes: [(&str, Height); 5] = [
        ("not-known", |p| p.reserved_bytes),
        ("private", |p| p.reserved_bytes - p.unknown_bytes),
        ("releasable", |p| p.in_use_bytes + p.pinned_bytes + p.releasable_bytes),
        ("pinned", |p| p.in_use_bytes + p.pinned_bytes),
        ("in-use", |p| p.in_use_bytes),
    ];
    for (class, of) in classes {
        let steps: Vec<(f64, f64)> =
            curve.points.iter().map(|point| (place(point.ts_ns), height(of(point) as f64))).collect();
        plot.steps(class, CURVE, &steps, 1.0);
    }
    let levels = size_ticks(top);
    levels.iter().for_each(|level| plot.line("grid", height(*level)));
    // Of the moments at the same place, the one with the most reserved memory is described.
    let mut spoken: Vec<(usize, &Point)> = Vec::new();
    for point in &curve.points {
        let at = (place(point.ts_ns) * PLACES as f64) as usize;
        match spoken.last_mut() {
            Some((last, most)) if *last == at => {
                if point.reserved_bytes > most.reserved_bytes {
                    *most = point;
                }
            }
            _ => spoken.push((at, point)),
        }
    }
    for (number, (at, point)) in spoken.iter().enumerate() {
        let to = spoken.get(number + 1).map_or(PLACES, |(next, _)| *next).max(at + 1);
        let x = (*at as f64 / PLACES as f64, (to as f64 / PLACES as f64).min(1.0));
        plot.hover(x, (0.0, CURVE), &words(point, origin_ns));
    }
    for ts in &curve.oom_ts_ns {
        let x = place(*ts);
        let title = format!("{}: out of memory", Nanos(ts - origin_ns));
        plot.bar("oom", (x, x + 0.002), (0.0, CURVE), &title);
    }
    let mut drawing = Drawing::new();
    drawing.plot(CURVE, &plot);
    levels.iter().for_each(|level| drawing.level(height(*level), &size(*level as i64)));
    drawing.ticks(&time_ticks((start - origin_ns) as f64, (end - origin_ns) as f64));
    drawing.finish("Memory reserved over time, by class")
}

/// Draws who has a device's memory: each share begins where the one before ends, and the last ends at the
/// used size.
pub(super) fn ledger(device: &Device) -> String {
    let mut drawing = Drawing::new();
    let all = device.used_bytes.max(1) as f64;
    let mut row = |class: &str, name: &str, from: i64, bytes: i64| {
        drawing.label(0.0, Anchor::Start, name);
        drawing.label(1.0, Anchor::End, &size(bytes));
        drawing.y += LINE;
        let mut plot = Plot::default();
        let (a, b) = (from as f64 / all, (from + bytes) as f64 / all);
        plot.bar(class, (a.min(b), a.max(b)), (0.0, BAR), &format!("{name}: {}", size(bytes)));
        drawing.plot(BAR, &plot);
        drawing.y += 4.0;
    };
    let mut sum = 0;
    for share in &device.shares {
        let (class, name) = match share.part {
            "allocator" => ("in-use", "PyTorch's allocator"),
            "library" => ("pending", share.library.as_deref().unwrap_or_default()),
            "context" => ("context", "context and code"),
            "process" => ("context", "not to be split"),
            "other_process" => ("private", "not recorded"),
            _ => ("not-known", "unexplained"),
        };
        let of = share.pid.map_or_else(String::new, |pid| format!("process {pid}: "));
        row(class, &format!("{of}{name}"), sum, share.size_bytes);
        sum += share.size_bytes;
    }
    row("used", "used", 0, device.used_bytes);
    drawing.finish("Who has the memory of the GPU")
}

/// Draws each segment as a row, with its blocks at their addresses.
pub(super) fn addresses(map: &Map) -> String {
    let largest = map.segments.first().map_or(1, |segment| segment.size_bytes).max(1) as f64;
    let mut drawing = Drawing::new();
    for segment in &map.segments {
        let mut plot = Plot::default();
        let name = format!("{:#x}, {}", segment.addr, size(segment.size_bytes as i64));
        plot.bar("not-known", (0.0, segment.size_bytes as f64 / largest), (0.0, THIN), &name);
        for block in &segment.blocks {
            let is_whole = block.size_bytes == segment.size_bytes;
            let (class, state) = match block.state.as_str() {
                "active_allocated" => ("in-use", "in use"),
                "active_pending_free" => ("pending", "given back, other streams may use it"),
                "inactive" if is_whole => ("releasable", "free"),
                "inactive" => ("pinned", "free, pinned"),
                _ => ("not-known", "not known"),
            };
            let end = block.offset_bytes + block.size_bytes;
            let title = format!(
                "{:#x}: {}, {state}",
                segment.addr + block.offset_bytes,
                size(block.size_bytes as i64)
            );
            plot.bar(class, (block.offset_bytes as f64 / largest, end as f64 / largest), (0.0, THIN), &title);
        }
        drawing.label(0.0, Anchor::Start, &name);
        drawing.y += LINE;
        drawing.plot(THIN, &plot);
        drawing.y += 3.0;
    }
    drawing.finish("Segments and their blocks, by address")
}

/// Draws the lifetimes of the largest blocks; those that were never freed have their own colour.
pub(super) fn lives(map: &Map, (start_ns, end_ns): (i64, i64), origin_ns: i64) -> String {
    let mut drawing = Drawing::new();
    let span = (end_ns - start_ns).max(1) as f64;
    let place = |ns: i64| ((ns - start_ns) as f64 / span).clamp(0.0, 1.0);
    for life in &map.lives {
        let end = life.dur_ns.map_or(end_ns, |dur| life.ts_ns + dur);
        let bytes = size(life.size_bytes as i64);
        let (class, until) = match life.dur_ns {
            Some(dur) => ("in-use", format!("for {}", Nanos(dur))),
            None => ("kept", "never given back".to_owned()),
        };
        let title = format!("{:#x}: {bytes}, from {}, {until}", life.addr, Nanos(life.ts_ns - origin_ns));
        let mut plot = Plot::default();
        let x = (place(life.ts_ns), place(end));
        plot.bar(class, x, (0.0, THIN), &title);
        let y = drawing.y;
        drawing.plot(THIN, &plot);
        drawing.inside(x, y - 1.0, THIN + 2.0, &bytes);
        drawing.y += 2.0;
    }
    drawing.ticks(&time_ticks((start_ns - origin_ns) as f64, (end_ns - origin_ns) as f64));
    drawing.finish("When the largest blocks were handed out and given back")
}
