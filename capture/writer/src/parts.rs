//! A run in numbered parts, each a complete file: `run.0001.parquet`, `run.0002.parquet`, …
//!
//! ```text
//! run.0001.parquet  ◄─ finished by a thread ─ run.0001.parquet.recording (full)
//!                                             run.0002.parquet.recording ◄─ rows
//! ```

use std::{
    fs::{self, ReadDir},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use trace_schema::{Bytes, Row, Run};

use crate::{
    Finished, Recorder, Rows, WriteError,
    new_file::check_run,
    recording::{self, RECORDING, beside},
};

/// A run that is being recorded, into one file or into parts of bounded size.
pub struct Parts {
    out: PathBuf,
    force: bool,
    max_bytes: Option<u64>,
    /// Number of the current part, from 1; 0 if the run is one file.
    number: u32,
    current: Recorder,
    earlier: Earlier,
    /// Parts of an earlier run under this name, to be replaced.
    stale: Vec<PathBuf>,
}

/// The threads that finish earlier parts. Whoever drops them waits for them: a program that ends must not leave files half done.
#[derive(Default)]
struct Earlier(Vec<JoinHandle<Result<Finished, WriteError>>>);

impl Earlier {
    /// Waits for each thread, and returns what it has done. `out` is the run, for messages.
    fn join(&mut self, out: &Path) -> impl Iterator<Item = Result<Finished, WriteError>> {
        self.0.drain(..).map(move |thread| {
            thread.join().unwrap_or_else(|_| {
                Err(WriteError::Io { path: out.to_owned(), source: ErrorKind::Other.into() })
            })
        })
    }
}

impl Drop for Earlier {
    fn drop(&mut self) {
        // Who asks for the results has taken them; otherwise an error of the run is on its way already.
        self.join(Path::new("")).for_each(drop);
    }
}

/// Path of the part with the given number of the run `out`: `run.0001.parquet` for `run.parquet` and 1.
pub fn part_path(out: &Path, number: u32) -> PathBuf {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let extension = out.extension().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!("{stem}.{number:04}.{extension}"))
}

/// The folder of a file.
fn folder(out: &Path) -> &Path {
    match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Lists a folder, again if a signal interrupts that.
fn entries(folder: &Path) -> io::Result<ReadDir> {
    loop {
        match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            entries => return entries,
        }
    }
}

/// Numbers of the parts of `out` that exist, as files whose names end with `ending`, in ascending order.
fn numbers(out: &Path, ending: &str) -> io::Result<Vec<u32>> {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let extension = out.extension().unwrap_or_default().to_string_lossy();
    let number = |name: &str| -> Option<u32> {
        let rest = name.strip_suffix(ending)?.strip_prefix(&*stem)?.strip_prefix('.')?;
        let digits = rest.strip_suffix(&*extension)?.strip_suffix('.')?;
        let number: u32 = digits.parse().ok()?;
        (format!("{number:04}") == digits).then_some(number)
    };
    let mut numbers = Vec::new();
    for entry in entries(folder(out))? {
        numbers.extend(number(&entry?.file_name().to_string_lossy()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Paths of the parts of the run `out` that exist, in ascending order; numbers may be missing. In a folder that cannot be
/// listed there are none.
pub fn parts_of(out: &Path) -> Vec<PathBuf> {
    let numbers = numbers(out, "").unwrap_or_default();
    numbers.into_iter().map(|number| part_path(out, number)).collect()
}

impl Parts {
    /// Checks that a run can be recorded to `out`, without doing it. Returns the parts of an earlier run, which are to be
    /// removed then.
    ///
    /// # Errors
    /// Under the conditions of [`Parts::create`], apart from failures to write.
    pub fn check(out: &Path, force: bool, max_size: Option<Bytes>) -> Result<Vec<PathBuf>, WriteError> {
        if max_size.is_none() {
            return recording::check(out, force).map(|_| Vec::new());
        }
        let found = |ending: &str| match numbers(out, ending) {
            // Where nothing may be listed, the names that are in the way are refused one by one.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(Vec::new()),
            Err(source) => Err(WriteError::Folder { path: folder(out).to_owned(), source }),
            Ok(numbers) => Ok(numbers),
        };
        let (finished, unfinished) = (found("")?, found(RECORDING)?);
        for number in &finished {
            check_run(&part_path(out, *number), force)?;
        }
        for number in &unfinished {
            recording::check_leftover(&part_path(out, *number), force)?;
        }
        recording::check(&part_path(out, 1), force)?;
        let finished = finished.into_iter().map(|number| part_path(out, number));
        let unfinished = unfinished.into_iter().map(|number| beside(&part_path(out, number), RECORDING));
        Ok(finished.chain(unfinished).collect())
    }

    /// Opens the recording of the first or only file. With `max_size`, a part ends when its recording
    /// has reached that size; the finished file is smaller.
    ///
    /// # Errors
    /// Under the conditions of [`Recorder::record`], and if parts of an earlier run exist and `force` is false.
    pub fn create(out: &Path, force: bool, max_size: Option<Bytes>, run: &Run) -> Result<Self, WriteError> {
        let stale = Self::check(out, force, max_size)?;
        let number = u32::from(max_size.is_some());
        let current = open(out, number, force, run)?;
        let max_bytes = max_size.map(|size| size.0.unsigned_abs());
        Ok(Self {
            out: out.to_owned(),
            force,
            max_bytes,
            number,
            current,
            earlier: Earlier::default(),
            stale,
        })
    }

    /// Removes the parts of an earlier run, which would be taken for parts of this one. Call it when recording has
    /// begun: a recording that fails to start must not destroy an earlier run.
    ///
    /// # Errors
    /// If a part cannot be removed.
    pub fn begun(&mut self) -> Result<(), WriteError> {
        let own = beside(&part_path(&self.out, self.number), RECORDING);
        for path in std::mem::take(&mut self.stale).into_iter().filter(|path| *path != own) {
            fs::remove_file(&path).map_err(|source| WriteError::Io { path, source })?;
        }
        Ok(())
    }

    /// Adds a row to the current part.
    pub fn push(&mut self, row: &Row) -> Result<(), WriteError> {
        self.current.push(row)
    }

    /// Calls `write` to add any number of rows to the current part.
    #[inline]
    pub fn push_with(&mut self, write: impl FnOnce(&mut Rows)) -> Result<(), WriteError> {
        self.current.push_with(write)
    }

    /// Flushes the current part: see [`Recorder::flush`].
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.current.flush()
    }

    /// Size of the current part's recording on disk, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.current.size_bytes()
    }

    /// Whether the current part has reached its size.
    pub fn is_full(&self) -> bool {
        self.max_bytes.is_some_and(|max| self.current.size_bytes() >= max)
    }

    /// Begins the next part; a thread finishes the current one with `run` as its metadata.
    ///
    /// # Errors
    /// If the next part cannot be opened, or the thread cannot be started.
    pub fn next(&mut self, run: &Run) -> Result<(), WriteError> {
        // First, so that no kill leaves the next part without the end of this one.
        self.current.flush()?;
        self.number += 1;
        // What this part knows is not known anew by the next.
        let mut start = Run { lost: Vec::new(), threads: Vec::new(), processes: Vec::new(), ..run.clone() };
        start.clock.end_ns = 0;
        let next = open(&self.out, self.number, self.force, &start)?;
        let full = std::mem::replace(&mut self.current, next);
        let number = self.number - 1;
        let run = Run { part_number: number, ..run.clone() };
        let thread = thread::Builder::new().spawn(move || full.finish(&run));
        let io = |source| WriteError::Io { path: part_path(&self.out, number), source };
        self.earlier.0.push(thread.map_err(io)?);
        Ok(())
    }

    /// Removes the recording of a run that could not be started.
    pub fn discard(self) {
        self.current.discard();
    }

    /// Finishes the last part with `run` as its metadata, and waits for the earlier ones.
    ///
    /// # Errors
    /// If a part cannot be written. Its recording is kept.
    pub fn finish(mut self, run: &Run) -> Result<Finished, WriteError> {
        let number = self.number;
        let mut total =
            self.current.finish(&Run { part_number: number, part_is_last: number > 0, ..run.clone() });
        for part in self.earlier.join(&self.out) {
            total = total.and_then(|total| {
                part.map(|part| Finished {
                    rows_count: total.rows_count + part.rows_count,
                    size_bytes: total.size_bytes + part.size_bytes,
                    parts_count: 0,
                })
            });
        }
        total.map(|total| Finished { parts_count: number, ..total })
    }
}

fn open(out: &Path, number: u32, force: bool, run: &Run) -> Result<Recorder, WriteError> {
    let path = if number == 0 { out.to_owned() } else { part_path(out, number) };
    Recorder::record(&path, force, &Run { part_number: number, ..run.clone() })
}
