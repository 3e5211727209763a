//! Tables whose rows a program derives, made anew each time that they are scanned and handed on as they are made, so that
//! no table is ever in memory as a whole. Their rows come in no order that a query could rely on.
//!
//! A session may have another source than the one that the tables were registered with, as an extension of its configuration
//! (`Session::with_source`): scans by its queries make their rows from that one.

use std::{fmt, sync::Arc};

use analyze_run::{error::AnalyzeError, panics};
use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    common::tree_node::TreeNodeRecursion,
    datasource::{TableProvider, TableType},
    error::Result,
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::{Expr, LogicalPlan},
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

use crate::{error::query_error, events::external, rows::Rows};

/// The number of batches that wait to be read.
const WAITING: usize = 2;
/// The number of rows that fill a batch.
const BATCH_ROWS: usize = 8192;

/// Where the rows of a table go.
#[derive(Debug)]
pub struct Output {
    sender: Sender<Result<RecordBatch>>,
    schema: SchemaRef,
}

fn unread<E>(_: E) -> AnalyzeError {
    AnalyzeError::Internal("a table is not read any more".to_owned())
}

impl Output {
    /// Returns whether a column is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.schema.column_with_name(name).is_some()
    }

    /// Returns the columns that are asked for, in their order.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Hands on a batch of exactly the columns that are asked for, where a table makes its columns itself. It blocks until
    /// there is room, so that it is not for asynchronous code.
    ///
    /// # Errors
    /// Returns an error if nobody reads the rows any more.
    pub fn send(&self, batch: RecordBatch) -> Result<(), AnalyzeError> {
        self.sender.blocking_send(Ok(batch)).map_err(unread)
    }

    /// Returns a writer of rows of which the columns asked for are handed on.
    pub fn writer<R: Rows>(self) -> Writer<R> {
        Writer { rows: R::new(self.schema), sender: self.sender }
    }
}

/// Collects the rows of a table and hands them on in batches.
pub struct Writer<R> {
    rows: R,
    sender: Sender<Result<RecordBatch>>,
}

impl<R: Rows> Writer<R> {
    /// Adds a row.
    pub fn push(&mut self, row: R::Row<'_>) {
        self.rows.push(row);
    }

    fn take(&mut self, all: bool) -> Result<Option<RecordBatch>, AnalyzeError> {
        let is_due = self.rows.rows_count() >= if all { 1 } else { BATCH_ROWS };
        is_due.then(|| self.rows.take()).transpose()
    }

    /// Hands on the rows so far if they fill a batch or `all` is set. It blocks until there is room, so that asynchronous
    /// code calls [`Self::send_when_ready`] instead.
    ///
    /// # Errors
    /// Returns an error if nobody reads the rows any more.
    pub fn send(&mut self, all: bool) -> Result<(), AnalyzeError> {
        let Some(batch) = self.take(all)? else { return Ok(()) };
        self.sender.blocking_send(Ok(batch)).map_err(unread)
    }

    /// Hands on rows as [`Self::send`] does, from asynchronous code.
    ///
    /// # Errors
    /// Returns the errors of [`Self::send`].
    pub async fn send_when_ready(&mut self, all: bool) -> Result<(), AnalyzeError> {
        let Some(batch) = self.take(all)? else { return Ok(()) };
        self.sender.send(Ok(batch)).await.map_err(unread)
    }
}

/// Makes the rows of a table from its source.
pub type Make<S> = fn(Arc<S>, Output) -> BoxFuture<'static, Result<(), AnalyzeError>>;

/// A table that is derived from a source.
pub struct TableDef<S: 'static> {
    /// The name in SQL; one that begins with `_` is internal.
    pub name: &'static str,
    /// The kinds of events without which the table has no rows.
    pub needs: &'static [Kind],
    /// The columns.
    pub schema: fn() -> SchemaRef,
    /// What makes the rows.
    pub make: Make<S>,
}

/// Registers tables.
///
/// # Errors
/// Returns an error if two tables have one name, which is an internal error.
pub fn register<S: Send + Sync>(
    context: &SessionContext,
    source: &Arc<S>,
    tables: &[TableDef<S>],
) -> Result<(), AnalyzeError> {
    for TableDef { name, schema, make, .. } in tables {
        let table = Table { source: Arc::clone(source), schema: schema(), make: *make };
        context.register_table(*name, Arc::new(table)).map_err(query_error)?;
    }
    Ok(())
}

/// A table, or one scan of some of its columns.
struct Table<S: 'static> {
    source: Arc<S>,
    schema: SchemaRef,
    make: Make<S>,
}

impl<S> fmt::Debug for Table<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: Send + Sync> TableProvider for Table<S> {
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
            None => TableProvider::schema(self),
        };
        let scan = Self { source: Arc::clone(&self.source), schema: Arc::clone(&schema), make: self.make };
        let plan = StreamingTableExec::try_new(schema, vec![Arc::new(scan)], None, [], false, limit)?;
        Ok(Arc::new(plan))
    }
}

impl<S: Send + Sync> PartitionStream for Table<S> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), WAITING);
        let output = Output { sender: stream.tx(), schema: Arc::clone(&self.schema) };
        let own = context.session_config().get_extension::<S>();
        let made = (self.make)(own.unwrap_or_else(|| Arc::clone(&self.source)), output);
        stream.spawn(async move { made.await.map_err(external) });
        stream.build()
    }
}

/// Returns the names of the tables that a plan scans, once for every scan.
///
/// # Errors
/// Returns an error if the plan cannot be walked, which is an internal error.
pub(crate) fn scanned(plan: &LogicalPlan) -> Result<Vec<String>> {
    let mut names = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            names.push(scan.table_name.table().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}

/// Does work that blocks, as sending rows does.
///
/// # Errors
/// Returns the errors of the work, and an error if it panics.
pub async fn blocking(
    work: impl FnOnce() -> Result<(), AnalyzeError> + Send + 'static,
) -> Result<(), AnalyzeError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(panics::joined)?
}
