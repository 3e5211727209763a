//! The errors of `analyze`, and the exit code of each.

use std::{io, path::PathBuf, process::ExitCode};

use trace_writer::WriteError;

/// The exit code when a comparison finds a regression.
pub const EXIT_REGRESSION: u8 = 1;
/// The exit code for wrong usage or bad input. `clap` uses the same code.
pub const EXIT_BAD_INPUT: u8 = 2;
/// The exit code when the data does not suffice to answer the question.
pub const EXIT_INCONCLUSIVE: u8 = 3;
/// The exit code when reading or writing fails.
pub const EXIT_IO: u8 = 5;
/// The exit code of an internal error.
pub const EXIT_INTERNAL: u8 = 70;

/// Every error that `analyze` can return.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// A file could not be opened, read or written; `source` is the I/O error.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file is not Parquet or is truncated; `reason` is the Parquet reader's message.
    #[error("{} is not a Parquet file, or it is cut off: {reason}", path.display())]
    NotParquet { path: PathBuf, reason: String },
    /// A Parquet file is not a readable run of Inquest; `reason` says why.
    #[error("{} is Parquet, but not a run of Inquest: {reason}", path.display())]
    NotARun { path: PathBuf, reason: String },
    /// A run has format version `found`, which is newer than `known`, the newest that this program reads.
    #[error("{} has format version {found}; this program reads versions up to {known}: use a newer one", path.display())]
    NewerVersion { path: PathBuf, found: u32, known: u32 },
    /// A file is not a database of Ingero that can be imported; `reason` says why.
    #[error("{} is not a database of Ingero: {reason}", path.display())]
    NotIngero { path: PathBuf, reason: String },
    /// A file is not an export of Nsight Systems that can be imported; `reason` says why.
    #[error("{} is not an SQLite export of Nsight Systems: {reason}", path.display())]
    NotNsys { path: PathBuf, reason: String },
    /// The format of a trace could not be detected from its content.
    #[error("{} is of no known format; say which one if you know", path.display())]
    UnknownFormat { path: PathBuf },
    /// A table of an SQLite database could not be read; `source` is SQLite's error.
    #[error("{}: table {table}: {source}", path.display())]
    Sqlite { path: PathBuf, table: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// A row of an SQLite table has a value that cannot be imported; `row` identifies the row.
    #[error("{}: table {table}, row {row}: {reason}", path.display())]
    BadRow { path: PathBuf, table: &'static str, row: String, reason: String },
    /// A binary trace is malformed at the byte `offset` of its decompressed content.
    #[error("{}: byte {offset}: {reason}", path.display())]
    BadBytes { path: PathBuf, offset: u64, reason: String },
    /// A text trace is malformed at `line`, counted from 1.
    #[error("{}: line {line}: {reason}", path.display())]
    BadLine { path: PathBuf, line: u64, reason: String },
    /// A trace contains no scheduler switches; `reason` says what was looked for.
    #[error("{} tells nothing of the scheduler: {reason}", path.display())]
    NoSwitches { path: PathBuf, reason: String },
    /// A query, an option or another part of the user's request is wrong; the text says how.
    #[error("{0}")]
    Query(String),
    /// A file opens, but its content cannot be decoded or contradicts its declaration.
    #[error("damaged data: {0}")]
    Damaged(String),
    /// A check of a run found `count` faults.
    #[error("{} is broken: {count} faults", path.display())]
    Broken { path: PathBuf, count: usize },
    /// An output file exists and may not be replaced.
    #[error("{} exists; use --force to replace it", .0.display())]
    Exists(PathBuf),
    /// The writer of runs failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A comparison found a regression; the text names it.
    #[error("regression: {0}")]
    Regression(String),
    /// The data does not suffice to answer the question; the text says why.
    #[error("inconclusive: {0}")]
    Inconclusive(String),
    /// An internal error: a fault of this program, not of its input.
    #[error("defect in analyze, please report it: {0}")]
    Internal(String),
}

impl AnalyzeError {
    /// Returns the exit code of this error, as documented in `analyze --help`.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NotParquet { .. }
            | Self::NotARun { .. }
            | Self::NewerVersion { .. }
            | Self::NotIngero { .. }
            | Self::NotNsys { .. }
            | Self::UnknownFormat { .. }
            | Self::Sqlite { .. }
            | Self::BadRow { .. }
            | Self::BadBytes { .. }
            | Self::BadLine { .. }
            | Self::NoSwitches { .. }
            | Self::Query(_)
            | Self::Damaged(_)
            | Self::Broken { .. }
            | Self::Exists(_)
            | Self::Write(
                WriteError::Exists(_) | WriteError::Unfinished(_) | WriteError::NotARecording { .. },
            ) => EXIT_BAD_INPUT,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => EXIT_BAD_INPUT,
            Self::Io { .. } | Self::Write(_) => EXIT_IO,
            Self::Regression(_) => EXIT_REGRESSION,
            Self::Inconclusive(_) => EXIT_INCONCLUSIVE,
            Self::Internal(_) => EXIT_INTERNAL,
        })
    }
}
