//! Reads `nsys export --type parquetdir`: a folder that has a Parquet file for each table, with the columns
//! of the SQLite table.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Int64Type, UInt64Type},
};
use parquet::arrow::{
    ProjectionMask,
    arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
};

use super::source::{Cell, Cells, Source, Take, Wanted};
use crate::{limits::TEXTS_BYTES, times::nanoseconds};
use analyze_run::{error::AnalyzeError, parquet_footer, parquet_pages::CheckedPages, progress};

/// Number of rows in a record batch.
const BATCH_ROWS: usize = 1 << 13;
const TEXTS: &str = "StringIds";
/// Estimated memory of a text besides its own bytes.
const TEXT_OVERHEAD_BYTES: usize = 64;

/// An export that is a folder of Parquet files.
pub(super) struct ParquetDir {
    path: PathBuf,
    texts: HashMap<i64, String>,
}

/// Returns the path of a table's file.
fn file_of(directory: &Path, table: &str) -> PathBuf {
    directory.join(format!("{table}.parquet"))
}

/// Returns whether a path is such an export: a folder that has the table `StringIds`.
pub(super) fn is_export(path: &Path) -> bool {
    path.is_dir() && file_of(path, TEXTS).is_file()
}

/// The values of a column, converted to the types that cells have.
enum Values {
    Absent,
    Integers(ArrayRef),
    Texts(ArrayRef),
    Other(&'static str),
}

impl Values {
    fn of(batch: &RecordBatch, name: &str) -> Result<Self, String> {
        let Some(array) = batch.column_by_name(name) else { return Ok(Self::Absent) };
        let to = |ty: &DataType| cast(array, ty).map_err(|error| format!("column {name}: {error}"));
        Ok(match array.data_type() {
            // An unsigned integer of 64 bits keeps its bits, as in SQLite.
            DataType::UInt64 => {
                let numbers = array.as_primitive::<UInt64Type>();
                Self::Integers(std::sync::Arc::new(numbers.unary::<_, Int64Type>(|number| number as i64)))
            }
            ty if ty.is_integer() || matches!(ty, DataType::Boolean) => Self::Integers(to(&DataType::Int64)?),
            DataType::Timestamp(..) | DataType::Duration(_) => {
                Self::Integers(nanoseconds(array).map_err(|error| format!("column {name}: {error}"))?)
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..) => {
                Self::Texts(to(&DataType::Utf8)?)
            }
            DataType::Null => Self::Absent,
            ty if ty.is_floating() => Self::Other("Real"),
            _ => Self::Other("none that is read"),
        })
    }

    fn cell(&self, row: usize) -> Cell<'_> {
        match self {
            Self::Absent => Cell::Null,
            Self::Other(name) => Cell::Other(name),
            Self::Integers(array) | Self::Texts(array) if array.is_null(row) => Cell::Null,
            Self::Integers(array) => Cell::Integer(array.as_primitive::<Int64Type>().value(row)),
            Self::Texts(array) => Cell::Text(array.as_string::<i32>().value(row).as_bytes()),
        }
    }
}

impl ParquetDir {
    /// Opens an export and reads its texts from `StringIds`.
    ///
    /// # Errors
    /// Returns an error if `StringIds` is missing or cannot be read.
    pub(super) fn open(path: &Path) -> Result<Self, AnalyzeError> {
        let mut directory = Self { path: path.to_owned(), texts: HashMap::new() };
        let (mut texts, mut texts_bytes) = (HashMap::new(), 0_usize);
        let wanted = Wanted { table: TEXTS, columns: &["id", "value"], texts: &[], by: None };
        directory.rows(&wanted, &mut |cells| {
            let (id, text) = (cells.required("id")?, cells.text("value")?);
            texts_bytes = texts_bytes.saturating_add(text.len() + TEXT_OVERHEAD_BYTES);
            if TEXTS_BYTES.is_exceeded_by(texts_bytes) {
                return Err(TEXTS_BYTES.over("the texts take more memory").into());
            }
            texts.insert(id, text);
            Ok(())
        })?;
        directory.texts = texts;
        Ok(directory)
    }

    fn damaged(&self, table: &str, what: impl std::fmt::Display) -> AnalyzeError {
        AnalyzeError::Damaged(format!("{}: {what}", file_of(&self.path, table).display()))
    }

    fn builder(
        &self,
        table: &str,
    ) -> Result<ParquetRecordBatchReaderBuilder<CheckedPages<File>>, AnalyzeError> {
        let path = file_of(&self.path, table);
        let file = File::open(&path).map_err(|source| AnalyzeError::Io { path: path.clone(), source })?;
        parquet_footer::check(&file).map_err(|reason| self.damaged(table, reason))?;
        let footer = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
        let footer = footer.map_err(|error| self.damaged(table, error))?;
        Ok(ParquetRecordBatchReaderBuilder::new_with_metadata(CheckedPages(file), footer))
    }
}

impl Source for ParquetDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn tables(&self) -> Result<Vec<String>, AnalyzeError> {
        let io = |source| AnalyzeError::Io { path: self.path.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.extension().is_some_and(|ending| ending == "parquet") {
                names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
        names.sort();
        Ok(names)
    }

    fn columns(&self, table: &str) -> Result<Vec<String>, String> {
        if !file_of(&self.path, table).is_file() {
            return Ok(Vec::new());
        }
        let builder = self.builder(table).map_err(|error| error.to_string())?;
        Ok(builder.schema().fields().iter().map(|field| field.name().clone()).collect())
    }

    fn rows(&self, wanted: &Wanted<'_>, take: Take<'_>) -> Result<(), AnalyzeError> {
        let table = wanted.table;
        let builder = self.builder(table)?;
        let progress =
            progress::rows(u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or_default());
        let mask = ProjectionMask::columns(builder.parquet_schema(), wanted.columns.iter().copied());
        let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
        let mut number = 0;
        for batch in reader.map_err(|error| self.damaged(table, error))? {
            let batch = batch.map_err(|error| self.damaged(table, error))?;
            let values = wanted.columns.iter().map(|name| Values::of(&batch, name));
            let values: Vec<Values> =
                values.collect::<Result<_, _>>().map_err(|error| self.damaged(table, error))?;
            for row in 0..batch.num_rows() {
                progress.add(1);
                number += 1;
                let cells = wanted.columns.iter().zip(&values).map(|(name, values)| match values.cell(row) {
                    Cell::Integer(id) if wanted.texts.contains(name) => {
                        self.texts.get(&id).map_or(Cell::Null, |text| Cell::Text(text.as_bytes()))
                    }
                    other => other,
                });
                let cells: Vec<Cell<'_>> = cells.collect();
                take(&Cells { number, names: wanted.columns, cells: &cells })
                    .map_err(|refused| self.refused(table, number, refused))?;
            }
        }
        Ok(())
    }
}
