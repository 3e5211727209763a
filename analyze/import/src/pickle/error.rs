//! Why a pickle could not be read.

use std::io;

use trace_writer::WriteError;

/// Why a pickle could not be read.
#[derive(Debug)]
pub(crate) enum PickleError {
    /// The operating system said no.
    Io(io::Error),
    /// What the elements became could not be written.
    Write(WriteError),
    /// The pickle is damaged, refused, or not of the shape it should have.
    At { offset: u64, reason: String },
}

impl PickleError {
    /// Something is wrong at a byte of the pickle, after decompression.
    pub(crate) fn at(offset: u64, reason: impl Into<String>) -> Self {
        Self::At { offset, reason: reason.into() }
    }
}

impl From<WriteError> for PickleError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}
