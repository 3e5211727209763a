//! The finished file: encodings chosen by measurement on launch-heavy traces.
//!
//! `ts` and `dur` are nearly incompressible; bit-packed differences are the smallest form there is.
//! Every other column repeats itself and is a dictionary, or differences where it does not repeat
//! enough for one. Zstandard level 1 takes what pattern remains; higher levels gain nothing.

use std::{fs::File, path::Path, sync::Arc};

use arrow::{
    array::RecordBatch,
    compute::{SortOptions, concat_batches, sort_to_indices, take_record_batch},
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

/// Rows of a row group: large enough for the encodings to pay, small enough to sort in memory.
pub(crate) const GROUP_ROWS: usize = 1 << 20;
/// Rows of a page, the unit of skipping.
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

fn sorted(batches: &[RecordBatch]) -> Result<RecordBatch, ArrowError> {
    let all = concat_batches(&Arc::new(arrow_schema()), batches)?;
    let ts = all.column(0);
    let options = SortOptions { descending: false, nulls_first: false };
    let order = sort_to_indices(ts, Some(options), None)?;
    take_record_batch(&all, &order)
}

/// Writes a run. Rows may come in any order; each row group is sorted by `ts`.
pub(crate) fn write(
    path: &Path,
    batches: impl Iterator<Item = Result<RecordBatch, WriteError>>,
    run: &Run,
) -> Result<u64, WriteError> {
    let io = |source| WriteError::Io { path: path.to_owned(), source };
    let failed = |source| WriteError::Parquet { path: path.to_owned(), source };
    let arrow = |source| WriteError::Arrow { path: path.to_owned(), source };

    let file = File::create(path).map_err(io)?;
    let schema = Arc::new(arrow_schema());
    let properties = properties().map_err(failed)?;
    let mut writer = ArrowWriter::try_new(&file, schema, Some(properties)).map_err(failed)?;

    let mut waiting: Vec<RecordBatch> = Vec::new();
    let (mut waiting_rows, mut rows) = (0, 0);
    for batch in batches {
        let batch = batch?;
        waiting_rows += batch.num_rows();
        rows += batch.num_rows() as u64;
        waiting.push(batch);
        if waiting_rows >= GROUP_ROWS {
            writer.write(&sorted(&waiting).map_err(arrow)?).map_err(failed)?;
            // The writer would fill its group with the next batch, whose rows start over.
            writer.flush().map_err(failed)?;
            waiting.clear();
            waiting_rows = 0;
        }
    }
    writer.write(&sorted(&waiting).map_err(arrow)?).map_err(failed)?;

    let json = serde_json::to_string(run)
        .map_err(|source| WriteError::Metadata { path: path.to_owned(), source })?;
    writer.append_key_value_metadata(KeyValue::new(META_VERSION.to_owned(), FORMAT_VERSION.to_string()));
    writer.append_key_value_metadata(KeyValue::new(META_RUN.to_owned(), json));
    writer.close().map_err(failed)?;
    file.sync_all().map_err(io)?;
    Ok(rows)
}
