//! DataFusion's `sum` of whole numbers, with an error where it wraps around: a sum of nanoseconds or bytes beyond 2^63 would be a
//! small or a negative number. DISTINCT, windows that slide and other types are DataFusion's own.
//!
//! Every partial sum must fit, too: a sum of positive and negative numbers may be refused although the whole would fit.
//! `sum(x + 1)` is not rewritten to `sum(x) + count(x)`, whose addition would wrap around.

use std::{fmt, mem::size_of_val, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray},
    datatypes::{DataType, FieldRef, Int64Type, UInt64Type},
};
use datafusion::{
    common::exec_datafusion_err,
    error::{DataFusionError, Result},
    functions_aggregate::sum::sum_udaf,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
        SetMonotonicity, Signature, StatisticsArgs,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::AggregateOrderSensitivity,
    },
    scalar::ScalarValue,
};

/// Returns the error of a sum that does not fit its type.
fn overflow<T: ArrowPrimitiveType>() -> DataFusionError {
    exec_datafusion_err!(
        "a sum is beyond the range of {}: cast the summed values, as in sum(CAST(dur AS DOUBLE))",
        T::DATA_TYPE
    )
}

/// Adds a value to a sum, which is `None` before the first value.
fn add<T: ArrowPrimitiveType>(sum: &mut Option<T::Native>, value: T::Native) -> Result<()> {
    *sum = Some(match *sum {
        Some(sum) => sum.add_checked(value).map_err(|_| overflow::<T>())?,
        None => value,
    });
    Ok(())
}

/// The accumulator of a query with groups: the sum of each group, `None` if it has no value.
struct Sums<T: ArrowPrimitiveType>(Vec<Option<T::Native>>);

impl<T: ArrowPrimitiveType> Sums<T> {
    fn take(&mut self, emit_to: EmitTo) -> ArrayRef {
        Arc::new(emit_to.take_needed(&mut self.0).into_iter().collect::<PrimitiveArray<T>>())
    }
}

impl<T: ArrowPrimitiveType> GroupsAccumulator for Sums<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_count: usize,
    ) -> Result<()> {
        self.0.resize(groups_count, None);
        let values = values[0].as_primitive::<T>();
        if filter.is_none() && values.null_count() == 0 {
            for (group, value) in groups.iter().zip(values.values()) {
                add::<T>(&mut self.0[*group], *value)?;
            }
            return Ok(());
        }
        for (row, group) in groups.iter().enumerate() {
            let passes = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if passes && values.is_valid(row) {
                add::<T>(&mut self.0[*group], values.value(row))?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.take(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], groups_count: usize) -> Result<()> {
        self.update_batch(states, groups, None, groups_count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows_count = values[0].len();
        let mut each = Self(Vec::new());
        let groups: Vec<usize> = (0..rows_count).collect();
        each.update_batch(values, &groups, filter, rows_count)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.0.capacity() * size_of::<Option<T::Native>>()
    }
}

/// The accumulator of a query without groups.
struct Sum<T: ArrowPrimitiveType>(Option<T::Native>);

impl<T: ArrowPrimitiveType> fmt::Debug for Sum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sum").field(&self.0).finish()
    }
}

impl<T: ArrowPrimitiveType> Accumulator for Sum<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        match values.null_count() {
            0 => values.values().iter().try_for_each(|value| add::<T>(&mut self.0, *value)),
            _ => values.iter().flatten().try_for_each(|value| add::<T>(&mut self.0, value)),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::new_primitive::<T>(self.0, &T::DATA_TYPE)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The function. Everything but the accumulators of whole numbers is that of `inner`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    inner: Arc<AggregateUDF>,
}

/// Returns the function that replaces DataFusion's own `sum`.
pub(super) fn function() -> AggregateUDF {
    AggregateUDF::from(CheckedSum { inner: sum_udaf() })
}

impl AggregateUDFImpl for CheckedSum {
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
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::Int64 if !args.is_distinct => Ok(Box::new(Sum::<Int64Type>(None))),
            DataType::UInt64 if !args.is_distinct => Ok(Box::new(Sum::<UInt64Type>(None))),
            _ => self.inner.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            DataType::Int64 => Ok(Box::new(Sums::<Int64Type>(Vec::new()))),
            DataType::UInt64 => Ok(Box::new(Sums::<UInt64Type>(Vec::new()))),
            _ => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_udf()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn set_monotonicity(&self, ty: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(ty)
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

#[cfg(test)]
mod tests {
    use analyze_run::random::Random;
    use arrow::{
        array::{Float64Array, Int64Array, RecordBatch, UInt64Array},
        util::pretty::pretty_format_batches,
    };
    use datafusion::{
        datasource::MemTable,
        prelude::{SessionConfig, SessionContext},
    };

    use super::*;

    /// Creates a table of numbers with nulls in small batches; `large` holds two values near 2^62 and one beyond.
    fn session(is_ours: bool) -> SessionContext {
        let mut random = Random(23);
        let mut batch = |number: u64| {
            let rows = 1 + random.below(500);
            let few: Int64Array = (0..rows).map(|_| Some(random.below(3) as i64)).collect();
            let many: Int64Array = (0..rows).map(|_| Some(random.below(3000) as i64)).collect();
            let value = |random: &mut Random| (random.below(5) > 0).then(|| random.below(1 << 40) as i64);
            let value: Int64Array = (0..rows).map(|_| value(&mut random)).collect();
            let part: Float64Array = (0..rows).map(|_| Some(random.below(1 << 20) as f64)).collect();
            let of_row = |row: usize| (row == 0 && number < 3).then_some(1_i64 << 62);
            let large: Int64Array = (0..rows).map(of_row).collect();
            let unsigned: UInt64Array =
                (0..rows).map(|row| of_row(row).map(|value| value as u64 * 2)).collect();
            RecordBatch::try_from_iter_with_nullable([
                ("few", Arc::new(few) as ArrayRef, true),
                ("many", Arc::new(many) as ArrayRef, true),
                ("value", Arc::new(value) as ArrayRef, true),
                ("part", Arc::new(part) as ArrayRef, true),
                ("large", Arc::new(large) as ArrayRef, true),
                ("unsigned", Arc::new(unsigned) as ArrayRef, true),
            ])
            .unwrap()
        };
        let batches: Vec<RecordBatch> = (0..20).map(&mut batch).collect();
        let parts = vec![batches[..7].to_vec(), batches[7..].to_vec()];
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
    async fn sums_that_fit_are_datafusions() {
        let (plain, ours) = (session(false), session(true));
        for query in [
            "SELECT few, sum(value), sum(part), sum(DISTINCT many) FROM t GROUP BY few ORDER BY few",
            "SELECT many, sum(value) FROM t GROUP BY many ORDER BY many",
            "SELECT sum(value), sum(value + 1), sum(part), sum(DISTINCT few), sum(arrow_cast(few, 'UInt32')) FROM t",
            "SELECT few, sum(value) FILTER (WHERE many < 100) FROM t GROUP BY few ORDER BY few",
            "SELECT sum(value), sum(CAST(large AS DOUBLE)) FROM t WHERE few > 10",
            "SELECT sum(n) FROM (SELECT sum(value) OVER (PARTITION BY few ORDER BY many, value ROWS 3 PRECEDING) AS n FROM t)",
            "SELECT max(n) FROM (SELECT sum(value) OVER (PARTITION BY few ORDER BY many, value) AS n FROM t)",
        ] {
            let mut answers = Vec::new();
            for context in [&plain, &ours] {
                let batches = context.sql(query).await.unwrap().collect().await.unwrap();
                answers.push(pretty_format_batches(&batches).unwrap().to_string());
            }
            assert_eq!(answers[0], answers[1], "{query}");
        }
    }

    #[tokio::test]
    async fn a_sum_that_does_not_fit_is_an_error() {
        let context = session(true);
        for query in [
            "SELECT sum(large) FROM t",
            "SELECT few IS NULL, sum(large) FROM t GROUP BY few IS NULL",
            "SELECT sum(unsigned) FROM t",
            "SELECT sum(large) OVER () FROM t",
        ] {
            let found = context.sql(query).await.unwrap().collect().await;
            let error = found.expect_err(query).to_string();
            assert!(error.contains("a sum is beyond the range of"), "{query}: {error}");
        }
    }
}
