//! The errors of tests under faults.

use std::io;

/// Why a program could not be tested, or what it did wrong.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The test itself failed: the machine refused something that it needs.
    #[error("{what}: {source}")]
    Test {
        /// What was refused.
        what: String,
        /// The underlying error.
        source: io::Error,
    },
    /// The program did what it must not do under any fault.
    #[error("{0}")]
    Wrong(String),
}

impl FaultError {
    /// Makes an I/O error of the test itself one that says what was done.
    pub(crate) fn test(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Test { what, source }
    }
}
