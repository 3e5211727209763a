//! Errors that occur while a pickle is read.

use std::io;

use trace_writer::WriteError;

/// The reason why a pickle could not be read.
#[derive(Debug)]
pub(crate) enum PickleError {
    /// The operating system reported an I/O error.
    Io(io::Error),
    /// The rows that were made of elements could not be written.
    Write(WriteError),
    /// The pickle is damaged, refused, or not of the expected shape at byte `offset`, counted after
    /// decompression.
    At { offset: u64, reason: String },
}

impl PickleError {
    /// Creates an error at a byte of the pickle, counted after decompression.
    pub(crate) fn at(offset: u64, reason: impl Into<String>) -> Self {
        Self::At { offset, reason: reason.into() }
    }
}

impl From<WriteError> for PickleError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}
