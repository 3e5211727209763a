//! The table `events` of a session, for readers that know no session.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use analyze_run::{
    error::AnalyzeError,
    events::{Batches, Events},
};
use datafusion::{
    error::DataFusionError,
    execution::{
        SendableRecordBatchStream, SessionState, memory_pool::MemoryLimit, runtime_env::RuntimeEnvBuilder,
        session_state::SessionStateBuilder,
    },
    physical_plan::execute_stream,
    prelude::SessionContext,
};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::RwLock;

use crate::{error::query_error, scan_progress, spill_pool::SpillPool};

/// The memory in bytes that one answer of [`SessionEvents::sorted`] may take before it spills.
const SORT_BYTES: usize = 256 << 20;
/// The number of parts that are sorted side by side. Every sort of every part has a share of the memory, so that many of
/// them would leave each too little. Joins by sorting are planned for two parts or more.
const SORT_PARTS: usize = 2;
/// The greatest number of rows of a batch: a share of the memory must hold several, and a merge two of each file.
const SORT_ROWS: usize = 2048;
/// The share of the memory, as its divisor, that each sort keeps to merge what it has spilled.
const MERGE_SHARE: usize = 128;

/// The `events` of a session. It does not keep the session alive, because the session owns tables that hold one.
#[derive(Clone)]
pub struct SessionEvents {
    state: Weak<RwLock<SessionState>>,
}

impl fmt::Debug for SessionEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEvents").finish_non_exhaustive()
    }
}

impl SessionEvents {
    /// Returns the events of a session.
    pub fn new(context: &SessionContext) -> Self {
        Self { state: context.state_weak_ref() }
    }

    fn state(&self) -> Result<SessionState, DataFusionError> {
        let gone = || DataFusionError::Internal("the session of the events is gone".to_owned());
        Ok(self.state.upgrade().ok_or_else(gone)?.read().clone())
    }
}

/// Returns the rows of a stream that is still to be made.
fn batches(
    made: impl Future<Output = Result<SendableRecordBatchStream, DataFusionError>> + Send + 'static,
    error: fn(DataFusionError) -> AnalyzeError,
) -> Batches {
    stream::once(made).try_flatten().map_err(error).boxed()
}

/// Returns the memory in bytes that the sorts and joins of one answer of [`SessionEvents::sorted`] share: [`SORT_BYTES`], or the
/// session's memory limit if that is less.
fn pool_bytes(state: &SessionState) -> usize {
    match state.runtime_env().memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes.min(SORT_BYTES),
        MemoryLimit::Infinite | MemoryLimit::Unknown => SORT_BYTES,
    }
}

/// Returns the error of a query whose sorts have a pool of [`SORT_BYTES`]. A pool that is exhausted is this one, and not the
/// budget of the command.
fn sort_error(error: DataFusionError) -> AnalyzeError {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(what) => {
            AnalyzeError::SortMemory { pool_bytes: SORT_BYTES, detail: what.clone() }
        }
        _ => query_error(error),
    }
}

/// Returns the state for queries of which no part grows with the rows in memory: joins sort both sides instead of keeping
/// one of them, and sorts share a pool of [`pool_bytes`].
fn spilling(state: SessionState) -> Result<SessionState, DataFusionError> {
    let limit_bytes = pool_bytes(&state);
    let pool = Arc::new(SpillPool::new(limit_bytes));
    let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?;
    let batch_rows = state.config().batch_size().min(SORT_ROWS);
    let mut config = state.config().clone().with_target_partitions(SORT_PARTS).with_batch_size(batch_rows);
    // The tables are those of the session.
    config = config.with_create_default_catalog_and_schema(false);
    let options = config.options_mut();
    options.optimizer.prefer_hash_join = false;
    let merge_bytes = options.execution.sort_spill_reservation_bytes.min(limit_bytes / MERGE_SHARE);
    options.execution.sort_spill_reservation_bytes = merge_bytes;
    let builder = SessionStateBuilder::new_from_existing(state);
    Ok(builder.with_config(config).with_runtime_env(environment).build())
}

impl SessionEvents {
    /// Returns the answer to a query whose sorts and joins spill to disk rather than take much memory.
    pub fn sorted(&self, query: &str) -> Batches {
        let (state, query) = (self.state(), query.to_owned());
        // A smaller pool is as large as the budget of the command.
        let is_own_pool = state.as_ref().is_ok_and(|state| pool_bytes(state) == SORT_BYTES);
        let made = async move {
            let state = spilling(state?)?;
            let frame = SessionContext::new_with_state(state).sql(&query).await?;
            let context = Arc::new(frame.task_ctx());
            let plan = frame.create_physical_plan().await?;
            scan_progress::register(&plan);
            execute_stream(plan, context)
        };
        batches(made, if is_own_pool { sort_error } else { query_error })
    }
}

impl Events for SessionEvents {
    fn select(&self, query: &str) -> Batches {
        let (state, query) = (self.state(), query.to_owned());
        batches(
            async move { SessionContext::new_with_state(state?).sql(&query).await?.execute_stream().await },
            query_error,
        )
    }

    fn ordered(&self, columns: &[&str]) -> Batches {
        self.sorted(&format!(
            "SELECT run, {} FROM events WHERE kind IN ('call', 'off_cpu', 'run', 'mark', 'alloc', 'name') ORDER BY run, ts",
            columns.join(", ")
        ))
    }
}

/// Returns an error of a reader as one of DataFusion, which hands it back unchanged ([`query_error`]).
pub fn external(error: AnalyzeError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use analyze_run::columns::integers;
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::{datasource::MemTable, prelude::SessionConfig};

    use super::*;

    const ROWS: i64 = 200_000;

    /// Returns a context with a limit in which neither side of a join of the table with itself has room.
    fn context() -> SessionContext {
        let batch = |from: i64| {
            let rows = || from..from + 1000;
            let column = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
            RecordBatch::try_from_iter([
                ("key", column(rows().map(|row| row * 7919 % ROWS).collect())),
                ("a", column(rows().collect())),
                ("b", column(rows().map(|row| -row).collect())),
                ("c", column(rows().map(|row| row % 10).collect())),
            ])
            .unwrap()
        };
        let batches: Vec<RecordBatch> = (0..ROWS).step_by(1000).map(batch).collect();
        let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(12 << 20, 1.0).build_arc().unwrap();
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2).with_batch_size(512))
            .with_runtime_env(runtime);
        let context = SessionContext::new_with_state(state.build());
        context.register_table("t", Arc::new(table)).unwrap();
        context
    }

    #[tokio::test]
    async fn joins_and_sorts_spill_where_no_side_has_room() {
        let context = context();
        let query = "SELECT l.key, l.a, r.b, r.c FROM t l LEFT JOIN t r ON r.key = l.key ORDER BY l.a";
        let plain = context.sql(query).await.unwrap().collect().await;
        assert!(plain.unwrap_err().to_string().contains("Resources exhausted"));
        let batches: Vec<RecordBatch> =
            SessionEvents::new(&context).sorted(query).try_collect().await.unwrap();
        let mut expected = 0;
        for batch in batches {
            let (a, b) = (integers(&batch, "a").unwrap(), integers(&batch, "b").unwrap());
            for (a, b) in a.values().iter().zip(b.values()) {
                assert_eq!((*a, *b), (expected, -expected));
                expected += 1;
            }
        }
        assert_eq!(expected, ROWS);
    }

    #[test]
    fn an_exhausted_pool_is_named() {
        let exhausted = || DataFusionError::ResourcesExhausted("a merge".to_owned());
        let (of_sort, of_session) =
            (sort_error(exhausted()).to_string(), query_error(exhausted()).to_string());
        assert!(of_sort.contains("needs more than 256 MiB") && of_sort.ends_with(": a merge"), "{of_sort}");
        assert!(of_session.starts_with("memory budget of "), "{of_session}");
        assert_eq!(
            pool_bytes(&context().state()),
            12 << 20,
            "of which the budget of the command is the limit"
        );
    }
}
