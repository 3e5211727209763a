//! The result of a recording, for the closing lines and the exit code.

use std::{fmt, path::PathBuf, process::ExitStatus};

use trace_schema::Bytes;
use trace_writer::Finished;

/// What was recorded, and how the command ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) out: PathBuf,
    pub(crate) finished: Finished,
    pub(crate) lost: u64,
    /// Number of datagrams at the socket for marks that came from processes that are not traced.
    pub(crate) untraced_count: u64,
    pub(crate) libraries: usize,
    pub(crate) status: Option<ExitStatus>,
}

impl Outcome {
    /// Whether the traced command ended with an exit code other than 0, or by a signal.
    pub(crate) fn command_failed(&self) -> bool {
        self.status.is_some_and(|status| !status.success())
    }
}

/// Says that marks were dropped because their senders are not traced; `None` if there were none.
pub(crate) fn untraced_marks(count: u64) -> Option<String> {
    (count > 0)
        .then(|| format!("marks in {count} datagrams that came from processes that are not traced (dropped)"))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finished { rows_count, size_bytes, parts_count } = self.finished;
        let size = Bytes(size_bytes as i64);
        write!(f, "capture: {rows_count} events, {size}, {} lost: {}", self.lost, self.out.display())?;
        if parts_count > 0 {
            write!(f, " (in {parts_count} parts)")?;
        }
        if let Some(marks) = untraced_marks(self.untraced_count) {
            write!(f, "\ncapture: not recorded: {marks}")?;
        }
        if self.libraries == 0 {
            write!(f, "\ncapture: no CUDA library was loaded, so there are no calls in this run")?;
        }
        match self.status {
            Some(status) if !status.success() => write!(f, "\ncapture: the command ended with {status}"),
            _ => Ok(()),
        }
    }
}
