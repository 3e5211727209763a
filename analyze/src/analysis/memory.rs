//! What PyTorch's allocators held over time, by class, thinned for a figure: of each step of time the moment is kept at
//! which most was reserved, so that no peak is lost and the classes of every point sum to what was reserved.

use std::collections::HashMap;

use futures::StreamExt;
use serde::Serialize;

use crate::{
    columns::{Cell, integers},
    error::AnalyzeError,
    trace::Trace,
};

/// One moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Point {
    pub(crate) ts_ns: i64,
    /// The sum of what follows.
    pub(crate) reserved_bytes: i64,
    pub(crate) in_use_bytes: i64,
    /// Free, beside what is in use.
    pub(crate) pinned_bytes: i64,
    /// Free, could be given back.
    pub(crate) releasable_bytes: i64,
    /// Unused segments of private pools.
    pub(crate) private_bytes: i64,
    pub(crate) unknown_bytes: i64,
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
pub(crate) struct Curve {
    pub(crate) points: Vec<Point>,
    pub(crate) peak_in_use_bytes: i64,
    pub(crate) peak_reserved_bytes: i64,
    /// Events behind the curve; 0: this run has no allocator events.
    pub(crate) events_count: i64,
    pub(crate) oom_ts_ns: Vec<i64>,
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

/// Computes the curve of one run.
///
/// # Errors
/// If the run's data cannot be read.
pub(crate) async fn run(trace: &Trace) -> Result<Curve, AnalyzeError> {
    let clock = trace.files().first().map(|file| file.run.clock.clone()).unwrap_or_default();
    let span = clock.end_ns.saturating_sub(clock.start_ns).max(1);
    // Rows of one run come in the order of time, as they are replayed.
    let query = "SELECT pid, device, ts, reserved_bytes, coalesce(active_bytes, allocated_bytes) AS in_use_bytes, \
         releasable_bytes, private_releasable_bytes, unknown_bytes FROM memory_curve";
    let mut batches = trace.context().sql(query).await?.execute_stream().await?;
    let mut curve = Curve::default();
    let (mut held, mut last_step) = (HashMap::<(i64, i64), Point>::new(), i64::MIN);
    let mut last = Point::default();
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        let column = |name| integers(&batch, name);
        let (pid, device, ts) = (column("pid")?, column("device")?, column("ts")?);
        let (reserved, in_use) = (column("reserved_bytes")?, column("in_use_bytes")?);
        let (releasable, private) = (column("releasable_bytes")?, column("private_releasable_bytes")?);
        let unknown = column("unknown_bytes")?;
        for row in 0..batch.num_rows() {
            let value = |column: &arrow::array::Int64Array| column.at(row).unwrap_or_default();
            let (reserved_bytes, unknown_bytes) = (value(&reserved), value(&unknown));
            let (releasable_bytes, private_bytes) = (value(&releasable), value(&private));
            let rest = reserved_bytes - unknown_bytes - releasable_bytes - private_bytes;
            // What is in use outside of known segments is not part of what is reserved.
            let in_use_bytes = value(&in_use).min(rest);
            let point = Point {
                ts_ns: value(&ts),
                reserved_bytes,
                in_use_bytes,
                pinned_bytes: rest - in_use_bytes,
                releasable_bytes,
                private_bytes,
                unknown_bytes,
            };
            held.insert((value(&pid), value(&device)), point);
            last =
                held.values().fold(Point { ts_ns: point.ts_ns, ..Point::default() }, |sum, of| sum.plus(of));
            let step = (point.ts_ns - clock.start_ns).saturating_mul(STEPS) / span;
            curve.add(last, step, &mut last_step);
        }
    }
    // How it ended, whatever was most in the last step.
    if curve.points.last().is_some_and(|point| *point != last) {
        curve.points.push(last);
    }
    for batch in
        trace.batches("SELECT ts FROM events WHERE kind = 'alloc' AND op = 'oom' ORDER BY ts").await?
    {
        curve.oom_ts_ns.extend(integers(&batch, "ts")?.iter().flatten());
    }
    Ok(curve)
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
