//! Checks what a scan of a run's file yields, because its statistics and pages may be damaged or forged: times lie within the
//! bound, a scan of the whole file yields as many rows as the footer says, and a panic of the decoder is an error of the file.

use std::{
    any::Any,
    fmt::{self, Formatter},
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::Arc,
};

use analyze_run::{error::AnalyzeError, panics, stored_file::StoredFile, times};
use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::Int64Type,
};
use datafusion::{
    common::{
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    datasource::{
        physical_plan::{FileGroup, FileSource, ParquetSource},
        source::DataSourceExec,
    },
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_expr::{PhysicalExpr, expressions::Column},
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildStats, ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream, Statistics, StatisticsArgs,
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, future, stream};
use parking_lot::Mutex;

use crate::events::external;

/// The optimizer rule that puts a check above each scan of a run's file. It runs last, because other rules look for scans.
#[derive(Debug)]
pub(crate) struct CheckedScans;

impl PhysicalOptimizerRule for CheckedScans {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let rewrite = |plan: Arc<dyn ExecutionPlan>| {
            Ok(match Check::of(plan.as_ref()) {
                Some(check) => Transformed::yes(Arc::new(CheckedScanExec { scan: plan, check }) as _),
                None => Transformed::no(plan),
            })
        };
        Ok(plan.transform_up(rewrite)?.data)
    }

    fn name(&self) -> &str {
        "checked_scans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// An item of a scan's stream, or the panic in its place.
type Item = Result<Result<RecordBatch>, Box<dyn Any + Send>>;

/// What is checked.
#[derive(Debug)]
struct Check {
    path: PathBuf,
    /// The columns of the output that hold times: index and name.
    times: Vec<(usize, &'static str)>,
    /// The number of rows of a scan of the whole file; `None` if the scan leaves rows out.
    rows_count: Option<u64>,
    /// The number of rows of each partition that has ended.
    found: Mutex<Vec<Option<u64>>>,
}

impl Check {
    /// Returns the check for a node, or `None` if it is no scan of a run's file.
    fn of(plan: &dyn ExecutionPlan) -> Option<Arc<Self>> {
        let scan = plan.downcast_ref::<DataSourceExec>()?;
        let (config, source) = scan.downcast_to_file_source::<ParquetSource>()?;
        let file = config.file_groups.iter().flat_map(FileGroup::iter).next()?;
        let stored = file.extension::<StoredFile>()?;
        let columns = source.projection().into_iter().flat_map(|projection| projection.iter().enumerate());
        let times = columns.filter_map(|(index, column)| {
            let column = column.expr.downcast_ref::<Column>()?;
            Some((index, times::TIMES.into_iter().find(|name| *name == column.name())?))
        });
        let is_whole = source.filter().is_none() && config.limit.is_none();
        Some(Arc::new(Self {
            path: stored.path().to_owned(),
            times: times.collect(),
            rows_count: is_whole.then(|| stored.rows_count()),
            found: Mutex::new(vec![None; plan.properties().partitioning.partition_count()]),
        }))
    }

    fn damaged(&self, what: impl fmt::Display) -> DataFusionError {
        external(AnalyzeError::Damaged(format!("{}: {what}", self.path.display())))
    }

    /// Checks an item of a partition's stream, or its end, which is `None`. `rows_count` counts the rows of the partition.
    fn checked(
        &self,
        partition: usize,
        item: Option<Item>,
        rows_count: &mut u64,
    ) -> Option<Result<RecordBatch>> {
        match item {
            Some(Ok(Ok(batch))) => {
                *rows_count += batch.num_rows() as u64;
                let fault = self.times.iter().find_map(|(index, name)| {
                    times::column_fault(name, batch.column(*index).as_primitive_opt::<Int64Type>()?)
                });
                Some(fault.map_or(Ok(batch), |fault| Err(self.damaged(fault))))
            }
            Some(Ok(Err(error))) => {
                let damage = match error.find_root() {
                    DataFusionError::ParquetError(source) => Some(source.to_string()),
                    _ => None,
                };
                Some(Err(damage.map_or(error, |damage| self.damaged(damage))))
            }
            Some(Err(panic)) => Some(Err(external(panics::undecodable(&self.path, panic.as_ref())))),
            None => self.ended(partition, *rows_count).map(|fault| Err(self.damaged(fault))),
        }
    }

    /// Notes the number of rows of a partition. Once all partitions have ended, describes what is wrong with their sum.
    fn ended(&self, partition: usize, rows_count: u64) -> Option<String> {
        let said = self.rows_count?;
        let mut found = self.found.lock();
        found.get_mut(partition)?.get_or_insert(rows_count);
        let found = found.iter().try_fold(0_u64, |sum, rows| sum.checked_add((*rows)?))?;
        (found != said).then(|| format!("{found} rows can be read, and the footer says {said}"))
    }
}

/// A scan whose rows are checked.
#[derive(Debug)]
struct CheckedScanExec {
    scan: Arc<dyn ExecutionPlan>,
    check: Arc<Check>,
}

impl DisplayAs for CheckedScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => Ok(()),
            _ => f.write_str("CheckedScanExec"),
        }
    }
}

impl ExecutionPlan for CheckedScanExec {
    fn name(&self) -> &str {
        "CheckedScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.scan.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.scan]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(scan) = children.pop() else {
            return Err(DataFusionError::Internal("a checked scan has no child".to_owned()));
        };
        Ok(match Check::of(scan.as_ref()) {
            Some(check) => Arc::new(Self { scan, check }),
            None => scan,
        })
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.scan.execute(partition, context)?;
        let (schema, check) = (rows.schema(), Arc::clone(&self.check));
        let items = AssertUnwindSafe(rows).catch_unwind().map(Some);
        let items = items.chain(stream::once(future::ready(None)));
        let mut rows_count = 0;
        let checked =
            items.filter_map(move |item| future::ready(check.checked(partition, item, &mut rows_count)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, checked)))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let of_scan = inputs.first().map(Arc::clone);
        of_scan.ok_or_else(|| DataFusionError::Internal("a checked scan has no statistics".to_owned()))
    }
}
