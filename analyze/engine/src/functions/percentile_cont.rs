//! DataFusion's `percentile_cont` of float64 values, in memory that does not grow with their number.
//!
//! ```text
//! whole, 0 ≤ value < 2^20   counted one by one (a duration up to 1.05 ms)                         exact
//! all others                kept up to KEPT of them in a group, then counted in 1024 buckets for
//!                           each power of two, of which the middle stands for the values           ± 0.05 %
//! ```
//! DataFusion keeps every value of every group. Everything else (other types, DISTINCT, windows that slide) is its own.
//! `median` has the same accumulators; the planner rule `shared_quantiles` asks one of them for several quantiles.

use std::{iter::repeat_n, mem::size_of, sync::Arc, sync::Once};

use analyze_run::{
    hash::HashMap,
    multiset::{COUNTED, Counted, Multiset, counted_of},
    progress,
};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Float64Array, Float64Builder, ListArray, ListBuilder,
        RecordBatch, StructArray, UInt64Builder,
    },
    datatypes::{DataType, Field, FieldRef, Fields, Float64Type, UInt64Type},
};
use datafusion::{
    error::Result,
    functions_aggregate::percentile_cont::percentile_cont_udaf,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Documentation, EmitTo, GroupsAccumulator,
        Signature,
        function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs},
    },
    scalar::ScalarValue,
};

/// The greatest number of values of a group that are kept because they cannot be counted one by one.
const KEPT: usize = 1 << 18;
/// The lowest bits of a float64 that its bucket leaves out: sign, exponent and ten bits of the fraction remain.
const FINE_BITS: u32 = 42;
/// Steps between two values in which DataFusion interpolates.
const STEPS: f64 = 1e6;

/// Returns the number of the bucket of a value.
fn bucket(value: f64) -> u32 {
    (value.to_bits() >> FINE_BITS) as u32
}

/// Returns the middle of a bucket.
fn middle(bucket: u32) -> f64 {
    let bits = u64::from(bucket) << FINE_BITS;
    let least = f64::from_bits(bits);
    if least.is_finite() { f64::from_bits(bits | 1 << (FINE_BITS - 1)) } else { least }
}

/// Says once that quantiles are not exact any more.
fn say_inexact() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        progress::say(&format!(
            "analyze: note: a group has more than {KEPT} values that are longer than 1.05 ms or not whole: its quantiles among \
             these are within 0.05 % (percentile_cont, median)"
        ));
    });
}

/// The values of one group.
#[derive(Debug, Default)]
struct Values {
    counted: Multiset,
    kept: Vec<f64>,
    /// The number of values by bucket; empty while all of them are kept.
    buckets: HashMap<u32, u64>,
}

impl Values {
    /// Adds a value that occurs some times.
    #[inline]
    fn add(&mut self, value: f64, times: u64) {
        if (0.0..COUNTED as f64).contains(&value) && value.fract() == 0.0 {
            for _ in 0..times {
                self.counted.add(value as i64);
            }
        } else {
            self.add_other(value, times);
        }
    }

    fn add_other(&mut self, value: f64, times: u64) {
        let room = KEPT.saturating_sub(self.kept.len()) as u64;
        if self.buckets.is_empty() && times <= room {
            self.kept.extend(repeat_n(value, times as usize));
            return;
        }
        for kept in std::mem::take(&mut self.kept) {
            *self.buckets.entry(bucket(kept)).or_default() += 1;
        }
        *self.buckets.entry(bucket(value)).or_default() += times;
    }

    /// Returns the values in ascending order, with their counts.
    fn sorted(&self) -> Counted {
        let mut all = counted_of(&[&self.counted]);
        all.extend(self.kept.iter().map(|value| (*value, 1)));
        all.extend(self.buckets.iter().map(|(bucket, count)| (middle(*bucket), *count)));
        all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        all
    }

    /// Returns the quantiles of some shares (0 to 1) exactly as DataFusion computes each of them from the same values;
    /// `None` if there are no values.
    fn quantiles(&self, shares: &[f64]) -> Vec<Option<f64>> {
        let sorted = self.sorted_for_quantiles();
        let quantile = |share: &f64| {
            let (low, high, weight) = neighbours(&sorted, *share)?;
            Some(if low == high { low } else { low + (high - low) * weight })
        };
        shares.iter().map(quantile).collect()
    }

    /// Returns the median exactly as DataFusion computes it from the same values: the mean of the two in the middle if their
    /// number is even. `None` if there are none.
    fn median(&self) -> Option<f64> {
        let (low, high, weight) = neighbours(&self.sorted_for_quantiles(), 0.5)?;
        Some(if weight == 0.0 { low } else { (low + high) / 2.0 })
    }

    /// Returns the values as [`Values::sorted`] does, and says if quantiles of them are not exact.
    fn sorted_for_quantiles(&self) -> Counted {
        if !self.buckets.is_empty() {
            say_inexact();
        }
        self.sorted()
    }

    fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + self.counted.size_bytes()
            + self.kept.capacity() * size_of::<f64>()
            + self.buckets.capacity() * size_of::<(u32, u64)>()
    }
}

/// Returns the two values between which a quantile lies, and how far from the first one, from 0 to 1.
fn neighbours(sorted: &[(f64, u64)], share: f64) -> Option<(f64, f64, f64)> {
    let last = sorted.iter().map(|(_, count)| count).sum::<u64>().checked_sub(1)?;
    let place = share * last as f64;
    let at = |place: u64| {
        let mut passed = 0;
        let found = sorted.iter().find(|(_, count)| {
            passed += count;
            passed > place
        });
        found.or(sorted.last()).map(|(value, _)| *value)
    };
    let (low, high) = (at(place.floor() as u64)?, at(place.ceil() as u64)?);
    Some((low, high, (place.fract() * STEPS).floor() / STEPS))
}

/// The columns of a state: the values of each group, and how often each of them occurs.
fn state_of(groups: &[Values]) -> [ArrayRef; 2] {
    let mut values = ListBuilder::new(Float64Builder::new());
    let mut counts = ListBuilder::new(UInt64Builder::new());
    for group in groups {
        for (value, count) in group.sorted() {
            values.values().append_value(value);
            counts.values().append_value(count);
        }
        values.append(true);
        counts.append(true);
    }
    [Arc::new(values.finish()), Arc::new(counts.finish())]
}

/// What is computed from the values of a group.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// The quantile of this share, from 0 to 1.
    Quantile(f64),
    /// The quantiles of these shares, as a struct.
    Quantiles(Vec<f64>),
    /// The median.
    Median,
}

/// Returns the fields of a struct of quantiles: one a share, in their order.
pub(super) fn quantile_fields(count: usize) -> Fields {
    (0..count).map(|place| Field::new(place.to_string(), DataType::Float64, true)).collect()
}

/// The accumulator of quantiles of the same values.
#[derive(Debug)]
struct Quantile {
    wanted: Wanted,
    groups: Vec<Values>,
}

impl Quantile {
    fn answer(&self, groups: &[Values]) -> Result<ArrayRef> {
        let shares = match &self.wanted {
            Wanted::Median => {
                return Ok(Arc::new(groups.iter().map(Values::median).collect::<Float64Array>()));
            }
            Wanted::Quantile(share) => std::slice::from_ref(share),
            Wanted::Quantiles(shares) => shares.as_slice(),
        };
        let mut columns = vec![Vec::new(); shares.len()];
        for group in groups {
            for (column, quantile) in columns.iter_mut().zip(group.quantiles(shares)) {
                column.push(quantile);
            }
        }
        let column = |quantiles: Vec<Option<f64>>| Arc::new(Float64Array::from(quantiles)) as ArrayRef;
        let mut columns: Vec<ArrayRef> = columns.into_iter().map(column).collect();
        match (&self.wanted, columns.pop()) {
            (Wanted::Quantile(_), Some(column)) => Ok(column),
            (_, last) => {
                columns.extend(last);
                let fields = quantile_fields(columns.len());
                Ok(Arc::new(StructArray::try_new_with_length(fields, columns, None, groups.len())?))
            }
        }
    }
}

/// Returns the accumulator of a query without groups.
pub(super) fn ungrouped(wanted: Wanted) -> Box<dyn Accumulator> {
    Box::new(Ungrouped(Quantile { wanted, groups: vec![Values::default()] }))
}

/// Returns the accumulator of a query with groups.
pub(super) fn grouped(wanted: Wanted) -> Box<dyn GroupsAccumulator> {
    Box::new(Quantile { wanted, groups: Vec::new() })
}

/// Returns the fields of what one step of a query hands to the next: the values of a group, and how often each of them occurs.
pub(super) fn state_fields_of(name: &str) -> Vec<FieldRef> {
    let list = |of: &str, ty: DataType| {
        let item = Field::new_list_field(ty, true);
        Arc::new(Field::new_list(format!("{name}[{of}]"), item, true))
    };
    vec![list("value", DataType::Float64), list("values_count", DataType::UInt64)]
}

impl GroupsAccumulator for Quantile {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_count: usize,
    ) -> Result<()> {
        self.groups.resize_with(groups_count, Values::default);
        let values = values[0].as_primitive::<Float64Type>();
        for (row, group) in groups.iter().enumerate() {
            let passes = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if passes && values.is_valid(row) {
                self.groups[*group].add(values.value(row), 1);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        self.answer(&groups)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(state_of(&emit_to.take_needed(&mut self.groups)).into())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], groups_count: usize) -> Result<()> {
        self.groups.resize_with(groups_count, Values::default);
        let (values, counts): (&ListArray, &ListArray) = (states[0].as_list(), states[1].as_list());
        for (row, group) in groups.iter().enumerate() {
            let (values, counts) = (values.value(row), counts.value(row));
            let values = values.as_primitive::<Float64Type>().values();
            let counts = counts.as_primitive::<UInt64Type>().values();
            for (value, count) in values.iter().zip(counts) {
                self.groups[*group].add(*value, *count);
            }
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows_count = values[0].len();
        let mut each = Self { wanted: self.wanted.clone(), groups: Vec::new() };
        let groups: Vec<usize> = (0..rows_count).collect();
        each.update_batch(values, &groups, filter, rows_count)?;
        Ok(state_of(&each.groups).into())
    }

    fn size(&self) -> usize {
        self.groups.iter().map(Values::size_bytes).sum()
    }
}

/// The accumulator of a query without groups.
#[derive(Debug)]
struct Ungrouped(Quantile);

impl Accumulator for Ungrouped {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; values[0].len()];
        self.0.update_batch(values, &groups, None, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.answer(&self.0.groups)?, 0)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        state_of(&self.0.groups).iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; states[0].len()];
        self.0.merge_batch(states, &groups, 1)
    }
}

/// Returns the quantile that is asked for, if it is one that is computed here.
fn share(args: &AccumulatorArgs) -> Result<Option<f64>> {
    let (Some(value), Some(share)) = (args.expr_fields.first(), args.exprs.get(1)) else { return Ok(None) };
    if args.is_distinct || value.data_type() != &DataType::Float64 {
        return Ok(None);
    }
    let nothing = RecordBatch::new_empty(Arc::new(args.schema.clone()));
    let share = match share.evaluate(&nothing)? {
        ColumnarValue::Scalar(ScalarValue::Float64(Some(share))) if (0.0..=1.0).contains(&share) => share,
        // DataFusion says what is wrong with it.
        _ => return Ok(None),
    };
    let is_descending = args.order_bys.first().is_some_and(|order| order.options.descending);
    Ok(Some(if is_descending { 1.0 - share } else { share }))
}

/// The function. Everything but the accumulators of float64 values is that of `inner`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct PercentileCont {
    inner: Arc<AggregateUDF>,
}

/// Returns the function that replaces DataFusion's own `percentile_cont`.
pub(crate) fn function() -> AggregateUDF {
    AggregateUDF::from(PercentileCont { inner: percentile_cont_udaf() })
}

impl AggregateUDFImpl for PercentileCont {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let is_float64 =
            args.input_fields.first().is_some_and(|field| field.data_type() == &DataType::Float64);
        if args.is_distinct || !is_float64 {
            return self.inner.state_fields(args);
        }
        Ok(state_fields_of(args.name))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match share(&args)? {
            Some(share) => Ok(ungrouped(Wanted::Quantile(share))),
            None => self.inner.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match share(&args)? {
            Some(share) => Ok(grouped(Wanted::Quantile(share))),
            None => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

#[cfg(test)]
mod tests {
    use analyze_run::random::Random;
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::{
        datasource::MemTable,
        prelude::{SessionConfig, SessionContext},
    };

    use super::*;

    /// Creates a table of short and long values, whole and not, with nulls, in small batches.
    fn session(is_ours: bool) -> SessionContext {
        let mut random = Random(11);
        let mut batch = |_| {
            let rows = 1 + random.below(900);
            let few: Float64Array = (0..rows).map(|_| Some(random.below(3) as f64)).collect();
            let many: Float64Array = (0..rows).map(|_| Some(random.below(4000) as f64)).collect();
            let value = |random: &mut Random| match random.below(6) {
                0 => None,
                1 => Some(random.below(1 << 40) as f64),
                2 => Some(random.unit() * 1e6 - 5e5),
                3 => Some(7.0),
                _ => Some(random.below(3_000_000) as f64),
            };
            let value: Float64Array = (0..rows).map(|_| value(&mut random)).collect();
            RecordBatch::try_from_iter_with_nullable([
                ("few", Arc::new(few) as ArrayRef, true),
                ("many", Arc::new(many) as ArrayRef, true),
                ("value", Arc::new(value) as ArrayRef, true),
            ])
            .unwrap()
        };
        let batches: Vec<RecordBatch> = (0..40).map(&mut batch).collect();
        let parts = vec![batches[..17].to_vec(), batches[17..].to_vec()];
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
    async fn quantiles_are_datafusions() {
        let (plain, ours) = (session(false), session(true));
        for query in [
            "SELECT few, percentile_cont(0.5) WITHIN GROUP (ORDER BY value), percentile_cont(0.999) WITHIN GROUP (ORDER BY value) FROM t GROUP BY few ORDER BY few",
            "SELECT many, percentile_cont(0.37) WITHIN GROUP (ORDER BY value) FROM t GROUP BY many ORDER BY many",
            "SELECT few, percentile_cont(0.9) WITHIN GROUP (ORDER BY value DESC) FROM t GROUP BY few ORDER BY few",
            "SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY value), quantile_cont(value, 0.75), percentile_cont(value, 1.0) FROM t",
            "SELECT few, percentile_cont(0.5) WITHIN GROUP (ORDER BY value) FILTER (WHERE many < 100) FROM t GROUP BY few ORDER BY few",
            "SELECT few, percentile_cont(0.5) WITHIN GROUP (ORDER BY value) FROM t WHERE value IS NULL GROUP BY few ORDER BY few",
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY value) FROM t WHERE few > 10",
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY arrow_cast(many, 'Float32')) FROM t",
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
    async fn what_is_no_quantile_is_refused() {
        let context = session(true);
        let query = "SELECT few, percentile_cont(1.5) WITHIN GROUP (ORDER BY value) FROM t GROUP BY few";
        let error = context.sql(query).await.unwrap().collect().await.unwrap_err();
        assert!(error.to_string().contains("between 0.0 and 1.0"), "{error}");
    }

    #[test]
    fn many_long_values_take_little_memory_and_err_as_little_as_is_said() {
        let mut random = Random(5);
        let mut values = Values::default();
        let mut all: Vec<f64> = Vec::new();
        for _ in 0..2 * KEPT {
            let value = (1_u64 << 20) as f64 + (random.below(1 << 36) >> random.below(16)) as f64;
            values.add(value, 1);
            all.push(value);
        }
        let bytes = values.size_bytes();
        assert!(bytes < 1 << 20, "{bytes} bytes for {} values", all.len());
        // What one step hands to the next has the same buckets.
        let mut merged = Quantile { wanted: Wanted::Quantile(0.99), groups: Vec::new() };
        merged.merge_batch(&state_of(&[values]), &[0], 1).unwrap();
        all.sort_unstable_by(f64::total_cmp);
        for share in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = all[(share * (all.len() - 1) as f64).round() as usize];
            let found = merged.groups[0].quantiles(&[share])[0].unwrap();
            // Of neighbours in rank, the exact quantile may be the other one.
            assert!((found / exact - 1.0).abs() < 0.0006, "{share}: {found}, not {exact}");
        }
    }

    /// A state is what is spilled, and what one step of a query hands to the next.
    #[test]
    fn quantiles_that_share_values_are_those_of_each_alone() {
        let mut random = Random(31);
        let shares = [0.0, 0.5, 0.37, 0.99, 1.0];
        // Groups of 0, 1, 2 and thousands of values, short and long, with nulls.
        let of_row = |row: u64| [1, 2, 2].get(row as usize).copied().unwrap_or(3);
        let groups: Vec<usize> = (0..6000).map(of_row).collect();
        let value = |random: &mut Random| match random.below(4) {
            0 => random.below(1 << 30) as f64,
            1 => random.unit() - 0.5,
            _ => random.below(1000) as f64,
        };
        let values: Float64Array = (0..6000).map(|row| (row % 7 != 5).then(|| value(&mut random))).collect();
        let values: ArrayRef = Arc::new(values);
        let answer = |wanted: Wanted| {
            let mut first = grouped(wanted.clone());
            first.update_batch(&[Arc::clone(&values)], &groups, None, 4).unwrap();
            let mut second = grouped(wanted);
            let parts = [(EmitTo::First(2), vec![0, 1]), (EmitTo::All, vec![2, 3])];
            for (emit_to, groups) in parts {
                second.merge_batch(&first.state(emit_to).unwrap(), &groups, 4).unwrap();
            }
            second.evaluate(EmitTo::All).unwrap()
        };
        let shared = answer(Wanted::Quantiles(shares.to_vec()));
        let bits = |column: &ArrayRef| -> Vec<Option<u64>> {
            column.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect()
        };
        for (share, column) in shares.into_iter().zip(shared.as_struct().columns()) {
            let alone = bits(&answer(Wanted::Quantile(share)));
            assert_eq!(bits(column), alone, "{share}");
            assert_eq!(alone.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true, true]);
        }
    }

    #[test]
    fn a_bucket_stands_for_its_values() {
        for value in [1.0, 1.0499e6, 3.3e9, -7.7e12, 1e-3, f64::MAX, f64::INFINITY, f64::NEG_INFINITY] {
            let found = middle(bucket(value));
            assert!(found == value || (found / value - 1.0).abs() <= 0.0005, "{value}: {found}");
            assert_eq!(bucket(found), bucket(value));
        }
        assert!(middle(bucket(f64::NAN)).is_nan());
    }
}
