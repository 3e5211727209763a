//! Why a run could not be written.

use std::path::PathBuf;

/// Why a run could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output is there already.
    #[error("{} exists; use --force to replace it", .0.display())]
    Exists(PathBuf),
    /// A recording that was not finished lies beside the output.
    #[error("{} is an unfinished recording; save it with `analyze recover {}`, or use --force to discard it", .0.display(), .0.display())]
    Unfinished(PathBuf),
    /// The file to recover is no recording.
    #[error("{} is not a recording of Inquest: {reason}", path.display())]
    NotARecording {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Arrow could not represent or write the rows.
    #[error("{}: {source}", path.display())]
    Arrow {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: arrow::error::ArrowError,
    },
    /// The Parquet writer failed.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: parquet::errors::ParquetError,
    },
    /// The metadata could not be written as JSON.
    #[error("metadata of {}: {source}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: serde_json::Error,
    },
}
