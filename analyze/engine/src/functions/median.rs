//! DataFusion's `median` of float64 values, to which it casts whole numbers, in memory that does not grow with their number: the
//! accumulators are those of `percentile_cont`, which says when a median is not exact. Everything else (other types, DISTINCT,
//! windows that slide) is DataFusion's own.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::{
    error::Result,
    functions_aggregate::median::median_udaf,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, Signature,
        function::{AccumulatorArgs, StateFieldsArgs},
    },
};

use super::percentile_cont::{Wanted, grouped, state_fields_of, ungrouped};

/// Returns whether the median of these values is computed here.
fn is_ours(is_distinct: bool, fields: &[FieldRef]) -> bool {
    !is_distinct && fields.first().is_some_and(|field| field.data_type() == &DataType::Float64)
}

/// The function. Everything but the accumulators of float64 values is that of `inner`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Median {
    inner: Arc<AggregateUDF>,
}

/// Returns the function that replaces DataFusion's own `median`.
pub(super) fn function() -> AggregateUDF {
    AggregateUDF::from(Median { inner: median_udaf() })
}

impl AggregateUDFImpl for Median {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match is_ours(args.is_distinct, args.input_fields) {
            true => Ok(state_fields_of(args.name)),
            false => self.inner.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_ours(args.is_distinct, args.expr_fields) {
            true => Ok(ungrouped(Wanted::Median)),
            false => self.inner.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match is_ours(args.is_distinct, args.expr_fields) {
            true => Ok(grouped(Wanted::Median)),
            false => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

#[cfg(test)]
mod tests {
    use analyze_run::random::Random;
    use arrow::{
        array::{ArrayRef, Float64Array, Int64Array, RecordBatch},
        util::pretty::pretty_format_batches,
    };
    use datafusion::{
        datasource::MemTable,
        prelude::{SessionConfig, SessionContext},
    };

    use super::*;

    /// Creates a table of whole and other values, with nulls, in small batches.
    fn session(is_ours: bool) -> SessionContext {
        let mut random = Random(17);
        let mut batch = |_| {
            let rows = 1 + random.below(700);
            let few: Int64Array = (0..rows).map(|_| Some(random.below(3) as i64)).collect();
            let many: Int64Array = (0..rows).map(|_| Some(random.below(4000) as i64)).collect();
            let whole = |random: &mut Random| (random.below(6) > 0).then(|| random.below(3_000_000) as i64);
            let whole: Int64Array = (0..rows).map(|_| whole(&mut random)).collect();
            let part: Float64Array = (0..rows).map(|_| Some(random.unit() * 1e6 - 5e5)).collect();
            RecordBatch::try_from_iter_with_nullable([
                ("few", Arc::new(few) as ArrayRef, true),
                ("many", Arc::new(many) as ArrayRef, true),
                ("whole", Arc::new(whole) as ArrayRef, true),
                ("part", Arc::new(part) as ArrayRef, true),
            ])
            .unwrap()
        };
        let batches: Vec<RecordBatch> = (0..30).map(&mut batch).collect();
        let parts = vec![batches[..11].to_vec(), batches[11..].to_vec()];
        let table = MemTable::try_new(batches[0].schema(), parts).unwrap();
        let config = SessionConfig::new().with_target_partitions(2).with_batch_size(100);
        let context = SessionContext::new_with_config(config);
        context.register_table("t", Arc::new(table)).unwrap();
        if is_ours {
            context.register_udaf(function());
        }
        context
    }

    #[tokio::test]
    async fn medians_are_datafusions() {
        let (plain, ours) = (session(false), session(true));
        for query in [
            "SELECT few, median(whole), median(part) FROM t GROUP BY few ORDER BY few",
            "SELECT many, median(whole) FROM t GROUP BY many ORDER BY many",
            "SELECT median(whole), median(part), median(DISTINCT few) FROM t",
            "SELECT few, median(whole) FILTER (WHERE many < 100) FROM t GROUP BY few ORDER BY few",
            "SELECT median(part) FROM t WHERE few > 10",
            "SELECT median(arrow_cast(whole, 'Decimal128(20, 2)')), median(arrow_cast(many, 'Float32')) FROM t",
        ] {
            let mut answers = Vec::new();
            for context in [&plain, &ours] {
                let batches = context.sql(query).await.unwrap().collect().await.unwrap();
                answers.push(pretty_format_batches(&batches).unwrap().to_string());
            }
            assert_eq!(answers[0], answers[1], "{query}");
        }
    }
}
