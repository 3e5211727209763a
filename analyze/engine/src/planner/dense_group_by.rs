//! Grouping by one integer column whose values lie close together, such as the numbers of strings or the
//! seconds of a run.
//!
//! A grouping has two steps, of which the first sees every row and is done here. The group of a value is not
//! searched for: the value is the index into a table.
//!
//! ```text
//! second    place    group          to the second step
//! 81_200    32_768   0
//! 81_200    32_768   0
//! 81_201    32_769   1        ->    (81_200, state), (81_201, state)
//! ```
//!
//! Once a value lies outside the table, or there are too many groups, the groups found so far go to the
//! second step, and DataFusion's own first step processes the remaining rows.

use std::{
    fmt::{self, Formatter},
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array},
    buffer::NullBuffer,
    compute::{concat, take},
    datatypes::SchemaRef,
};
use datafusion::{
    common::internal_err,
    error::Result,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    logical_expr::{EmitTo, GroupsAccumulator},
    physical_expr::{LexOrdering, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, InputOrderMode,
        SendableRecordBatchStream,
        aggregates::{AggregateExec, AggregateMode, aggregate_expressions, evaluate_many},
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput},
        stream::RecordBatchStreamAdapter,
        streaming::{PartitionStream, StreamingTableExec},
    },
};
use futures::{StreamExt, stream};

use crate::planner::substitute_exec::Work;

/// The number of groups above which DataFusion processes the remaining rows.
const MAX_GROUPS: usize = 1 << 12;
/// The number of rows processed at once. Up to this many groups may be added beyond [`MAX_GROUPS`].
const MAX_ROWS: usize = 1 << 13;
/// The number of values in the table. The first value seen is in the middle.
const PLACES: usize = 1 << 16;

/// The first (partial) step of a grouping.
#[derive(Debug)]
pub(super) struct DenseGroupBy {
    planned: Arc<AggregateExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl Work for DenseGroupBy {
    const RULE: &'static str = "dense_group_by";

    fn of(planned: &dyn ExecutionPlan) -> Result<Option<Self>> {
        let Some(planned) = planned.downcast_ref::<AggregateExec>() else { return Ok(None) };
        let groups = planned.group_expr();
        let is_plain = *planned.mode() == AggregateMode::Partial
            && *planned.input_order_mode() == InputOrderMode::Linear
            && groups.is_single()
            && !groups.is_true_no_grouping()
            && planned.limit_options().is_none()
            && planned.dynamic_expressions_produced().is_empty()
            && planned
                .aggr_expr()
                .iter()
                .all(|function| function.groups_accumulator_supported() && function.order_bys().is_empty());
        let ([(group, _)], true) = (groups.expr(), is_plain) else { return Ok(None) };
        let ty = group.data_type(&planned.input_schema())?;
        let fits = (ty.is_integer() || ty.is_temporal()) && matches!(ty.primitive_width(), Some(4 | 8));
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(fits.then(|| Self { planned: Arc::new(planned.clone()), metrics }))
    }

    fn fmt_as(&self, kind: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        self.planned.fmt_as(kind, f)?;
        match kind {
            DisplayFormatType::TreeRender => writeln!(f, "groups=near"),
            _ => write!(f, ", groups=near"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let planned = &self.planned;
        let [(group, _)] = planned.group_expr().expr() else {
            return internal_err!("one number to group by");
        };
        let memory =
            MemoryConsumer::new(format!("DenseGroupBy[{partition}]")).register(context.memory_pool());
        let input = planned.input().execute(partition, Arc::clone(&context))?;
        let step = Step {
            waiting: RecordBatch::new_empty(input.schema()),
            input,
            rest: None,
            group: Arc::clone(group),
            arguments: aggregate_expressions(planned.aggr_expr(), planned.mode(), 0)?,
            functions: planned
                .aggr_expr()
                .iter()
                .map(|function| function.create_groups_accumulator())
                .collect::<Result<_>>()?,
            found: Found::default(),
            groups: Vec::new(),
            memory,
            metrics: BaselineMetrics::new(&self.metrics, partition),
            context,
            planned: Arc::clone(planned),
        };
        let batches =
            stream::try_unfold(step, async |mut step| Ok(step.next().await?.map(|batch| (batch, step))));
        Ok(Box::pin(RecordBatchStreamAdapter::new(planned.schema(), batches)))
    }

    fn metrics(&self) -> MetricsSet {
        self.metrics.clone_inner()
    }
}

/// The groups found so far.
#[derive(Default)]
struct Found {
    /// The number of the group of each value plus one, or 0 if there is none. The table is empty until a
    /// value is seen.
    places: Vec<u16>,
    /// The value of the first place of the table.
    first: u64,
    of_null: Option<usize>,
    count: usize,
    /// The values of the groups, in one array for each slice of rows that added groups.
    columns: Vec<ArrayRef>,
}

impl Found {
    /// Writes the group of each row to `groups`. Returns `false` if a value lies outside the table; no group
    /// is added then.
    fn find(&mut self, column: &ArrayRef, groups: &mut Vec<usize>) -> Result<bool> {
        let data = column.to_data();
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        let first_row = nulls.map_or((!column.is_empty()).then_some(0), |nulls| nulls.valid_indices().next());
        groups.clear();
        match column.data_type().primitive_width() {
            Some(4) => {
                let numbers = data.buffer::<u32>(0);
                self.begin(first_row.map(|row| u64::from(numbers[row])));
                let first = self.first as u32;
                self.find_places(column, nulls, numbers, |number| number.wrapping_sub(first) as usize, groups)
            }
            Some(8) => {
                let numbers = data.buffer::<u64>(0);
                self.begin(first_row.map(|row| numbers[row]));
                let first = self.first;
                self.find_places(column, nulls, numbers, |number| number.wrapping_sub(first) as usize, groups)
            }
            _ => internal_err!("no places for {}", column.data_type()),
        }
    }

    /// Places the first value that is seen in the middle of the table.
    fn begin(&mut self, number: Option<u64>) {
        if let Some(number) = number.filter(|_| self.places.is_empty()) {
            self.first = number.wrapping_sub(PLACES as u64 / 2);
            self.places.resize(PLACES, 0);
        }
    }

    fn find_places<T: Copy>(
        &mut self,
        column: &ArrayRef,
        nulls: Option<&NullBuffer>,
        numbers: &[T],
        place: impl Fn(T) -> usize,
        groups: &mut Vec<usize>,
    ) -> Result<bool> {
        // All places are below a power of two if no place has a higher bit set.
        let bits = match nulls {
            None => numbers.iter().fold(0, |bits, number| bits | place(*number)),
            // The value of a null row is arbitrary.
            Some(nulls) => nulls.valid_indices().fold(0, |bits, row| bits | place(numbers[row])),
        };
        if bits >= PLACES {
            return Ok(false);
        }
        let mut new_rows = Vec::new();
        for (row, number) in numbers.iter().enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                groups.push(*self.of_null.get_or_insert_with(|| {
                    new_rows.push(row as u32);
                    self.count += 1;
                    self.count - 1
                }));
                continue;
            }
            let place = place(*number);
            if self.places[place] == 0 {
                new_rows.push(row as u32);
                self.count += 1;
                self.places[place] = self.count as u16;
            }
            groups.push(usize::from(self.places[place]) - 1);
        }
        if !new_rows.is_empty() {
            self.columns.push(take(column, &UInt32Array::from(new_rows), None)?);
        }
        Ok(true)
    }

    /// Returns the column of the groups' values and removes all groups.
    fn take(&mut self) -> Result<ArrayRef> {
        let Self { columns, .. } = std::mem::take(self);
        let parts: Vec<_> = columns.iter().map(AsRef::as_ref).collect();
        Ok(concat(&parts)?)
    }

    fn size_bytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| column.get_array_memory_size());
        self.places.capacity() * size_of::<u16>() + columns.sum::<usize>()
    }
}

/// The state of the first step in one partition.
struct Step {
    planned: Arc<AggregateExec>,
    context: Arc<TaskContext>,
    input: SendableRecordBatchStream,
    /// The rows of the last batch that have not been processed.
    waiting: RecordBatch,
    /// The batches that follow the groups: those of DataFusion's own first step over the remaining rows, or
    /// none.
    rest: Option<SendableRecordBatchStream>,
    group: Arc<dyn PhysicalExpr>,
    arguments: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    functions: Vec<Box<dyn GroupsAccumulator>>,
    found: Found,
    /// The group of each row of the current slice.
    groups: Vec<usize>,
    memory: MemoryReservation,
    metrics: BaselineMetrics,
}

impl Step {
    /// Returns the next batch for the second step.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rest) = &mut self.rest {
                return rest.next().await.transpose();
            }
            if self.waiting.num_rows() == 0 {
                let Some(batch) = self.input.next().await.transpose()? else {
                    self.rest = Some(Box::pin(EmptyRecordBatchStream::new(self.planned.schema())));
                    return self.emit();
                };
                self.waiting = batch;
            }
            let rows = self.waiting.slice(0, self.waiting.num_rows().min(MAX_ROWS));
            let is_near = {
                let time = self.metrics.elapsed_compute().clone();
                let _timer = time.timer();
                self.add(&rows)?
            };
            if is_near {
                let rest_count = self.waiting.num_rows() - rows.num_rows();
                self.waiting = self.waiting.slice(rows.num_rows(), rest_count);
            }
            if !is_near || self.found.count > MAX_GROUPS {
                self.rest = Some(self.datafusions()?);
                match self.emit()? {
                    None => continue,
                    groups => return Ok(groups),
                }
            }
            let functions_bytes = self.functions.iter().map(|function| function.size()).sum::<usize>();
            let is_too_much = self.memory.try_resize(self.found.size_bytes() + functions_bytes).is_err();
            if is_too_much && self.found.count > 0 {
                // The groups go to the second step, which can spill.
                return self.emit();
            }
        }
    }

    /// Adds rows to their groups. Returns `false`, and adds nothing, if a value lies outside the table.
    fn add(&mut self, rows: &RecordBatch) -> Result<bool> {
        let group = self.group.evaluate(rows)?.into_array(rows.num_rows())?;
        if !self.found.find(&group, &mut self.groups)? {
            return Ok(false);
        }
        let arguments = evaluate_many(&self.arguments, rows)?;
        let filters = self.planned.filter_expr();
        for ((function, arguments), filter) in self.functions.iter_mut().zip(arguments).zip(filters) {
            let filter = filter.as_ref().map(|filter| filter.evaluate(rows)?.into_array(rows.num_rows()));
            let filter = filter.transpose()?;
            let filter = filter.as_ref().map(|filter| filter.as_boolean());
            function.update_batch(&arguments, &self.groups, filter, self.found.count)?;
        }
        Ok(true)
    }

    /// Returns the groups with their states and removes them; `None` if there are none.
    fn emit(&mut self) -> Result<Option<RecordBatch>> {
        if self.found.count == 0 {
            return Ok(None);
        }
        let mut columns = vec![self.found.take()?];
        for function in &mut self.functions {
            columns.extend(function.state(EmitTo::All)?);
        }
        self.memory.free();
        let batch = RecordBatch::try_new(self.planned.schema(), columns)?;
        Ok(Some(batch.record_output(&self.metrics)))
    }

    /// Starts DataFusion's own first step over the remaining rows.
    fn datafusions(&mut self) -> Result<SendableRecordBatchStream> {
        let schema = self.input.schema();
        let waiting = std::mem::replace(&mut self.waiting, RecordBatch::new_empty(Arc::clone(&schema)));
        let none = Box::pin(EmptyRecordBatchStream::new(Arc::clone(&schema)));
        let input = std::mem::replace(&mut self.input, none);
        let rest = stream::iter([Ok(waiting)]).chain(input);
        let rest: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rest));
        let rest = Rest { schema: Arc::clone(&schema), rows: Mutex::new(Some(rest)) };
        let none: [LexOrdering; 0] = [];
        let input = StreamingTableExec::try_new(schema, vec![Arc::new(rest)], None, none, false, None)?;
        let planned = &self.planned;
        let step = AggregateExec::try_new(
            *planned.mode(),
            planned.group_expr().clone(),
            planned.aggr_expr().to_vec(),
            planned.filter_expr().to_vec(),
            Arc::new(input),
            planned.input_schema(),
        )?;
        step.execute(0, Arc::clone(&self.context))
    }
}

/// The remaining rows as the input of a plan.
struct Rest {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("rest of the rows")
    }
}

impl PartitionStream for Rest {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        rows.unwrap_or_else(|| {
            let twice = stream::iter([internal_err!("rows are read once")]);
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), twice))
        })
    }
}

#[cfg(test)]
mod tests {
    use analyze_run::random::Random;
    use arrow::{
        array::{Date32Array, Float64Array, Int8Array, Int64Array, UInt64Array},
        util::pretty::pretty_format_batches,
    };
    use datafusion::{
        datasource::MemTable,
        execution::{runtime_env::RuntimeEnvBuilder, session_state::SessionStateBuilder},
        prelude::{SessionConfig, SessionContext},
    };

    use crate::planner::{dense_group_by::*, substitute_exec::Rule};

    /// Creates columns of several widths, with nulls and without, and a batch with more rows than are
    /// processed at once.
    fn session(is_ours: bool, limit_bytes: Option<usize>) -> SessionContext {
        let mut random = Random(7);
        let mut batch = |number: u64| {
            let rows = if number == 3 { 20_000 } else { 1 + random.below(700) };
            // One in `nulls` values is null; with 0, none is.
            let mut column = |below: usize, nulls: usize| -> Vec<Option<i64>> {
                let mut number =
                    |_| (nulls == 0 || random.below(nulls) > 0).then(|| random.below(below) as i64);
                (0..rows).map(&mut number).collect()
            };
            let small = column(9, 5);
            let signed = column(7, if number.is_multiple_of(2) { 0 } else { 3 });
            let value = column(1_000, 4);
            let int8: Int8Array = small.iter().map(|number| number.map(|number| number as i8)).collect();
            let wide: UInt64Array =
                column(4, 0).into_iter().map(|n| n.map(|n| u64::MAX - n as u64)).collect();
            let signed: Int64Array =
                signed.into_iter().map(|number| number.map(|number| number - 3)).collect();
            let day: Date32Array = small.iter().map(|number| number.map(|number| number as i32)).collect();
            let many: Int64Array = column(9_000, 0).into_iter().collect();
            let part: Float64Array = value.iter().map(|n| n.map(|n| n as f64 / 8.0)).collect();
            let value: Int64Array = value.into_iter().collect();
            RecordBatch::try_from_iter_with_nullable(vec![
                ("small", Arc::new(int8) as ArrayRef, true),
                ("wide", Arc::new(wide), false),
                ("signed", Arc::new(signed), true),
                ("day", Arc::new(day), true),
                ("many", Arc::new(many), false),
                ("value", Arc::new(value), true),
                ("part", Arc::new(part), true),
            ])
            .unwrap()
        };
        let mut batches: Vec<RecordBatch> = (0..20).map(&mut batch).collect();
        batches.insert(0, batches[0].slice(0, 0));
        let parts = vec![batches[..7].to_vec(), batches[7..].to_vec()];
        let table = MemTable::try_new(batches[0].schema(), parts).unwrap();
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(bytes) = limit_bytes {
            runtime = runtime.with_memory_limit(bytes, 1.0);
        }
        let mut state = SessionStateBuilder::new_with_default_features()
            .with_runtime_env(runtime.build_arc().unwrap())
            .with_config(SessionConfig::new().with_target_partitions(2));
        if is_ours {
            state = state.with_physical_optimizer_rule(Arc::new(Rule::<DenseGroupBy>::default()));
        }
        let context = SessionContext::new_with_state(state.build());
        context.register_table("t", Arc::new(table)).unwrap();
        context
    }

    async fn answer(context: &SessionContext, query: &str) -> String {
        let batches = context.sql(query).await.unwrap().collect().await.unwrap();
        pretty_format_batches(&batches).unwrap().to_string()
    }

    #[tokio::test]
    async fn answers_are_those_of_the_planner_without_the_rule() {
        let (plain, ours) = (session(false, None), session(true, None));
        for (query, is_ours) in [
            ("SELECT signed, count(*) FROM t GROUP BY signed ORDER BY signed", true),
            (
                "SELECT wide, count(value), sum(value), min(part), max(value) FROM t GROUP BY wide ORDER BY wide",
                true,
            ),
            ("SELECT signed, avg(value), median(value) FROM t GROUP BY signed ORDER BY signed", true),
            ("SELECT day, sum(value) FROM t GROUP BY day ORDER BY day", true),
            ("SELECT day, count(*) FILTER (WHERE value > 500) FROM t GROUP BY day ORDER BY day", true),
            ("SELECT DISTINCT signed FROM t ORDER BY signed", true),
            // The next queries group by values far below zero, and by nulls alone.
            ("SELECT signed - 32770 AS n, count(*) FROM t GROUP BY n ORDER BY n", true),
            ("SELECT signed, count(*) FROM t WHERE signed IS NULL GROUP BY signed", true),
            // The next queries have many groups, or values far apart, in the first rows and later.
            ("SELECT many, count(*), sum(value) FROM t GROUP BY many ORDER BY many", true),
            ("SELECT many % 2 * 70000 AS n, count(*), avg(value) FROM t GROUP BY n ORDER BY n", true),
            (
                "SELECT CASE WHEN many = 4321 THEN -1000000 ELSE signed END AS n, count(*), min(part) FROM t GROUP BY n ORDER BY n",
                true,
            ),
            (
                "SELECT CASE WHEN many < 30 THEN 32768 ELSE 0 END AS n, count(*) FROM t GROUP BY n ORDER BY n",
                true,
            ),
            ("SELECT many * 3 - 1 AS n, count(*) FROM t WHERE value > 300 GROUP BY n ORDER BY n", true),
            ("SELECT signed, count(*) FROM t WHERE value > 3000 GROUP BY signed", true),
            ("SELECT small, count(*) FROM t GROUP BY small ORDER BY small", false),
            ("SELECT small, day, sum(value) FROM t GROUP BY small, day ORDER BY small, day", false),
            ("SELECT day, count(DISTINCT many), sum(DISTINCT value) FROM t GROUP BY day ORDER BY day", false),
            ("SELECT part, count(*) FROM t GROUP BY part ORDER BY part", false),
            ("SELECT day, signed, count(*) FROM t GROUP BY ROLLUP (day, signed) ORDER BY 1, 2, 3", false),
            (
                "SELECT day, array_agg(value ORDER BY value, many, wide) FROM t GROUP BY day ORDER BY day",
                false,
            ),
            (
                "SELECT day, count(*) FROM (SELECT * FROM t ORDER BY day LIMIT 5000) GROUP BY day ORDER BY day",
                false,
            ),
            ("SELECT sum(value) FROM t", false),
        ] {
            assert_eq!(answer(&plain, query).await, answer(&ours, query).await, "{query}");
            let plan = answer(&ours, &format!("EXPLAIN {query}")).await;
            assert_eq!(plan.contains("groups=near"), is_ours, "{query}: {plan}");
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_into_memory_goes_to_the_second_step() {
        let query = "SELECT day, sum(value), median(value) FROM t GROUP BY day";
        let mut answers = Vec::new();
        for context in [session(false, None), session(true, Some(600_000))] {
            let answer = answer(&context, query).await;
            let mut lines: Vec<_> = answer.lines().map(str::to_owned).collect();
            lines.sort();
            answers.push(lines);
        }
        assert_eq!(answers[0], answers[1]);
        let none = session(true, Some(1));
        let query = "SELECT day, count(*) FROM t GROUP BY day ORDER BY day";
        let result = none.sql(query).await.unwrap().collect().await;
        assert!(result.unwrap_err().to_string().contains("Resources exhausted"));
    }
}
