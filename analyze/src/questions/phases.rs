//! What the workload's own phases cost: the view `phases`, longest first.

use serde::Serialize;

use crate::trace::Trace;
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
};

/// One phase. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    pub run: String,
    pub phase: String,
    pub ranges_count: i64,
    pub total_ns: i64,
    pub calls_count: i64,
    pub launches_count: i64,
    pub calls_ns: i64,
    pub scheduler_ns: i64,
    pub blocked_ns: i64,
}

/// Every phase; none if the workload named none.
///
/// # Errors
/// If the run's data cannot be read.
pub async fn run(trace: &Trace) -> Result<Vec<Phase>, AnalyzeError> {
    let batches = trace.batches("SELECT * FROM phases ORDER BY run, total_ns DESC, phase").await?;
    let mut phases = Vec::new();
    for batch in &batches {
        let (runs, names) = (strings(batch, "run")?, strings(batch, "phase")?);
        let whole = |name| integers(batch, name);
        let (ranges, total, calls) = (whole("ranges_count")?, whole("total_ns")?, whole("calls_count")?);
        let (launches, inside) = (whole("launches_count")?, whole("calls_ns")?);
        let (scheduler, blocked) = (whole("scheduler_ns")?, whole("blocked_ns")?);
        phases.extend((0..batch.num_rows()).map(|row| Phase {
            run: runs.value(row).to_owned(),
            phase: names.value(row).to_owned(),
            ranges_count: ranges.value(row),
            total_ns: total.value(row),
            calls_count: calls.value(row),
            launches_count: launches.value(row),
            calls_ns: inside.value(row),
            scheduler_ns: scheduler.value(row),
            blocked_ns: blocked.value(row),
        }));
    }
    Ok(phases)
}
