//! Runs made of other runs: rows as they are, metadata that says what was done to them.

pub mod merge;
pub mod slice;

use arrow::{
    array::{AsArray, RecordBatch, StringArray},
    compute::cast,
    datatypes::{ArrowPrimitiveType, DataType},
};

use analyze_run::error::AnalyzeError;

/// A column of numbers.
fn numbers<T: ArrowPrimitiveType>(
    batch: &RecordBatch,
    name: &str,
) -> Result<arrow::array::PrimitiveArray<T>, AnalyzeError> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<T>());
    column.cloned().ok_or_else(|| AnalyzeError::Damaged(format!("column {name} is not {}", T::DATA_TYPE)))
}

/// A column of strings.
fn texts(batch: &RecordBatch, name: &str) -> Result<StringArray, AnalyzeError> {
    let missing = || AnalyzeError::Damaged(format!("column {name} is missing"));
    let column = batch.column_by_name(name).ok_or_else(missing)?;
    let texts = cast(column, &DataType::Utf8)
        .map_err(|error| AnalyzeError::Damaged(format!("column {name}: {error}")))?;
    Ok(texts.as_string::<i32>().clone())
}

/// Does blocking work for asynchronous code.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AnalyzeError> + Send + 'static,
) -> Result<T, AnalyzeError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| AnalyzeError::Internal(error.to_string()))?
}
