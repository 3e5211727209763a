//! The errors of `analyze`, and the exit code of each.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use trace_schema::Bytes;
use trace_writer::WriteError;

/// The exit code when a comparison finds a regression, or memory was over a threshold for too long.
pub const EXIT_FOUND: u8 = 1;
/// The exit code for wrong usage or bad input. `clap` uses the same code.
pub const EXIT_BAD_INPUT: u8 = 2;
/// The exit code when the data does not suffice to answer the question.
pub const EXIT_INCONCLUSIVE: u8 = 3;
/// The exit code when reading or writing fails.
pub const EXIT_IO: u8 = 5;
/// The exit code of an internal error.
pub const EXIT_INTERNAL: u8 = 70;

/// A place in a trace of another tool, where reading it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file or folder as a whole.
    WholeFile,
    /// A table of a database.
    Table(&'static str),
    /// A row of a table.
    Row {
        /// Name of the table.
        table: &'static str,
        /// The row's id or number in the table.
        row: String,
    },
    /// A byte, counted from 0 after decompression.
    Byte(u64),
    /// A line, counted from 1.
    Line(u64),
}

impl Place {
    /// Returns the start of a message about this place; it is empty for a whole file.
    fn prefix(&self) -> String {
        match self {
            Self::WholeFile => String::new(),
            Self::Table(table) => format!("table {table}: "),
            Self::Row { table, row } => format!("table {table}, row {row}: "),
            Self::Byte(offset) => format!("byte {offset}: "),
            Self::Line(line) => format!("line {line}: "),
        }
    }
}

/// Returns a detail as the end of a sentence.
fn said(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

/// Every error that `analyze` can return.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// A file could not be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file is not Parquet or is truncated.
    #[error("{} is not a Parquet file, or it is cut off: {reason}", path.display())]
    NotParquet {
        /// The file.
        path: PathBuf,
        /// The message of the Parquet reader.
        reason: String,
    },
    /// A file is a recording that has not become a run: it is under way, or it was interrupted.
    #[error(
        "{} is a recording that is under way or was interrupted: once nothing writes it any more, `analyze recover {}` makes a run of it",
        .0.display(),
        .0.display()
    )]
    Unfinished(PathBuf),
    /// A directory or a pattern stands for no run.
    #[error("{}: {reason}", path.display())]
    NoRun {
        /// The directory or pattern.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The work needs more memory than it may take.
    #[error("memory budget of {} exceeded (--memory-limit){}", Bytes(i64::try_from(*budget_bytes).unwrap_or(i64::MAX)), said(detail))]
    MemoryBudget {
        /// The memory that the work may take.
        budget_bytes: usize,
        /// What asked for more; empty if it is not known.
        detail: String,
    },
    /// A query that sorts on disk needs more memory than its sorts and joins may take together.
    #[error("a query that sorts needs more than {}, which is all that its sorts and joins may take, whatever --memory-limit is{}", Bytes(i64::try_from(*pool_bytes).unwrap_or(i64::MAX)), said(detail))]
    SortMemory {
        /// The memory that sorts and joins of one query may take together.
        pool_bytes: usize,
        /// What asked for more.
        detail: String,
    },
    /// A Parquet file is not a readable run of Inquest.
    #[error("{} is Parquet, but not a run of Inquest: {reason}", path.display())]
    NotARun {
        /// The file.
        path: PathBuf,
        /// What a run would have, or have otherwise.
        reason: String,
    },
    /// A run has a format version that this program does not know yet.
    #[error("{} has format version {found}; this program reads versions up to {known}: use a newer one", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Format version of the run.
        found: u32,
        /// The newest format version that this program reads.
        known: u32,
    },
    /// The format of a trace could not be detected from its content.
    #[error("{} is of no known format; say which one if you know", path.display())]
    UnknownFormat {
        /// The file or folder.
        path: PathBuf,
    },
    /// A trace of another tool cannot be read: it is not of the stated format, damaged, or lacks what a run
    /// is made of.
    #[error("{}: {}{reason}", path.display(), place.prefix())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Where in it reading failed.
        place: Place,
        /// What is wrong there.
        reason: String,
    },
    /// A query, an option or another part of the user's request is wrong; the text says how.
    #[error("{0}")]
    Query(String),
    /// A file opens, but its content cannot be decoded or contradicts its declaration.
    #[error("damaged data: {0}")]
    Damaged(String),
    /// A check of a run found faults.
    #[error("{} is broken: {count} faults", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Number of faults.
        count: usize,
    },
    /// The writer of runs failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A comparison found a regression; the text names it.
    #[error("regression: {0}")]
    Regression(String),
    /// Memory was over a threshold for too long; the text says which.
    #[error("alert: {0}")]
    Alert(String),
    /// The data does not suffice to answer the question; the text says why.
    #[error("inconclusive: {0}")]
    Inconclusive(String),
    /// An internal error: a fault of this program, not of its input.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

impl AnalyzeError {
    /// Creates an [`AnalyzeError::Unreadable`].
    pub fn unreadable(path: &Path, place: Place, reason: impl Into<String>) -> Self {
        Self::Unreadable { path: path.to_owned(), place, reason: reason.into() }
    }

    /// Returns an error with the text and the exit code of this one, for another one who waits for the same work.
    pub fn again(&self) -> Self {
        match self {
            Self::Damaged(what) => Self::Damaged(what.clone()),
            Self::Internal(what) => Self::Internal(what.clone()),
            Self::MemoryBudget { budget_bytes, detail } => {
                Self::MemoryBudget { budget_bytes: *budget_bytes, detail: detail.clone() }
            }
            Self::SortMemory { pool_bytes, detail } => {
                Self::SortMemory { pool_bytes: *pool_bytes, detail: detail.clone() }
            }
            Self::Io { path, source } => {
                Self::Io { path: path.clone(), source: io::Error::new(source.kind(), source.to_string()) }
            }
            Self::NotParquet { path, reason } => {
                Self::NotParquet { path: path.clone(), reason: reason.clone() }
            }
            other => Self::Query(other.to_string()),
        }
    }

    /// Returns the exit code of this error, as documented in `analyze --help`.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NotParquet { .. }
            | Self::Unfinished(_)
            | Self::NoRun { .. }
            | Self::MemoryBudget { .. }
            | Self::SortMemory { .. }
            | Self::NotARun { .. }
            | Self::NewerVersion { .. }
            | Self::UnknownFormat { .. }
            | Self::Unreadable { .. }
            | Self::Query(_)
            | Self::Damaged(_)
            | Self::Broken { .. } => EXIT_BAD_INPUT,
            Self::Write(error) if error.is_bad_request() => EXIT_BAD_INPUT,
            Self::Io { source, .. } | Self::Write(WriteError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                EXIT_BAD_INPUT
            }
            Self::Io { .. } | Self::Write(_) => EXIT_IO,
            Self::Regression(_) | Self::Alert(_) => EXIT_FOUND,
            Self::Inconclusive(_) => EXIT_INCONCLUSIVE,
            Self::Internal(_) => EXIT_INTERNAL,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_trace_names_file_and_place() {
        let said = |place| AnalyzeError::unreadable(Path::new("a.db"), place, "it is null").to_string();
        assert_eq!(said(Place::WholeFile), "a.db: it is null");
        assert_eq!(said(Place::Table("ops")), "a.db: table ops: it is null");
        assert_eq!(
            said(Place::Row { table: "ops", row: "5".to_owned() }),
            "a.db: table ops, row 5: it is null"
        );
        assert_eq!(said(Place::Byte(123)), "a.db: byte 123: it is null");
        assert_eq!(said(Place::Line(7)), "a.db: line 7: it is null");
    }
}
