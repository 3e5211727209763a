//! Imports rows of the table `events` from a file that is not a run: what `analyze export events` or `analyze
//! sql --out` wrote, or a program that edited it, as CSV, JSON lines, Arrow or Parquet; or any tool's table as
//! CSV, with a map that assigns its columns.
//!
//! Columns are matched by name: a missing optional column is null, and an unknown column is an error. Times of
//! Arrow and Parquet in another unit are converted to nanoseconds exactly. An Arrow or Parquet file may carry
//! the metadata of the run that its rows come from. If a file carries none, the new run says so, and that the
//! losses of its source are not known.

use std::{cell::Cell, fs::File, io::Read, path::Path, sync::Arc};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    csv,
    datatypes::{Int64Type, Schema, SchemaRef},
    error::ArrowError,
    json,
};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use trace_schema::{COLUMNS, Clock, META_RUN, Run, TIME_LIMIT_NS, arrow_schema};
use trace_writer::Finished;

use super::{
    arrow_file::{self, ArrowFile, ArrowFileError},
    compressed,
    importer::{self, Head, Importer, Job, Layout},
    limits::COLUMNS_COUNT,
    map,
    records::{self, Grammar, RecordError, Records},
    times::in_nanoseconds,
};
use analyze_run::{
    columns::{conformed, plain_schema},
    error::{AnalyzeError, Place},
    parquet_footer,
    parquet_pages::CheckedPages,
    times::{batch_fault, metadata_fault},
};

/// Number of rows in a record batch.
const BATCH_ROWS: usize = 1 << 14;

/// Rows of the table `events`.
pub(super) struct Events;

impl Importer for Events {
    fn name(&self) -> &'static str {
        "events"
    }

    fn about(&self) -> &'static str {
        "Rows of the table `events`: CSV or JSON lines, as `analyze export events` writes them, also with gzip; \
         Arrow or Parquet"
    }

    fn sniff(&self, head: &Head<'_>) -> bool {
        head.bytes.starts_with(arrow_file::MAGIC) || is_text(head.text())
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        import(job.layout, job.file, job.out, job.force)
    }
}

/// Tables of any tool. They are never recognized, because only the user knows what their columns mean.
pub(super) struct Csv;

impl Importer for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn about(&self) -> &'static str {
        "Table of any tool as CSV, also with gzip: `--map` says which column is which"
    }

    fn sniff(&self, _: &Head<'_>) -> bool {
        false
    }

    fn takes_layout(&self) -> bool {
        true
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        if job.layout.map.is_none() {
            let why = "csv needs --map: which column of the table is which of a run";
            return Err(AnalyzeError::Query(why.to_owned()));
        }
        import(job.layout, job.file, job.out, job.force)
    }
}

/// Record batches in the order of the file.
type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch, Failure>> + 'a>;

/// The reason why the rows could not be read further.
enum Failure {
    /// Arrow could not parse the rows or convert them to the schema of a run.
    Arrow(ArrowError),
    /// The operating system reported an I/O error.
    Io(std::io::Error),
    /// What stands at a place of the file is wrong, for this reason.
    At(Place, String),
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Io(error) => Self::Io(error),
            RecordError::Arrow(error) => Self::Arrow(error),
            RecordError::At { line, reason } => Self::At(Place::Line(line), reason),
        }
    }
}

impl From<ArrowFileError> for Failure {
    fn from(error: ArrowFileError) -> Self {
        match error {
            ArrowFileError::Io(error) => Self::Io(error),
            ArrowFileError::At { offset, reason } => Self::At(Place::Byte(offset), reason),
        }
    }
}

/// Returns whether a text begins with rows of `events`: a CSV header that names all required columns, or a
/// JSON object that has all of them as keys.
fn is_text(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut required = COLUMNS.iter().filter(|column| !column.nullable).map(|column| column.name);
    match line.strip_prefix('{') {
        Some(object) => required.all(|name| object.contains(&format!("\"{name}\":"))),
        None => required.all(|name| line.trim_end().split(',').any(|cell| cell.trim_matches('"') == name)),
    }
}

/// The file that is imported.
struct Source<'a> {
    path: &'a Path,
}

impl Source<'_> {
    fn damaged(&self, what: impl std::fmt::Display) -> AnalyzeError {
        AnalyzeError::Damaged(format!("{}: {what}", self.path.display()))
    }

    fn io(&self, source: std::io::Error) -> AnalyzeError {
        if compressed::is_damage(&source) {
            return self.damaged(format!("the compressed data is damaged or cut off: {source}"));
        }
        AnalyzeError::Io { path: self.path.to_owned(), source }
    }

    fn failed(&self, failure: Failure, rows_count: usize) -> AnalyzeError {
        match failure {
            Failure::Arrow(error) => self.damaged(format!("after {rows_count} rows: {error}")),
            Failure::Io(error) => self.io(error),
            Failure::At(place, reason) => AnalyzeError::unreadable(self.path, place, reason),
        }
    }

    fn open(&self) -> Result<Box<dyn Read>, AnalyzeError> {
        Ok(compressed::open(self.path).map_err(|error| self.io(error))?.0)
    }

    /// Checks that every column found is a column of `events`, and that all required columns are present.
    fn known(&self, found: &Schema) -> Result<(), AnalyzeError> {
        let names: Vec<&str> = found.fields().iter().map(|field| field.name().as_str()).collect();
        if let Some(unknown) = names.iter().find(|name| COLUMNS.iter().all(|column| column.name != **name)) {
            return Err(self.damaged(format!("column {unknown} is none of the table events")));
        }
        let mut required = COLUMNS.iter().filter(|column| !column.nullable);
        match required.find(|column| !names.contains(&column.name)) {
            Some(missing) => Err(self.damaged(format!("it has no column {}", missing.name))),
            None => Ok(()),
        }
    }

    fn csv<'b>(&self, layout: &'b Layout) -> Result<Batches<'b>, AnalyzeError> {
        let format = csv::reader::Format::default().with_header(true).with_delimiter(layout.delimiter);
        let grammar = Grammar::Csv { delimiter: layout.delimiter };
        let head =
            records::first(&mut self.open()?, grammar).map_err(|error| self.failed(error.into(), 0))?;
        let (found, _) = format.infer_schema(&head[..], Some(0)).map_err(|error| self.damaged(error))?;
        if COLUMNS_COUNT.is_exceeded_by(found.fields().len()) {
            let reason = COLUMNS_COUNT.over(format!("{} columns are more", found.fields().len()));
            return Err(AnalyzeError::unreadable(self.path, Place::Line(1), reason));
        }
        if let Some(map) = &layout.map {
            map.check(&found)
                .map_err(|reason| AnalyzeError::unreadable(self.path, Place::Line(1), reason))?;
            let decoder = csv::ReaderBuilder::new(Arc::new(map::texts_of(&found)))
                .with_format(format)
                .with_batch_size(BATCH_ROWS)
                .build_decoder();
            let reader = Records::new(self.open()?, grammar, decoder);
            let mut line = 2;
            return Ok(Box::new(reader.map(move |batch| {
                let batch = batch?;
                let rows = map.rows(&batch);
                let rows =
                    rows.map_err(|wrong| Failure::At(Place::Line(line + wrong.lines), wrong.reason))?;
                line += map::lines_to(&batch, batch.num_rows());
                Ok(rows)
            })));
        }
        self.known(&found)?;
        let plain = plain_schema();
        let fields = found.fields().iter().map(|field| plain.field_with_name(field.name()).cloned());
        let fields: Vec<_> = fields.collect::<Result<_, _>>().map_err(|error| self.damaged(error))?;
        let decoder = csv::ReaderBuilder::new(Arc::new(Schema::new(fields)))
            .with_format(format)
            .with_batch_size(BATCH_ROWS)
            .build_decoder();
        Ok(Box::new(Records::new(self.open()?, grammar, decoder).map(|batch| Ok(batch?))))
    }

    fn ndjson(&self) -> Result<Batches<'static>, AnalyzeError> {
        let decoder = json::ReaderBuilder::new(Arc::new(plain_schema()))
            .with_strict_mode(true)
            .with_batch_size(BATCH_ROWS)
            .build_decoder()
            .map_err(|error| self.damaged(error))?;
        Ok(Box::new(Records::new(self.open()?, Grammar::Json, decoder).map(|batch| Ok(batch?))))
    }

    /// Returns the run that a file's metadata states, if it states one.
    fn stated(&self, run: Option<&str>) -> Result<Option<Run>, AnalyzeError> {
        let run: Option<Run> = run
            .map(serde_json::from_str)
            .transpose()
            .map_err(|error| self.damaged(format!("its {META_RUN} is not what it should be: {error}")))?;
        match run.as_ref().and_then(metadata_fault) {
            Some(fault) => Err(self.damaged(format!("its {META_RUN}: {fault}"))),
            None => Ok(run),
        }
    }

    /// Opens an Arrow file, and returns its rows and the metadata of their run if the file carries them.
    fn arrow(&self) -> Result<(Batches<'static>, Option<Run>), AnalyzeError> {
        let mut file = File::open(self.path).map_err(|error| self.io(error))?;
        let mut magic = Vec::new();
        file.by_ref()
            .take(arrow_file::MAGIC.len() as u64)
            .read_to_end(&mut magic)
            .map_err(|error| self.io(error))?;
        if magic != arrow_file::MAGIC {
            return Err(self.damaged("an Arrow file is not read with gzip around it: unpack it first"));
        }
        let reader = ArrowFile::open(file).map_err(|error| self.failed(error.into(), 0))?;
        self.known(reader.schema())?;
        let run = self.stated(reader.schema().metadata().get(META_RUN).map(String::as_str))?;
        Ok((Box::new(reader.map(|batch| Ok(in_nanoseconds(&batch?)?))), run))
    }

    /// Opens a Parquet file, and returns its rows and the metadata of their run if the file carries them.
    fn parquet(&self) -> Result<(Batches<'static>, Option<Run>), AnalyzeError> {
        let file = File::open(self.path).map_err(|error| self.io(error))?;
        parquet_footer::check(&file).map_err(|reason| self.damaged(reason))?;
        let footer = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
        let footer = footer.map_err(|error| self.damaged(error))?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(CheckedPages(file), footer);
        self.known(builder.schema())?;
        let pairs = builder.metadata().file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
        let run = pairs.iter().find(|pair| pair.key == META_RUN).and_then(|pair| pair.value.as_deref());
        let run = self.stated(run)?;
        let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(|error| self.damaged(error))?;
        Ok((Box::new(reader.map(|batch| Ok(in_nanoseconds(&batch?)?))), run))
    }
}

/// Returns the metadata of a run whose source has none: they state only the time span of the rows, in ns.
fn rows_only(from_ns: i64, to_ns: i64) -> Run {
    Run {
        producer: "imported from rows".to_owned(),
        joined_running: true,
        clock: Clock { start_ns: from_ns, end_ns: to_ns.max(from_ns), ..Clock::default() },
        lost_is_counted: false,
        not_captured: vec!["the circumstances of the recording: the source has rows only".to_owned()],
        ..Run::default()
    }
}

/// Converts a file to a run at `out`. An existing run is replaced only if `force` is set.
///
/// # Errors
/// Returns an error if the file has an unknown column or lacks a required one, a value does not fit its
/// column, or the run cannot be written.
fn import(layout: &Layout, path: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let source = Source { path };
    let mut first = Vec::new();
    source.open()?.take(1 << 16).read_to_end(&mut first).map_err(|error| source.io(error))?;
    let (batches, run) = match first.first() {
        _ if layout.map.is_some() => (source.csv(layout)?, None),
        _ if first.starts_with(importer::PARQUET) => source.parquet()?,
        _ if first.starts_with(arrow_file::MAGIC) => source.arrow()?,
        Some(b'{') => (source.ndjson()?, None),
        _ => (source.csv(layout)?, None),
    };
    let schema: SchemaRef = Arc::new(arrow_schema());
    let (first_ns, last_ns) = (Cell::new(i64::MAX), Cell::new(i64::MIN));
    let mut rows_count = 0;
    let rows = batches.map(|batch| {
        let batch = batch.and_then(|batch| Ok(conformed(&batch, &schema)?));
        let batch = batch.map_err(|failure| source.failed(failure, rows_count))?;
        if let Some(fault) = batch_fault(&batch) {
            return Err(source.damaged(format!("after {rows_count} rows: {fault}")));
        }
        rows_count += batch.num_rows();
        let of = |name: &str| batch.column_by_name(name).and_then(|c| c.as_primitive_opt::<Int64Type>());
        if let (Some(ts), Some(dur)) = (of("ts"), of("dur")) {
            for row in 0..batch.num_rows() {
                let ts = ts.value(row);
                let dur = if dur.is_valid(row) { dur.value(row) } else { 0 };
                first_ns.set(first_ns.get().min(ts));
                last_ns.set(last_ns.get().max(ts.saturating_add(dur)));
            }
        }
        Ok(batch)
    });
    trace_writer::write(out, force, rows, || {
        run.unwrap_or_else(|| match first_ns.get() {
            i64::MAX => rows_only(0, 0),
            from_ns => rows_only(from_ns, last_ns.get().min(TIME_LIMIT_NS)),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use analyze_run::random::Random;

    use super::*;
    use crate::map::Map;

    /// Rows that are changed anywhere are read, or refused with their place; nothing is left then, and nothing panics.
    #[test]
    fn no_damage_panics() {
        let directory = tempfile::tempdir().unwrap();
        let (file, out) = (directory.path().join("rows"), directory.path().join("run.parquet"));
        let folder = directory.path().to_str().unwrap();
        let csv =
            "ts,dur,kind,op,pid,tid,addr,detail\n1,2,call,f,3,4,5,\"a\nb\"\n6,,mark,g,3,4,,\"c\"\"d\"\n";
        let json = "{\"ts\":1,\"dur\":2,\"kind\":\"call\",\"op\":\"f\",\"pid\":3,\"tid\":4,\"detail\":\"a\\n\"}\n\
                    {\"ts\":6,\"kind\":\"mark\",\"op\":\"g\",\"pid\":3,\"tid\":4}\n";
        let map = Map::parse("ts=ts:us,dur=dur:s,kind=kind,op=op,pid=pid,tid=tid,addr=addr").unwrap();
        let mapped = Layout { map: Some(map), ..Layout::default() };
        let mut random = Random(0x0c5b_77aa);
        let mut refused_count = 0;
        for (text, layout) in [(csv, &Layout::default()), (csv, &mapped), (json, &Layout::default())] {
            fs::write(&file, text).unwrap();
            assert!(import(layout, &file, &out, true).is_ok(), "{text}");
            for _ in 0..150 {
                let mut bytes = text.as_bytes().to_vec();
                for _ in 0..1 + random.below(3) {
                    let at = random.below(bytes.len());
                    match random.below(3) {
                        0 => bytes[at] = random.below(256) as u8,
                        1 => drop(bytes.remove(at)),
                        _ => bytes.insert(at, b"{}[],:\"\\\n\r-90"[random.below(13)]),
                    }
                }
                fs::remove_file(&out).unwrap_or_default();
                fs::write(&file, &bytes).unwrap();
                if let Err(why) = import(layout, &file, &out, true) {
                    assert!(why.to_string().contains(folder), "{why}");
                    assert!(!out.exists(), "{why}");
                    refused_count += 1;
                }
            }
        }
        assert!(refused_count > 100, "{refused_count}");
    }
}
