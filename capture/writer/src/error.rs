//! The errors of writing a run.

use std::{io::ErrorKind, path::PathBuf};

/// An error while a run is written or recovered.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output file exists already.
    #[error("{} exists; use --force to replace it", .0.display())]
    Exists(PathBuf),
    /// An unfinished recording lies beside the output file.
    #[error("{} is an unfinished recording; save it with `analyze recover {}`, or use --force to discard it", .0.display(), .0.display())]
    Unfinished(PathBuf),
    /// Another process is recording to the output file.
    #[error("{} is being written by another recorder; give --out another name", .0.display())]
    BeingRecorded(PathBuf),
    /// The recording ends before its first row.
    #[error("{}: nothing was recorded yet, so there is nothing to recover; the file can be removed", .0.display())]
    NothingRecorded(PathBuf),
    /// The place of the output is taken by what is not replaced.
    #[error("{} is {what}, which is not replaced: give the output another name", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What is there.
        what: String,
    },
    /// The folder of the output is missing, or no file can be created in it.
    #[error("no file can be created in the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The file to recover is not a recording, or its format is unknown.
    #[error("{} is not a recording of Inquest: {reason}", path.display())]
    NotARecording {
        /// The file that was read.
        path: PathBuf,
        /// Why it is not a recording.
        reason: String,
    },
    /// The operating system reported an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file that was read or written.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// Arrow could not represent or write the rows.
    #[error("{}: {source}", path.display())]
    Arrow {
        /// The file that was read or written.
        path: PathBuf,
        /// The underlying error.
        source: arrow::error::ArrowError,
    },
    /// The Parquet writer failed.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file that was read or written.
        path: PathBuf,
        /// The underlying error.
        source: parquet::errors::ParquetError,
    },
    /// The metadata could not be written as JSON.
    #[error("metadata of {}: {source}", path.display())]
    Metadata {
        /// The file that was read or written.
        path: PathBuf,
        /// The underlying error.
        source: serde_json::Error,
    },
    /// The recording could not be finished, and what was recorded is kept.
    #[error("{source}; what was recorded is in {}: save it with `analyze recover {}`", recording.display(), recording.display())]
    Kept {
        /// The recording.
        recording: PathBuf,
        /// Why it could not be finished.
        source: Box<Self>,
    },
}

impl WriteError {
    /// Whether the request or a file that it names is wrong, rather than the machine at fault. It decides the exit code of
    /// both programs.
    pub fn is_bad_request(&self) -> bool {
        match self {
            Self::Exists(_)
            | Self::Unfinished(_)
            | Self::BeingRecorded(_)
            | Self::NothingRecorded(_)
            | Self::NotAFile { .. }
            | Self::NotARecording { .. } => true,
            // The user named another folder than meant. Otherwise, such as on a full disk, the machine is at fault.
            Self::Folder { source, .. } => matches!(
                source.kind(),
                ErrorKind::NotFound
                    | ErrorKind::NotADirectory
                    | ErrorKind::PermissionDenied
                    | ErrorKind::ReadOnlyFilesystem
            ),
            Self::Kept { source, .. } => source.is_bad_request(),
            Self::Io { .. } | Self::Arrow { .. } | Self::Parquet { .. } | Self::Metadata { .. } => false,
        }
    }
}
