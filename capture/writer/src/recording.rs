//! The append-only file of a recording under way, and how it becomes a run.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    ipc::{
        CompressionType,
        reader::StreamReader,
        writer::{IpcWriteOptions, StreamWriter},
    },
};
use trace_schema::{FORMAT_VERSION, META_RUN, META_VERSION, Row, Run, arrow_schema};

use crate::{WriteError, parquet_file, rows::Rows};

/// Rows from which a batch is written without waiting for the caller's flush.
const BATCH_ROWS: usize = 1 << 16;

/// A run under way.
pub struct Recorder {
    out: PathBuf,
    path: PathBuf,
    rows: Rows,
    schema: SchemaRef,
    stream: StreamWriter<BufWriter<File>>,
}

/// What a finished run weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Rows in the file.
    pub rows_count: u64,
    /// Size of the file.
    pub size_bytes: u64,
}

fn beside(out: &Path, suffix: &str) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl Recorder {
    /// Opens `<out>.recording`. `run` is what is known so far; a recovered run has nothing else.
    ///
    /// # Errors
    /// If `out` or an unfinished recording of it exists and `force` is not given, or on I/O.
    pub fn create(out: &Path, force: bool, run: &Run) -> Result<Self, WriteError> {
        let path = beside(out, ".recording");
        if !force && out.exists() {
            return Err(WriteError::Exists(out.to_owned()));
        }
        if !force && path.exists() {
            return Err(WriteError::Unfinished(path));
        }
        let file = File::create(&path).map_err(|source| WriteError::Io { path: path.clone(), source })?;
        let json = serde_json::to_string(run)
            .map_err(|source| WriteError::Metadata { path: path.clone(), source })?;
        let schema = arrow_schema().with_metadata(HashMap::from([
            (META_VERSION.to_owned(), FORMAT_VERSION.to_string()),
            (META_RUN.to_owned(), json),
        ]));
        let stream = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))
            .and_then(|options| StreamWriter::try_new_with_options(BufWriter::new(file), &schema, options))
            .map_err(|source| WriteError::Arrow { path: path.clone(), source })?;
        let schema = Arc::new(schema);
        Ok(Self { out: out.to_owned(), path, rows: Rows::default(), schema, stream })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// On I/O, when a full batch is written.
    pub fn push(&mut self, row: &Row) -> Result<(), WriteError> {
        self.rows.push(row);
        if self.rows.len() >= BATCH_ROWS { self.write_batch() } else { Ok(()) }
    }

    fn write_batch(&mut self) -> Result<(), WriteError> {
        let schema = Arc::clone(&self.schema);
        self.rows
            .take()
            .and_then(|batch| RecordBatch::try_new(schema, batch.columns().to_vec()))
            .and_then(|batch| self.stream.write(&batch))
            .map_err(|source| WriteError::Arrow { path: self.path.clone(), source })
    }

    /// Hands everything to the operating system: from here on it survives the end of this process.
    ///
    /// # Errors
    /// On I/O.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if !self.rows.is_empty() {
            self.write_batch()?;
        }
        let io = |source| WriteError::Io { path: self.path.clone(), source };
        self.stream.get_mut().flush().map_err(io)
    }

    /// Bytes on disk so far.
    pub fn size_bytes(&self) -> u64 {
        self.stream.get_ref().get_ref().metadata().map_or(0, |meta| meta.len())
    }

    /// Gives up before anything was recorded: removes the recording.
    pub fn discard(self) {
        // A file that cannot be removed says so by being there at the next attempt.
        let _ = fs::remove_file(&self.path);
    }

    /// Writes the run with its final metadata and removes the recording.
    ///
    /// # Errors
    /// On I/O. The recording is still there then.
    pub fn finish(mut self, run: &Run) -> Result<Finished, WriteError> {
        self.flush()?;
        self.stream
            .finish()
            .and_then(|()| self.stream.get_mut().flush().map_err(Into::into))
            .map_err(|source| WriteError::Arrow { path: self.path.clone(), source })?;
        let finished = convert(&self.path, &self.out, false, |_| Ok(run.clone()))?;
        fs::remove_file(&self.path).map_err(|source| WriteError::Io { path: self.path.clone(), source })?;
        Ok(finished)
    }
}

/// Turns an unfinished recording into the run `out`; the recording stays.
///
/// # Errors
/// If `recording` is none, if `out` exists and `force` is not given, or on I/O.
pub fn recover(recording: &Path, out: &Path, force: bool) -> Result<Finished, WriteError> {
    if !force && out.exists() {
        return Err(WriteError::Exists(out.to_owned()));
    }
    convert(recording, out, true, |json| {
        let mut run: Run = serde_json::from_str(json).map_err(|source| WriteError::NotARecording {
            path: recording.to_owned(),
            reason: format!("its metadata is no JSON of a run: {source}"),
        })?;
        run.not_captured.push(
            "the recording was interrupted: its last second, open calls, final counts of lost events \
             and thread names are missing"
                .to_owned(),
        );
        run.lost_is_counted = false;
        Ok(run)
    })
}

/// Reads a recording and writes it as Parquet, in one step as others see it. A recording that is
/// `cut` off is read as far as it is whole.
fn convert(
    recording: &Path,
    out: &Path,
    cut: bool,
    run: impl FnOnce(&str) -> Result<Run, WriteError>,
) -> Result<Finished, WriteError> {
    let no = |reason: String| WriteError::NotARecording { path: recording.to_owned(), reason };
    let file =
        File::open(recording).map_err(|source| WriteError::Io { path: recording.to_owned(), source })?;
    let reader = StreamReader::try_new(BufReader::new(file), None).map_err(|e| no(e.to_string()))?;
    let schema = reader.schema();
    let metadata = schema.metadata();
    match metadata.get(META_VERSION) {
        Some(version) if *version == FORMAT_VERSION.to_string() => {}
        Some(version) => return Err(no(format!("its format is version {version}, not {FORMAT_VERSION}"))),
        None => return Err(no("it has no format version".to_owned())),
    }
    let run = run(metadata.get(META_RUN).map_or("{}", String::as_str))?;
    let plain = Arc::new(arrow_schema());
    let batches = reader
        // A batch cut off by a kill ends the recording; what stands before it is whole.
        .take_while(|batch| !cut || batch.is_ok())
        .map(|batch| {
            batch
                .and_then(|batch| RecordBatch::try_new(Arc::clone(&plain), batch.columns().to_vec()))
                .map_err(|source| WriteError::Arrow { path: recording.to_owned(), source })
        });
    let temporary = beside(out, ".tmp");
    let io = |source: io::Error| WriteError::Io { path: temporary.clone(), source };
    let rows_count = parquet_file::write(&temporary, batches, &run)?;
    let size_bytes = fs::metadata(&temporary).map_err(io)?.len();
    fs::rename(&temporary, out).map_err(io)?;
    Ok(Finished { rows_count, size_bytes })
}
