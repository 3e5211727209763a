//! `histogram`: counts the values of a group in buckets, in one pass.
//!
//! ```text
//! powers of two   <0 │ [0,1) │ [1,2) │ [2,4) │ [4,8) │ …        a width w   … │ [−w,0) │ [0,w) │ [w,2w) │ …
//! ```
//! A bucket includes its lower bound and excludes its upper bound. Empty buckets are left out.

use std::{collections::BTreeMap, mem::size_of, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray, RecordBatch, StructArray,
        new_empty_array,
    },
    buffer::OffsetBuffer,
    datatypes::{DataType, Field, FieldRef, Fields, Float64Type, Int64Type},
};
use datafusion::{
    common::{exec_err, plan_err},
    error::Result,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Documentation, Signature, Volatility,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::AggregateOrderSensitivity,
    },
    scalar::ScalarValue,
};

use super::document::{DISTRIBUTIONS, document};

/// The bucket of values below zero, on the scale of powers of two.
const BELOW: i64 = i64::MIN;
/// The bucket of NaN and of the infinities.
const NOT_FINITE: i64 = i64::MAX;
/// Up to this magnitude (2^53), a float64 represents every integer exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn documentation() -> Documentation {
    document(
        DISTRIBUTIONS,
        "An aggregate: how many values lie in each bucket, as a list of `{low, high, values_count}` in the order of `low`, without empty buckets. A bucket is `low <= value < high`. Without a width, buckets are powers of two: [0, 1), [1, 2), [2, 4), …, and one of all that is below zero, whose `low` is null. With a width they are [k · width, (k + 1) · width) for whole k. A bound that the type of the values cannot hold is null; both are of NaN and infinities. Null values are not counted.",
        "histogram(value[, width])",
        "SELECT b['low'] AS low, b['high'] AS high, b['values_count'] AS n FROM (SELECT unnest(histogram(v)) AS b FROM (VALUES (0), (5), (7), (-3), (120)) AS measured (v)) ORDER BY high",
        &[
            ("value", "Whole numbers (int64) or others (float64)."),
            ("width", "Width of every bucket: a positive constant; powers of two unless given."),
        ],
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Histogram {
    signature: Signature,
    documentation: Documentation,
}

pub(super) fn function() -> AggregateUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    AggregateUDF::from(Histogram { signature, documentation: documentation() })
}

fn bucket(number: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("low", number.clone(), true),
        Field::new("high", number.clone(), true),
        Field::new("values_count", DataType::Int64, true),
    ])
}

fn item(number: &DataType) -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Struct(bucket(number)), true))
}

impl AggregateUDFImpl for Histogram {
    fn name(&self) -> &str {
        "histogram"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |ty: &DataType| ty.is_numeric() || ty.is_null();
        if !matches!(types.len(), 1 | 2) || !types.iter().all(is_number) {
            return plan_err!("histogram takes a number, and perhaps the width of its buckets");
        }
        let is_whole = |ty: &DataType| ty.is_integer() || ty.is_null();
        let number = if types.iter().all(is_whole) { DataType::Int64 } else { DataType::Float64 };
        Ok(vec![number; types.len()])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item(&types[0])))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |of: &str| {
            Arc::new(Field::new_list(
                format!("{}[{of}]", args.name),
                Field::new_list_field(DataType::Int64, true),
                true,
            ))
        };
        Ok(vec![list("bucket"), list("values_count")])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return exec_err!("histogram counts every value: DISTINCT goes into a subquery");
        }
        let nothing = RecordBatch::new_empty(Arc::new(args.schema.clone()));
        let width = match args.exprs.get(1).map(|width| width.evaluate(&nothing)).transpose()? {
            None => None,
            Some(ColumnarValue::Scalar(width)) => Some(width),
            Some(ColumnarValue::Array(_)) => return exec_err!("histogram: the width must be a constant"),
        };
        let scale = match width {
            None => Scale::PowersOfTwo,
            Some(ScalarValue::Int64(Some(width))) if width > 0 => Scale::Whole(width),
            Some(ScalarValue::Float64(Some(width))) if width > 0.0 && width.is_finite() => Scale::Real(width),
            Some(width) => return exec_err!("histogram: the width is {width}; it must be positive"),
        };
        let is_whole = args.expr_fields.first().is_some_and(|field| field.data_type() == &DataType::Int64);
        Ok(Box::new(Counts { scale, is_whole, counts: BTreeMap::new() }))
    }

    fn default_value(&self, ty: &DataType) -> Result<ScalarValue> {
        let DataType::List(item) = ty else { return ScalarValue::try_from(ty) };
        let (none, offsets) = (new_empty_array(item.data_type()), OffsetBuffer::from_lengths([0]));
        Ok(ScalarValue::List(Arc::new(ListArray::try_new(Arc::clone(item), offsets, none, None)?)))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// The scale that determines where buckets begin and end.
#[derive(Clone, Copy, Debug)]
enum Scale {
    PowersOfTwo,
    Whole(i64),
    Real(f64),
}

impl Scale {
    /// Returns the number of the bucket of an integer. On the scale of powers of two, bucket 0 is [0, 1),
    /// bucket 1 is [1, 2), and bucket 2 is [2, 4).
    fn of_whole(self, value: i64) -> i64 {
        match self {
            Self::Whole(width) => value.div_euclid(width),
            _ if value < 0 => BELOW,
            _ => i64::from(i64::BITS - value.leading_zeros()),
        }
    }

    fn of_real(self, value: f64) -> Result<i64> {
        let Self::Real(width) = self else {
            return Ok(match value {
                value if !value.is_finite() => NOT_FINITE,
                value if value < 0.0 => BELOW,
                value if value < 1.0 => 0,
                // The exponent is read as IEEE 754 stores it: that is exact, and a logarithm is not.
                value => (value.to_bits() >> 52) as i64 - 1022,
            });
        };
        if !value.is_finite() {
            return Ok(NOT_FINITE);
        }
        let number = (value / width).floor();
        if number.abs() >= EXACT {
            return exec_err!("histogram: buckets of {width} are too narrow for {value}");
        }
        // Division and product round differently at bounds. The product decides, because it is what is shown.
        let number = number as i64;
        let low = |number: i64| number as f64 * width;
        Ok(number - i64::from(value < low(number)) + i64::from(value >= low(number + 1)))
    }

    /// Returns the bounds of a bucket of integers, each `None` if an `i64` cannot hold it.
    fn whole(self, number: i64) -> (Option<i64>, Option<i64>) {
        let bound = |number: i128| match self {
            Self::Whole(width) => i64::try_from(number * i128::from(width)).ok(),
            _ if number == 0 => Some(0),
            _ => u32::try_from(number - 1)
                .ok()
                .and_then(|power| 1_i64.checked_shl(power))
                .filter(|bound| *bound > 0),
        };
        match (self, number) {
            (Self::PowersOfTwo, BELOW) => (None, Some(0)),
            _ => (bound(number.into()), bound(i128::from(number) + 1)),
        }
    }

    fn real(self, number: i64) -> (Option<f64>, Option<f64>) {
        let bound = |number: i64| match self {
            Self::Real(width) => number as f64 * width,
            _ if number == 0 => 0.0,
            _ => 2_f64.powi((number - 1) as i32),
        };
        match number {
            NOT_FINITE => (None, None),
            BELOW => (None, Some(0.0)),
            _ => (Some(bound(number)), Some(bound(number + 1)).filter(|bound| bound.is_finite())),
        }
    }
}

/// The accumulator: the number of values by the number of their bucket.
#[derive(Debug)]
struct Counts {
    scale: Scale,
    is_whole: bool,
    counts: BTreeMap<i64, i64>,
}

fn numbers(numbers: impl Iterator<Item = i64>) -> ScalarValue {
    let values: Vec<ScalarValue> = numbers.map(ScalarValue::from).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Int64))
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.is_whole {
            for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
                *self.counts.entry(self.scale.of_whole(value)).or_default() += 1;
            }
        } else {
            for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
                *self.counts.entry(self.scale.of_real(value)?).or_default() += 1;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (low, high): (ArrayRef, ArrayRef) = if self.is_whole {
            let (low, high): (Vec<_>, Vec<_>) =
                self.counts.keys().map(|number| self.scale.whole(*number)).unzip();
            (Arc::new(Int64Array::from(low)), Arc::new(Int64Array::from(high)))
        } else {
            let (low, high): (Vec<_>, Vec<_>) =
                self.counts.keys().map(|number| self.scale.real(*number)).unzip();
            (Arc::new(Float64Array::from(low)), Arc::new(Float64Array::from(high)))
        };
        let counts = Arc::new(Int64Array::from_iter_values(self.counts.values().copied()));
        let (number, length) = (low.data_type().clone(), low.len());
        let buckets = StructArray::try_new(bucket(&number), vec![low, high, counts], None)?;
        let offsets = OffsetBuffer::from_lengths([length]);
        Ok(ScalarValue::List(Arc::new(ListArray::try_new(item(&number), offsets, Arc::new(buckets), None)?)))
    }

    fn size(&self) -> usize {
        // A node of the tree is half full at worst.
        size_of::<Self>() + self.counts.len() * 4 * size_of::<i64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![numbers(self.counts.keys().copied()), numbers(self.counts.values().copied())])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (buckets, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for (buckets, counts) in buckets.iter().flatten().zip(counts.iter().flatten()) {
            let counts = counts.as_primitive::<Int64Type>().values();
            for (number, count) in buckets.as_primitive::<Int64Type>().values().iter().zip(counts) {
                *self.counts.entry(*number).or_default() += count;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analyze_run::random::Random;

    fn lies_in<T: PartialOrd>(value: T, (low, high): (Option<T>, Option<T>)) -> bool {
        low.is_none_or(|low| low <= value) && high.is_none_or(|high| value < high)
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut random = Random(7);
        let edges = [i64::MIN, i64::MIN + 1, -1, 0, 1, 2, 3, 4, 1 << 53, 1 << 62, i64::MAX - 1, i64::MAX];
        let others = (0..10_000).map(|_| (random.below(usize::MAX) as i64) >> random.below(63));
        for value in edges.into_iter().chain(others.collect::<Vec<_>>()) {
            for scale in [Scale::PowersOfTwo, Scale::Whole(1), Scale::Whole(1000), Scale::Whole(i64::MAX)] {
                let bounds = scale.whole(scale.of_whole(value));
                assert!(lies_in(value, bounds), "{value} in {bounds:?} of {scale:?}");
            }
            let real = value as f64 / 1024.0;
            for scale in [Scale::PowersOfTwo, Scale::Real(0.1), Scale::Real(3.0), Scale::Real(1e300)] {
                let Ok(number) = scale.of_real(real) else {
                    assert!(matches!(scale, Scale::Real(width) if (real / width).abs() >= EXACT));
                    continue;
                };
                let bounds = scale.real(number);
                assert!(lies_in(real, bounds), "{real} in {bounds:?} of {scale:?}");
            }
        }
        for tenths in 0..1_000 {
            let (value, scale) = (f64::from(tenths) * 0.1, Scale::Real(0.1));
            assert!(lies_in(value, scale.real(scale.of_real(value).expect("a bucket"))), "{value}");
        }
    }

    #[test]
    fn bounds_of_buckets() {
        let whole = |value| Scale::PowersOfTwo.whole(Scale::PowersOfTwo.of_whole(value));
        assert_eq!(
            [whole(0), whole(1), whole(3)],
            [(Some(0), Some(1)), (Some(1), Some(2)), (Some(2), Some(4))]
        );
        assert_eq!([whole(-1), whole(i64::MAX)], [(None, Some(0)), (Some(1 << 62), None)]);
        let real = |value| Scale::PowersOfTwo.of_real(value).map(|number| Scale::PowersOfTwo.real(number));
        assert_eq!(real(0.5).expect("a bucket"), (Some(0.0), Some(1.0)));
        assert_eq!(real(f64::MAX).expect("a bucket"), (Some(2_f64.powi(1023)), None));
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(real(value).expect("a bucket"), (None, None));
        }
    }
}
