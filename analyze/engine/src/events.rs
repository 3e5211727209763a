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
        SendableRecordBatchStream, SessionState, runtime_env::RuntimeEnvBuilder,
        session_state::SessionStateBuilder,
    },
    physical_plan::execute_stream,
    prelude::SessionContext,
};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::RwLock;

use crate::{error::query_error, scan_progress};

/// The memory that sorting may take before it spills.
const SORT_BYTES: usize = 512 << 20;

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
) -> Batches {
    stream::once(made).try_flatten().map_err(query_error).boxed()
}

impl SessionEvents {
    /// Returns the answer to a query whose sorts spill to disk rather than take much memory.
    pub fn sorted(&self, query: &str) -> Batches {
        let (state, query) = (self.state(), query.to_owned());
        batches(async move {
            let environment = RuntimeEnvBuilder::new().with_memory_limit(SORT_BYTES, 1.0).build()?;
            let state = SessionStateBuilder::new_from_existing(state?)
                .with_runtime_env(Arc::new(environment))
                .build();
            let frame = SessionContext::new_with_state(state).sql(&query).await?;
            let context = Arc::new(frame.task_ctx());
            let plan = frame.create_physical_plan().await?;
            scan_progress::register(&plan);
            execute_stream(plan, context)
        })
    }
}

impl Events for SessionEvents {
    fn select(&self, query: &str) -> Batches {
        let (state, query) = (self.state(), query.to_owned());
        batches(
            async move { SessionContext::new_with_state(state?).sql(&query).await?.execute_stream().await },
        )
    }

    fn ordered(&self, columns: &[&str]) -> Batches {
        self.sorted(&format!(
            "SELECT run, {} FROM events WHERE kind IN ('call', 'off_cpu', 'run', 'mark', 'alloc') ORDER BY run, ts",
            columns.join(", ")
        ))
    }
}

/// Returns an error of a reader as one of DataFusion, which hands it back unchanged ([`query_error`]).
pub fn external(error: AnalyzeError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
