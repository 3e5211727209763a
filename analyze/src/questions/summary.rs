//! Number and durations of calls by function and group, from the view `op_summary`, largest total first.

use serde::Serialize;
use trace_schema::Bytes;

use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, booleans, floats, integers, strings},
    coverage::{Coverage, Watched},
    error::AnalyzeError,
    reading::Names,
};

/// The calls of one function in one group (direction, size class, first call). Times are in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Name of the run.
    pub run: String,
    /// Name of the function.
    pub op: String,
    /// Direction of a copy; `None` for other calls.
    pub direction: Option<String>,
    /// Binary logarithm of the size in bytes, rounded down; `None` if the calls have no size.
    pub size_class: Option<i64>,
    /// True if these are the first launches of their kernels.
    pub first_call: bool,
    /// True if only a part of the function's calls has rows, so that counts, sums and the maximum are lower bounds.
    pub is_partial: bool,
    /// Number of calls that returned.
    pub calls_count: i64,
    /// Number of calls that were still open at the end of the recording.
    pub censored_count: i64,
    /// Median duration.
    pub p50_ns: Option<f64>,
    /// 90th percentile of the duration.
    pub p90_ns: Option<f64>,
    /// 99th percentile of the duration.
    pub p99_ns: Option<f64>,
    /// Longest duration.
    pub max_ns: Option<i64>,
    /// Sum of the durations.
    pub total_ns: Option<i64>,
}

impl Line {
    /// Describes what distinguishes the group from others of its function, such as `≥ 64 KiB, first call`;
    /// empty if nothing does.
    pub fn stratum(&self) -> String {
        let size = self.size_class.map(|class| {
            let at_least = u32::try_from(class).ok().and_then(|class| 1_i64.checked_shl(class));
            format!("≥ {}", Bytes(at_least.unwrap_or(i64::MAX)))
        });
        let first = self.first_call.then(|| "first call".to_owned());
        let words: Vec<String> = [self.direction.clone(), size, first].into_iter().flatten().collect();
        words.join(", ")
    }
}

/// Returns one line per function and group.
pub async fn run(trace: &Trace) -> Result<Vec<Line>, AnalyzeError> {
    let batches = trace
        .batches("SELECT * FROM op_summary ORDER BY run, total_ns DESC NULLS LAST, op, direction, size_class, first_call")
        .await?;
    let mut names = Names::default();
    let coverage = Coverage::of_files(trace.files(), &Watched::default(), &mut names);
    let mut lines = Vec::new();
    for batch in &batches {
        let text = |name| strings(batch, name);
        let whole = |name| integers(batch, name);
        let (runs, ops, directions) = (text("run")?, text("op")?, text("direction")?);
        let (size, calls, censored) = (whole("size_class")?, whole("calls_count")?, whole("censored_count")?);
        let (max, total, first) = (whole("max_ns")?, whole("total_ns")?, booleans(batch, "first_call")?);
        let (p50, p90, p99) = (floats(batch, "p50_ns")?, floats(batch, "p90_ns")?, floats(batch, "p99_ns")?);
        lines.extend((0..batch.num_rows()).map(|row| {
            let (run, op) = (names.number(runs.value(row)), names.number(ops.value(row)));
            Line {
                run: runs.value(row).to_owned(),
                op: ops.value(row).to_owned(),
                direction: directions.at(row).map(str::to_owned),
                size_class: size.at(row),
                first_call: first.at(row).unwrap_or(false),
                is_partial: !coverage.has_all_calls(run, |other| other == op),
                calls_count: calls.value(row),
                censored_count: censored.value(row),
                p50_ns: p50.at(row),
                p90_ns: p90.at(row),
                p99_ns: p99.at(row),
                max_ns: max.at(row),
                total_ns: total.at(row),
            }
        }));
    }
    Ok(lines)
}
