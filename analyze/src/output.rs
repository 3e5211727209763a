//! Output of query results: tables for people and file formats for programs.

use std::{
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use arrow::{
    array::{Array, RecordBatch, RecordBatchOptions, StringArray},
    compute::cast,
    csv::WriterBuilder,
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
    ipc::{
        CompressionType,
        writer::{FileWriter, IpcWriteOptions, StreamWriter},
    },
    util::{
        display::{ArrayFormatter, FormatOptions},
        pretty::pretty_format_batches,
    },
};
use parquet::{arrow::ArrowWriter, errors::ParquetError};

use analyze_run::{error::AnalyzeError, text::harmless};

/// The format that a query's result is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns, for reading
    Table,
    /// Comma-separated values with a header line
    Csv,
    /// One JSON array of objects
    Json,
    /// One JSON object a line
    Ndjson,
    /// An Arrow IPC stream, for a pipe or a file; text is text there, not a dictionary
    Arrow,
    /// A Parquet file (needs --out)
    Parquet,
}

fn internal(error: impl std::fmt::Display) -> AnalyzeError {
    AnalyzeError::Internal(error.to_string())
}

/// Writes a result as it comes. A table needs all of it first: its columns are as wide as their widest cell.
pub enum Sink<W: Write + Send> {
    /// A text table, with the batches received so far.
    Table(Vec<RecordBatch>, W),
    /// CSV, with text that is not written yet. The text is written here and not by Arrow's own writer, which
    /// does not report the I/O error that stopped it.
    Csv(Vec<u8>, W),
    /// One JSON array of objects.
    Json(arrow::json::ArrayWriter<W>),
    /// One JSON object per line.
    Ndjson(arrow::json::LineDelimitedWriter<W>),
    /// A Parquet file.
    Parquet(Box<ArrowWriter<W>>),
    /// An Arrow IPC file.
    Arrow(Box<FileWriter<W>>),
    /// An Arrow IPC stream, and its schema.
    Stream(Box<StreamWriter<W>>, SchemaRef),
}

/// Returns the batch with text in place of lists and structs, which CSV cannot represent.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if !field.data_type().is_nested() {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
            continue;
        }
        let options = FormatOptions::default().with_null("null");
        let formatter = ArrayFormatter::try_new(column, &options)?;
        let text = |row| match column.is_null(row) {
            true => Ok(None),
            false => formatter.value(row).try_to_string().map(Some),
        };
        let cells = (0..batch.num_rows()).map(text).collect::<Result<StringArray, _>>()?;
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(cells));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// Returns the type that values of a type have in an Arrow stream: readers differ in whether they know dictionaries, which
/// change from batch to batch, and views.
fn streamed_type(ty: &DataType) -> DataType {
    match ty {
        DataType::Dictionary(_, values) => streamed_type(values),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) => DataType::List(streamed_field(item)),
        DataType::LargeList(item) => DataType::LargeList(streamed_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(streamed_field).collect()),
        other => other.clone(),
    }
}

fn streamed_field(field: &Arc<Field>) -> Arc<Field> {
    Arc::new(field.as_ref().clone().with_data_type(streamed_type(field.data_type())))
}

/// Returns the batch with the columns that an Arrow stream of this schema has.
fn streamed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let pairs = batch.columns().iter().zip(schema.fields());
    let columns = pairs.map(|(column, field)| cast(column, field.data_type())).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Converts an error of a writer into one that names `path`. What is no I/O error is an internal error.
fn failed(path: &Path, error: ArrowError) -> AnalyzeError {
    match error {
        ArrowError::IoError(_, source) => AnalyzeError::Io { path: path.to_owned(), source },
        other => internal(other),
    }
}

/// Converts an error of Parquet's writer, which does not tell I/O errors from others by its own type.
fn parquet_failed(path: &Path, error: ParquetError) -> AnalyzeError {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(source) => AnalyzeError::Io { path: path.to_owned(), source: *source },
            Err(other) => internal(other),
        },
        other => internal(other),
    }
}

impl<W: Write + Send> Sink<W> {
    /// Creates a sink for batches of a schema. `path` names the destination in errors.
    ///
    /// # Errors
    /// Returns an error if the schema cannot be written in that format, or if the beginning of the output cannot be written.
    pub fn new(format: Format, schema: SchemaRef, out: W, path: &Path) -> Result<Self, AnalyzeError> {
        Ok(match format {
            // An empty batch keeps the header when the result has no rows.
            Format::Table => Self::Table(vec![RecordBatch::new_empty(schema)], out),
            Format::Csv => {
                let mut header = Vec::new();
                flat(&RecordBatch::new_empty(schema))
                    .and_then(|batch| arrow::csv::Writer::new(&mut header).write(&batch))
                    .map_err(internal)?;
                Self::Csv(header, out)
            }
            Format::Json => Self::Json(arrow::json::ArrayWriter::new(out)),
            Format::Ndjson => Self::Ndjson(arrow::json::LineDelimitedWriter::new(out)),
            Format::Arrow => {
                let fields: Vec<_> = schema.fields().iter().map(streamed_field).collect();
                let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
                let writer = StreamWriter::try_new(out, &schema);
                Self::Stream(Box::new(writer.map_err(|error| failed(path, error))?), schema)
            }
            Format::Parquet => {
                Self::Parquet(Box::new(ArrowWriter::try_new(out, schema, None).map_err(internal)?))
            }
        })
    }

    /// Creates a sink for an Arrow IPC file with buffers compressed by zstd, including the metadata of the schema.
    /// A dictionary has to be the same in all batches. `path` names the destination in errors.
    ///
    /// # Errors
    /// Returns an error if the schema cannot be written.
    pub fn arrow(schema: &SchemaRef, out: W, path: &Path) -> Result<Self, AnalyzeError> {
        IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))
            .and_then(|options| FileWriter::try_new_with_options(out, schema, options))
            .map(|writer| Self::Arrow(Box::new(writer)))
            .map_err(|error| failed(path, error))
    }

    /// Writes a batch. `path` names the destination in errors.
    pub fn write(&mut self, batch: &RecordBatch, path: &Path) -> Result<(), AnalyzeError> {
        match self {
            Self::Table(batches, _) => {
                batches.push(batch.clone());
                Ok(())
            }
            Self::Csv(text, out) => {
                let mut writer = WriterBuilder::new().with_header(false).build(&mut *text);
                flat(batch).and_then(|batch| writer.write(&batch)).map_err(internal)?;
                drop(writer);
                out.write_all(text).map_err(|source| AnalyzeError::Io { path: path.to_owned(), source })?;
                text.clear();
                Ok(())
            }
            Self::Json(writer) => writer.write(batch).map_err(|error| failed(path, error)),
            Self::Ndjson(writer) => writer.write(batch).map_err(|error| failed(path, error)),
            Self::Parquet(writer) => writer.write(batch).map_err(|error| parquet_failed(path, error)),
            Self::Arrow(writer) => writer.write(batch).map_err(|error| failed(path, error)),
            Self::Stream(writer, schema) => streamed(batch, schema)
                .and_then(|batch| writer.write(&batch))
                .map_err(|error| failed(path, error)),
        }
    }

    /// Writes what remains, such as a table or the footer of a file, and flushes the output.
    pub fn finish(self, path: &Path) -> Result<(), AnalyzeError> {
        let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
        match self {
            Self::Table(batches, mut out) => {
                let table = pretty_format_batches(&batches).map_err(internal)?;
                writeln!(out, "{}", harmless(&table.to_string())).and_then(|()| out.flush()).map_err(io)
            }
            Self::Csv(text, mut out) => out.write_all(&text).and_then(|()| out.flush()).map_err(io),
            Self::Json(mut writer) => {
                writer.finish().map_err(|error| failed(path, error))?;
                let mut out = writer.into_inner();
                writeln!(out).and_then(|()| out.flush()).map_err(io)
            }
            Self::Ndjson(mut writer) => {
                writer.finish().map_err(|error| failed(path, error))?;
                writer.into_inner().flush().map_err(io)
            }
            Self::Parquet(writer) => writer.close().map(drop).map_err(|error| parquet_failed(path, error)),
            Self::Arrow(mut writer) => writer.finish().map_err(|error| failed(path, error)),
            Self::Stream(mut writer, _) => writer.finish().map_err(|error| failed(path, error)),
        }
    }
}
