//! The limits of what one item of a foreign file may take, so that no file, however small it is when compressed, takes all
//! memory or never ends. They bound items, not files: a trace of any size is read. Every reader of this crate takes its limits
//! from here; an error names the limit and its value after the place in the file.

use std::fmt::Display;

/// A limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Name of the limit, which ends with its unit.
    name: &'static str,
    /// The largest value that is accepted.
    pub(crate) value: u64,
}

impl Limit {
    /// Creates a limit.
    pub(crate) const fn new(name: &'static str, value: u64) -> Self {
        Self { name, value }
    }

    /// Returns whether `found` exceeds the limit.
    pub(crate) fn is_exceeded_by(self, found: usize) -> bool {
        found as u64 > self.value
    }

    /// Returns the reason for which `what` is refused, a part of a sentence that ends with a comparative: it is longer, there are
    /// more.
    pub(crate) fn over(self, what: impl Display) -> String {
        format!("{what} than the limit {} of {}", self.name, self.value)
    }
}

/// A row of a CSV table or of JSON lines, in bytes. The longest text that a run holds, a call stack, has 1 MiB.
pub(crate) const RECORD_BYTES: Limit = Limit::new("record_bytes", 16 << 20);
/// Columns of a table.
pub(crate) const COLUMNS_COUNT: Limit = Limit::new("columns_count", 1024);
/// JSON objects and lists within each other.
pub(crate) const NESTING_COUNT: Limit = Limit::new("nesting_count", 128);
/// A string of a JSON text that is kept, in bytes.
pub(crate) const STRING_BYTES: Limit = Limit::new("string_bytes", 1 << 20);
/// A line of the text of `perf` or of ftrace, in bytes.
pub(crate) const LINE_BYTES: Limit = Limit::new("line_bytes", 64 << 10);
/// The path of a program that a process executes, in bytes. Linux has no longer ones.
pub(crate) const PATH_BYTES: Limit = Limit::new("path_bytes", 4096);
/// Threads of the machine that recorded a scheduler trace. Linux numbers at most four times as many.
pub(crate) const THREADS_COUNT: Limit = Limit::new("threads_count", 1 << 20);
/// CPUs of the machine that recorded a scheduler trace.
pub(crate) const CPUS_COUNT: Limit = Limit::new("cpus_count", 1 << 16);
/// Names of processes and threads, and command lines, that are kept of one trace, in bytes.
pub(crate) const NAMES_BYTES: Limit = Limit::new("names_bytes", 256 << 20);
/// Rows of a table that lists processes, threads or GPUs.
pub(crate) const NAMES_COUNT: Limit = Limit::new("names_count", 1 << 20);
/// Texts of an export of Nsight Systems that is a folder of Parquet files, in bytes.
pub(crate) const TEXTS_BYTES: Limit = Limit::new("texts_bytes", 1 << 30);
/// A message in a file of protocol buffers, such as a packet of Perfetto, in bytes.
pub(crate) const MESSAGE_BYTES: Limit = Limit::new("message_bytes", 64 << 20);
/// Events of one bundle of Perfetto.
pub(crate) const BUNDLE_EVENTS_COUNT: Limit = Limit::new("bundle_events_count", 1 << 20);
/// Bundles of a trace of Perfetto.
pub(crate) const BUNDLES_COUNT: Limit = Limit::new("bundles_count", 1 << 24);
/// Arguments of a process's command line in a trace of Perfetto.
pub(crate) const ARGUMENTS_COUNT: Limit = Limit::new("arguments_count", 1 << 16);
/// A line of a text opcode of a pickle, in bytes.
pub(crate) const PICKLE_LINE_BYTES: Limit = Limit::new("pickle_line_bytes", 16 << 20);
/// Blocks of a device that a snapshot's history has allocated and not freed.
pub(crate) const LIVE_BLOCKS_COUNT: Limit = Limit::new("live_blocks_count", 1 << 23);
/// A record batch or a dictionary of an Arrow file, before and after decompression, in bytes.
pub(crate) const BATCH_BYTES: Limit = Limit::new("batch_bytes", 1 << 30);
/// Rows of a record batch or a dictionary of an Arrow file.
pub(crate) const BATCH_ROWS_COUNT: Limit = Limit::new("batch_rows_count", 1 << 24);
/// The footer of an Arrow file, in bytes.
pub(crate) const FOOTER_BYTES: Limit = Limit::new("footer_bytes", 64 << 20);
/// A text, a blob or a row of an SQLite database, in bytes.
pub(crate) const SQLITE_VALUE_BYTES: Limit = Limit::new("sqlite_value_bytes", 16 << 20);
/// The statement that created a table of an SQLite database, in bytes.
pub(crate) const SQLITE_SCHEMA_BYTES: Limit = Limit::new("sqlite_schema_bytes", 1 << 20);
/// Tables, views, indexes and triggers of an SQLite database.
pub(crate) const SQLITE_OBJECTS_COUNT: Limit = Limit::new("sqlite_objects_count", 10_000);

/// Returns the number of steps of SQLite's machine that reading a database of this size may take. A row of an honest
/// database takes one to three steps a byte, and every table is read three times at most.
pub(crate) fn sqlite_steps_count(size_bytes: u64) -> Limit {
    Limit::new("sqlite_steps_count", size_bytes.saturating_mul(64).saturating_add(16 << 20))
}
