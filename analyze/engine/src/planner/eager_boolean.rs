//! Cheap conditions joined by `AND` and `OR`: both sides are evaluated for every row.
//!
//! If few rows pass the first side, DataFusion's `AND` copies them, evaluates the second side on the copies
//! and puts the results back into their places, which is more work than comparing a number. Here both sides
//! are evaluated and their results are combined:
//!
//! ```text
//! FilterExec: kind = off_cpu AND waker_tid IS NOT NULL
//!     ->  FilterExec: eager_boolean(kind = off_cpu AND waker_tid IS NOT NULL)
//! ```

use std::{
    fmt::{self, Display, Formatter},
    sync::Arc,
};

use arrow::{
    array::{Array, AsArray, BooleanArray, RecordBatch},
    compute::{and_kleene, or_kleene},
    datatypes::{FieldRef, Schema},
};
use datafusion::{
    common::{
        internal_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    execution::TaskContext,
    logical_expr::{ColumnarValue, Operator},
    physical_expr::{
        PhysicalExpr,
        expressions::{BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr},
    },
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, SendableRecordBatchStream,
        filter::{FilterExec, FilterExecBuilder},
        metrics::MetricsSet,
    },
};

use crate::planner::substitute_exec::Work;

/// A copy of a planned filter with the rewritten condition. DataFusion knows less about that condition, so
/// the original filter still describes the node to the rest of the plan.
#[derive(Debug)]
pub(super) struct EagerBooleanFilter(FilterExec);

impl Work for EagerBooleanFilter {
    const RULE: &'static str = "eager_boolean";

    fn of(planned: &dyn ExecutionPlan) -> Result<Option<Self>> {
        let Some(filter) = planned.downcast_ref::<FilterExec>() else { return Ok(None) };
        let condition = Arc::clone(filter.predicate()).transform_up(|expr| {
            Ok(match EagerBoolean::of(&expr)? {
                Some(both) => Transformed::yes(Arc::new(both)),
                None => Transformed::no(expr),
            })
        })?;
        if !condition.transformed {
            return Ok(None);
        }
        Ok(Some(Self(FilterExecBuilder::from(filter).with_predicate(condition.data).build()?)))
    }

    fn fmt_as(&self, kind: DisplayFormatType, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt_as(kind, f)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }

    fn metrics(&self) -> MetricsSet {
        self.0.metrics().unwrap_or_default()
    }
}

/// Returns whether an expression may be evaluated for rows that another condition rules out: nothing in it
/// can fail, and it is cheap.
fn is_cheap(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let compares = |op: &Operator| {
        use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
        matches!(op, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
    };
    let mut is_cheap = true;
    expr.apply(|expr| {
        is_cheap = expr.is::<Column>()
            || expr.is::<Literal>()
            || expr.is::<NotExpr>()
            || expr.is::<IsNullExpr>()
            || expr.is::<IsNotNullExpr>()
            || expr.is::<InListExpr>()
            || expr.is::<EagerBoolean>()
            || expr.downcast_ref::<BinaryExpr>().is_some_and(|binary| compares(binary.op()));
        Ok(if is_cheap { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_cheap)
}

/// A conjunction or disjunction that evaluates both of its sides for every row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct EagerBoolean {
    /// The expression as the planner made it.
    joined: BinaryExpr,
}

impl EagerBoolean {
    /// Converts an `AND` or `OR`. Returns `None` for another expression, or if its second side is not cheap.
    fn of(expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Self>> {
        let Some(joined) = expr.downcast_ref::<BinaryExpr>() else { return Ok(None) };
        let fits = matches!(joined.op(), Operator::And | Operator::Or) && is_cheap(joined.right())?;
        Ok(fits.then(|| Self { joined: joined.clone() }))
    }

    fn side(side: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<BooleanArray> {
        Ok(side.evaluate(batch)?.into_array(batch.num_rows())?.as_boolean().clone())
    }
}

impl Display for EagerBoolean {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "eager_boolean({})", self.joined)
    }
}

impl PhysicalExpr for EagerBoolean {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.joined.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let left = Self::side(self.joined.left(), batch)?;
        let is_and = *self.joined.op() == Operator::And;
        // DataFusion also stops here, so that columns behind a condition that no row passes are not read.
        let is_decided = left.null_count() == 0 && if is_and { !left.has_true() } else { !left.has_false() };
        if is_decided {
            return Ok(ColumnarValue::Array(Arc::new(left)));
        }
        let right = Self::side(self.joined.right(), batch)?;
        let joined = if is_and { and_kleene(&left, &right) } else { or_kleene(&left, &right) };
        Ok(ColumnarValue::Array(Arc::new(joined?)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.joined.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let Ok([left, right]) = <[_; 2]>::try_from(children) else {
            return internal_err!("eager_boolean has two children");
        };
        Ok(Arc::new(Self { joined: BinaryExpr::new(left, *self.joined.op(), right) }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.joined.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Int32Array, StringArray},
        util::pretty::pretty_format_batches,
    };
    use datafusion::{
        datasource::MemTable,
        execution::session_state::SessionStateBuilder,
        prelude::{SessionConfig, SessionContext},
    };

    use crate::planner::{eager_boolean::*, substitute_exec::Rule};

    fn session(is_ours: bool) -> SessionContext {
        let batch = |seed: i32| {
            let number = |step: i32, nulls: i32| -> Arc<dyn Array> {
                let of_row = |row: i32| (row % nulls != 5).then_some((row * step + seed) % 7);
                Arc::new((0..100).map(of_row).collect::<Int32Array>())
            };
            let text = |row: i32| (row % 11 != 3).then(|| format!("text {}", (row * seed) % 5));
            let text: StringArray = (0..100).map(text).collect();
            RecordBatch::try_from_iter_with_nullable(vec![
                ("n", number(3, 13), true),
                ("m", number(5, 6), true),
                ("t", Arc::new(text) as Arc<dyn Array>, true),
            ])
            .unwrap()
        };
        let batches: Vec<RecordBatch> = (0..9).map(batch).collect();
        let parts = vec![batches[..4].to_vec(), batches[4..].to_vec()];
        let table = MemTable::try_new(batches[0].schema(), parts).unwrap();
        let mut state = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2));
        if is_ours {
            state = state.with_physical_optimizer_rule(Arc::new(Rule::<EagerBooleanFilter>::default()));
        }
        let context = SessionContext::new_with_state(state.build());
        context.register_table("x", Arc::new(table)).unwrap();
        context
    }

    #[tokio::test]
    async fn answers_are_those_of_the_planner_without_the_rule() {
        let (plain, ours) = (session(false), session(true));
        for (condition, is_both) in [
            ("n = 3 AND m IS NOT NULL", true),
            ("n = 3 AND m = 2 AND t = 'text 1'", true),
            ("n = 30 AND m = 2", true),
            ("n = 3 OR m = 2", true),
            ("n >= 0 OR m = 2", true),
            ("NOT (n = 3 AND m = 2) OR t <> 'text 1'", true),
            ("NOT (n = 3 OR m <> 2) AND t IN ('text 1', 'text 2', 'text 3', 'text 0', 'no')", true),
            ("t LIKE '%1' AND m = 2", false),
            ("(n = 3 AND m = 2) IS NULL", true),
            ("m = 2 AND (n IS DISTINCT FROM 3) AND t NOT IN ('text 1', NULL)", true),
            ("m = 2 AND 10 / (n + 1) > 2", false),
            ("n = 3 AND t LIKE '%1'", false),
            ("n = 3", false),
        ] {
            let query = format!(
                "SELECT n, m, t, count(*) FROM x WHERE {condition} GROUP BY n, m, t ORDER BY n, m, t"
            );
            let mut answers = Vec::new();
            for context in [&plain, &ours] {
                let batches = context.sql(&query).await.unwrap().collect().await.unwrap();
                answers.push(pretty_format_batches(&batches).unwrap().to_string());
            }
            assert_eq!(answers[0], answers[1], "{condition}");
            let plan = ours.sql(&format!("EXPLAIN {query}")).await.unwrap().collect().await.unwrap();
            let plan = pretty_format_batches(&plan).unwrap().to_string();
            assert_eq!(plan.contains("eager_boolean("), is_both, "{condition}: {plan}");
        }
    }
}
