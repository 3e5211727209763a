//! What PyTorch's allocators held over time, by class, thinned for a figure: of each step of time the moment is kept at
//! which most was reserved, so that no peak is lost and the classes of every point sum to what was reserved.

use std::collections::HashMap;

use serde::Serialize;
use trace_schema::Clock;

use crate::questions::memory::state::At;
use crate::trace::Trace;
use analyze_memory::{
    allocator::Allocator,
    event::{Action, Event},
    input::{Key, Listener},
};
use analyze_run::{columns::integers, error::AnalyzeError};

/// One moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Point {
    pub ts_ns: i64,
    /// The sum of what follows.
    pub reserved_bytes: i64,
    pub in_use_bytes: i64,
    /// Free, beside what is in use.
    pub pinned_bytes: i64,
    /// Free, could be given back.
    pub releasable_bytes: i64,
    /// Unused segments of private pools.
    pub private_bytes: i64,
    pub unknown_bytes: i64,
}

impl Point {
    fn plus(self, other: &Self) -> Self {
        Self {
            ts_ns: self.ts_ns.max(other.ts_ns),
            reserved_bytes: self.reserved_bytes + other.reserved_bytes,
            in_use_bytes: self.in_use_bytes + other.in_use_bytes,
            pinned_bytes: self.pinned_bytes + other.pinned_bytes,
            releasable_bytes: self.releasable_bytes + other.releasable_bytes,
            private_bytes: self.private_bytes + other.private_bytes,
            unknown_bytes: self.unknown_bytes + other.unknown_bytes,
        }
    }
}

/// Allocators' sums over time, all processes and devices together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Curve {
    pub points: Vec<Point>,
    pub peak_in_use_bytes: i64,
    pub peak_reserved_bytes: i64,
    /// Events behind the curve; 0: this run has no allocator events.
    pub events_count: i64,
    pub oom_ts_ns: Vec<i64>,
}

/// Steps of the curve.
const STEPS: i64 = 800;

impl Curve {
    /// Takes the sums after an event into account: of the step's moments the one with most reserved stays.
    fn add(&mut self, point: Point, step: i64, last_step: &mut i64) {
        self.events_count += 1;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(point.reserved_bytes);
        self.peak_in_use_bytes = self.peak_in_use_bytes.max(point.in_use_bytes);
        match self.points.last_mut() {
            Some(last) if *last_step == step => {
                if point.reserved_bytes >= last.reserved_bytes {
                    *last = point;
                }
            }
            _ => self.points.push(point),
        }
        *last_step = step;
    }
}

/// The curve, as a replay makes it.
pub struct Filling {
    curve: Curve,
    start_ns: i64,
    span_ns: i64,
    held: HashMap<Key, Point>,
    last: Point,
    last_step: i64,
    /// When an allocator had most reserved, and how much.
    peak: Option<(i64, i64)>,
}

impl Filling {
    pub fn new(clock: &Clock) -> Self {
        Self {
            curve: Curve::default(),
            start_ns: clock.start_ns,
            span_ns: clock.end_ns.saturating_sub(clock.start_ns).max(1),
            held: HashMap::new(),
            last: Point::default(),
            last_step: i64::MIN,
            peak: None,
        }
    }

    fn add(&mut self, key: Key, allocator: &Allocator, ts_ns: i64) {
        let totals = allocator.totals();
        let rest = totals.reserved_bytes
            - totals.unknown_bytes
            - totals.releasable_bytes
            - totals.private_releasable_bytes;
        // What is in use outside of known segments is not part of what is reserved.
        let in_use_bytes = totals.active_bytes.min(rest);
        let point = Point {
            ts_ns,
            reserved_bytes: totals.reserved_bytes,
            in_use_bytes,
            pinned_bytes: rest - in_use_bytes,
            releasable_bytes: totals.releasable_bytes,
            private_bytes: totals.private_releasable_bytes,
            unknown_bytes: totals.unknown_bytes,
        };
        if self.peak.is_none_or(|(_, most)| point.reserved_bytes > most) {
            self.peak = Some((ts_ns, point.reserved_bytes));
        }
        self.held.insert(key, point);
        self.last = self.held.values().fold(Point { ts_ns, ..Point::default() }, |sum, of| sum.plus(of));
        let step = i128::from(ts_ns - self.start_ns) * i128::from(STEPS) / i128::from(self.span_ns);
        self.curve.add(self.last, step as i64, &mut self.last_step);
    }

    /// Whether no event moved memory.
    pub fn is_empty(&self) -> bool {
        self.curve.points.is_empty()
    }

    /// When an allocator had most reserved, for the first time.
    pub fn peak(&self) -> At {
        self.peak.map_or(At::Peak, |(ts, _)| At::Reached(ts))
    }

    /// The curve.
    ///
    /// # Errors
    /// If the run's data cannot be read.
    pub async fn finish(mut self, trace: &Trace) -> Result<Curve, AnalyzeError> {
        // How it ended, whatever was most in the last step.
        if self.curve.points.last().is_some_and(|point| *point != self.last) {
            self.curve.points.push(self.last);
        }
        let ooms = "SELECT ts FROM events WHERE kind = 'alloc' AND op = 'oom' ORDER BY ts";
        for batch in trace.batches(ooms).await? {
            self.curve.oom_ts_ns.extend(integers(&batch, "ts")?.iter().flatten());
        }
        Ok(self.curve)
    }
}

impl Listener for Filling {
    fn began(&mut self, key: Key, allocator: &Allocator, ts: i64) {
        self.add(key, allocator, ts);
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        if event.action != Action::Oom {
            self.add(key, allocator, event.ts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_keeps_its_peak() {
        let mut curve = Curve::default();
        let mut last_step = i64::MIN;
        for (ts_ns, reserved_bytes, step) in [(1, 5, 0), (2, 9, 0), (3, 4, 0), (4, 6, 1)] {
            curve.add(Point { ts_ns, reserved_bytes, ..Point::default() }, step, &mut last_step);
        }
        let found: Vec<_> = curve.points.iter().map(|point| (point.ts_ns, point.reserved_bytes)).collect();
        assert_eq!(found, [(2, 9), (4, 6)]);
        assert_eq!((curve.events_count, curve.peak_reserved_bytes), (4, 9));
    }
}
