//! The rows of a session's table `events`, which the session sorts.

use futures::TryStreamExt;
use tokio::runtime::Handle;

use super::{Consumer, Rows, rows::Known};
use crate::{columns::strings, error::AnalyzeError, events::Events};

/// Hands all rows to `consumer`, run after run, or those until it is done.
///
/// # Errors
/// Returns an error if the data cannot be read, or if the consumer fails.
pub(super) fn read(
    runtime: &Handle,
    events: &dyn Events,
    columns: &[&str],
    consumer: &mut impl Consumer,
) -> Result<(), AnalyzeError> {
    let mut batches = {
        let _context = runtime.enter();
        events.ordered(columns)
    };
    let mut last: Option<String> = None;
    let mut known = Known::default();
    while let Some(batch) = runtime.block_on(batches.try_next())? {
        let runs = strings(&batch, "run")?;
        let rows = Rows::new(&batch, consumer.names(), &mut known)?;
        let mut start = 0;
        while start < rows.len() {
            let run = runs.value(start);
            let end = (start..rows.len()).find(|row| runs.value(*row) != run).unwrap_or(rows.len());
            if last.as_deref() != Some(run) {
                consumer.run(run)?;
                last = Some(run.to_owned());
            }
            consumer.rows(&rows, start..end)?;
            if consumer.is_done() {
                return Ok(());
            }
            start = end;
        }
    }
    Ok(())
}
