//! Reads any source of `events` through a query that sorts it. The query may spill to disk, so its memory is
//! bounded, too.

use std::sync::Arc;

use datafusion::{
    execution::{runtime_env::RuntimeEnvBuilder, session_state::SessionStateBuilder},
    physical_plan::execute_stream,
    prelude::SessionContext,
};
use futures::TryStreamExt;
use tokio::runtime::Handle;

use super::{Consumer, Rows, rows::Known};
use crate::{columns::strings, error::AnalyzeError, progress};

/// The memory that sorting may take before it spills, in bytes.
const SORT_BYTES: usize = 512 << 20;

/// Passes all rows to `consumer`, one run after another.
///
/// # Errors
/// Returns an error if the data cannot be read or the consumer fails.
pub(super) fn read(
    runtime: &Handle,
    context: &SessionContext,
    columns: &[&str],
    consumer: &mut impl Consumer,
) -> Result<(), AnalyzeError> {
    let environment = RuntimeEnvBuilder::new().with_memory_limit(SORT_BYTES, 1.0).build()?;
    let state = SessionStateBuilder::new_from_existing(context.state())
        .with_runtime_env(Arc::new(environment))
        .build();
    let query = format!(
        "SELECT run, {} FROM events WHERE kind IN ('call', 'off_cpu', 'run', 'mark', 'alloc') ORDER BY run, ts",
        columns.join(", ")
    );
    let sorted = async {
        let frame = SessionContext::new_with_state(state).sql(&query).await?;
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        progress::scans(&plan);
        execute_stream(plan, context)
    };
    let mut batches = runtime.block_on(sorted)?;
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
            start = end;
        }
    }
    Ok(())
}
