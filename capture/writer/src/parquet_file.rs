//! Writes the Parquet file of a run, with encodings chosen by measurement on launch-heavy traces.
//!
//! `ts` and `dur` are nearly incompressible; bit-packed differences are the smallest form there is.
//! Every other column repeats itself and is a dictionary, or differences where it does not repeat
//! enough for one. Zstandard level 1 takes what pattern remains; higher levels gain nothing.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, new_null_array},
    compute::interleave,
    datatypes::{Int64Type, SchemaRef},
    error::ArrowError,
};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding, ZstdLevel},
    file::{
        metadata::{KeyValue, SortingColumn},
        properties::{EnabledStatistics, WriterProperties, WriterVersion},
    },
    schema::types::ColumnPath,
};
use trace_schema::{COLUMNS, ColumnType, FORMAT_VERSION, META_RUN, META_VERSION, Run, arrow_schema};

use crate::WriteError;

/// Rows per row group: large enough for the encodings to pay, small enough to sort in memory.
pub(crate) const GROUP_ROWS: usize = 1 << 20;
/// Rows per page, the unit that a reader skips.
const PAGE_ROWS: usize = 1 << 16;

fn properties() -> Result<WriterProperties, parquet::errors::ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(8192)
        .set_sorting_columns(Some(vec![SortingColumn {
            column_idx: 0,
            descending: false,
            nulls_first: false,
        }]));
    for column in COLUMNS {
        let path = ColumnPath::from(column.name);
        if matches!(column.name, "ts" | "dur") {
            builder = builder.set_column_dictionary_enabled(path.clone(), false);
        }
        if column.ty != ColumnType::Text {
            builder = builder.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(builder.build())
}

/// Concatenates the batches and sorts the rows by `ts`.
fn sorted(batches: &[RecordBatch], schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let ts: Vec<&Int64Array> = batches
        .iter()
        .map(|batch| batch.column_by_name("ts").map(|ts| ts.as_primitive::<Int64Type>()))
        .collect::<Option<_>>()
        .ok_or_else(|| ArrowError::SchemaError("a batch without ts".to_owned()))?;
    let mut order: Vec<(i64, (usize, usize))> = ts
        .iter()
        .enumerate()
        .flat_map(|(batch, ts)| ts.values().iter().enumerate().map(move |(row, ts)| (*ts, (batch, row))))
        .collect();
    // Rows come nearly in order, which this sort makes the most of; equal times keep their order.
    order.sort_by_key(|(ts, _)| *ts);
    let places: Vec<(usize, usize)> = order.into_iter().map(|(_, place)| place).collect();
    let columns = schema.fields().iter().map(|field| {
        let parts: Vec<Option<&ArrayRef>> =
            batches.iter().map(|batch| batch.column_by_name(field.name())).collect();
        if parts.iter().all(Option::is_none) {
            return Ok(new_null_array(field.data_type(), places.len()));
        }
        let parts: Vec<ArrayRef> = parts
            .into_iter()
            .zip(batches)
            .map(|(part, batch)| match part {
                Some(part) => Arc::clone(part),
                None => new_null_array(field.data_type(), batch.num_rows()),
            })
            .collect();
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        interleave(&parts, &places)
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}

/// A Parquet file that is being written. Rows may come in any order; each row group is sorted by `ts`.
pub(crate) struct Writer {
    path: PathBuf,
    writer: ArrowWriter<File>,
    schema: SchemaRef,
    rows_count: u64,
    last_ts: i64,
    /// Whether a row group begins before an earlier one ends.
    overlaps: bool,
}

impl Writer {
    /// Begins to write into `file`, which is empty; `path` is for messages.
    pub(crate) fn create(path: &Path, file: File) -> Result<Self, WriteError> {
        let failed = |source| WriteError::Parquet { path: path.to_owned(), source };
        let schema = Arc::new(arrow_schema());
        let properties = properties().map_err(failed)?;
        let writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), writer, schema, rows_count: 0, last_ts: i64::MIN, overlaps: false })
    }

    /// Writes the rows of `batches`; a batch may lack columns that are null in it.
    pub(crate) fn rows(mut self, batches: impl Iterator<Item = RecordBatch>) -> Result<Self, WriteError> {
        let mut waiting: Vec<RecordBatch> = Vec::new();
        let mut waiting_rows = 0;
        for batch in batches {
            waiting_rows += batch.num_rows();
            waiting.push(batch);
            if waiting_rows >= GROUP_ROWS {
                self.group(&waiting)?;
                waiting.clear();
                waiting_rows = 0;
            }
        }
        self.group(&waiting)?;
        Ok(self)
    }

    fn group(&mut self, batches: &[RecordBatch]) -> Result<(), WriteError> {
        let failed = |source| WriteError::Parquet { path: self.path.clone(), source };
        let batch = sorted(batches, &self.schema)
            .map_err(|source| WriteError::Arrow { path: self.path.clone(), source })?;
        self.rows_count += batch.num_rows() as u64;
        if let Some(ts) = batch.column_by_name("ts").and_then(|ts| ts.as_primitive_opt::<Int64Type>())
            && let [first, .., last] | [first @ last] = ts.values()[..]
        {
            self.overlaps |= first < self.last_ts;
            self.last_ts = self.last_ts.max(last);
        }
        self.writer.write(&batch).map_err(failed)?;
        // The writer would fill its group with the next batch, whose rows start over.
        self.writer.flush().map_err(failed)
    }

    /// Whether a row group has rows that are earlier than rows of a group before it.
    pub(crate) fn overlaps(&self) -> bool {
        self.overlaps
    }

    /// Ends the file with `run` as its metadata, and returns the number of rows.
    pub(crate) fn finish(mut self, run: &Run) -> Result<u64, WriteError> {
        let json = serde_json::to_string(run)
            .map_err(|source| WriteError::Metadata { path: self.path.clone(), source })?;
        for (key, value) in [(META_VERSION, FORMAT_VERSION.to_string()), (META_RUN, json)] {
            self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        self.writer.close().map_err(|source| WriteError::Parquet { path: self.path, source })?;
        Ok(self.rows_count)
    }
}
