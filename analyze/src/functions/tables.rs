//! Tables whose rows Rust derives from `events`. Each table reads `events` when it is scanned and streams its
//! rows, so that no table is ever in memory as a whole:
//!
//! - `_calls`: every call with its place on its thread, its phase and the exact split of its time
//!   (`call_rows`);
//! - `_slow_calls`, `_chain_links`: slow calls with their causes, and the wakeup chains behind them
//!   (`slow_rows`);
//! - `_critical_path`: what the time of marked ranges consists of (`critical_path`);
//! - `_launch_gaps`: the time between launches (`launch_gaps`);
//! - `_leaks`, `_leak_sites`, `_memory_epochs`: growth of the memory that PyTorch's allocators have allocated
//!   (`leaks`);
//! - `_data_quality`: contradictions within the input (`quality`).
//!
//! The order of their rows is unspecified.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    datasource::{TableProvider, TableType},
    error::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::Expr,
    physical_plan::{
        ExecutionPlan,
        stream::RecordBatchReceiverStream,
        streaming::{PartitionStream, StreamingTableExec},
    },
    prelude::SessionContext,
};
use futures::future::BoxFuture;
use tokio::sync::mpsc::Sender;
use trace_schema::Kind;

use super::derived::Source;
use crate::{
    analysis::{call_rows, critical_path, launch_gaps, leaks, quality, slow_rows},
    error::AnalyzeError,
};

/// The number of batches that may wait to be read.
const WAITING: usize = 2;

/// The destination of a table's rows.
#[derive(Debug)]
pub struct Output {
    sender: Sender<Result<RecordBatch>>,
    schema: SchemaRef,
}

impl Output {
    /// Returns the schema of the columns that the scan reads.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns whether the scan reads a column.
    pub fn wants(&self, name: &str) -> bool {
        self.schema.column_with_name(name).is_some()
    }

    /// Sends rows to the scan. The batch has at least the columns that the scan reads. Blocks until there is
    /// room, so it must not be called from asynchronous code.
    ///
    /// # Errors
    /// Returns an error if nobody reads the rows any more, or if a column is missing.
    pub fn send(&self, batch: &RecordBatch) -> Result<(), AnalyzeError> {
        let fields = self.schema.fields().iter();
        let wanted = fields.map(|field| batch.schema().index_of(field.name())).collect::<Result<Vec<_>, _>>();
        let defect = |error: arrow::error::ArrowError| AnalyzeError::Internal(error.to_string());
        let batch = wanted.and_then(|wanted| batch.project(&wanted)).map_err(defect)?;
        let gone = |_| AnalyzeError::Internal("a table is not read any more".to_owned());
        self.sender.blocking_send(Ok(batch)).map_err(gone)
    }
}

/// Computes the rows of a table and sends them to an [`Output`].
pub type Fill = fn(Arc<Source>, Output) -> BoxFuture<'static, Result<(), AnalyzeError>>;

/// A derived table.
#[derive(Debug)]
struct Table {
    source: Arc<Source>,
    schema: SchemaRef,
    fill: Fill,
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema(),
        };
        let part = Scan { source: Arc::clone(&self.source), schema: Arc::clone(&schema), fill: self.fill };
        let plan = StreamingTableExec::try_new(schema, vec![Arc::new(part)], None, [], false, limit)?;
        Ok(Arc::new(plan))
    }
}

/// One scan of some columns of a table.
#[derive(Debug)]
struct Scan {
    source: Arc<Source>,
    schema: SchemaRef,
    fill: Fill,
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), WAITING);
        let output = Output { sender: stream.tx(), schema: Arc::clone(&self.schema) };
        let filled = (self.fill)(Arc::clone(&self.source), output);
        stream.spawn(async move { filled.await.map_err(|error| DataFusionError::External(Box::new(error))) });
        stream.build()
    }
}

/// The tables in the order in which they are registered, each with the kinds of event without which it has no
/// rows.
pub const NAMES: [(&str, &[Kind]); 9] = [
    ("_calls", &[Kind::Call]),
    ("_slow_calls", &[Kind::Call]),
    ("_chain_links", &[Kind::Call, Kind::OffCpu]),
    ("_launch_gaps", &[Kind::Call]),
    ("_critical_path", &[Kind::Mark]),
    ("_data_quality", &[]),
    ("_leaks", &[Kind::Alloc]),
    ("_leak_sites", &[Kind::Alloc]),
    ("_memory_epochs", &[Kind::Alloc]),
];

/// Registers the tables.
///
/// # Errors
/// Returns an error if a name is taken, which is an internal error.
pub fn register(context: &SessionContext, source: &Arc<Source>) -> Result<(), AnalyzeError> {
    let tables: [(SchemaRef, Fill); 9] = [
        (call_rows::schema(), |source, output| Box::pin(call_rows::fill(source, output))),
        (slow_rows::calls_schema(), |source, output| Box::pin(slow_rows::fill_calls(source, output))),
        (slow_rows::links_schema(), |source, output| Box::pin(slow_rows::fill_links(source, output))),
        (launch_gaps::schema(), |source, output| Box::pin(launch_gaps::fill(source, output))),
        (critical_path::schema(), |source, output| Box::pin(critical_path::fill(source, output))),
        (quality::schema(), |source, output| Box::pin(quality::fill(source, output))),
        (leaks::rows::leaks_schema(), |source, output| Box::pin(leaks::rows::fill_leaks(source, output))),
        (leaks::rows::sites_schema(), |source, output| Box::pin(leaks::rows::fill_sites(source, output))),
        (leaks::rows::epochs_schema(), |source, output| Box::pin(leaks::rows::fill_epochs(source, output))),
    ];
    for ((name, _), (schema, fill)) in NAMES.into_iter().zip(tables) {
        context.register_table(name, Arc::new(Table { source: Arc::clone(source), schema, fill }))?;
    }
    Ok(())
}

/// Runs work that blocks, such as sending rows, on a thread that may block.
///
/// # Errors
/// Returns the error of the work, or an internal error if the work panics.
pub async fn blocking(
    work: impl FnOnce() -> Result<(), AnalyzeError> + Send + 'static,
) -> Result<(), AnalyzeError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| AnalyzeError::Internal(format!("a table was cut off: {error}")))?
}
