//! A run in numbered parts, each a complete file: `run.0001.parquet`, `run.0002.parquet`, …
//!
//! ```text
//! run.0001.parquet  ◄─ finished by a thread ─ run.0001.parquet.recording (full)
//!                                             run.0002.parquet.recording ◄─ rows
//! ```

use std::{
    fs,
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
    earlier: Vec<JoinHandle<Result<Finished, WriteError>>>,
    /// Parts of an earlier run under this name, to be replaced.
    stale: Vec<PathBuf>,
}

/// Path of the part with the given number of the run `out`: `run.0001.parquet` for `run.parquet` and 1.
pub fn part_path(out: &Path, number: u32) -> PathBuf {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let extension = out.extension().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!("{stem}.{number:04}.{extension}"))
}

/// Numbers of the parts of `out` that exist, as files whose names end with `ending`, in ascending order.
fn numbers(out: &Path, ending: &str) -> Vec<u32> {
    let directory = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let extension = out.extension().unwrap_or_default().to_string_lossy();
    let number = |name: &str| -> Option<u32> {
        let rest = name.strip_suffix(ending)?.strip_prefix(&*stem)?.strip_prefix('.')?;
        let digits = rest.strip_suffix(&*extension)?.strip_suffix('.')?;
        let number: u32 = digits.parse().ok()?;
        (format!("{number:04}") == digits).then_some(number)
    };
    let mut numbers: Vec<u32> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| number(&entry.file_name().to_string_lossy()))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Paths of the parts of the run `out` that exist, in ascending order; numbers may be missing.
pub fn parts_of(out: &Path) -> Vec<PathBuf> {
    numbers(out, "").into_iter().map(|number| part_path(out, number)).collect()
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
        for number in numbers(out, "") {
            check_run(&part_path(out, number), force)?;
        }
        for number in numbers(out, RECORDING) {
            recording::check_leftover(&part_path(out, number), force)?;
        }
        recording::check(&part_path(out, 1), force)?;
        let unfinished = numbers(out, RECORDING).into_iter().map(|n| beside(&part_path(out, n), RECORDING));
        Ok(parts_of(out).into_iter().chain(unfinished).collect())
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
        Ok(Self { out: out.to_owned(), force, max_bytes, number, current, earlier: Vec::new(), stale })
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
        self.earlier.push(thread.map_err(io)?);
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
    pub fn finish(self, run: &Run) -> Result<Finished, WriteError> {
        let number = self.number;
        let mut total =
            self.current.finish(&Run { part_number: number, part_is_last: number > 0, ..run.clone() });
        for thread in self.earlier {
            let part = thread.join().unwrap_or_else(|_| {
                Err(WriteError::Io { path: self.out.clone(), source: std::io::ErrorKind::Other.into() })
            });
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
