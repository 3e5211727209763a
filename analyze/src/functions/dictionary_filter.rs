//! Conditions on one column of texts that are stored as dictionaries: decided for each text instead of for each row.
//!
//! ```text
//! texts of a batch          rows                                     op LIKE 'cudaMem%'
//! 0 cudaMemcpyAsync  yes    0 2 2 1 0 2 …      FilterExec looks   →  y n n y y n …
//! 1 cudaMemset       yes                       the answers up
//! 2 cuLaunchKernel   no
//! ```

use std::{
    fmt::{self, Display, Formatter},
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{Array, AsArray, BooleanArray, DictionaryArray, Int32Array, RecordBatch},
    buffer::{BooleanBuffer, NullBuffer},
    datatypes::{DataType, Field, FieldRef, Int32Type, Schema, SchemaRef},
};
use datafusion::{
    common::{
        config::ConfigOptions,
        internal_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    logical_expr::{ColumnarValue, Operator},
    physical_expr::{
        PhysicalExpr,
        expressions::{
            BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
        },
    },
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ExecutionPlan,
        filter::{FilterExec, FilterExecBuilder},
    },
};

/// The rule. It runs last: what other rules read from a condition stands in the plan then.
#[derive(Debug)]
pub(crate) struct DictionaryFilters;

impl PhysicalOptimizerRule for DictionaryFilters {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let rewrite = |plan: Arc<dyn ExecutionPlan>| {
            let Some(filter) = plan.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(plan)) };
            let schema = filter.input().schema();
            let condition = Arc::clone(filter.predicate()).transform_down(|expr| {
                Ok(match EachText::of(&expr, &schema)? {
                    Some(each) => Transformed::new(Arc::new(each), true, TreeNodeRecursion::Jump),
                    None => Transformed::no(expr),
                })
            })?;
            if !condition.transformed {
                return Ok(Transformed::no(plan));
            }
            let filter = FilterExecBuilder::from(filter).with_predicate(condition.data).build()?;
            Ok(Transformed::yes(Arc::new(filter) as Arc<dyn ExecutionPlan>))
        };
        Ok(plan.transform_up(rewrite)?.data)
    }

    fn name(&self) -> &str {
        "dictionary_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn is_text(ty: &DataType) -> bool {
    match ty {
        DataType::Dictionary(_, values) => is_text(values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        _ => false,
    }
}

/// Whether it can be asked of any text: nothing in it fails, or answers differently the next time.
fn is_harmless(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let compares = |op: &Operator| {
        use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
        matches!(op, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
    };
    expr.is::<Column>()
        || expr.is::<Literal>()
        || expr.is::<NotExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<InListExpr>()
        || expr.is::<LikeExpr>()
        || expr.downcast_ref::<BinaryExpr>().is_some_and(|binary| compares(binary.op()))
        || expr.downcast_ref::<CastExpr>().is_some_and(|cast| is_text(cast.cast_type()))
}

/// A condition, asked of each text of a batch.
#[derive(Debug)]
struct EachText {
    column: Arc<dyn PhysicalExpr>,
    /// Of the only column of `texts`.
    condition: Arc<dyn PhysicalExpr>,
    texts: SchemaRef,
}

// By hand: derived ones would move out of `Arc`s (https://github.com/rust-lang/rust/issues/78808).
impl PartialEq for EachText {
    fn eq(&self, other: &Self) -> bool {
        self.column.eq(&other.column) && self.condition.eq(&other.condition) && self.texts == other.texts
    }
}

impl Eq for EachText {}

impl Hash for EachText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.column.hash(state);
        self.condition.hash(state);
    }
}

impl EachText {
    /// Of a condition on one column of texts; `None`: it is none, or is asked as fast of each row.
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        if expr.is::<Column>() || expr.is::<IsNullExpr>() || expr.is::<IsNotNullExpr>() {
            return Ok(None);
        }
        let mut column: Option<Column> = None;
        let mut fits = expr.data_type(schema)? == DataType::Boolean;
        expr.apply(|expr| {
            fits &= is_harmless(expr);
            if let Some(found) = expr.downcast_ref::<Column>() {
                fits &= column.as_ref().is_none_or(|column| column == found);
                column = Some(found.clone());
            }
            Ok(if fits { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })?;
        let Some(column) = column.filter(|_| fits) else { return Ok(None) };
        let field = schema.field(column.index());
        let texts = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        if *field.data_type() != texts {
            return Ok(None);
        }
        let condition = Arc::clone(expr).transform_down(|expr| {
            Ok(match expr.downcast_ref::<Column>() {
                Some(column) => Transformed::yes(Arc::new(Column::new(column.name(), 0)) as _),
                None => Transformed::no(expr),
            })
        })?;
        let texts = Schema::new(vec![Field::new(field.name(), texts, true)]);
        Ok(Some(Self { column: Arc::new(column), condition: condition.data, texts: Arc::new(texts) }))
    }

    /// The answers for some texts, and last the one for null.
    fn answers(&self, texts: &Arc<dyn Array>) -> Result<BooleanArray> {
        let count = texts.len() as i32;
        let keys: Int32Array = (0..count).map(Some).chain([None]).collect();
        let texts = DictionaryArray::try_new(keys, Arc::clone(texts))?;
        let batch = RecordBatch::try_new(Arc::clone(&self.texts), vec![Arc::new(texts)])?;
        let answers = self.condition.evaluate(&batch)?.into_array(batch.num_rows())?;
        Ok(answers.as_boolean().clone())
    }
}

impl Display for EachText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "each_text({})", self.condition)
    }
}

impl PhysicalExpr for EachText {
    fn return_field(&self, _: &Schema) -> Result<FieldRef> {
        self.condition.return_field(&self.texts)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let column = self.column.evaluate(batch)?.into_array(batch.num_rows())?;
        let column = column.as_dictionary::<Int32Type>();
        if column.values().len() > column.len() {
            let batch = RecordBatch::try_new(Arc::clone(&self.texts), vec![Arc::new(column.clone())])?;
            return self.condition.evaluate(&batch);
        }
        let answers = self.answers(column.values())?;
        let null = column.values().len();
        let keys = column.keys().values();
        let look_up = |answers: Vec<bool>| {
            // Under a null there may be any key.
            let of_key = |row| answers.get(keys[row] as usize).copied().unwrap_or_default();
            let found = BooleanBuffer::collect_bool(keys.len(), of_key);
            match column.keys().nulls().filter(|nulls| nulls.null_count() > 0) {
                None => found,
                Some(nulls) if answers[null] => &found | &!nulls.inner(),
                Some(nulls) => &found & nulls.inner(),
            }
        };
        let found = look_up((0..=null).map(|text| answers.value(text)).collect());
        let known = answers.nulls().filter(|nulls| nulls.null_count() > 0);
        let known = known.map(|nulls| NullBuffer::new(look_up(nulls.iter().collect())));
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(found, known))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.column]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let Ok([column]) = <[_; 1]>::try_from(children) else {
            return internal_err!("each_text has one child");
        };
        let (condition, texts) = (Arc::clone(&self.condition), Arc::clone(&self.texts));
        Ok(Arc::new(Self { column, condition, texts }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use arrow::{array::StringArray, util::pretty::pretty_format_batches};
    use datafusion::{
        datasource::MemTable,
        execution::session_state::SessionStateBuilder,
        prelude::{SessionConfig, SessionContext},
    };

    use super::*;

    /// Dictionaries that differ from batch to batch, one of them larger than its batch, with nulls in the rows and in the
    /// dictionaries themselves.
    fn session(is_ours: bool) -> SessionContext {
        let batch = |seed: i32| {
            let count = if seed == 4 { 300 } else { 9 };
            let column = |step: i32, nulls: i32| -> Arc<dyn Array> {
                let texts: StringArray =
                    (0..count).map(|n| (n != 3).then(|| format!("text {}", (n * 5 + seed) % 11))).collect();
                let keys: Int32Array =
                    (0..100).map(|row| (row % nulls != 5).then_some((row * step + seed) % count)).collect();
                Arc::new(DictionaryArray::try_new(keys, Arc::new(texts)).unwrap())
            };
            let number: Int32Array = (0..100).map(|row| Some(row * seed % 5)).collect();
            RecordBatch::try_from_iter_with_nullable(vec![
                ("n", Arc::new(number) as Arc<dyn Array>, true),
                ("a", column(3, 13), true),
                ("b", column(5, 1000), true),
            ])
            .unwrap()
        };
        let batches: Vec<RecordBatch> = (0..9).map(batch).collect();
        let parts = vec![batches[..4].to_vec(), batches[4..].to_vec()];
        let table = MemTable::try_new(batches[0].schema(), parts).unwrap();
        let mut state = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2));
        if is_ours {
            state = state.with_physical_optimizer_rule(Arc::new(DictionaryFilters));
        }
        let context = SessionContext::new_with_state(state.build());
        context.register_table("t", Arc::new(table)).unwrap();
        context
    }

    #[tokio::test]
    async fn answers_are_those_of_the_planner_without_the_rule() {
        let (plain, ours) = (session(false), session(true));
        for (condition, is_each_text) in [
            ("a = 'text 4'", true),
            ("a <> 'text 4'", true),
            ("NOT (a = 'text 4' OR a = 'text 7')", true),
            ("a IN ('text 1', 'text 2', 'text 3', 'text 4', 'text 5')", true),
            ("a NOT IN ('text 1', 'text 2', 'text 3', 'text 4', 'nothing')", true),
            ("a NOT IN ('text 1', NULL)", true),
            ("b LIKE '%1%'", true),
            ("b NOT LIKE '%1%' AND n > 1", true),
            ("a IS DISTINCT FROM 'text 4'", true),
            ("a IS NULL OR a > 'text 5'", true),
            ("a = 'text 1' OR b = 'text 1' OR n = 3", true),
            ("CASE WHEN a = 'text 1' THEN b = 'text 2' ELSE n = 1 END", true),
            ("a BETWEEN 'text 2' AND 'text 7' AND b IS NOT NULL", true),
            ("a = b", false),
            ("a IS NULL", false),
            ("n = 3", false),
            ("CAST(substr(a, 6) AS INT) > 3", false),
        ] {
            let query = format!(
                "SELECT n, a, b, count(*) FROM t WHERE {condition} GROUP BY n, a, b ORDER BY n, a, b"
            );
            let mut answers = Vec::new();
            for context in [&plain, &ours] {
                let batches = context.sql(&query).await.unwrap().collect().await.unwrap();
                answers.push(pretty_format_batches(&batches).unwrap().to_string());
            }
            assert_eq!(answers[0], answers[1], "{condition}");
            let plan = ours.sql(&format!("EXPLAIN {query}")).await.unwrap().collect().await.unwrap();
            let plan = pretty_format_batches(&plan).unwrap().to_string();
            assert_eq!(plan.contains("each_text("), is_each_text, "{condition}: {plan}");
        }
    }
}
