//! `IntervalJoinExec`: an inner join of rows with equal keys whose intervals overlap.
//!
//! ```text
//!   left ──► by key ──► by (key, start) ──┐
//!                                         ├── sweep ──► residual filter ──► pairs
//!  right ──► by key ──► by (key, start) ──┘
//! ```
//!
//! The node declares the distribution and order that it requires, so DataFusion repartitions and sorts inputs
//! that do not have them (its sort spills). Inputs that are already sorted by start, as runs are, are swept
//! as they are by one thread if there are few CPUs (`by=start`); on many CPUs, distributing and sorting them
//! is faster. The sweep (the module `sweep`) streams, and keeps only the rows that can still match. Their
//! memory is registered with the memory pool; if the pool refuses it, the query ends with DataFusion's
//! "resources exhausted".
//!
//! This is own code because the crates for interval overlaps (coitrees, superintervals) are indexes: they
//! hold one whole side in memory, in 32-bit coordinates, and support neither keys nor nulls nor columns.

use std::{fmt, sync::Arc};

use arrow::{
    compute::SortOptions,
    datatypes::SchemaRef,
    row::{RowConverter, SortField},
};
use datafusion::{
    common::{JoinSide, JoinType, internal_err, stats::Precision, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::{TaskContext, memory_pool::MemoryConsumer},
    physical_expr::{
        LexOrdering, OrderingRequirements, PhysicalSortExpr,
        equivalence::{ProjectionMapping, join_equivalence_properties},
    },
    physical_plan::{
        ChildStats, ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
        ExecutionPlanProperties, InputDistributionRequirements, Partitioning, PhysicalExpr, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream, Statistics, StatisticsArgs,
        apply_expression_roots,
        execution_plan::EmissionType,
        joins::{
            JoinOn,
            utils::{JoinFilter, adjust_right_output_partitioning, build_join_schema},
        },
        metrics::{ExecutionPlanMetricsSet, MetricsSet},
        project_schema,
        projection::{EmbeddedProjection, ProjectionExec, try_embed_projection},
    },
};

use super::interval::Interval;
use super::stream::{self, Groups, Input, Keys, Layout};

/// The physical operator.
#[derive(Clone, Debug)]
pub(super) struct IntervalJoinExec {
    inputs: [Arc<dyn ExecutionPlan>; 2],
    on: JoinOn,
    intervals: [Interval; 2],
    filter: Option<JoinFilter>,
    projection: Option<Vec<usize>>,
    // This says that the inputs are sorted by start alone.
    is_by_start: bool,
    join_schema: SchemaRef,
    orders: [LexOrdering; 2],
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The sort order of the inputs. Rows without a key, a start or an end match nothing, wherever they sort; SQL
/// sorts them last.
pub(super) const ASCENDING: SortOptions = SortOptions { descending: false, nulls_first: false };

impl IntervalJoinExec {
    /// Creates the operator. The indices of the projection count the left columns first, then the right ones.
    pub(super) fn try_new(
        inputs: [Arc<dyn ExecutionPlan>; 2],
        on: JoinOn,
        intervals: [Interval; 2],
        filter: Option<JoinFilter>,
        projection: Option<Vec<usize>>,
        is_by_start: bool,
    ) -> Result<Self> {
        let (left, right) = (inputs[0].schema(), inputs[1].schema());
        let join_schema = Arc::new(build_join_schema(&left, &right, &JoinType::Inner).0);
        let (left_keys, right_keys): (Vec<_>, Vec<_>) = on.iter().cloned().unzip();
        let [left_order, right_order] =
            [(left_keys, &intervals[0]), (right_keys, &intervals[1])].map(|(keys, interval)| {
                let keys = if is_by_start { Vec::new() } else { keys };
                let sorted = keys.into_iter().chain([Arc::clone(&interval.start)]);
                LexOrdering::new(sorted.map(|expr| PhysicalSortExpr { expr, options: ASCENDING }))
            });
        let (Some(left_order), Some(right_order)) = (left_order, right_order) else {
            return internal_err!("an interval join has nothing to sort by");
        };
        let properties =
            Self::compute_properties(&inputs, &on, &join_schema, projection.as_deref(), is_by_start)?;
        Ok(Self {
            inputs,
            on,
            intervals,
            filter,
            projection,
            is_by_start,
            join_schema,
            orders: [left_order, right_order],
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn compute_properties(
        [left, right]: &[Arc<dyn ExecutionPlan>; 2],
        on: &JoinOn,
        join_schema: &SchemaRef,
        projection: Option<&[usize]>,
        is_by_start: bool,
    ) -> Result<PlanProperties> {
        let mut equivalences = join_equivalence_properties(
            left.equivalence_properties().clone(),
            right.equivalence_properties().clone(),
            &JoinType::Inner,
            Arc::clone(join_schema),
            &[false, false],
            None,
            on,
        )?;
        let mut partitioning = if on.is_empty() || is_by_start {
            Partitioning::UnknownPartitioning(1)
        } else {
            adjust_right_output_partitioning(right.output_partitioning(), left.schema().fields().len())?
        };
        if let Some(projection) = projection {
            let mapping = ProjectionMapping::from_indices(projection, join_schema)?;
            partitioning = partitioning.project(&mapping, &equivalences);
            equivalences = equivalences.project(&mapping, project_schema(join_schema, Some(&projection))?);
        }
        let unbounded = [left, right].into_iter().find(|input| input.boundedness().is_unbounded());
        let bounds = unbounded.unwrap_or(left).boundedness();
        Ok(PlanProperties::new(equivalences, partitioning, EmissionType::Incremental, bounds))
    }

    /// Returns which columns of each side are kept, returned and filtered by.
    fn layout(&self) -> Layout {
        let left_count = self.inputs[0].schema().fields().len();
        let all = || (0..self.join_schema.fields().len()).collect();
        let output = self.projection.clone().unwrap_or_else(all);
        let output = output.iter().map(|index| match index.checked_sub(left_count) {
            None => (0, *index),
            Some(index) => (1, index),
        });
        let filter = self.filter.iter().flat_map(|filter| filter.column_indices());
        let filter = filter.map(|column| (usize::from(column.side == JoinSide::Right), column.index));
        Layout::new(output.collect(), filter.collect(), self.schema(), self.filter.clone())
    }

    fn projected_names(&self) -> Option<String> {
        let fields = self.join_schema.fields();
        let names = |projection: &Vec<usize>| {
            projection.iter().map(|index| format!("{}@{index}", fields[*index].name())).collect::<Vec<_>>()
        };
        self.projection.as_ref().map(|projection| names(projection).join(", "))
    }
}

impl DisplayAs for IntervalJoinExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on: Vec<_> = self.on.iter().map(|(left, right)| format!("({left}, {right})")).collect();
        let [left, right] = &self.intervals;
        let filter = self.filter.as_ref().map(|filter| filter.expression().to_string());
        if matches!(kind, DisplayFormatType::TreeRender) {
            writeln!(f, "on={}", on.join(", "))?;
            writeln!(f, "left={left}")?;
            writeln!(f, "right={right}")?;
            if self.is_by_start {
                writeln!(f, "by=start")?;
            }
            return filter.map_or(Ok(()), |filter| writeln!(f, "filter={filter}"));
        }
        write!(f, "{}: on=[{}], left={left}, right={right}", Self::static_name(), on.join(", "))?;
        if self.is_by_start {
            write!(f, ", by=start")?;
        }
        filter.map_or(Ok(()), |filter| write!(f, ", filter={filter}"))?;
        self.projected_names().map_or(Ok(()), |names| write!(f, ", projection=[{names}]"))
    }
}

impl EmbeddedProjection for IntervalJoinExec {
    fn with_projection(&self, projection: Option<Vec<usize>>) -> Result<Self> {
        let projection = match (projection, &self.projection) {
            (Some(outer), Some(inner)) => Some(outer.into_iter().map(|index| inner[index]).collect()),
            (outer, _) => outer,
        };
        let (on, filter) = (self.on.clone(), self.filter.clone());
        Self::try_new(self.inputs.clone(), on, self.intervals.clone(), filter, projection, self.is_by_start)
    }
}

impl ExecutionPlan for IntervalJoinExec {
    fn name(&self) -> &str {
        Self::static_name()
    }

    fn static_name() -> &'static str {
        "IntervalJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        if self.on.is_empty() || self.is_by_start {
            return InputDistributionRequirements::new(vec![Distribution::SinglePartition; 2]);
        }
        let (left, right) = self.on.iter().cloned().unzip();
        InputDistributionRequirements::co_partitioned(vec![
            Distribution::KeyPartitioned(left),
            Distribution::KeyPartitioned(right),
        ])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.orders.iter().map(|order| Some(OrderingRequirements::from(order.clone()))).collect()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let keys = self.on.iter().flat_map(|(left, right)| [left, right]);
        let bounds = self.intervals.iter().flat_map(|interval| [&interval.start, &interval.end]);
        let filter = self.filter.iter().map(JoinFilter::expression);
        apply_expression_roots(keys.chain(bounds).chain(filter), f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok(inputs) = <[_; 2]>::try_from(children) else {
            return internal_err!("an interval join has two inputs");
        };
        if matches!(options.children_properties, ChildrenPropertiesMode::Keep) {
            let metrics = ExecutionPlanMetricsSet::new();
            return Ok(Arc::new(Self { inputs, metrics, ..Self::clone(&self) }));
        }
        let (on, filter) = (self.on.clone(), self.filter.clone());
        let join = Self::try_new(
            inputs,
            on,
            self.intervals.clone(),
            filter,
            self.projection.clone(),
            self.is_by_start,
        )?;
        Ok(Arc::new(join))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let counts = self.inputs.each_ref().map(|input| input.output_partitioning().partition_count());
        if counts[0] != counts[1] {
            return internal_err!("an interval join of {} partitions with {}", counts[0], counts[1]);
        }
        let schema = self.inputs[0].schema();
        let fields = self.on.iter().map(|(left, _)| left.data_type(&schema).map(SortField::new));
        let converter = || Ok::<_, DataFusionError>(RowConverter::new(fields.collect::<Result<_>>()?)?);
        let keys = match (self.on.is_empty(), self.is_by_start) {
            (true, _) => Keys::None,
            (false, false) => Keys::Sorted(converter()?),
            (false, true) => Keys::Numbered(Groups::new(converter()?)),
        };
        let (left, right) = self.on.iter().cloned().unzip();
        let input = |side: usize, keys| -> Result<Input> {
            let stream = self.inputs[side].execute(partition, Arc::clone(&context))?;
            Ok(Input { stream, keys, interval: self.intervals[side].clone() })
        };
        let inputs = [input(0, left)?, input(1, right)?];
        let memory =
            MemoryConsumer::new(format!("IntervalJoin[{partition}]")).register(context.memory_pool());
        let batch_size = context.session_config().batch_size();
        Ok(stream::join(inputs, self.layout(), keys, memory, batch_size, &self.metrics, partition))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition); 2]
    }

    /// Estimates the number of rows: nested and adjoining intervals give about as many pairs as there are
    /// rows.
    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let rows = inputs.iter().map(|input| input.num_rows);
        let rows = rows.reduce(|a, b| a.max(&b)).unwrap_or(Precision::Absent);
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = rows.to_inexact();
        Ok(Arc::new(statistics))
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        try_embed_projection(projection, self)
    }
}
