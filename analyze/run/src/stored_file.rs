//! A Parquet file with rows of a run, as it is stored. Files may come from anyone, so the footer is checked here, once, before
//! anything else relies on it. The Arrow schema that writers embed in the metadata is not read: the columns have the types of
//! the format, or those that Parquet itself gives them.

use std::{
    collections::HashSet,
    fs::File,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use arrow::datatypes::{DataType, Schema, SchemaRef};
use parquet::{
    arrow::{
        ARROW_SCHEMA_META_KEY,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    },
    errors::ParquetError,
    file::{
        metadata::{
            ColumnChunkMetaData, FileMetaData, KeyValue, PageIndexPolicy, ParquetMetaData,
            ParquetMetaDataBuilder, ParquetMetaDataReader, RowGroupMetaData,
        },
        statistics::Statistics,
    },
};
use trace_schema::{COLUMNS, Column, ColumnType};

use crate::{error::AnalyzeError, panics, parquet_footer, times};

/// A file whose footer has been read and checked.
#[derive(Clone, Debug)]
pub struct StoredFile {
    path: PathBuf,
    size_bytes: u64,
    reader: ArrowReaderMetadata,
    /// The footer with the index of pages, once it has been read. All clones share it.
    indexed: Arc<OnceLock<Arc<ParquetMetaData>>>,
    /// The bytes of all columns of all row groups, in the order of the file.
    columns: Arc<OnceLock<Vec<Range<u64>>>>,
}

impl StoredFile {
    /// Reads and checks the footer of a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is not Parquet, or has a footer that contradicts itself or the format.
    pub fn open(path: &Path) -> Result<Self, AnalyzeError> {
        let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            let reason = "it is a directory".to_owned();
            return Err(AnalyzeError::NotParquet { path: path.to_owned(), reason });
        }
        if is_recording(&file) {
            return Err(AnalyzeError::Unfinished(path.to_owned()));
        }
        let size_bytes = metadata.len();
        parquet_footer::check(&file)
            .map_err(|reason| AnalyzeError::NotParquet { path: path.to_owned(), reason })?;
        let reader = panics::decoding(path, || {
            let not_parquet = |error: ParquetError| AnalyzeError::NotParquet {
                path: path.to_owned(),
                reason: error.to_string(),
            };
            let footer = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(not_parquet)?;
            let footer = Arc::new(without_arrow_schema(footer));
            let damaged = |what: String| AnalyzeError::Damaged(format!("{}: {what}", path.display()));
            checked(&footer, size_bytes).map_err(damaged)?;
            let schema = schema(path, &footer)?;
            times_checked(&footer).map_err(damaged)?;
            ArrowReaderMetadata::try_new(footer, ArrowReaderOptions::new().with_schema(schema))
                .map_err(not_parquet)
        })?;
        Ok(Self {
            path: path.to_owned(),
            size_bytes,
            reader,
            indexed: Arc::default(),
            columns: Arc::default(),
        })
    }

    /// Returns where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the footer, without the embedded Arrow schema.
    pub fn metadata(&self) -> &Arc<ParquetMetaData> {
        self.reader.metadata()
    }

    /// Returns the footer with the index of pages, if the file has one. The index is read once, because a file may be scanned in
    /// as many parts as it has row groups, and each part would read all of it.
    ///
    /// # Errors
    /// Returns an error if the index cannot be read.
    pub fn indexed_metadata(&self) -> Result<Arc<ParquetMetaData>, ParquetError> {
        if let Some(indexed) = self.indexed.get() {
            return Ok(Arc::clone(indexed));
        }
        let footer = self.metadata().as_ref().clone();
        let mut reader = ParquetMetaDataReader::new_with_metadata(footer)
            .with_page_index_policy(PageIndexPolicy::Optional);
        reader.read_page_indexes(&File::open(&self.path)?)?;
        let indexed = Arc::new(reader.finish()?);
        pages_checked(&indexed).map_err(ParquetError::General)?;
        Ok(Arc::clone(self.indexed.get_or_init(|| indexed)))
    }

    /// Returns whether a byte of the file belongs to the pages of a column.
    pub fn is_page(&self, place: u64) -> bool {
        let columns = self.columns.get_or_init(|| {
            let columns = self.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns);
            let mut columns: Vec<Range<u64>> = columns.map(bytes_of).collect();
            columns.sort_unstable_by_key(|bytes| bytes.start);
            columns
        });
        let after = columns.partition_point(|bytes| bytes.start <= place);
        after.checked_sub(1).and_then(|last| columns.get(last)).is_some_and(|bytes| bytes.contains(&place))
    }

    /// Returns the columns. Text is a dictionary, as in the format; a number has the type that Parquet stores.
    pub fn schema(&self) -> &SchemaRef {
        self.reader.schema()
    }

    /// Returns what readers of rows are made of.
    pub fn reader(&self) -> &ArrowReaderMetadata {
        &self.reader
    }

    /// Returns the number of rows, which the footer and the row groups agree on.
    pub fn rows_count(&self) -> u64 {
        u64::try_from(self.metadata().file_metadata().num_rows()).unwrap_or_default()
    }

    /// Returns a value of the metadata.
    pub fn value(&self, key: &str) -> Option<&str> {
        let pairs = self.metadata().file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    }

    /// Opens the file to read its rows.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened, or if its size is another one than when the footer was read.
    pub fn file(&self) -> Result<File, AnalyzeError> {
        let io = |source| AnalyzeError::Io { path: self.path.clone(), source };
        let file = File::open(&self.path).map_err(io)?;
        if file.metadata().map_err(io)?.len() != self.size_bytes {
            return Err(AnalyzeError::Damaged(format!(
                "{}: it was changed while it was read",
                self.path.display()
            )));
        }
        Ok(file)
    }
}

/// Returns whether a file is a recording of `capture`, which `analyze recover` reads.
fn is_recording(mut file: &File) -> bool {
    let mut start = [0; 4];
    file.read_exact(&mut start).is_ok() && start == *trace_writer::RECORDING_START
}

/// Removes the Arrow schema, so that no reader of this metadata decodes it.
fn without_arrow_schema(footer: ParquetMetaData) -> ParquetMetaData {
    let mut groups = footer.into_builder();
    let row_groups = groups.take_row_groups();
    let footer = groups.build();
    let file = footer.file_metadata();
    let is_kept = |pair: &&KeyValue| pair.key != ARROW_SCHEMA_META_KEY;
    let pairs = file.key_value_metadata().map(|pairs| pairs.iter().filter(is_kept).cloned().collect());
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_owned),
        pairs,
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    );
    ParquetMetaDataBuilder::new(file).set_row_groups(row_groups).build()
}

/// Checks that the counts, places and orders of a footer agree with each other and with the size of the file.
fn checked(footer: &ParquetMetaData, size_bytes: u64) -> Result<(), String> {
    let columns_count = footer.file_metadata().schema_descr().num_columns();
    let mut rows_count = 0_i64;
    for (index, group) in footer.row_groups().iter().enumerate() {
        let place = |what: &str| format!("row group {index}: {what}");
        let rows = group.num_rows();
        rows_count = rows_count
            .checked_add(rows)
            .filter(|_| rows >= 0)
            .ok_or_else(|| place(&format!("{rows} is no number of rows")))?;
        if group.num_columns() != columns_count {
            return Err(place(&format!("it has {} columns of {columns_count}", group.num_columns())));
        }
        for column in group.columns() {
            let name = column.column_path().string();
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let end = start.checked_add(column.compressed_size());
            let end = end.and_then(|end| u64::try_from(end).ok());
            let is_within = start.min(column.data_page_offset()).min(column.compressed_size()) >= 0;
            if !is_within || end.is_none_or(|end| end > size_bytes) {
                return Err(place(&format!("column {name}: its pages lie outside of the file")));
            }
            if column.column_descr().max_rep_level() == 0 && column.num_values() != rows {
                let values = column.num_values();
                return Err(place(&format!("column {name}: it has {values} values in {rows} rows")));
            }
        }
        let sorted_by = group.sorting_columns().map_or(&[][..], Vec::as_slice);
        let is_column = |index: i32| usize::try_from(index).is_ok_and(|index| index < columns_count);
        if sorted_by.iter().any(|by| !is_column(by.column_idx)) {
            return Err(place("it says that it is sorted by a column that does not exist"));
        }
    }
    let said = footer.file_metadata().num_rows();
    if said != rows_count {
        return Err(format!("the footer says {said} rows, and the row groups say {rows_count}"));
    }
    Ok(())
}

/// Returns the bytes of a column of a row group.
fn bytes_of(column: &ColumnChunkMetaData) -> Range<u64> {
    let (start, length) = column.byte_range();
    start..start.saturating_add(length)
}

/// Checks that the pages that an index names lie within their columns.
fn pages_checked(footer: &ParquetMetaData) -> Result<(), String> {
    let index = footer.offset_index().map_or(&[][..], Vec::as_slice);
    for (number, (group, index)) in footer.row_groups().iter().zip(index).enumerate() {
        for (column, index) in group.columns().iter().zip(index) {
            let bytes = bytes_of(column);
            let is_within = index.page_locations().iter().all(|page| {
                let start = u64::try_from(page.offset).ok();
                let size = u64::try_from(page.compressed_page_size).ok();
                let end = start.zip(size).and_then(|(start, size)| start.checked_add(size));
                start.zip(end).is_some_and(|(start, end)| bytes.contains(&start) && end <= bytes.end)
            });
            if !is_within {
                let name = column.column_path().string();
                return Err(format!(
                    "row group {number}: column {name}: its index names a page outside of it"
                ));
            }
        }
    }
    Ok(())
}

/// Checks the times in the statistics.
fn times_checked(footer: &ParquetMetaData) -> Result<(), String> {
    for (index, group) in footer.row_groups().iter().enumerate() {
        if let Some(fault) = statistics_fault(group) {
            return Err(format!("row group {index}: {fault}"));
        }
    }
    Ok(())
}

fn statistics_fault(group: &RowGroupMetaData) -> Option<String> {
    group.columns().iter().find_map(|column| {
        let name = times::TIMES.into_iter().find(|name| column.column_path().string() == *name)?;
        let Some(Statistics::Int64(values)) = column.statistics() else { return None };
        let ends = [values.min_opt(), values.max_opt()];
        ends.into_iter().flatten().find_map(|time| times::fault(&format!("column {name}"), *time))
    })
}

/// Returns whether a column may have a type: text as text, a number as a whole number. Times have no other type than that of
/// the format: a timestamp may count other units than nanoseconds.
fn is_readable(column: &Column, ty: &DataType) -> bool {
    match column.ty {
        ColumnType::Text => matches!(ty, DataType::Utf8 | DataType::Binary),
        _ if times::TIMES.contains(&column.name) => *ty == DataType::Int64,
        _ => ty.is_integer(),
    }
}

/// Returns the columns of a file with the types in which they are read.
fn schema(path: &Path, footer: &Arc<ParquetMetaData>) -> Result<SchemaRef, AnalyzeError> {
    let not_a_run = |reason: String| AnalyzeError::NotARun { path: path.to_owned(), reason };
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let stored = ArrowReaderMetadata::try_new(Arc::clone(footer), options)
        .map_err(|error| AnalyzeError::Damaged(format!("{}: {error}", path.display())))?;
    let mut known = HashSet::new();
    let mut fields = Vec::new();
    for field in stored.schema().fields() {
        if !known.insert(field.name().as_str()) {
            return Err(not_a_run(format!("it has the column {} twice", field.name())));
        }
        let Some(column) = COLUMNS.iter().find(|column| column.name == field.name()) else {
            fields.push(Arc::clone(field));
            continue;
        };
        if !is_readable(column, field.data_type()) {
            let (name, found, ty) = (column.name, field.data_type(), column.ty.name());
            return Err(not_a_run(format!("its column {name} is {found}, not {ty}")));
        }
        fields.push(match column.ty {
            ColumnType::Text => Arc::new(field.as_ref().clone().with_data_type(column.ty.data_type())),
            _ => Arc::clone(field),
        });
    }
    Ok(Arc::new(Schema::new(fields)))
}
