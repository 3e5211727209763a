//! Draws memory: by owner on a device, by address at the peak, and by lifetime of blocks.

use trace_schema::{Bytes, Nanos};

use super::{
    chart::ticks::time_shares,
    svg::{Anchor, Drawing, LINE, Plot},
};
use crate::questions::memory::{map::Map, state::Device};

const BAR: f64 = 16.0;
/// Height of a row for a segment or a block's lifetime, in pixels.
const THIN: f64 = 14.0;
/// Formats a size.
fn size(bytes: i64) -> String {
    Bytes(bytes).to_string()
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
            "before_recording" => ("context", "context, and what it had when recording began"),
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
                "active_pending_free" => ("pending", "freed, other streams may still use it"),
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
            None => ("kept", "never freed".to_owned()),
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
    drawing.ticks(&time_shares((start_ns - origin_ns) as f64, (end_ns - origin_ns) as f64));
    drawing.finish("When the largest blocks were allocated and freed")
}
