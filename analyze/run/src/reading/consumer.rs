//! What takes the rows of a reading.

use std::{ops::Range, sync::Arc};

use super::rows::{Names, Rows};
use crate::error::AnalyzeError;

/// Does a small part of some other work if there is any to do now. Returns whether there was.
pub type Helper = Arc<dyn Fn() -> bool + Send + Sync>;

/// Consumes the rows of one run after another, each run in the order of time.
pub trait Consumer: Send {
    /// Returns the table in which strings get their numbers.
    fn names(&mut self) -> &mut Names;

    /// Returns work of the consumer that the reading threads may do while they would otherwise wait.
    fn helper(&self) -> Option<Helper> {
        None
    }

    /// Announces that the rows that follow belong to the run `name`.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Consumer::rows`].
    fn run(&mut self, name: &str) -> Result<(), AnalyzeError>;

    /// Consumes the rows in `range`, none of which is earlier than those consumed before from the same run.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be consumed; this ends the reading.
    fn rows(&mut self, rows: &Rows, range: Range<usize>) -> Result<(), AnalyzeError>;

    /// Returns whether the consumer needs no further rows, so that the reading may end before the last one.
    fn is_done(&self) -> bool {
        false
    }

    /// Announces that there are no more rows.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Consumer::rows`].
    fn finish(&mut self) -> Result<(), AnalyzeError>;
}
