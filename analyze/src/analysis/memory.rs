//! What PyTorch's allocator held over time: the view `memory_curve`, thinned for a figure. A thinned curve keeps
//! the largest value of each step, so that no peak is lost.

use serde::Serialize;

use crate::{
    columns::{Cell, integers},
    error::AnalyzeError,
    trace::Trace,
};

/// One step of the curve.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) ts_ns: i64,
    /// Bytes that live allocations asked for (or, from reports, allocated).
    pub(crate) live_bytes: i64,
    pub(crate) reserved_bytes: i64,
}

/// Allocator totals over time, all processes and devices together.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Curve {
    pub(crate) points: Vec<Point>,
    pub(crate) peak_live_bytes: i64,
    pub(crate) peak_reserved_bytes: i64,
    /// Events behind the curve; 0: this run has no allocator events.
    pub(crate) events_count: i64,
    pub(crate) oom_ts_ns: Vec<i64>,
}

/// Steps of the curve.
const STEPS: usize = 800;

/// Computes the curve of one run.
///
/// # Errors
/// If the run's data cannot be read.
pub(crate) async fn run(trace: &Trace) -> Result<Curve, AnalyzeError> {
    let query = format!(
        "SELECT min(ts) AS ts, max(coalesce(requested_bytes, allocated_bytes)) AS live, max(reserved_bytes) AS reserved, count(*) AS n \
         FROM (SELECT *, ntile({STEPS}) OVER (ORDER BY ts) AS step FROM memory_curve) GROUP BY step ORDER BY ts"
    );
    let mut curve = Curve::default();
    for batch in trace.batches(&query).await? {
        let (ts, live) = (integers(&batch, "ts")?, integers(&batch, "live")?);
        let (reserved, n) = (integers(&batch, "reserved")?, integers(&batch, "n")?);
        for row in 0..batch.num_rows() {
            curve.points.push(Point {
                ts_ns: ts.value(row),
                live_bytes: live.at(row).unwrap_or_default(),
                reserved_bytes: reserved.at(row).unwrap_or_default(),
            });
            curve.events_count += n.value(row);
        }
    }
    let peak = |get: fn(&Point) -> i64| curve.points.iter().map(get).max().unwrap_or_default();
    (curve.peak_live_bytes, curve.peak_reserved_bytes) = (peak(|p| p.live_bytes), peak(|p| p.reserved_bytes));
    for batch in
        trace.batches("SELECT ts FROM events WHERE kind = 'alloc' AND op = 'oom' ORDER BY ts").await?
    {
        curve.oom_ts_ns.extend(integers(&batch, "ts")?.iter().flatten());
    }
    Ok(curve)
}
