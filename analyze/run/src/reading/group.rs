//! Decodes one row group of a file, batch by batch.

use std::{path::Path, sync::Arc};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{Int64Type, SchemaRef},
};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    },
    file::{metadata::RowGroupMetaData, statistics::Statistics},
};

use super::window::Windows;
use crate::{error::AnalyzeError, panics, parquet_pages::CheckedPages, stored_file::StoredFile, times};

/// The number of rows decoded at once, small enough that what lies between decoder and reader fits into a
/// cache.
const BATCH_ROWS: usize = 1 << 13;

/// Returns the schema of a file as it is stored.
pub(super) fn schema(path: &Path) -> Result<SchemaRef, AnalyzeError> {
    Ok(Arc::clone(StoredFile::open(path)?.schema()))
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
    StoredFile::open(path).is_ok_and(|file| {
        ts_column(file.reader())
            .is_some_and(|ts| file.metadata().row_groups().iter().all(|group| declares_order(group, ts)))
    })
}

/// A row group and its place: the file, and its index in the file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    file: Arc<StoredFile>,
    index: usize,
    /// The least `ts` in the row group (ns), or the least possible one if there are no statistics.
    pub(super) first_ts: i64,
    /// The number of rows in the row group.
    pub(super) rows_count: u64,
}

impl Place {
    /// Returns the error of a row group that is not what the file says of it.
    fn damaged(&self, what: impl std::fmt::Display) -> AnalyzeError {
        AnalyzeError::Damaged(format!("{}: row group {}: {what}", self.file.path().display(), self.index))
    }
}

/// Returns the row groups of a file.
pub(super) fn places(path: &Path) -> Result<Vec<Place>, AnalyzeError> {
    let file = Arc::new(StoredFile::open(path)?);
    let ts = ts_column(file.reader()).unwrap_or_default();
    let groups = file.metadata().row_groups().iter().enumerate();
    Ok(groups
        .map(|(index, group)| {
            let first_ts = match group.column(ts).statistics() {
                Some(Statistics::Int64(values)) => values.min_opt().copied(),
                _ => None,
            };
            let rows_count = u64::try_from(group.num_rows()).unwrap_or_default();
            Place { file: Arc::clone(&file), index, first_ts: first_ts.unwrap_or(i64::MIN), rows_count }
        })
        .collect())
}

/// Decodes one row group.
pub(super) struct Decoder {
    place: Place,
    batches: ParquetRecordBatchReader,
    last_ts: i64,
    /// The number of rows that have been decoded.
    rows_count: u64,
}

impl Decoder {
    /// Opens a row group. Columns that the file lacks are left out.
    pub(super) fn open(place: Place, columns: &[&str]) -> Result<Self, AnalyzeError> {
        let file = Arc::clone(&place.file);
        panics::decoding(file.path(), || Self::open_unguarded(place, columns))
    }

    fn open_unguarded(place: Place, columns: &[&str]) -> Result<Self, AnalyzeError> {
        let file = Arc::clone(&place.file);
        let schema = file.metadata().file_metadata().schema_descr();
        let leaves = schema.columns().iter().enumerate();
        let wanted = leaves.filter(|(_, leaf)| columns.contains(&leaf.path().string().as_str()));
        let wanted: Vec<usize> = wanted.map(|(index, _)| index).collect();
        let group = file.metadata().row_group(place.index);
        let ranges = wanted.iter().map(|index| {
            let column = group.column(*index);
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let end = start.saturating_add(column.compressed_size());
            u64::try_from(start).unwrap_or_default()..u64::try_from(end).unwrap_or_default()
        });
        let windows = Windows::new(file.file()?, ranges)
            .map_err(|source| AnalyzeError::Io { path: file.path().to_owned(), source })?;
        let mask = ProjectionMask::leaves(schema, wanted.iter().copied());
        let pages = CheckedPages(windows);
        let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(pages, file.reader().clone())
            .with_row_groups(vec![place.index])
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(|error| place.damaged(error))?;
        let last_ts = place.first_ts;
        Ok(Self { place, batches, last_ts, rows_count: 0 })
    }

    /// Returns the next rows with the `ts` of the last of them, or `None` after the last rows.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be read, are not in order, have times beyond the bound, or are not as many as the
    /// file says.
    pub(super) fn next(&mut self) -> Result<Option<(RecordBatch, i64)>, AnalyzeError> {
        let file = Arc::clone(&self.place.file);
        panics::decoding(file.path(), || self.next_unguarded())
    }

    fn next_unguarded(&mut self) -> Result<Option<(RecordBatch, i64)>, AnalyzeError> {
        loop {
            let Some(batch) = self.batches.next() else {
                let (found, said) = (self.rows_count, self.place.rows_count);
                return match found == said {
                    true => Ok(None),
                    false => {
                        Err(self.place.damaged(format!("it has {found} rows, and the footer says {said}")))
                    }
                };
            };
            let batch = batch.map_err(|error| self.place.damaged(error))?;
            if let Some(fault) = times::batch_fault(&batch) {
                return Err(self.place.damaged(fault));
            }
            self.rows_count += batch.num_rows() as u64;
            let ts = batch.column_by_name("ts").and_then(|ts| ts.as_primitive_opt::<Int64Type>());
            let ts = ts.filter(|ts| ts.null_count() == 0);
            let ts = ts.ok_or_else(|| self.place.damaged("column ts is not int64, or has nulls"))?;
            let Some(last) = ts.values().last().copied() else { continue };
            if ts.value(0) < self.last_ts || !ts.values().is_sorted() {
                return Err(self.place.damaged("it says that it is sorted by ts, and is not"));
            }
            self.last_ts = last;
            return Ok(Some((batch, last)));
        }
    }
}
