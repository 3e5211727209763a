//! A node that is executed in place of one of DataFusion's, and the optimizer rule that inserts it.
//!
//! To the rest of the plan, the node reports the properties of DataFusion's node (order, constants,
//! partitions), so that nothing else in the plan changes.

use std::{
    fmt::{self, Debug, Formatter},
    marker::PhantomData,
    sync::Arc,
};

use datafusion::{
    common::{
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    execution::TaskContext,
    physical_expr::PhysicalExpr,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildStats, ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream, Statistics, StatisticsArgs, metrics::MetricsSet,
    },
};

/// The work that is done in place of a planned node.
pub(super) trait Work: Debug + Send + Sync + Sized + 'static {
    /// The name of the rule.
    const RULE: &'static str;

    /// Creates the work for a planned node, or returns `None` if the node is to be executed as planned.
    fn of(planned: &dyn ExecutionPlan) -> Result<Option<Self>>;

    /// Formats the node for `EXPLAIN`.
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result;

    /// Executes one partition.
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream>;

    /// Returns the metrics of the work.
    fn metrics(&self) -> MetricsSet;
}

/// The optimizer rule. It runs last, because other rules must find DataFusion's own node in the plan.
pub(super) struct Rule<T>(PhantomData<T>);

impl<T> Default for Rule<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Work> Debug for Rule<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(T::RULE)
    }
}

impl<T: Work> PhysicalOptimizerRule for Rule<T> {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let rewrite = |planned: Arc<dyn ExecutionPlan>| {
            Ok(match T::of(planned.as_ref())? {
                Some(work) => Transformed::yes(Arc::new(SubstituteExec { planned, work }) as _),
                None => Transformed::no(planned),
            })
        };
        Ok(plan.transform_up(rewrite)?.data)
    }

    fn name(&self) -> &str {
        T::RULE
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The node: it executes `work` and reports the properties of `planned`.
#[derive(Debug)]
struct SubstituteExec<T> {
    planned: Arc<dyn ExecutionPlan>,
    work: T,
}

impl<T: Work> DisplayAs for SubstituteExec<T> {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        self.work.fmt_as(kind, f)
    }
}

impl<T: Work> ExecutionPlan for SubstituteExec<T> {
    fn name(&self) -> &str {
        self.planned.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.planned.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.planned.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.planned.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.planned.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = Arc::clone(&self.planned).replace_children(children, options)?;
        Ok(match T::of(planned.as_ref())? {
            Some(work) => Arc::new(Self { planned, work }),
            None => planned,
        })
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.work.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.work.metrics())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.planned.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.planned.statistics_from_inputs(inputs, args)
    }
}
