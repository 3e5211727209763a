//! An axis of numbers with chosen ticks: linear or logarithmic, labelled in units of time, of memory, or of a
//! figure.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::ticks::{self, Tick};

/// An axis. Values beyond its ends are drawn at the ends.
#[derive(Clone)]
pub(super) struct Axis {
    range: Range<f64>,
    is_log: bool,
    ticks: Vec<Tick>,
}

impl Axis {
    /// Creates a linear axis with these ticks.
    pub(super) fn linear(range: Range<f64>, ticks: Vec<Tick>) -> Self {
        Self { range, is_log: false, ticks }
    }

    /// Creates an axis of times in nanoseconds.
    pub(super) fn time(range: Range<f64>) -> Self {
        let ticks = ticks::times(range.start, range.end);
        Self::linear(range, ticks)
    }

    /// Creates an axis of sizes in bytes, with room for a label above the largest.
    pub(super) fn size(largest: f64) -> Self {
        let largest = largest.max(1.0);
        Self::linear(0.0..1.08 * largest, ticks::sizes(largest))
    }

    /// Creates a logarithmic axis of durations in nanoseconds.
    pub(super) fn log_duration(range: Range<f64>) -> Self {
        let range = range.start.max(1.0)..range.end.max(range.start.max(1.0) * 1.01);
        let ticks = ticks::decades(range.start, range.end);
        Self { range, is_log: true, ticks }
    }

    /// Values of the ticks.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        self.ticks.iter().map(|(value, _)| *value)
    }

    /// First and last value.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.range.start, self.range.end)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let scaled = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (start, end) = (scaled(self.range.start), scaled(self.range.end));
        let span = if end == start { 1.0 } else { end - start };
        let share = ((scaled(*value) - start) / span).clamp(0.0, 1.0);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // plotters also asks for the lines of a finer grid, of which there is none.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks().collect() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.ticks.iter().find(|(tick, _)| tick == value).map_or_else(String::new, |(_, label)| label.clone())
    }
}
