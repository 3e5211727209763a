//! Runs made from other runs: rows are copied, and the metadata records what was done to them.

mod clocks;
mod in_order;
pub mod join;
pub mod merge;
pub mod slice;

use arrow::{
    array::{AsArray, RecordBatch, StringArray},
    compute::cast,
    datatypes::{ArrowPrimitiveType, DataType},
};

use analyze_run::error::AnalyzeError;

/// Returns a numeric column of a batch.
fn numbers<T: ArrowPrimitiveType>(
    batch: &RecordBatch,
    name: &str,
) -> Result<arrow::array::PrimitiveArray<T>, AnalyzeError> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<T>());
    column.cloned().ok_or_else(|| AnalyzeError::Damaged(format!("column {name} is not {}", T::DATA_TYPE)))
}

/// Returns a text column of a batch.
fn texts(batch: &RecordBatch, name: &str) -> Result<StringArray, AnalyzeError> {
    let missing = || AnalyzeError::Damaged(format!("column {name} is missing"));
    let column = batch.column_by_name(name).ok_or_else(missing)?;
    let texts = cast(column, &DataType::Utf8)
        .map_err(|error| AnalyzeError::Damaged(format!("column {name}: {error}")))?;
    Ok(texts.as_string::<i32>().clone())
}

/// Adds those items that a list lacks.
fn add_new<T: Clone + PartialEq>(to: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

/// Runs blocking work from asynchronous code, on a thread where it may block.
///
/// # Errors
/// Returns an error if the work fails or panics.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AnalyzeError> + Send + 'static,
) -> Result<T, AnalyzeError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(analyze_run::panics::joined)?
}
