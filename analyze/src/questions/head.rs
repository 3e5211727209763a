//! The first rows of a run.

use arrow::{
    array::{Array, RecordBatch},
    compute::concat_batches,
};
use trace_schema::Kind;

use crate::trace::Trace;
use analyze_engine::error::query_error;
use analyze_run::error::AnalyzeError;

/// Looks up an event kind by its name.
///
/// # Errors
/// Returns the list of known names, as a sentence, if there is no such kind.
pub fn kind(name: &str) -> Result<Kind, String> {
    let known = || Kind::ALL.map(Kind::name).join(", ");
    Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| format!("one of {}", known()))
}

/// Returns the first `number` rows of a run in order of time, only those of `kind` if one is given. Columns
/// that are null in all of these rows are left out.
pub async fn run(trace: &Trace, number: u32, kind: Option<Kind>) -> Result<RecordBatch, AnalyzeError> {
    let of_kind = kind.map_or_else(String::new, |kind| format!("WHERE kind = '{}'", kind.name()));
    let frame = trace.sql(&format!("SELECT * FROM events {of_kind} ORDER BY ts LIMIT {number}")).await?;
    let schema = frame.schema().inner().clone();
    let internal = |error: arrow::error::ArrowError| AnalyzeError::Internal(error.to_string());
    let batch = concat_batches(&schema, &frame.collect().await.map_err(query_error)?).map_err(internal)?;
    let columns = batch.columns().iter().enumerate().skip(1);
    let filled = columns.filter(|(index, column)| *index <= 2 || column.null_count() < column.len());
    batch.project(&filled.map(|(index, _)| index).collect::<Vec<_>>()).map_err(internal)
}
