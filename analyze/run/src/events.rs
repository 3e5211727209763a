//! The table `events` as a session offers it to readers that know no session.

use arrow::array::RecordBatch;
use futures::stream::BoxStream;

use crate::error::AnalyzeError;

/// Batches of rows, as they are computed.
pub type Batches = BoxStream<'static, Result<RecordBatch, AnalyzeError>>;

/// Answers queries over the table `events` of some runs.
pub trait Events: Send + Sync {
    /// Returns the answer to a query, as it is computed. A query that cannot be planned is the first and only item.
    fn select(&self, query: &str) -> Batches;

    /// Returns the rows of every run, one run after the other and each in the order of `ts`, with the column `run` and these
    /// columns. Rows of kinds that no reader uses may be left out. The rows may be sorted on disk, so that memory stays
    /// bounded.
    fn ordered(&self, columns: &[&str]) -> Batches;
}
