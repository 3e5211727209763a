//! Figures of memory: over time by class, the account of a device, the address space at the peak, and lives of blocks.
//! The classes' colours are those of the style sheet.

use plotters::prelude::*;
use trace_schema::Bytes;

use super::svg::{INK, LABELS, WAITING, WIDTH, bar, failed, scalable, scale, text};
use crate::{
    analysis::{
        memory::{Curve, Point},
        memory_map::Map,
        memory_state::Device,
    },
    error::AnalyzeError,
};

/// Handed out, or given back and still in use by other streams.
const IN_USE: RGBColor = RGBColor(38, 110, 150);
const PENDING: RGBColor = RGBColor(111, 143, 181);
const PINNED: RGBColor = RGBColor(192, 138, 30);
const RELEASABLE: RGBColor = RGBColor(214, 205, 180);
const PRIVATE: RGBColor = RGBColor(138, 79, 158);
const UNKNOWN: RGBColor = RGBColor(169, 173, 179);
const CONTEXT: RGBColor = RGBColor(122, 106, 79);

const CURVE_HEIGHT: u32 = 300;
const ROW_HEIGHT: u32 = 22;
/// A row of a segment or a life.
const THIN_HEIGHT: u32 = 11;
/// How high the stack is, up to a class.
type Height = fn(&Point) -> i64;

/// What was reserved over time, by class; an out-of-memory is a vertical line.
pub(crate) fn curve(curve: &Curve, origin_ns: i64) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    let seconds = |ns: i64| (ns - origin_ns) as f64 / 1e9;
    let start = curve.points.first().map_or(0.0, |point| seconds(point.ts_ns));
    let end = curve.points.last().map_or(1.0, |point| seconds(point.ts_ns)).max(start + 1e-6);
    // In KiB, MiB or GiB, so that the axis has round sizes.
    let peak = curve.peak_reserved_bytes.max(1);
    let unit = 1_i64 << (peak.ilog2() / 10 * 10);
    let size = |bytes: i64| bytes as f64 / unit as f64;
    let top = size(peak) * 1.08;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, CURVE_HEIGHT)).into_drawing_area();
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
            .y_label_formatter(&|y| Bytes((y * unit as f64) as i64).to_string())
            .draw()
            .map_err(failed)?;
        // From the top of the stack down: each covers what lies below it.
        let classes: [(Height, RGBColor); 5] = [
            (|p| p.reserved_bytes, UNKNOWN),
            (|p| p.reserved_bytes - p.unknown_bytes, PRIVATE),
            (|p| p.in_use_bytes + p.pinned_bytes + p.releasable_bytes, RELEASABLE),
            (|p| p.in_use_bytes + p.pinned_bytes, PINNED),
            (|p| p.in_use_bytes, IN_USE),
        ];
        for (height, colour) in classes {
            // A sum holds until the next event: steps, not slopes.
            let mut level = 0.0;
            let points = curve.points.iter().flat_map(|point| {
                let (x, before) = (seconds(point.ts_ns), level);
                level = size(height(point));
                [(x, before), (x, level)]
            });
            chart.draw_series(AreaSeries::new(points, 0.0, colour.filled())).map_err(failed)?;
        }
        let ooms = curve.oom_ts_ns.iter().map(|ts| {
            let x = seconds(*ts);
            PathElement::new(vec![(x, 0.0), (x, top)], WAITING.stroke_width(2))
        });
        chart.draw_series(ooms).map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(scalable(svg, "Memory reserved over time, by class"))
}

/// Who has a device's memory: each share begins where the one before ends, and the last ends at what is used.
pub(crate) fn ledger(device: &Device) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    let rows = device.shares.len() as u32 + 1;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, rows * ROW_HEIGHT + 8)).into_drawing_area();
        let left = LABELS + 60;
        let place = scale(device.used_bytes as f64, left, 110);
        let row = |number: usize| 4 + number as i32 * ROW_HEIGHT as i32;
        let mut sum = 0;
        for (number, share) in device.shares.iter().enumerate() {
            let (colour, name) = match share.part {
                "allocator" => (IN_USE, "PyTorch's allocator"),
                "library" => (PENDING, share.library.as_deref().unwrap_or_default()),
                "context" => (CONTEXT, "context and code"),
                "process" => (CONTEXT, "not to be split"),
                "other_process" => (PRIVATE, "not recorded"),
                _ => (UNKNOWN, "unexplained"),
            };
            let of = share.pid.map_or_else(String::new, |pid| format!("{pid}: "));
            let (y, from) = (row(number), place(sum as f64));
            sum += share.size_bytes;
            let to = place(sum as f64);
            text(&area, &format!("{of}{name}"), (4, y + 3))?;
            bar(&area, (from.min(to), y + 2), (from.max(to), y + ROW_HEIGHT as i32 - 4), colour)?;
            text(&area, &Bytes(share.size_bytes).to_string(), (from.max(to) + 6, y + 3))?;
        }
        let y = row(device.shares.len());
        text(&area, "used", (4, y + 3))?;
        bar(&area, (left, y + 2), (place(device.used_bytes as f64), y + ROW_HEIGHT as i32 - 4), INK)?;
        text(&area, &Bytes(device.used_bytes).to_string(), (place(device.used_bytes as f64) + 6, y + 3))?;
        area.present().map_err(failed)?;
    }
    Ok(scalable(svg, "Who has the memory of the GPU"))
}

/// Every segment a row, its blocks where they lie.
pub(crate) fn addresses(map: &Map) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    let largest = map.segments.first().map_or(1, |segment| segment.size_bytes);
    {
        let height = map.segments.len() as u32 * (THIN_HEIGHT + 3) + 10;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let place = scale(largest as f64, LABELS, 12);
        for (number, segment) in map.segments.iter().enumerate() {
            let y = 5 + number as i32 * (THIN_HEIGHT as i32 + 3);
            let bottom = y + THIN_HEIGHT as i32;
            text(&area, &format!("{:#x}  {}", segment.addr, Bytes(segment.size_bytes as i64)), (4, y - 1))?;
            bar(&area, (place(0.0), y), (place(segment.size_bytes as f64), bottom), UNKNOWN)?;
            for block in &segment.blocks {
                let is_whole = block.size_bytes == segment.size_bytes;
                let colour = match block.state.as_str() {
                    "active_allocated" => IN_USE,
                    "active_pending_free" => PENDING,
                    "inactive" if is_whole => RELEASABLE,
                    "inactive" => PINNED,
                    _ => UNKNOWN,
                };
                let end = block.offset_bytes + block.size_bytes;
                bar(&area, (place(block.offset_bytes as f64), y), (place(end as f64), bottom), colour)?;
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(scalable(svg, "Segments and their blocks, by address"))
}

/// From when to when the largest blocks were handed out; what was never given back ends in an arrow's colour.
pub(crate) fn lives(map: &Map, start_ns: i64, end_ns: i64) -> Result<String, AnalyzeError> {
    let mut svg = String::new();
    {
        let height = map.lives.len() as u32 * (THIN_HEIGHT + 2) + 10;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let place = scale((end_ns - start_ns) as f64, LABELS, 12);
        for (number, life) in map.lives.iter().enumerate() {
            let y = 5 + number as i32 * (THIN_HEIGHT as i32 + 2);
            let from = (life.ts_ns - start_ns) as f64;
            let to = life.dur_ns.map_or((end_ns - start_ns) as f64, |dur| from + dur as f64);
            text(&area, &format!("{:#x}  {}", life.addr, Bytes(life.size_bytes as i64)), (4, y - 1))?;
            let colour = if life.dur_ns.is_some() { IN_USE } else { WAITING };
            bar(&area, (place(from), y), (place(to), y + THIN_HEIGHT as i32), colour)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(scalable(svg, "When the largest blocks were handed out and given back"))
}
