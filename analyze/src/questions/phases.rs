//! The cost of the workload's own phases, from the view `phases`, longest first.

use serde::Serialize;

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, integers, strings},
    coverage::{Coverage, Watched},
    error::AnalyzeError,
    reading::Names,
};

/// One phase: all ranges of one name in one run. Calls count in the innermost range that they began in. Times
/// are in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// Name of the run.
    pub run: String,
    /// Name that the workload gave to the range.
    pub phase: String,
    /// Number of ranges of this name.
    pub ranges_count: i64,
    /// Total length of the ranges; ranges that did not end are left out.
    pub total_ns: i64,
    /// True if only a part of the run's calls has rows, so that what follows are lower bounds.
    pub is_partial: bool,
    /// Number of calls that began in the ranges and in no range nested in them.
    pub calls_count: i64,
    /// Number of these calls that are launches.
    pub launches_count: i64,
    /// Time in top-level calls.
    pub calls_ns: i64,
    /// Part of `calls_ns` in which the calling thread was preempted or runnable; `None` if the scheduler is not on record for
    /// each of these calls.
    pub scheduler_ns: Option<i64>,
    /// Part of `calls_ns` in which the calling thread was blocked; `None` as `scheduler_ns`.
    pub blocked_ns: Option<i64>,
}

/// Returns every phase; the list is empty if the workload marked no ranges.
pub async fn run(trace: &Trace) -> Result<Vec<Phase>, AnalyzeError> {
    let batches = trace.batches("SELECT * FROM phases ORDER BY run, total_ns DESC, phase").await?;
    let mut names = Names::default();
    let coverage = Coverage::of_files(trace.files(), &Watched::default(), &mut names);
    let mut phases = Vec::new();
    for batch in &batches {
        let (runs, phase) = (strings(batch, "run")?, strings(batch, "phase")?);
        let whole = |name| integers(batch, name);
        let (ranges, total, calls) = (whole("ranges_count")?, whole("total_ns")?, whole("calls_count")?);
        let (launches, inside) = (whole("launches_count")?, whole("calls_ns")?);
        let (scheduler, blocked) = (whole("scheduler_ns")?, whole("blocked_ns")?);
        phases.extend((0..batch.num_rows()).map(|row| Phase {
            run: runs.value(row).to_owned(),
            phase: phase.value(row).to_owned(),
            ranges_count: ranges.value(row),
            total_ns: total.value(row),
            is_partial: !coverage.has_all_calls(names.number(runs.value(row)), |_| true),
            calls_count: calls.value(row),
            launches_count: launches.value(row),
            calls_ns: inside.value(row),
            scheduler_ns: scheduler.at(row),
            blocked_ns: blocked.at(row),
        }));
    }
    Ok(phases)
}
