//! `_calls`: every call with its place in its thread's stack of calls and the exact split of its time.
//! Computed by [`crate::analysis::time_split`] from `events` when first scanned.

use std::sync::{Arc, Weak};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    datasource::{MemTable, TableProvider, TableType},
    error::{DataFusionError, Result},
    execution::SessionState,
    logical_expr::Expr,
    physical_plan::ExecutionPlan,
    prelude::SessionContext,
};
use parking_lot::RwLock;
use tokio::sync::OnceCell;

use crate::analysis::time_split;

/// Its name in SQL.
pub(crate) const NAME: &str = "_calls";

/// Columns that are handed through from `events`.
const CALLS: &str = "SELECT run, pid, tid, ts, dur, op, ret, addr, src_addr, size_bytes, direction, stream, func, caller \
     FROM events WHERE kind = 'call' ORDER BY run, pid, tid, ts, dur DESC NULLS FIRST";
const OFF_CPU: &str = "SELECT run, pid, tid, ts, dur, op, runnable_ns, syscall \
     FROM events WHERE kind = 'off_cpu' ORDER BY run, pid, tid, ts";

const RANGES: &str = "SELECT run, pid, ts, dur, detail \
     FROM events WHERE kind = 'mark' AND op = 'range' ORDER BY run, pid, ts, dur DESC NULLS FIRST";

/// The derived table.
#[derive(Debug)]
pub(crate) struct CallTable {
    // Weak: the session owns the table.
    state: Weak<RwLock<SessionState>>,
    rows: Option<OnceCell<RecordBatch>>,
}

impl CallTable {
    /// A table over the `events` of a session.
    pub(crate) fn new(context: &SessionContext, immutable: bool) -> Self {
        Self { state: context.state_weak_ref(), rows: immutable.then(OnceCell::new) }
    }

    async fn compute(&self) -> Result<RecordBatch> {
        let gone = || DataFusionError::Internal("the session of _calls is gone".to_owned());
        let state = self.state.upgrade().ok_or_else(gone)?.read().clone();
        let context = SessionContext::new_with_state(state);
        let calls = context.sql(CALLS).await?.collect().await?;
        let off_cpu = context.sql(OFF_CPU).await?.collect().await?;
        let ranges = context.sql(RANGES).await?.collect().await?;
        time_split::split(&calls, &off_cpu, &ranges)
            .map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

#[async_trait]
impl TableProvider for CallTable {
    fn schema(&self) -> SchemaRef {
        time_split::schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = match &self.rows {
            Some(cell) => cell.get_or_try_init(|| self.compute()).await?.clone(),
            None => self.compute().await?,
        };
        MemTable::try_new(self.schema(), vec![vec![batch]])?.scan(state, projection, filters, limit).await
    }
}
