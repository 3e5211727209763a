//! `interval_union`: returns the set of time that a group's spans cover.

use std::{mem::size_of, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    common::exec_err,
    error::Result,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Signature, Volatility,
        function::AccumulatorArgs, utils::AggregateOrderSensitivity,
    },
    scalar::ScalarValue,
};

use super::{
    algebra::{self, Interval},
    list,
};
use crate::functions::document::{INTERVALS, document};

/// The number of spans that are collected before they are merged for the first time.
const SPANS: usize = 1024;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Union {
    signature: Signature,
    documentation: Documentation,
}

fn documentation() -> Documentation {
    document(
        INTERVALS,
        "An aggregate: the set of time that spans cover, as a list of `{ts, dur}`, sorted, that neither overlap nor touch. A span without `ts` and one of length 0 cover nothing; a null `dur` is a span that was still open, and the set then ends with one. No spans: an empty list. A negative length is an error.",
        "interval_union(ts, dur)",
        "SELECT interval_union(ts, dur) AS a FROM (VALUES (0, 10), (5, 10), (15, 1), (30, NULL)) AS spans (ts, dur)",
        &[
            ("ts", "Begin of a span, in nanoseconds."),
            ("dur", "Its length in nanoseconds; null: still open."),
        ],
    )
}

pub(super) fn function() -> AggregateUDF {
    let signature = Signature::exact(vec![DataType::Int64; 2], Volatility::Immutable);
    AggregateUDF::from(Union { signature, documentation: documentation() })
}

impl AggregateUDFImpl for Union {
    fn name(&self) -> &str {
        "interval_union"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(list::data_type())
    }

    // A repeated span does not change the set, so DISTINCT needs no special treatment.
    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::<Spans>::default())
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn default_value(&self, _: &DataType) -> Result<ScalarValue> {
        Spans::default().evaluate()
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// The accumulator: a set under construction.
#[derive(Debug, Default)]
struct Spans {
    /// The intervals: the first `merged_count` form a set, and the others are unsorted.
    intervals: Vec<Interval>,
    merged_count: usize,
}

impl Spans {
    fn merge(&mut self) {
        algebra::merge(&mut self.intervals);
        self.merged_count = self.intervals.len();
    }

    /// Merges the intervals if their number has doubled, so that overlapping spans take no more than twice
    /// the memory of their set.
    fn merge_if_many(&mut self) {
        if self.intervals.len() >= SPANS.max(2 * self.merged_count) {
            self.merge();
        }
    }
}

impl Accumulator for Spans {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [ts, dur] = values else { return exec_err!("interval_union takes ts and dur") };
        list::extend(&mut self.intervals, ts.as_primitive::<Int64Type>(), dur.as_primitive::<Int64Type>())?;
        self.merge_if_many();
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.merge();
        let mut builder = list::Builder::default();
        builder.append(Some(&self.intervals));
        Ok(ScalarValue::List(Arc::new(builder.finish()?)))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.intervals.capacity() * size_of::<Interval>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [sets] = states else { return exec_err!("interval_union has one state") };
        let sets = sets.as_list::<i32>();
        for row in 0..sets.len() {
            self.intervals.extend(list::read(sets, row)?.unwrap_or_default());
            self.merge_if_many();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    /// A million overlapping spans are never all in memory, and merging partial states gives the same set as
    /// one accumulator.
    #[test]
    fn overlapping_spans_take_little_memory() {
        let mut whole = Spans::default();
        let mut parts = Spans::default();
        for start in (0..1_000_000).step_by(1_000) {
            let ts: ArrayRef = Arc::new(Int64Array::from_iter_values((start..start + 1_000).rev()));
            let dur: ArrayRef = Arc::new(Int64Array::from(vec![2; 1_000]));
            whole.update_batch(&[Arc::clone(&ts), Arc::clone(&dur)]).expect("spans");
            assert!(whole.size() < 200_000, "{} bytes", whole.size());
            let mut part = Spans::default();
            part.update_batch(&[ts, dur]).expect("spans");
            let state = part.state().expect("a state");
            parts.merge_batch(&[state[0].to_array().expect("an array")]).expect("merged");
        }
        let all = [Interval { ts: 0, end: 1_000_001 }];
        assert_eq!(whole.evaluate().expect("a set"), parts.evaluate().expect("a set"));
        assert_eq!(whole.intervals, all);
    }
}
