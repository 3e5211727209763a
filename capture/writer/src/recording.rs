//! The append-only file of a recording in progress, and how it becomes a run.
//!
//! The file is a sequence of frames of Arrow IPC streams: an empty one with the metadata, then two a flush with the
//! columns that have values in it. Most columns are empty at any time, and nothing is spent on those. What is not as it
//! was written never reaches the reader of Arrow, which trusts it.
//!
//! ```text
//! frame   │ INQr │ length │ CRC-32 │ streams …
//!           4      4 (LE)   4 (LE)   length
//! ```

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
};

use arrow::{
    array::RecordBatch,
    datatypes::Schema,
    error::ArrowError,
    ipc::{
        CompressionType,
        reader::StreamReader,
        writer::{IpcWriteOptions, StreamWriter},
    },
};
use trace_schema::{FORMAT_VERSION, META_RUN, META_VERSION, Row, Run, arrow_schema};

use crate::{WriteError, merge::Merge, parquet_file, rows::Rows};

/// Bytes that are read or written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Rows from which a batch is written without waiting for the caller's flush. They fit into a cache.
const BATCH_ROWS: usize = 1 << 14;

/// The first bytes of a frame.
const FRAME: &[u8; 4] = b"INQr";

/// A run that is being recorded.
pub struct Recorder {
    out: PathBuf,
    path: PathBuf,
    rows: Rows,
    file: BufWriter<File>,
    /// The frame that is being made.
    frame: Vec<u8>,
    syncer: Syncer,
}

/// Columns that differ from row to row. Compressing them would cost a quarter of all that the reader spends on
/// an event, and gain nothing; the others are mostly nulls and repetitions.
const PLAIN: [&str; 3] = ["ts", "dur", "addr"];

/// Writes one batch as a stream of its own.
fn append_stream(
    frame: &mut Vec<u8>,
    batch: &RecordBatch,
    compression: Option<CompressionType>,
) -> Result<(), ArrowError> {
    let options = IpcWriteOptions::default().try_with_compression(compression)?;
    let mut stream = StreamWriter::try_new_with_options(frame, &batch.schema(), options)?;
    if batch.num_rows() > 0 {
        stream.write(batch)?;
    }
    stream.finish()
}

/// Writes rows: a stream of the plain columns, and one of the others.
fn append(frame: &mut Vec<u8>, batch: &RecordBatch) -> Result<(), ArrowError> {
    let schema = batch.schema();
    let (plain, others): (Vec<usize>, Vec<usize>) =
        (0..batch.num_columns()).partition(|index| PLAIN.contains(&schema.field(*index).name().as_str()));
    append_stream(frame, &batch.project(&plain)?, None)?;
    append_stream(frame, &batch.project(&others)?, Some(CompressionType::LZ4_FRAME))
}

/// Writes `frame` with its head, and empties it.
fn write_frame(file: &mut BufWriter<File>, frame: &mut Vec<u8>) -> Result<(), ArrowError> {
    let length = u32::try_from(frame.len())
        .map_err(|_| ArrowError::IpcError("more than 4 GiB in one batch".to_owned()))?;
    file.write_all(FRAME)?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(&crc32fast::hash(frame).to_le_bytes())?;
    file.write_all(frame)?;
    frame.clear();
    Ok(())
}

/// Reads the next frame; `None` at the end of the file.
fn next_frame(file: &mut BufReader<File>) -> Result<Option<Vec<u8>>, ArrowError> {
    if file.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut words = [[0; 4]; 3];
    for word in &mut words {
        file.read_exact(word)?;
    }
    let [begin, length, sum] = words;
    if begin != *FRAME {
        return Err(ArrowError::IpcError("this is not a frame of a recording".to_owned()));
    }
    let mut frame = Vec::new();
    let length = u32::from_le_bytes(length);
    file.take(length.into()).read_to_end(&mut frame)?;
    if frame.len() as u64 != u64::from(length) || crc32fast::hash(&frame) != u32::from_le_bytes(sum) {
        return Err(ArrowError::IpcError("the checksum of a frame is wrong".to_owned()));
    }
    Ok(Some(frame))
}

/// Reads the rows of the next frame; `None` at the end of the file.
fn next_rows(file: &mut BufReader<File>) -> Result<Option<RecordBatch>, ArrowError> {
    let Some(frame) = next_frame(file)? else { return Ok(None) };
    let mut streams = frame.as_slice();
    let mut half = || {
        let mut batches = StreamReader::try_new(&mut streams, None)?.collect::<Result<Vec<_>, _>>()?;
        batches.pop().ok_or_else(|| ArrowError::IpcError("a stream without rows".to_owned()))
    };
    let (plain, others) = (half()?, half()?);
    let fields = plain.schema().fields().iter().chain(others.schema().fields()).cloned().collect::<Vec<_>>();
    let columns = plain.columns().iter().chain(others.columns()).cloned().collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map(Some)
}

/// A thread that syncs the flushed recording to the disk, so that it survives a power cut.
struct Syncer {
    wanted: Option<SyncSender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Syncer {
    fn start(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (wanted, requests) = mpsc::sync_channel(1);
        let thread = thread::spawn(move || {
            for () in requests {
                file.sync_data()?;
            }
            Ok(())
        });
        Ok(Self { wanted: Some(wanted), thread: Some(thread) })
    }

    /// Requests a sync; a slow disk gets one request at a time. Returns the error of an earlier request.
    fn ask(&mut self) -> io::Result<()> {
        let gone = match &self.wanted {
            Some(wanted) => matches!(wanted.try_send(()), Err(TrySendError::Disconnected(()))),
            None => false,
        };
        if gone { self.end() } else { Ok(()) }
    }

    fn end(&mut self) -> io::Result<()> {
        self.wanted = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that syncs the recording died")),
            None => Ok(()),
        }
    }
}

/// Size of a finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Number of rows in the run.
    pub rows_count: u64,
    /// Size of the file or, with parts, of all parts together.
    pub size_bytes: u64,
    /// Number of parts; 0 if the run is one file.
    pub parts_count: u32,
}

pub(crate) fn beside(out: &Path, suffix: &str) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl Recorder {
    /// Creates `<out>.recording`. `run` is the metadata known so far, which is all that a recovered run has.
    ///
    /// # Errors
    /// If `out` or an unfinished recording of it exists and `force` is false, or if writing fails.
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
        let syncer = Syncer::start(&file).map_err(|source| WriteError::Io { path: path.clone(), source })?;
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let head = RecordBatch::new_empty(Arc::new(schema));
        let mut frame = Vec::new();
        append_stream(&mut frame, &head, None)
            .and_then(|()| write_frame(&mut file, &mut frame))
            .map_err(|source| WriteError::Arrow { path: path.clone(), source })?;
        Ok(Self { out: out.to_owned(), path, rows: Rows::default(), file, frame, syncer })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If a full batch cannot be written.
    pub fn push(&mut self, row: &Row) -> Result<(), WriteError> {
        self.push_with(|rows| rows.push(row))
    }

    /// Calls `write` to add any number of rows.
    ///
    /// # Errors
    /// If a full batch cannot be written.
    #[inline]
    pub fn push_with(&mut self, write: impl FnOnce(&mut Rows)) -> Result<(), WriteError> {
        write(&mut self.rows);
        if self.rows.len() >= BATCH_ROWS { self.write_batch() } else { Ok(()) }
    }

    fn write_batch(&mut self) -> Result<(), WriteError> {
        self.frame.clear();
        self.rows
            .take()
            .and_then(|batch| append(&mut self.frame, &batch))
            .and_then(|()| write_frame(&mut self.file, &mut self.frame))
            .map_err(|source| WriteError::Arrow { path: self.path.clone(), source })
    }

    /// Writes every row to the operating system: from then on the rows survive the end of this process and, as
    /// soon as a background sync is done, a crash of the machine.
    ///
    /// # Errors
    /// If writing fails, or an earlier sync failed.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if !self.rows.is_empty() {
            self.write_batch()?;
        }
        let io = |source| WriteError::Io { path: self.path.clone(), source };
        self.file.flush().and_then(|()| self.syncer.ask()).map_err(io)
    }

    /// Size of the recording on disk so far, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.file.get_ref().metadata().map_or(0, |meta| meta.len())
    }

    /// Removes the recording of a run that could not be started.
    pub fn discard(self) {
        // A file that cannot be removed says so by being there at the next attempt.
        let _ = fs::remove_file(&self.path);
    }

    /// Writes the run with `run` as its final metadata, and removes the recording.
    ///
    /// # Errors
    /// If reading or writing fails. The recording is kept then.
    pub fn finish(self, run: &Run) -> Result<Finished, WriteError> {
        self.end(run, false)
    }

    /// Finishes like [`Recorder::finish`] and sorts rows that were added in no order across row groups, so that the
    /// groups do not overlap.
    ///
    /// # Errors
    /// If reading or writing fails. The recording is kept then.
    pub fn finish_sorted(self, run: &Run) -> Result<Finished, WriteError> {
        self.end(run, true)
    }

    fn end(mut self, run: &Run, sort: bool) -> Result<Finished, WriteError> {
        self.flush()?;
        self.syncer.end().map_err(|source| WriteError::Io { path: self.path.clone(), source })?;
        let finished = convert(&self.path, &self.out, sort, |_, unread| match unread {
            None => Ok(run.clone()),
            Some((offset, length)) => Err(WriteError::NotARecording {
                path: self.path.clone(),
                reason: format!("it can be read up to byte {offset} of {length} only"),
            }),
        })?;
        fs::remove_file(&self.path).map_err(|source| WriteError::Io { path: self.path.clone(), source })?;
        Ok(finished)
    }
}

/// Writes the run `out` from an unfinished recording, up to the first damaged frame; the recording is kept.
///
/// # Errors
/// If `recording` is not a recording, if `out` exists and `force` is false, or if reading or writing fails.
pub fn recover(recording: &Path, out: &Path, force: bool) -> Result<Finished, WriteError> {
    if !force && out.exists() {
        return Err(WriteError::Exists(out.to_owned()));
    }
    convert(recording, out, false, |json, unread| {
        let mut run: Run = serde_json::from_str(json).map_err(|source| WriteError::NotARecording {
            path: recording.to_owned(),
            reason: format!("its metadata is not the JSON of a run: {source}"),
        })?;
        run.not_captured.push(
            "the recording was interrupted: its last second, open calls, final counts of lost events, \
             libraries, probes and thread names are missing"
                .to_owned(),
        );
        if let Some((offset, length)) = unread {
            run.not_captured.push(format!(
                "the recording could be read up to byte {offset} of {length}; the rest is damaged"
            ));
        }
        run.lost_is_counted = false;
        Ok(run)
    })
}

/// Writes the rows of a file whose row groups overlap in the order of time.
fn merge(unsorted: &Path, sorted: &Path) -> Result<parquet_file::Writer, WriteError> {
    let mut merge = Merge::open(unsorted)?;
    let mut failed = None;
    let batches = std::iter::from_fn(|| {
        merge.next().unwrap_or_else(|error| {
            failed = Some(error);
            None
        })
    });
    let file = parquet_file::Writer::create(sorted)?.rows(batches)?;
    failed.map_or(Ok(file), Err)
}

/// Reads a recording and writes it as Parquet, in one step as others see it. It is read as far as it is
/// whole; `run` gives the metadata, told the recording's own and, if it is cut off, where and its length.
/// `sort`: no row group shall begin before the one before it ends.
fn convert(
    recording: &Path,
    out: &Path,
    sort: bool,
    run: impl FnOnce(&str, Option<(u64, u64)>) -> Result<Run, WriteError>,
) -> Result<Finished, WriteError> {
    let no = |reason: String| WriteError::NotARecording { path: recording.to_owned(), reason };
    let read = |source| WriteError::Io { path: recording.to_owned(), source };
    let file = File::open(recording).map_err(read)?;
    let length = file.metadata().map_err(read)?.len();
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let frame = next_frame(&mut file).map_err(|e| no(e.to_string()))?.unwrap_or_default();
    let mut head = StreamReader::try_new(frame.as_slice(), None).map_err(|e| no(e.to_string()))?;
    if let Some(Err(error)) = head.next() {
        return Err(no(error.to_string()));
    }
    let head = head.schema();
    let metadata = head.metadata();
    match metadata.get(META_VERSION) {
        Some(version) if *version == FORMAT_VERSION.to_string() => {}
        Some(version) => return Err(no(format!("its format is version {version}, not {FORMAT_VERSION}"))),
        None => return Err(no("it has no format version".to_owned())),
    }
    let mut unread = None;
    let batches = std::iter::from_fn(|| {
        let start = file.stream_position().ok()?;
        match next_rows(&mut file) {
            Ok(rows) => rows,
            // What a kill or a full disk has cut off ends the recording; what stands before it is whole.
            Err(_) => {
                unread = Some((start, length));
                None
            }
        }
    });
    let temporary = beside(out, ".tmp");
    let io = |source: io::Error| WriteError::Io { path: temporary.clone(), source };
    let mut file = parquet_file::Writer::create(&temporary)?.rows(batches)?;
    if sort && file.overlaps() {
        file.finish(&Run::default())?;
        let unsorted = beside(out, ".unsorted");
        fs::rename(&temporary, &unsorted).map_err(io)?;
        let sorted = merge(&unsorted, &temporary);
        // What it was made from is not needed any more, whatever came of it.
        fs::remove_file(&unsorted).map_err(io)?;
        file = sorted?;
    }
    let run = run(metadata.get(META_RUN).map_or("{}", String::as_str), unread)?;
    let rows_count = file.finish(&run)?;
    let size_bytes = fs::metadata(&temporary).map_err(io)?.len();
    fs::rename(&temporary, out).map_err(io)?;
    Ok(Finished { rows_count, size_bytes, parts_count: 0 })
}
