//! What PyTorch's allocators held over time, by class, thinned for a chart: each step of time keeps the
//! moment at which the most memory was reserved, so that no peak is lost and the classes of every point sum
//! to the reserved bytes.

use serde::Serialize;
use trace_schema::{Clock, Kind};

use crate::questions::{info::Present, memory::state::At};
use crate::trace::Trace;
use analyze_memory::{
    allocator::Allocator,
    event::{Action, Event},
    input::{Key, Listener},
};
use analyze_run::{columns::integers, error::AnalyzeError, hash::HashMap};

/// The memory of all allocators at one moment, in bytes by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The time (ns, trace clock).
    pub ts_ns: i64,
    /// Reserved bytes: the sum of the classes below.
    pub reserved_bytes: i64,
    /// Bytes in active blocks.
    pub in_use_bytes: i64,
    /// Free bytes in segments that active blocks hold.
    pub pinned_bytes: i64,
    /// Free bytes that `empty_cache()` would release.
    pub releasable_bytes: i64,
    /// Bytes in unused segments of private pools.
    pub private_bytes: i64,
    /// Bytes in blocks whose state is not known.
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

/// The memory of the allocators of all processes and devices over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Curve {
    /// The points, in order of time.
    pub points: Vec<Point>,
    /// The largest number of bytes in active blocks.
    pub peak_in_use_bytes: i64,
    /// The largest number of reserved bytes.
    pub peak_reserved_bytes: i64,
    /// The number of events behind the curve; 0 if the run has no allocator events.
    pub events_count: i64,
    /// The times of out-of-memory errors (ns, trace clock).
    pub oom_ts_ns: Vec<i64>,
}

/// The number of time steps of the curve.
const STEPS: i64 = 800;

impl Curve {
    /// Takes the sums after an event: of the moments of one step, the one with the most reserved bytes is
    /// kept.
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

/// A listener that builds the curve from a replay.
pub struct Filling {
    curve: Curve,
    start_ns: i64,
    span_ns: i64,
    held: HashMap<Key, Point>,
    last: Point,
    last_step: i64,
    /// The time at which a single allocator had the most reserved bytes, and that number.
    peak: Option<(i64, i64)>,
}

impl Filling {
    /// Creates a listener for a run with this clock.
    pub fn new(clock: &Clock) -> Self {
        Self {
            curve: Curve::default(),
            start_ns: clock.start_ns,
            span_ns: clock.end_ns.saturating_sub(clock.start_ns).max(1),
            held: HashMap::default(),
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
        // Active bytes outside of known segments are not part of the reserved bytes.
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

    /// Returns whether no event of an allocator was replayed.
    pub fn is_empty(&self) -> bool {
        self.curve.points.is_empty()
    }

    /// Returns the first instant at which a single allocator had the most reserved bytes.
    pub fn peak(&self) -> At {
        self.peak.map_or(At::Peak, |(ts, _)| At::Reached(ts))
    }

    /// Completes the curve of a run, of which these rows are present.
    pub async fn finish(mut self, trace: &Trace, present: &Present) -> Result<Curve, AnalyzeError> {
        // The last state is shown even if the last step had a higher one.
        if self.curve.points.last().is_some_and(|point| *point != self.last) {
            self.curve.points.push(self.last);
        }
        if !present.has(Kind::Alloc, "oom") {
            return Ok(self.curve);
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
