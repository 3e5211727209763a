//! What can go wrong, and the exit code that says so.

use std::{io, path::PathBuf, process::ExitCode};

use trace_writer::WriteError;

/// A comparison found a regression.
pub const EXIT_REGRESSION: u8 = 1;
/// Wrong usage or bad input. `clap` uses the same code.
pub const EXIT_BAD_INPUT: u8 = 2;
/// The data does not answer the question.
pub const EXIT_INCONCLUSIVE: u8 = 3;
/// Reading or writing failed.
pub const EXIT_IO: u8 = 5;
/// A defect of this program.
pub const EXIT_INTERNAL: u8 = 70;

/// Everything `analyze` can fail with.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not a Parquet file, or it is cut off: {reason}", path.display())]
    NotParquet { path: PathBuf, reason: String },
    #[error("{} is Parquet, but not a run of Inquest: {reason}", path.display())]
    NotARun { path: PathBuf, reason: String },
    #[error("{} has format version {found}; this program reads versions up to {known}: use a newer one", path.display())]
    NewerVersion { path: PathBuf, found: u32, known: u32 },
    #[error("{} is not a database of Ingero: {reason}", path.display())]
    NotIngero { path: PathBuf, reason: String },
    #[error("{} is not an SQLite export of Nsight Systems: {reason}", path.display())]
    NotNsys { path: PathBuf, reason: String },
    #[error("{} is of no known format; say which one if you know", path.display())]
    UnknownFormat { path: PathBuf },
    #[error("{}: table {table}: {source}", path.display())]
    Sqlite { path: PathBuf, table: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{}: table {table}, row {row}: {reason}", path.display())]
    BadRow { path: PathBuf, table: &'static str, row: String, reason: String },
    #[error("{}: byte {offset}: {reason}", path.display())]
    BadBytes { path: PathBuf, offset: u64, reason: String },
    #[error("{}: line {line}: {reason}", path.display())]
    BadLine { path: PathBuf, line: u64, reason: String },
    #[error("{} tells nothing of the scheduler: {reason}", path.display())]
    NoSwitches { path: PathBuf, reason: String },
    #[error("{0}")]
    Query(String),
    #[error("damaged data: {0}")]
    Damaged(String),
    #[error("{} is broken: {count} faults", path.display())]
    Broken { path: PathBuf, count: usize },
    #[error("{} exists; use --force to replace it", .0.display())]
    Exists(PathBuf),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("regression: {0}")]
    Regression(String),
    #[error("inconclusive: {0}")]
    Inconclusive(String),
    #[error("defect in analyze, please report it: {0}")]
    Internal(String),
}

impl AnalyzeError {
    /// The documented exit code: see `analyze --help`.
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
