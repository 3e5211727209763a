//! Grouping by dictionary-encoded strings: groups by number instead of by string.
//!
//! DataFusion's grouping decodes a dictionary row by row. This rule groups by `_text_number`, which looks up
//! every string of a batch's dictionary once, and afterwards turns the numbers of the few groups back into
//! strings:
//!
//! ```text
//! Aggregate: groupBy=[op], …    ->    Projection: _numbered_text(…) AS op, …
//!                                       Aggregate: groupBy=[_text_number(op)], …
//! ```

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{Array, AsArray, DictionaryArray, Int32Array, StringArray},
    datatypes::{DataType, Int32Type},
};
use datafusion::{
    common::{Column, exec_err, tree_node::Transformed},
    error::Result,
    execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation},
    logical_expr::{
        Aggregate, ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs,
        ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

/// Returns the type of the string columns of `events`.
fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The optimizer rule. The memory of the strings is accounted for in `pool`.
#[derive(Debug)]
pub(super) struct DictionaryGroups {
    pool: Arc<dyn MemoryPool>,
}

impl DictionaryGroups {
    /// Creates the rule for a session whose queries take their memory from `pool`.
    pub(super) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self { pool }
    }
}

/// The strings of one grouping, in the order in which they were first seen.
#[derive(Debug)]
struct Texts {
    numbers: HashMap<Arc<str>, i32>,
    texts: Vec<Arc<str>>,
    memory: MemoryReservation,
}

impl Texts {
    fn number(&mut self, text: &str) -> Result<i32> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        let Ok(number) = i32::try_from(self.texts.len()) else {
            return exec_err!("more than {} texts in one grouping", i32::MAX);
        };
        // This counts the string with its two reference counts, and an entry in each of the two collections.
        self.memory.try_grow(text.len() + 16 + 2 * 24)?;
        let text: Arc<str> = Arc::from(text);
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        Ok(number)
    }
}

/// The direction in which a function converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    ToNumber,
    ToText,
}

/// One of the two conversion functions. The two functions of a grouping share its strings; two groupings
/// share nothing.
#[derive(Debug)]
struct Numbering {
    way: Way,
    signature: Signature,
    texts: Arc<Mutex<Texts>>,
}

impl PartialEq for Numbering {
    fn eq(&self, other: &Self) -> bool {
        self.way == other.way && Arc::ptr_eq(&self.texts, &other.texts)
    }
}

impl Eq for Numbering {}

impl Hash for Numbering {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.way.hash(state);
        Arc::as_ptr(&self.texts).hash(state);
    }
}

impl Numbering {
    fn function(way: Way, texts: &Arc<Mutex<Texts>>) -> ScalarUDF {
        let takes = match way {
            Way::ToNumber => dictionary(),
            Way::ToText => DataType::Int32,
        };
        let signature = Signature::exact(vec![takes], Volatility::Immutable);
        ScalarUDF::from(Self { way, signature, texts: Arc::clone(texts) })
    }

    fn numbers(&self, column: &DictionaryArray<Int32Type>) -> Result<Int32Array> {
        let values = column.values().as_string::<i32>();
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        // `known` holds the number of each dictionary entry. If the dictionary is larger than the column,
        // only the entries that occur are looked up.
        let mut known = vec![-1; values.len()];
        if values.len() <= column.len() {
            for (entry, text) in values.iter().enumerate() {
                known[entry] = text.map_or(Ok(-1), |text| texts.number(text))?;
            }
        } else {
            for key in column.keys().iter().flatten().map(|key| key as usize) {
                if known[key] < 0 && values.is_valid(key) {
                    known[key] = texts.number(values.value(key))?;
                }
            }
        }
        // The key of a null row is arbitrary.
        let keys = column.keys().values().iter();
        let numbers = keys.map(|key| known.get(*key as usize).copied().unwrap_or(-1)).collect();
        Ok(Int32Array::new(numbers, column.logical_nulls()))
    }

    fn dictionary(&self, numbers: &Int32Array) -> Result<DictionaryArray<Int32Type>> {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let values = StringArray::from_iter_values(texts.texts.iter());
        Ok(DictionaryArray::try_new(numbers.clone(), Arc::new(values))?)
    }
}

impl ScalarUDFImpl for Numbering {
    fn name(&self) -> &str {
        match self.way {
            Way::ToNumber => "_text_number",
            Way::ToText => "_numbered_text",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.way {
            Way::ToNumber => DataType::Int32,
            Way::ToText => dictionary(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [array] = ColumnarValue::values_to_arrays(&args.args)?.try_into().or_else(|arrays: Vec<_>| {
            exec_err!("{} takes one argument, not {}", self.name(), arrays.len())
        })?;
        Ok(ColumnarValue::Array(match self.way {
            Way::ToNumber => Arc::new(self.numbers(array.as_dictionary::<Int32Type>())?),
            Way::ToText => Arc::new(self.dictionary(array.as_primitive::<Int32Type>())?),
        }))
    }
}

impl OptimizerRule for DictionaryGroups {
    fn name(&self) -> &str {
        "dictionary_groups"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = plan else {
            return Ok(Transformed::no(plan));
        };
        let is_text = |expr: &Expr| Ok(expr.get_type(aggregate.input.schema())? == dictionary());
        let are_texts = aggregate.group_expr.iter().map(is_text).collect::<Result<Vec<_>>>()?;
        // A grouping set stands for several lists of expressions.
        let is_plain = !aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
        if !is_plain || !are_texts.contains(&true) {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
        let mut groups = Vec::new();
        let mut to_text = Vec::new();
        for (expr, is_text) in group_expr.into_iter().zip(are_texts) {
            if !is_text {
                groups.push(expr);
                to_text.push(None);
                continue;
            }
            let memory = MemoryConsumer::new("texts of a grouping").register(&self.pool);
            let texts = Texts { numbers: HashMap::new(), texts: Vec::new(), memory };
            let texts = Arc::new(Mutex::new(texts));
            groups.push(Numbering::function(Way::ToNumber, &texts).call(vec![expr.unalias()]));
            to_text.push(Some(Numbering::function(Way::ToText, &texts)));
        }
        to_text.resize(schema.fields().len(), None);
        let numbered = Aggregate::try_new(input, groups, aggr_expr)?;
        let columns: Vec<Column> = numbered.schema.columns();
        let texts =
            columns.into_iter().zip(to_text).zip(schema.iter()).map(|((column, to_text), (of, field))| {
                let column = Expr::Column(column);
                match to_text {
                    Some(to_text) => to_text.call(vec![column]).alias_qualified(of.cloned(), field.name()),
                    None => column,
                }
            });
        let texts: Vec<Expr> = texts.collect();
        let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(numbered)).project(texts)?.build()?;
        Ok(Transformed::yes(plan))
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::{
        execution::{
            memory_pool::{GreedyMemoryPool, UnboundedMemoryPool},
            session_state::SessionStateBuilder,
        },
        prelude::{SessionConfig, SessionContext},
    };

    use super::*;

    /// Creates batches with different dictionaries, with nulls in the rows and in the dictionaries
    /// themselves.
    fn session(is_ours: bool, pool: Arc<dyn MemoryPool>) -> SessionContext {
        use arrow::{array::Int64Array, record_batch::RecordBatch};
        use datafusion::datasource::MemTable;

        let batch = |seed: i64| {
            let texts: Vec<Option<String>> =
                (0..7).map(|n| (n != 3).then(|| format!("text {}", (n * 5 + seed) % 11))).collect();
            let keys = |step: i64| -> Int32Array {
                (0..100).map(|row| (row % 13 != 0).then_some(((row * step + seed) % 7) as i32)).collect()
            };
            let column = |step| -> Arc<dyn Array> {
                let values = Arc::new(StringArray::from(texts.clone()));
                Arc::new(DictionaryArray::try_new(keys(step), values).unwrap())
            };
            let number = Arc::new((0..100).map(|row| Some(row * seed % 5)).collect::<Int64Array>());
            RecordBatch::try_from_iter_with_nullable(vec![
                ("a", column(3), true),
                ("b", column(5), true),
                ("n", number as Arc<dyn Array>, true),
            ])
            .unwrap()
        };
        let batches: Vec<RecordBatch> = (0..9).map(batch).collect();
        let table =
            MemTable::try_new(batches[0].schema(), vec![batches[..4].to_vec(), batches[4..].to_vec()]);
        let mut state = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2));
        if is_ours {
            state = state.with_optimizer_rule(Arc::new(DictionaryGroups::new(pool)));
        }
        let context = SessionContext::new_with_state(state.build());
        context.register_table("t", Arc::new(table.unwrap())).unwrap();
        context
    }

    #[tokio::test]
    async fn answers_are_those_of_the_planner_without_the_rule() {
        let (plain, ours) = (session(false, pool()), session(true, pool()));
        for query in [
            "SELECT a, count(*) FROM t GROUP BY a ORDER BY a",
            "SELECT a AS x, b, n, sum(n), max(b) FROM t GROUP BY x, b, n ORDER BY x, b, n",
            "SELECT DISTINCT b, a FROM t ORDER BY a, b",
            "SELECT count(DISTINCT a), count(DISTINCT b) FROM t",
            "SELECT n, count(DISTINCT a) FROM t GROUP BY n ORDER BY n",
            "SELECT a, count(*) FROM t WHERE b <> 'text 5' GROUP BY a HAVING a > 'text 1' AND count(*) > 9 ORDER BY a",
            "SELECT a, b, count(*), grouping(a) FROM t GROUP BY ROLLUP (a, b) ORDER BY 1, 2, 3",
            "SELECT upper(a) AS u, count(*) FROM t GROUP BY u ORDER BY u",
            "SELECT l.a, r.c FROM t l JOIN (SELECT a, count(*) AS c FROM t GROUP BY a) r ON l.a = r.a ORDER BY 1, 2",
            "SELECT a, count(*) FROM t WHERE n < 0 GROUP BY a",
            "SELECT a, count(*) FROM t GROUP BY a UNION ALL SELECT b, count(*) FROM t GROUP BY b ORDER BY 1, 2",
            "SELECT a, row_number() OVER (ORDER BY a), count(*) FROM t GROUP BY a ORDER BY 1",
        ] {
            let mut answers = Vec::new();
            for context in [&plain, &ours] {
                let batches = context.sql(query).await.unwrap().collect().await.unwrap();
                answers.push(pretty_format_batches(&batches).unwrap().to_string());
            }
            assert_eq!(answers[0], answers[1], "{query}");
        }
        let plan = ours.sql("EXPLAIN SELECT a, count(*) FROM t GROUP BY a").await.unwrap();
        let plan = pretty_format_batches(&plan.collect().await.unwrap()).unwrap().to_string();
        assert!(plan.contains("_text_number(t.a)"), "{plan}");
    }

    fn pool() -> Arc<dyn MemoryPool> {
        Arc::new(UnboundedMemoryPool::default())
    }

    #[tokio::test]
    async fn texts_count_against_the_limit_of_memory() {
        let context = session(true, Arc::new(GreedyMemoryPool::new(200)));
        let error = context.sql("SELECT a FROM t GROUP BY a").await.unwrap().collect().await.unwrap_err();
        assert!(error.to_string().contains("texts of a grouping"), "{error}");
    }
}
