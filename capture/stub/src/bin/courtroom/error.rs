//! What can keep the courtroom from working.

use std::fmt::Display;

/// Each is the end of the run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CourtError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("no scenario is called {0}")]
    Scenario(String),
    #[error("{0} is not built: cargo build --workspace --bins --examples")]
    NotBuilt(String),
    #[error("two CPUs are needed, one for the calls and one for others; this process may use {0}")]
    Cpus(usize),
    #[error("{program} ended with {status}: {message}")]
    Program { program: String, status: String, message: String },
    #[error("{program} did not end within {limit_s} s")]
    Late { program: String, limit_s: u64 },
    #[error(
        "no control group with a CPU quota can be made: neither version 1 nor 2 has its cpu controller under /sys/fs/cgroup"
    )]
    NoCpuController,
    #[error("interrupted")]
    Interrupted,
    #[error("not the expected JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Says what could not be read or written.
pub(crate) fn io(what: impl Display) -> impl FnOnce(std::io::Error) -> CourtError {
    move |source| CourtError::Io { what: what.to_string(), source }
}
