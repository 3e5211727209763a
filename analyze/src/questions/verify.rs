//! Checks that a run's files keep what the format promises, row by row, and measures the quality of the
//! recording.
//!
//! A file is *broken* if it is not what its format says: a column has another type, rows are not in the
//! declared order, a kind does not exist, or a duration is negative. Lost events do not break a file, because
//! the file says that it lost them.

use std::collections::HashMap;

use arrow::datatypes::Schema;
use serde::Serialize;
use trace_schema::{COLUMNS, Kind};

use super::info;
use crate::trace::Trace;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    panics, reading,
};

/// Something that is not as it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// Description of the problem.
    pub what: String,
    /// Number of rows concerned; 0 if the problem is not about rows.
    pub rows_count: i64,
}

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Number of rows in the files.
    pub rows_count: i64,
    /// Violations of the format: if there are any, the file is broken.
    pub faults: Vec<Fault>,
    /// Rows that contradict other rows; not searched for in a broken file.
    pub contradictions: Vec<Fault>,
    /// Conditions that weaken statements about the run.
    pub warnings: Vec<String>,
    /// Share of the events that were recorded and contradict no other, from 0 to 1; `None` if losses were not
    /// counted, if there are no rows, or if the file is broken.
    pub quality_ratio: Option<f64>,
}

/// Conditions that no row may meet, each with a description of what is wrong with a row that does.
const RULES: [(&str, &str); 6] = [
    ("dur < 0", "a length below zero (column dur)"),
    ("dur > 9223372036854775807 - ts AND ts > 0", "an end that time does not reach (columns ts, dur)"),
    ("runnable_ns < 0 OR runnable_ns > dur", "a wait outside of its interval (column runnable_ns)"),
    (
        "kind = 'off_cpu' AND dur IS NULL AND runnable_ns > 0",
        "a wait of an interval that did not end (column runnable_ns)",
    ),
    ("kind = 'sample' AND value IS NULL", "a reading without a value (column value)"),
    ("kind = 'mark' AND detail IS NULL", "a mark without a name (column detail)"),
];

/// Describes the columns whose type is not the one that the format gives them.
fn schema_faults(found: &Schema) -> Vec<String> {
    let of = |column: &trace_schema::Column| {
        let field = found.field_with_name(column.name).ok()?;
        (field.data_type() != &column.ty.data_type())
            .then(|| format!("column {} is {}, not {}", column.name, field.data_type(), column.ty.name()))
    };
    COLUMNS.iter().filter_map(of).collect()
}

/// Checks one run.
///
/// # Errors
/// Returns an error if the run's data cannot be decoded, which means that it is damaged.
pub async fn run(trace: &Trace) -> Result<Check, AnalyzeError> {
    let mut faults = Vec::new();
    let mut fault = |what: String, rows_count: i64| faults.push(Fault { what, rows_count });
    for path in trace.files().iter().flat_map(|file| &file.paths) {
        schema_faults(reading::schema(path)?.as_ref()).into_iter().for_each(|what| fault(what, 0));
        let checked = path.clone();
        let order = tokio::task::spawn_blocking(move || reading::check_order(&checked)).await;
        match order.map_err(panics::joined)? {
            Ok(()) => {}
            Err(AnalyzeError::Damaged(what)) => fault(what, 0),
            Err(other) => return Err(other),
        }
    }
    let kinds = Kind::ALL.map(|kind| format!("'{}'", kind.name())).join(", ");
    let unknown = format!("kind NOT IN ({kinds})");
    let rules: Vec<(&str, &str)> =
        RULES.into_iter().chain([(unknown.as_str(), "a kind that the format does not have")]).collect();
    // To count a column, every page of it has to be decoded.
    let counts = COLUMNS.iter().map(|column| format!("count({0}) AS \"count_{0}\"", column.name));
    let broken =
        rules.iter().zip(0..).map(|((rule, _), n)| format!("count(*) FILTER (WHERE {rule}) AS rule_{n}"));
    let parts: Vec<String> = counts.chain(broken).collect();
    let query = format!("SELECT count(*) AS rows_count, {} FROM events", parts.join(", "));
    let mut rows_count = 0;
    for batch in trace.batches(&query).await? {
        rows_count = integers(&batch, "rows_count")?.at(0).unwrap_or_default();
        for ((_, what), number) in rules.iter().zip(0..) {
            match integers(&batch, &format!("rule_{number}"))?.at(0) {
                None | Some(0) => {}
                Some(count) => fault(format!("{count} rows have {what}"), count),
            }
        }
    }
    let said: u64 = trace.files().iter().map(|file| file.rows_count).sum();
    if i64::try_from(said) != Ok(rows_count) {
        fault(format!("the footer says {said} rows, and there are {rows_count}"), 0);
    }
    // Contradictions can be searched for only in rows that are valid.
    let mut contradictions: HashMap<String, i64> = HashMap::new();
    if faults.is_empty() {
        for batch in trace.batches("SELECT problem, rows_count FROM data_quality ORDER BY problem").await? {
            let (problem, count) = (strings(&batch, "problem")?, integers(&batch, "rows_count")?);
            for row in 0..batch.num_rows() {
                *contradictions.entry(problem.value(row).to_owned()).or_default() += count.value(row);
            }
        }
    }
    let contradicting: i64 = contradictions.values().sum();
    let mut contradictions: Vec<Fault> =
        contradictions.into_iter().map(|(what, rows_count)| Fault { what, rows_count }).collect();
    contradictions.sort_by(|a, b| a.what.cmp(&b.what));
    let lost: u64 = trace.files().iter().map(|file| file.run.lost_count()).sum();
    let is_counted = trace.files().iter().all(|file| file.run.lost_is_counted);
    let rows = rows_count as f64;
    let quality_ratio = (is_counted && rows_count > 0 && faults.is_empty())
        .then(|| rows / (rows + lost as f64) * (1.0 - (contradicting as f64 / rows).min(1.0)));
    Ok(Check {
        rows_count,
        faults,
        contradictions,
        warnings: trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect(),
        quality_ratio,
    })
}
