//! Merges overlapping row groups of a file by `ts`, for rows that were written in no order.
//!
//! ```text
//! groups   ├── 1 ──┤                         each sorted: one small batch of each is open
//!            ├── 2 ────┤        ─► least ts first ─►  ├── 1 ──┤├── 2 ──┤├── 3 ──┤
//!          ├─── 3 ───┤
//! ```

use std::{cmp::Reverse, collections::BinaryHeap, fs::File, os::fd::AsRawFd, path::Path, sync::Arc};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    compute::interleave,
    datatypes::{Int64Type, SchemaRef},
    error::ArrowError,
};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use crate::WriteError;

/// Rows of a group that are decoded at once.
const READ_ROWS: usize = 1 << 13;
/// Rows of a merged batch.
const BATCH_ROWS: usize = 1 << 16;

/// A row group that is being read.
struct Group {
    reader: ParquetRecordBatchReader,
    /// Its rows at hand, by their place among the batches, and the next of them.
    batch: usize,
    row: usize,
}

/// Iterates over the rows of a file in the order of `ts`; rows with equal times keep the order of the file.
pub(crate) struct Merge<'a> {
    path: &'a Path,
    schema: SchemaRef,
    groups: Vec<Group>,
    /// The next row of each group that has one.
    heads: BinaryHeap<Reverse<(i64, usize)>>,
    batches: Vec<RecordBatch>,
}

/// The `ts` of a row.
fn time(batch: &RecordBatch, row: usize) -> Result<i64, ArrowError> {
    let ts = batch.column_by_name("ts").and_then(|ts| ts.as_primitive_opt::<Int64Type>());
    ts.map(|ts| ts.value(row)).ok_or_else(|| ArrowError::SchemaError("a batch without ts".to_owned()))
}

impl<'a> Merge<'a> {
    /// Opens a file in which each row group is sorted by `ts`. It need not have a name; `path` is for messages.
    pub(crate) fn open(file: &File, path: &'a Path) -> Result<Self, WriteError> {
        let io = |source| WriteError::Io { path: path.to_owned(), source };
        let failed = |source| WriteError::Parquet { path: path.to_owned(), source };
        let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::new()).map_err(failed)?;
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut merge = Self {
            path,
            schema: Arc::clone(metadata.schema()),
            groups: Vec::new(),
            heads: BinaryHeap::new(),
            batches: Vec::new(),
        };
        for index in 0..metadata.metadata().num_row_groups() {
            // Opened again: readers would move each other's place in a common one.
            let file = File::open(&again).map_err(io)?;
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
                .with_row_groups(vec![index])
                .with_batch_size(READ_ROWS)
                .build()
                .map_err(failed)?;
            merge.groups.push(Group { reader, batch: 0, row: 0 });
            merge.advance(index).map_err(|source| WriteError::Arrow { path: path.to_owned(), source })?;
        }
        Ok(merge)
    }

    /// Reads the next batch of a row group, if there is one.
    fn advance(&mut self, number: usize) -> Result<(), ArrowError> {
        let group = &mut self.groups[number];
        for batch in group.reader.by_ref() {
            let batch = batch?;
            if batch.num_rows() > 0 {
                self.heads.push(Reverse((time(&batch, 0)?, number)));
                (group.batch, group.row) = (self.batches.len(), 0);
                self.batches.push(batch);
                break;
            }
        }
        Ok(())
    }

    /// Returns the next batch of rows, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>, WriteError> {
        self.merged().map_err(|source| WriteError::Arrow { path: self.path.to_owned(), source })
    }

    fn merged(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(BATCH_ROWS);
        while places.len() < BATCH_ROWS
            && let Some(Reverse((_, number))) = self.heads.pop()
        {
            let group = &mut self.groups[number];
            places.push((group.batch, group.row));
            group.row += 1;
            let batch = &self.batches[group.batch];
            if group.row < batch.num_rows() {
                self.heads.push(Reverse((time(batch, group.row)?, number)));
            } else {
                self.advance(number)?;
            }
        }
        if places.is_empty() {
            return Ok(None);
        }
        let columns = (0..self.schema.fields().len()).map(|column| {
            let parts: Vec<&dyn Array> =
                self.batches.iter().map(|batch| batch.column(column).as_ref()).collect();
            interleave(&parts, &places)
        });
        let merged = RecordBatch::try_new(Arc::clone(&self.schema), columns.collect::<Result<Vec<_>, _>>()?)?;
        // Only rows that wait are kept.
        let mut kept = Vec::new();
        for Reverse((_, number)) in &self.heads {
            let group = &mut self.groups[*number];
            kept.push(self.batches[group.batch].clone());
            group.batch = kept.len() - 1;
        }
        self.batches = kept;
        Ok(Some(merged))
    }
}
