//! Reads the rows of files in the order in which they are stored, batch by batch.

use std::{fs::File, path::PathBuf};

use arrow::array::RecordBatch;
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};

use crate::error::AnalyzeError;

/// The number of rows read at once.
const BATCH_ROWS: usize = 1 << 14;

/// Returns all rows of some files, one file after the other. With `columns`, only those of them that a file
/// has are read; with `None`, all are. A file that cannot be opened or decoded gives an error item.
pub fn batches(
    paths: Vec<PathBuf>,
    columns: Option<&'static [&'static str]>,
) -> impl Iterator<Item = Result<RecordBatch, AnalyzeError>> {
    paths.into_iter().flat_map(move |path| {
        let (readers, failed) = match open(&path, columns) {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(Err(error))),
        };
        let damaged = move |error| AnalyzeError::Damaged(format!("{}: {error}", path.display()));
        failed.into_iter().chain(readers.into_iter().flatten().map(move |batch| batch.map_err(&damaged)))
    })
}

fn open(
    path: &PathBuf,
    columns: Option<&[&str]>,
) -> Result<parquet::arrow::arrow_reader::ParquetRecordBatchReader, AnalyzeError> {
    let file = File::open(path).map_err(|source| AnalyzeError::Io { path: path.clone(), source })?;
    let damaged = |error| AnalyzeError::Damaged(format!("{}: {error}", path.display()));
    let mut builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(damaged)?;
    if let Some(columns) = columns {
        let leaves = builder.parquet_schema().columns().iter().enumerate();
        let wanted = leaves.filter(|(_, leaf)| columns.contains(&leaf.path().string().as_str()));
        let mask = ProjectionMask::leaves(builder.parquet_schema(), wanted.map(|(index, _)| index));
        builder = builder.with_projection(mask);
    }
    builder.with_batch_size(BATCH_ROWS).build().map_err(damaged)
}
