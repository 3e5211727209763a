//! Decodes one row group of a file, batch by batch.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Int64Type, SchemaRef},
};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
            ParquetRecordBatchReaderBuilder,
        },
    },
    file::{metadata::RowGroupMetaData, statistics::Statistics},
};

use super::window::Windows;
use crate::error::AnalyzeError;

/// The number of rows decoded at once, small enough that what lies between decoder and reader fits into a
/// cache.
const BATCH_ROWS: usize = 1 << 13;

fn load(path: &Path) -> Result<ArrowReaderMetadata, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let damaged = |error| AnalyzeError::NotParquet { path: path.to_owned(), reason: format!("{error}") };
    ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(damaged)
}

/// Returns the schema of a file as it is stored.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(super) fn schema(path: &Path) -> Result<SchemaRef, AnalyzeError> {
    Ok(Arc::clone(load(path)?.schema()))
}

/// Returns the index of the leaf column `ts`.
fn ts_column(metadata: &ArrowReaderMetadata) -> Option<usize> {
    metadata.parquet_schema().columns().iter().position(|column| column.path().string() == "ts")
}

fn declares_order(group: &RowGroupMetaData, ts: usize) -> bool {
    let first = group.sorting_columns().and_then(|columns| columns.first());
    first.is_some_and(|column| column.column_idx as usize == ts && !column.descending)
}

/// Returns whether each row group of the file declares that it is sorted by `ts`.
pub(super) fn is_sorted(path: &Path) -> bool {
    load(path).is_ok_and(|metadata| {
        ts_column(&metadata)
            .is_some_and(|ts| metadata.metadata().row_groups().iter().all(|group| declares_order(group, ts)))
    })
}

/// A row group and its place: the file, and its index in the file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
    index: usize,
    /// The least `ts` in the row group (ns), or the least possible one if there are no statistics.
    /// The number of rows in the row group.
    pub(super) first_ts: i64,
    pub(super) rows_count: u64,
}

/// Returns the row groups of a file.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(super) fn places(path: &Path) -> Result<Vec<Place>, AnalyzeError> {
    let metadata = load(path)?;
    let ts = ts_column(&metadata).unwrap_or_default();
    let groups = metadata.metadata().row_groups().iter().enumerate();
    Ok(groups
        .map(|(index, group)| {
            let first_ts = match group.column(ts).statistics() {
                Some(Statistics::Int64(values)) => values.min_opt().copied(),
                _ => None,
            };
            let (path, metadata) = (path.to_owned(), metadata.clone());
            let rows_count = u64::try_from(group.num_rows()).unwrap_or_default();
            Place { path, metadata, index, first_ts: first_ts.unwrap_or(i64::MIN), rows_count }
        })
        .collect())
}

/// Decodes one row group.
pub(super) struct Decoder {
    place: Place,
    batches: ParquetRecordBatchReader,
    last_ts: i64,
}

impl Decoder {
    /// Opens a row group. Columns that the file lacks are left out.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(super) fn open(place: Place, columns: &[&str]) -> Result<Self, AnalyzeError> {
        let io = |source| AnalyzeError::Io { path: place.path.clone(), source };
        let leaves = place.metadata.parquet_schema().columns().iter().enumerate();
        let wanted = leaves.filter(|(_, leaf)| columns.contains(&leaf.path().string().as_str()));
        let wanted: Vec<usize> = wanted.map(|(index, _)| index).collect();
        let group = place.metadata.metadata().row_group(place.index);
        let ranges = wanted.iter().map(|index| {
            let column = group.column(*index);
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let end = start.saturating_add(column.compressed_size());
            u64::try_from(start).unwrap_or_default()..u64::try_from(end).unwrap_or_default()
        });
        let windows = File::open(&place.path).and_then(|file| Windows::new(file, ranges)).map_err(io)?;
        let mask = ProjectionMask::leaves(place.metadata.parquet_schema(), wanted);
        let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(windows, place.metadata.clone())
            .with_row_groups(vec![place.index])
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(|error| AnalyzeError::Damaged(format!("{}: {error}", place.path.display())))?;
        let last_ts = place.first_ts;
        Ok(Self { place, batches, last_ts })
    }

    /// Returns the next rows with the `ts` of the last of them, or `None` after the last rows.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be read or are not in order.
    pub(super) fn next(&mut self) -> Result<Option<(RecordBatch, i64)>, AnalyzeError> {
        let damaged = |what: String| {
            AnalyzeError::Damaged(format!(
                "{}: row group {}: {what}",
                self.place.path.display(),
                self.place.index
            ))
        };
        loop {
            let Some(batch) = self.batches.next() else { return Ok(None) };
            let batch = batch.map_err(|error| damaged(error.to_string()))?;
            let ts = batch.column_by_name("ts").and_then(|ts| ts.as_primitive_opt::<Int64Type>());
            let ts = ts.ok_or_else(|| damaged("column ts is not int64".to_owned()))?;
            let Some(last) = ts.values().last() else { continue };
            if ts.value(0) < self.last_ts || !ts.values().is_sorted() {
                return Err(damaged("it says that it is sorted by ts, and is not".to_owned()));
            }
            self.last_ts = *last;
            return Ok(Some((batch, self.last_ts)));
        }
    }
}
