//! Memory over time: what PyTorch's allocators reserved, by class, and when an allocation failed.

use plotters::{element::PathElement, series::AreaSeries};
use trace_schema::{Bytes, Nanos};

use super::{
    axis::Axis,
    backend::draw as drawing,
    layout::{TICKS, chart, filled, grid, hovers, steps, stroke},
    mark::Mark,
};
use crate::questions::memory::curve::{Curve, Point};

/// Height of the plot in pixels.
const HEIGHT: f64 = 260.0;
/// Number of places on the curve that have a tooltip.
const PLACES: f64 = 240.0;

/// Height of the stack up to and including a class, in bytes.
type Height = fn(&Point) -> i64;

/// The classes from the top of the stack down, so that each covers those below it.
const CLASSES: [(&str, Height); 5] = [
    ("not-known", |p| p.reserved_bytes),
    ("private", |p| p.reserved_bytes - p.unknown_bytes),
    ("releasable", |p| p.in_use_bytes + p.pinned_bytes + p.releasable_bytes),
    ("pinned", |p| p.in_use_bytes + p.pinned_bytes),
    ("in-use", |p| p.in_use_bytes),
];

/// Describes the curve at one moment, by classes that sum to what was reserved.
fn words(point: &Point, origin_ns: i64) -> String {
    let classes = [
        ("in use", point.in_use_bytes),
        ("free, held by live blocks", point.pinned_bytes),
        ("reclaimable by empty_cache()", point.releasable_bytes),
        ("private pools", point.private_bytes),
        ("not known", point.unknown_bytes),
    ];
    let classes = classes.into_iter().filter(|(_, bytes)| *bytes != 0);
    let classes: Vec<String> = classes.map(|(name, bytes)| format!("{} {name}", Bytes(bytes))).collect();
    let at = Nanos(point.ts_ns - origin_ns);
    format!("{at}: {} reserved: {}", Bytes(point.reserved_bytes), classes.join(", "))
}

/// Returns the moments that have a tooltip: of those at the same place, the one with the most reserved
/// memory, with the time at which its place begins.
fn described(curve: &Curve, (from, to): (f64, f64), origin_ns: i64) -> Vec<(f64, &Point)> {
    let width = (to - from) / PLACES;
    let mut places: Vec<(f64, &Point)> = Vec::new();
    for point in &curve.points {
        let place = (((point.ts_ns - origin_ns) as f64 - from) / width).floor().min(PLACES - 1.0);
        let at = from + place * width;
        match places.last_mut() {
            Some((last, most)) if *last == at => {
                if point.reserved_bytes > most.reserved_bytes {
                    *most = point;
                }
            }
            _ => places.push((at, point)),
        }
    }
    places
}

/// Draws the reserved memory over time by class. A failed allocation is a vertical line.
pub(in crate::report) fn draw(curve: &Curve, origin_ns: i64) -> String {
    let time = |ns: i64| (ns - origin_ns) as f64;
    let start = curve.points.first().map_or(0, |point| point.ts_ns);
    let end = curve.points.last().map_or(1, |point| point.ts_ns).max(start + 1);
    let (from, to) = (time(start), time(end));
    let (x, y) = (Axis::time(from..to), Axis::size(curve.peak_reserved_bytes as f64));
    let (_, top) = y.ends();
    drawing("Memory reserved over time, by class", HEIGHT + TICKS, |area| {
        let mut chart = chart(area, (x, y), true)?;
        for (class, height) in CLASSES {
            let values = curve.points.iter().map(|point| (time(point.ts_ns), height(point) as f64));
            if values.clone().any(|(_, bytes)| bytes > 0.0) {
                let surface = AreaSeries::new(steps(values, to), 0.0, filled());
                chart.draw_series(surface.map(|area| Mark::new(class, "", area)))?;
            }
        }
        grid(&mut chart)?;
        let places = described(curve, (from, to), origin_ns);
        let titles = places.iter().enumerate().map(|(number, (at, point))| {
            let next = places.get(number + 1).map_or(to, |(next, _)| *next);
            ((*at, next), words(point, origin_ns))
        });
        chart.draw_series(hovers(titles, (0.0, top)))?;
        chart.draw_series(curve.oom_ts_ns.iter().map(|ts| {
            let line = PathElement::new(vec![(time(*ts), 0.0), (time(*ts), top)], stroke(2));
            Mark::new("oom", format!("{}: out of memory", Nanos(*ts - origin_ns)), line)
        }))?;
        Ok(())
    })
}
