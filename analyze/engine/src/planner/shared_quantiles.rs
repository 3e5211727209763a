//! Several `percentile_cont` of the same values: one accumulator holds the values, and all quantiles are read off it.
//!
//! ```text
//! Aggregate: aggr=[percentile_cont(x, 0.5), max(x), percentile_cont(x, 0.99)]
//!     ->  Projection: _quantile(q), max(x), _quantile(q)
//!           Aggregate: aggr=[_quantiles[0.5, 0.99](x) AS q, max(x)]
//! ```
//! The values must be float64 and their expression must be the same, as must the filter. A quantile is the same, bit
//! by bit, as from an accumulator of its own.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::{
    common::{Column, tree_node::Transformed},
    error::Result,
    logical_expr::{
        Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, expr::AggregateFunction,
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
    scalar::ScalarValue,
};

use crate::functions::{percentile_cont::PercentileCont, quantiles};

/// The optimizer rule.
#[derive(Debug)]
pub(super) struct SharedQuantiles;

/// Returns an expression without its aliases.
fn plain(mut expr: &Expr) -> &Expr {
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    expr
}

/// A quantile that a query asks for.
struct Asked {
    values: Expr,
    filter: Option<Box<Expr>>,
    share: f64,
}

/// Returns the quantile that an aggregate expression asks for, if its accumulator can be shared.
fn asked(expr: &Expr, aggregate: &Aggregate) -> Result<Option<Asked>> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = plain(expr) else { return Ok(None) };
    let is_ours = func.inner().downcast_ref::<PercentileCont>().is_some();
    let ([values, share], false, true) = (params.args.as_slice(), params.distinct, is_ours) else {
        return Ok(None);
    };
    let Expr::Literal(ScalarValue::Float64(Some(share)), _) = plain(share) else { return Ok(None) };
    let is_shareable = (0.0..=1.0).contains(share)
        && !values.is_volatile()
        && !params.filter.as_ref().is_some_and(|filter| filter.is_volatile())
        && values.get_type(aggregate.input.schema())? == DataType::Float64;
    let is_descending = params.order_by.first().is_some_and(|order| !order.asc);
    Ok(is_shareable.then(|| Asked {
        values: plain(values).clone(),
        filter: params.filter.clone(),
        share: if is_descending { 1.0 - share } else { *share },
    }))
}

/// The quantiles of the same values, with the places of their expressions among those of the aggregate.
struct Shared {
    values: Expr,
    filter: Option<Box<Expr>>,
    shares: Vec<f64>,
    places: Vec<usize>,
}

/// Returns the quantiles that an aggregate computes of the same values; each has more than one.
fn shared(aggregate: &Aggregate) -> Result<Vec<Shared>> {
    let mut all: Vec<Shared> = Vec::new();
    for (place, expr) in aggregate.aggr_expr.iter().enumerate() {
        let Some(Asked { values, filter, share }) = asked(expr, aggregate)? else { continue };
        match all.iter_mut().find(|shared| shared.values == values && shared.filter == filter) {
            Some(shared) => {
                shared.shares.push(share);
                shared.places.push(place);
            }
            None => all.push(Shared { values, filter, shares: vec![share], places: vec![place] }),
        }
    }
    all.retain(|shared| shared.shares.len() > 1);
    Ok(all)
}

impl OptimizerRule for SharedQuantiles {
    fn name(&self) -> &str {
        "shared_quantiles"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = plan else {
            return Ok(Transformed::no(plan));
        };
        let shared = shared(&aggregate)?;
        if shared.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
        let groups_count = schema.fields().len().saturating_sub(aggr_expr.len());
        // What each aggregate expression becomes above the new aggregate; `None` stands for a column of it.
        let mut above: Vec<Option<Expr>> = vec![None; aggr_expr.len()];
        let mut functions = Vec::new();
        for (number, Shared { values, filter, shares, places }) in shared.into_iter().enumerate() {
            let name = format!("_quantiles_{number}");
            let function = Arc::new(quantiles::aggregate(&shares));
            let function =
                AggregateFunction::new_udf(function, vec![values], false, filter, Vec::new(), None);
            functions.push(Expr::AggregateFunction(function).alias(name.clone()));
            for (place, above_place) in places.into_iter().enumerate() {
                let all = Expr::Column(Column::from_name(name.clone()));
                if let Some(above) = above.get_mut(above_place) {
                    *above = Some(quantiles::quantile_at(place, shares.len()).call(vec![all]));
                }
            }
        }
        let others = aggr_expr.into_iter().zip(&above).filter(|(_, above)| above.is_none());
        let aggregates = functions.into_iter().chain(others.map(|(expr, _)| expr)).collect();
        let answers = Aggregate::try_new(input, group_expr, aggregates)?;
        let above = std::iter::repeat_n(None, groups_count).chain(above);
        let columns = above.zip(schema.iter()).map(|(above, (of, field))| match above {
            Some(quantile) => quantile.alias_qualified(of.cloned(), field.name()),
            None => Expr::Column(Column::from((of, field))),
        });
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(answers)).project(columns)?.build()?;
        Ok(Transformed::yes(plan))
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch},
        util::pretty::pretty_format_batches,
    };
    use datafusion::{
        datasource::MemTable,
        execution::{runtime_env::RuntimeEnvBuilder, session_state::SessionStateBuilder},
        prelude::{SessionConfig, SessionContext},
    };

    use super::*;
    use crate::functions::percentile_cont;

    /// Creates a table of groups with 0, 1, 2 and many values: `few` has three values, `many` thousands.
    fn session(is_ours: bool, memory_bytes: Option<usize>) -> SessionContext {
        let mut random = analyze_run::random::Random(23);
        let mut batch = |_| {
            let rows = 400;
            let few: Int64Array = (0..rows).map(|_| Some(random.below(3) as i64)).collect();
            let many: Int64Array = (0..rows).map(|_| Some(random.below(5000) as i64)).collect();
            let value = |random: &mut analyze_run::random::Random| match random.below(5) {
                0 | 1 => None,
                2 => Some(random.below(1 << 40) as f64),
                3 => Some(random.unit() * 1e6 - 5e5),
                _ => Some(random.below(2_000_000) as f64),
            };
            let value: Float64Array = (0..rows).map(|_| value(&mut random)).collect();
            RecordBatch::try_from_iter_with_nullable([
                ("few", Arc::new(few) as ArrayRef, true),
                ("many", Arc::new(many) as ArrayRef, true),
                ("value", Arc::new(value) as ArrayRef, true),
            ])
            .unwrap()
        };
        let batches: Vec<RecordBatch> = (0..30).map(&mut batch).collect();
        let parts = vec![batches[..11].to_vec(), batches[11..].to_vec()];
        let table = MemTable::try_new(batches[0].schema(), parts).unwrap();
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(bytes) = memory_bytes {
            runtime = runtime.with_memory_limit(bytes, 1.0);
        }
        let mut state = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2).with_batch_size(100))
            .with_runtime_env(runtime.build_arc().unwrap());
        if is_ours {
            state = state.with_optimizer_rule(Arc::new(SharedQuantiles));
        }
        let context = SessionContext::new_with_state(state.build());
        context.register_table("t", Arc::new(table)).unwrap();
        context.register_udaf(percentile_cont::function());
        context
    }

    async fn batches(context: &SessionContext, query: &str) -> Vec<RecordBatch> {
        context.sql(query).await.unwrap().collect().await.unwrap()
    }

    async fn text(context: &SessionContext, query: &str) -> String {
        pretty_format_batches(&batches(context, query).await).unwrap().to_string()
    }

    #[tokio::test]
    async fn answers_are_those_of_the_planner_without_the_rule() {
        let (plain, ours) = (session(false, None), session(true, None));
        for (query, shared_count) in [
            (
                "SELECT many, count(value), percentile_cont(0.5) WITHIN GROUP (ORDER BY value), max(value), percentile_cont(0.99) WITHIN GROUP (ORDER BY value) FROM t GROUP BY many ORDER BY many",
                1,
            ),
            (
                "SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY value DESC) AS a, percentile_cont(0.25) WITHIN GROUP (ORDER BY value DESC) AS b, quantile_cont(value, 0.999) FROM t",
                1,
            ),
            (
                "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY value), percentile_cont(0.9) WITHIN GROUP (ORDER BY value) FROM t WHERE few > 9",
                1,
            ),
            (
                "SELECT few, percentile_cont(0.5) WITHIN GROUP (ORDER BY value), percentile_cont(0.9) WITHIN GROUP (ORDER BY value) FROM t WHERE value IS NULL GROUP BY few ORDER BY few",
                1,
            ),
            (
                "SELECT few, percentile_cont(0.1) WITHIN GROUP (ORDER BY value), percentile_cont(0.2) WITHIN GROUP (ORDER BY value) FILTER (WHERE many < 50), percentile_cont(0.3) WITHIN GROUP (ORDER BY value) FILTER (WHERE many < 50), percentile_cont(0.4) WITHIN GROUP (ORDER BY value) FROM t GROUP BY few HAVING percentile_cont(0.1) WITHIN GROUP (ORDER BY value) > -1e9 ORDER BY few",
                2,
            ),
            (
                "SELECT few, percentile_cont(0.1) WITHIN GROUP (ORDER BY CAST(many AS DOUBLE)), percentile_cont(0.2) WITHIN GROUP (ORDER BY CAST(many AS DOUBLE)) FROM t GROUP BY ROLLUP (few) ORDER BY few",
                1,
            ),
            (
                "SELECT few, percentile_cont(0.1) WITHIN GROUP (ORDER BY value), percentile_cont(0.2) WITHIN GROUP (ORDER BY value + 1.0) FROM t GROUP BY few ORDER BY few",
                0,
            ),
            (
                "SELECT few, percentile_cont(0.1) WITHIN GROUP (ORDER BY value) FROM t GROUP BY few ORDER BY few",
                0,
            ),
            (
                "SELECT percentile_cont(0.1) WITHIN GROUP (ORDER BY arrow_cast(many, 'Float32')), percentile_cont(0.2) WITHIN GROUP (ORDER BY arrow_cast(many, 'Float32')) FROM t",
                0,
            ),
        ] {
            assert_eq!(text(&ours, query).await, text(&plain, query).await, "{query}");
            let plan = text(&ours, &format!("EXPLAIN {query}")).await;
            assert_eq!(plan.contains("_quantiles_0"), shared_count > 0, "{plan}");
            assert_eq!(plan.contains("_quantiles_1"), shared_count > 1, "{plan}");
        }
    }

    /// The number of values of a group decides between which of them a quantile lies.
    #[tokio::test]
    async fn groups_of_no_one_and_two_values() {
        let ours = session(true, None);
        let query = "SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS p50, percentile_cont(0.75) WITHIN GROUP (ORDER BY x) AS p75 \
                     FROM (VALUES (0, CAST(NULL AS DOUBLE)), (1, 7.0), (1, NULL), (2, 10.0), (2, 20.0)) AS t (g, x) GROUP BY g ORDER BY g";
        let batches = batches(&ours, query).await;
        let column = |name: &str| -> Vec<Option<f64>> {
            let values = batches.iter().map(|batch| batch.column_by_name(name).unwrap().to_data());
            values.flat_map(|data| Float64Array::from(data).iter().collect::<Vec<_>>()).collect()
        };
        assert_eq!(column("p50"), [None, Some(7.0), Some(15.0)]);
        assert_eq!(column("p75"), [None, Some(7.0), Some(17.5)]);
    }

    /// Groups that do not fit into memory are written to disk, as the values with their counts, and read again.
    #[tokio::test]
    async fn with_little_memory_the_answer_is_the_same_or_an_error() {
        let query = "SELECT many, percentile_cont(0.5) WITHIN GROUP (ORDER BY value) AS p50, percentile_cont(0.9) WITHIN GROUP (ORDER BY value) AS p90 FROM t GROUP BY many ORDER BY many";
        let expected = text(&session(false, None), query).await;
        for bytes in [200_000, 800_000, 1_600_000, 3_200_000, 64_000_000] {
            match session(true, Some(bytes)).sql(query).await.unwrap().collect().await {
                Ok(batches) => assert_eq!(pretty_format_batches(&batches).unwrap().to_string(), expected),
                Err(error) => {
                    assert!(
                        error.to_string().contains("Resources exhausted") && bytes < 64_000_000,
                        "{error}"
                    );
                }
            }
        }
    }
}
