//! The first rows of a query as JSON, for readers that take only so much. What is read of an answer without end is bounded.

use arrow::{array::RecordBatch, json::LineDelimitedWriter};
use futures::StreamExt;
use serde_json::{Map, Value};

use super::{
    explain_empty,
    query::{plan, says_nothing, start},
};
use crate::trace::Trace;
use analyze_engine::error::query_error;
use analyze_run::error::AnalyzeError;

/// The number of rows that are written at once: what is written beyond the limits is at most this.
const CHUNK: usize = 64;

/// How much of an answer is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest number of rows.
    pub rows_count: usize,
    /// The size in bytes of the rows as JSON after which no further row is taken.
    pub size_bytes: usize,
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Type, as Arrow names it.
    pub ty: String,
}

/// The first rows of an answer.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// The rows; a value that is null has no field.
    pub rows: Vec<Map<String, Value>>,
    /// True if the answer has more rows.
    pub is_cut: bool,
    /// If the answer says nothing (no row, or one of nulls, zeros and empty lists): what the runs lack that it asks for.
    pub why_empty: Vec<String>,
}

/// Writes rows as JSON.
fn objects(batch: &RecordBatch) -> Result<Vec<Map<String, Value>>, AnalyzeError> {
    let wrong = |error: &dyn std::fmt::Display| {
        AnalyzeError::Query(format!("the answer cannot be written as JSON: {error}"))
    };
    let mut writer = LineDelimitedWriter::new(Vec::new());
    writer.write(batch).and_then(|()| writer.finish()).map_err(|error| wrong(&error))?;
    let text = writer.into_inner();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).map_err(|error| wrong(&error))).collect()
}

/// Reads the first rows of a query.
///
/// # Errors
/// Returns an error if the query is wrong or is no query, or if the data is damaged.
pub async fn read(trace: &Trace, query: &str, limits: Limits) -> Result<Rows, AnalyzeError> {
    let frame = plan(trace, query, &[]).await?;
    let logical = frame.logical_plan().clone();
    let fields = frame.schema().inner().fields().iter();
    let columns =
        fields.map(|field| Column { name: field.name().clone(), ty: field.data_type().to_string() });
    let mut found =
        Rows { columns: columns.collect(), rows: Vec::new(), is_cut: false, why_empty: Vec::new() };
    let mut stream = start(frame).await?;
    let (mut size_bytes, mut is_empty) = (0, true);
    'batches: while let Some(batch) = stream.next().await {
        let batch = batch.map_err(query_error)?;
        is_empty &= batch.num_rows() == 0 || (found.rows.is_empty() && says_nothing(&batch));
        for begin in (0..batch.num_rows()).step_by(CHUNK) {
            for row in objects(&batch.slice(begin, CHUNK.min(batch.num_rows() - begin)))? {
                // What a row takes as text, a comma included.
                size_bytes += serde_json::to_vec(&row).map_or(0, |text| text.len() + 1);
                if found.rows.len() == limits.rows_count || size_bytes > limits.size_bytes {
                    found.is_cut = true;
                    break 'batches;
                }
                found.rows.push(row);
            }
        }
    }
    if is_empty {
        found.why_empty = explain_empty::notes(trace, &logical).await?;
    }
    Ok(found)
}
