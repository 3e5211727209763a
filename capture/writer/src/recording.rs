//! The append-only file of a recording in progress, and how it becomes a run.
//!
//! The file is a sequence of frames: one with the metadata, then one a flush with the columns that have values in it.
//! Most columns are empty at any time, and nothing is spent on those.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, BufWriter, Seek, Write},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
};

use arrow::{array::RecordBatch, error::ArrowError, ipc::reader::StreamReader};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::retry_on_intr,
};
use trace_schema::{FORMAT_VERSION, META_RUN, META_VERSION, Row, Run, arrow_schema, metadata_fault};

use crate::{
    WriteError,
    frame::{
        BUFFER_BYTES, Unread, append, append_stream, check_lengths, is_ours, lacks_head, next_frame, rows_of,
        write_frame,
    },
    leftover,
    merge::Merge,
    new_file::{Access, NewFile, Place, check_run},
    parquet_file,
    rows::Rows,
    times::rows_fault,
};

/// What the name of a recording has after that of its run.
pub(crate) const RECORDING: &str = ".recording";

/// Rows from which a batch is written without waiting for the caller's flush. They fit into a cache.
const BATCH_ROWS: usize = 1 << 14;

/// The file that rows are recorded into.
enum Recording {
    /// It ends with this process.
    Scratch { _file: NewFile },
    /// It has a name, by which it is found after a kill.
    Named(Place),
}

/// A run that is being recorded.
pub struct Recorder {
    out: PathBuf,
    force: bool,
    recording: Recording,
    /// The path of the recording or, if it has no name, of the run.
    path: PathBuf,
    rows: Rows,
    file: BufWriter<File>,
    /// The frame that is being made.
    frame: Vec<u8>,
    syncer: Syncer,
}

/// Decodes a part of a recording. A forged one may make Arrow panic, which is an error of the recording.
fn decoding<T, E: From<ArrowError>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(ArrowError::IpcError("a frame cannot be decoded".to_owned()).into()))
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
        let thread = thread::Builder::new().spawn(move || {
            for () in requests {
                file.sync_data()?;
            }
            Ok(())
        })?;
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

impl Drop for Syncer {
    fn drop(&mut self) {
        // The thread has the file open, and with it the lock. Who drops a recording does not ask for it any more.
        let _ = self.end();
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
    /// Begins a run that is made in one go: until it is finished, its rows are in a file that ends with this process.
    ///
    /// # Errors
    /// If `out` cannot be written, or exists and `force` is false, or if writing fails.
    pub fn create(out: &Path, force: bool, run: &Run) -> Result<Self, WriteError> {
        check_run(out, force)?;
        let new = NewFile::at(Place::open(out)?, force, Access::Owner)?;
        let file = new.writer()?;
        Self::begin(out, force, Recording::Scratch { _file: new }, out.to_owned(), file, run)
    }

    /// Begins a run whose rows survive a kill: they are in `<out>.recording`, which has its metadata from the moment at
    /// which it is there. `run` is the metadata known so far, which is all that a recovered run has.
    ///
    /// # Errors
    /// If `out` cannot be written, or exists and `force` is false; if there is a recording of it with rows and `force`
    /// is false, or one that another process writes to; or if writing fails.
    pub fn record(out: &Path, force: bool, run: &Run) -> Result<Self, WriteError> {
        let replaced = check(out, force)?;
        let path = beside(out, RECORDING);
        let new = NewFile::at(Place::open(&path)?, replaced.is_some(), Access::Owner)?;
        let file = new.writer()?;
        let recorder = Self::begin(out, force, Recording::Named(Place::open(&path)?), path, file, run)?;
        // For other recorders, until this one ends. The file system may have no locks.
        let _ = recorder.file.get_ref().try_lock();
        match new.finish() {
            Ok(_) => Ok(recorder),
            Err(WriteError::Exists(path)) => Err(WriteError::Unfinished(path)),
            Err(error) => {
                // Without a row, it is of no use under its name.
                let _ = recorder.remove();
                Err(error)
            }
        }
    }

    /// Writes the metadata into the file.
    fn begin(
        out: &Path,
        force: bool,
        recording: Recording,
        path: PathBuf,
        file: File,
        run: &Run,
    ) -> Result<Self, WriteError> {
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
        file.flush().map_err(|source| WriteError::Io { path: path.clone(), source })?;
        Ok(Self { out: out.to_owned(), force, recording, path, rows: Rows::default(), file, frame, syncer })
    }

    fn failed(&self, source: io::Error) -> WriteError {
        self.kept(WriteError::Io { path: self.path.clone(), source })
    }

    /// Adds to an error where the rows are that were recorded before it, if they survive this process.
    fn kept(&self, error: WriteError) -> WriteError {
        match &self.recording {
            Recording::Named(_) => WriteError::Kept { recording: self.path.clone(), source: Box::new(error) },
            Recording::Scratch { .. } => error,
        }
    }

    /// Removes the recording, if it has a name that is still its own.
    fn remove(&self) -> Result<(), WriteError> {
        match &self.recording {
            Recording::Named(place) => place.remove(self.file.get_ref()),
            Recording::Scratch { .. } => Ok(()),
        }
    }

    /// Adds a row.
    pub fn push(&mut self, row: &Row) -> Result<(), WriteError> {
        self.push_with(|rows| rows.push(row))
    }

    /// Calls `write` to add any number of rows.
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
            .map_err(|source| self.kept(WriteError::Arrow { path: self.path.clone(), source }))
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
        self.file.flush().and_then(|()| self.syncer.ask()).map_err(|source| self.failed(source))
    }

    /// Size of the recording on disk so far, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.file.get_ref().metadata().map_or(0, |meta| meta.len())
    }

    /// Ends a run of which nothing is to stay.
    pub fn discard(self) {
        // A file that cannot be removed says so by being there at the next attempt.
        let _ = self.remove();
    }

    /// Writes the run with `run` as its final metadata, and removes the recording.
    ///
    /// # Errors
    /// If reading or writing fails. A recording that has a name is kept then.
    pub fn finish(self, run: &Run) -> Result<Finished, WriteError> {
        self.end(run, false)
    }

    /// Finishes like [`Recorder::finish`] and sorts rows that were added in no order across row groups, so that the
    /// groups do not overlap.
    ///
    /// # Errors
    /// If reading or writing fails. A recording that has a name is kept then.
    pub fn finish_sorted(self, run: &Run) -> Result<Finished, WriteError> {
        self.end(run, true)
    }

    fn end(mut self, run: &Run, sort: bool) -> Result<Finished, WriteError> {
        self.flush()?;
        let synced = self.syncer.end();
        synced.map_err(|source| self.failed(source))?;
        let file = self.file.get_ref().try_clone().map_err(|source| self.failed(source))?;
        let source = Source { file, path: &self.path, is_foreign: false };
        let finished = convert(source, &self.out, self.force, sort, |_, unread| match unread {
            None => Ok(run.clone()),
            Some((offset, length)) => {
                let what = format!("it can be read up to byte {offset} of {length} only");
                let source = io::Error::new(io::ErrorKind::InvalidData, what);
                Err(WriteError::Io { path: self.path.clone(), source })
            }
        });
        let finished = finished.map_err(|error| self.kept(error))?;
        self.remove()?;
        Ok(finished)
    }
}

/// Checks that a run can be recorded to `out`, and returns the recording that this replaces, if there is one.
///
/// # Errors
/// Under the conditions of [`Recorder::record`].
pub(crate) fn check(out: &Path, force: bool) -> Result<Option<File>, WriteError> {
    check_run(out, force)?;
    check_leftover(out, force)
}

/// Checks that the recording of the run `out` may be created, and returns the one that it replaces, if there is one.
pub(crate) fn check_leftover(out: &Path, force: bool) -> Result<Option<File>, WriteError> {
    let path = beside(out, RECORDING);
    leftover::check(&Place::open(&path)?, &path, force)
}

/// Writes the run `out` from an unfinished recording, up to the first damaged frame; the recording is kept.
///
/// # Errors
/// If `recording` is not a recording, has a whole frame that no recorder writes, or was cut off before anything was
/// recorded; if `out` cannot be written, or exists and `force` is false; or if reading or writing fails: a recording that
/// cannot be read now may be whole.
pub fn recover(recording: &Path, out: &Path, force: bool) -> Result<Finished, WriteError> {
    check_run(out, force)?;
    let io = |source| WriteError::Io { path: recording.to_owned(), source };
    // A named pipe must not make this wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| openat(CWD, recording, flags, Mode::empty()));
    let file = opened.map_err(|error| io(error.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(io)?.is_file() {
        let reason = "it is not a regular file".to_owned();
        return Err(WriteError::NotARecording { path: recording.to_owned(), reason });
    }
    let forged = |reason: String| WriteError::NotARecording { path: recording.to_owned(), reason };
    convert(Source { file, path: recording, is_foreign: true }, out, force, false, |json, unread| {
        let run = serde_json::from_str(json);
        let mut run: Run =
            run.map_err(|error| forged(format!("byte 0: its metadata is not the JSON of a run: {error}")))?;
        if let Some(fault) = metadata_fault(&run) {
            return Err(forged(format!("byte 0: its metadata: {fault}")));
        }
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

/// Writes the rows of the file `unsorted`, whose row groups overlap, in the order of time.
fn merge(unsorted: &File, out: &Path, sorted: File) -> Result<parquet_file::Writer, WriteError> {
    let mut merge = Merge::open(unsorted, out)?;
    let mut failed = None;
    let batches = std::iter::from_fn(|| {
        merge.next().unwrap_or_else(|error| {
            failed = Some(error);
            None
        })
    });
    let file = parquet_file::Writer::create(out, sorted)?.rows(batches)?;
    failed.map_or(Ok(file), Err)
}

/// A recording that is read.
struct Source<'a> {
    file: File,
    /// Its path, for messages.
    path: &'a Path,
    /// Whether anyone may have made it, so that its times are checked, too.
    is_foreign: bool,
}

/// Reads a recording and writes it as Parquet, in one step as others see it. It is read as far as it is
/// whole; a frame that is whole, and that no recorder writes, is an error. `run` gives the metadata, told the
/// recording's own and, if it is cut off, where and its length.
/// `sort`: no row group shall begin before the one before it ends.
fn convert(
    source: Source<'_>,
    out: &Path,
    force: bool,
    sort: bool,
    run: impl FnOnce(&str, Option<(u64, u64)>) -> Result<Run, WriteError>,
) -> Result<Finished, WriteError> {
    let Source { file, path: recording, is_foreign } = source;
    let no = |reason: String| WriteError::NotARecording { path: recording.to_owned(), reason };
    let read = |source| WriteError::Io { path: recording.to_owned(), source };
    let length = file.metadata().map_err(read)?.len();
    if lacks_head(&file).map_err(read)? {
        return Err(WriteError::NothingRecorded(recording.to_owned()));
    }
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let frame = match next_frame(&mut file) {
        Ok(frame) => frame.unwrap_or_default(),
        Err(Unread::Io(source)) => return Err(read(source)),
        Err(Unread::Damaged(error)) => return Err(no(format!("byte 0: {error}"))),
    };
    let head = decoding::<_, ArrowError>(|| {
        check_lengths(&frame)?;
        let mut head = StreamReader::try_new(frame.as_slice(), None)?;
        head.next().transpose()?;
        Ok(head.schema())
    });
    let head = head.map_err(|error| no(format!("byte 0: {error}")))?;
    let metadata = head.metadata();
    match metadata.get(META_VERSION) {
        Some(version) if *version == FORMAT_VERSION.to_string() => {}
        Some(version) => return Err(no(format!("its format is version {version}, not {FORMAT_VERSION}"))),
        None => return Err(no("it has no format version".to_owned())),
    }
    let full = arrow_schema();
    if let Some(field) = head.fields().iter().find(|field| !is_ours(&full, field)) {
        let (name, ty) = (field.name(), field.data_type());
        return Err(no(format!("byte 0: no recording has a column {name} of type {ty}")));
    }
    let (mut unread, mut failed, mut forged) = (None, None, None);
    let mut start = 0;
    let batches = std::iter::from_fn(|| {
        let next = file.stream_position().map_err(Unread::Io).and_then(|position| {
            start = position;
            next_frame(&mut file)
        });
        match next {
            Ok(None) => {}
            Ok(Some(frame)) => {
                let fault = match decoding::<_, ArrowError>(|| rows_of(&frame)) {
                    Ok(rows) => match is_foreign.then(|| rows_fault(&rows)).flatten() {
                        None => return Some(rows),
                        Some(fault) => fault,
                    },
                    Err(error) => error.to_string(),
                };
                forged = Some(no(format!("byte {start}: no recorder writes this frame: {fault}")));
            }
            // What a kill or a full disk has cut off ends the recording; what stands before it is whole.
            Err(Unread::Damaged(_)) => unread = Some((start, length)),
            Err(Unread::Io(error)) => {
                failed = Some(io::Error::new(error.kind(), format!("after byte {start}: {error}")));
            }
        }
        None
    });
    let mut new = NewFile::create(out, force, Access::Owner)?;
    let mut file = parquet_file::Writer::create(out, new.writer()?)?.rows(batches)?;
    if let Some(error) = failed.map(read).or(forged) {
        return Err(error);
    }
    if sort && file.overlaps() {
        file.finish(&Run::default())?;
        let sorted = NewFile::create(out, force, Access::Owner)?;
        file = merge(&new.writer()?, out, sorted.writer()?)?;
        // What it was made from is gone with its file.
        new = sorted;
    }
    let run = run(metadata.get(META_RUN).map_or("{}", String::as_str), unread)?;
    let rows_count = file.finish(&run)?;
    let size_bytes = new.finish()?;
    Ok(Finished { rows_count, size_bytes, parts_count: 0 })
}
