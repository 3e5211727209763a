//! DataFusion's `count`, with four counters for each group while there are few groups.
//!
//! Neighbouring rows often belong to the same group, and a processor stalls when it adds to a counter that it
//! has just written. It does not stall if every fourth row has a counter of its own:
//!
//! ```text
//! rows       call   call   alloc  call  │ call   …
//! counter    first  second third  fourth│ first  …      call: first + second + fourth    alloc: third
//! ```

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, BooleanArray, Int64Array},
    datatypes::{DataType, FieldRef},
};
use datafusion::{
    error::Result,
    functions_aggregate::count::count_udaf,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
        SetMonotonicity, Signature, StatisticsArgs,
        function::{AccumulatorArgs, StateFieldsArgs},
    },
    scalar::ScalarValue,
};

/// The number of counters of a group.
const LANES: usize = 4;
/// The number of groups above which one counter each is used: neighbouring rows then rarely share a group,
/// and the counters would not stay in a cache.
const MAX_GROUPS: usize = 1 << 12;

/// The accumulator of a grouped `count`.
struct Counts {
    /// DataFusion's accumulator. It counts what is not as simple, and holds the sums in the end.
    inner: Box<dyn GroupsAccumulator>,
    lanes: Vec<[i64; LANES]>,
    groups_count: usize,
}

impl Counts {
    /// Moves all counts into `inner`.
    fn sum(&mut self) -> Result<()> {
        if self.lanes.is_empty() {
            return Ok(());
        }
        let sums: Int64Array = self.lanes.iter().map(|lanes| lanes.iter().sum::<i64>()).collect();
        let groups: Vec<usize> = (0..self.lanes.len()).collect();
        self.lanes.clear();
        self.inner.merge_batch(&[Arc::new(sums)], &groups, self.groups_count)
    }
}

impl GroupsAccumulator for Counts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_count: usize,
    ) -> Result<()> {
        self.groups_count = groups_count;
        let counts_all = filter.is_none() && values.iter().all(|values| values.logical_null_count() == 0);
        if !counts_all || groups_count > MAX_GROUPS {
            return self.inner.update_batch(values, groups, filter, groups_count);
        }
        self.lanes.resize(groups_count, [0; LANES]);
        let (fours, rest) = groups.as_chunks::<LANES>();
        for four in fours {
            for (lane, group) in four.iter().enumerate() {
                self.lanes[*group][lane] += 1;
            }
        }
        rest.iter().for_each(|group| self.lanes[*group][0] += 1);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.sum()?;
        self.inner.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.sum()?;
        self.inner.state(emit_to)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], groups_count: usize) -> Result<()> {
        self.groups_count = groups_count;
        self.inner.merge_batch(values, groups, groups_count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.inner.size() + self.lanes.capacity() * size_of::<[i64; LANES]>()
    }
}

/// The `count` function. Everything but the grouped accumulator is that of `inner`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Count {
    inner: Arc<AggregateUDF>,
}

/// Returns the function that replaces DataFusion's own `count`.
pub(super) fn function() -> AggregateUDF {
    AggregateUDF::from(Count { inner: count_udaf() })
}

impl AggregateUDFImpl for Count {
    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let is_distinct = args.is_distinct;
        let inner = self.inner.create_groups_accumulator(args)?;
        Ok(match is_distinct {
            true => inner,
            false => Box::new(Counts { inner, lanes: Vec::new(), groups_count: 0 }),
        })
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_udf()
    }

    fn default_value(&self, ty: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(ty)
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn set_monotonicity(&self, ty: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(ty)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

#[cfg(test)]
mod tests {
    use analyze_run::random::Random;
    use arrow::{array::RecordBatch, util::pretty::pretty_format_batches};
    use datafusion::{
        datasource::MemTable,
        prelude::{SessionConfig, SessionContext},
    };

    use super::*;

    /// Creates batches whose lengths are not multiples of four, some with nulls, with few groups and with
    /// many.
    fn session(is_ours: bool) -> SessionContext {
        let mut numbers = Random(3);
        let mut random = |below: usize| numbers.below(below) as i64;
        let mut batch = |number: i64| {
            let rows = 1 + random(3000);
            let few: Int64Array = (0..rows).map(|_| random(3) * random(3)).collect();
            let many: Int64Array = (0..rows).map(|_| random(9000)).collect();
            let value: Int64Array =
                (0..rows).map(|_| (number % 2 == 0 || random(3) > 0).then(|| random(5))).collect();
            let columns: [(&str, ArrayRef, bool); 3] = [
                ("few", Arc::new(few), true),
                ("many", Arc::new(many), true),
                ("value", Arc::new(value), true),
            ];
            RecordBatch::try_from_iter_with_nullable(columns).unwrap()
        };
        let batches: Vec<RecordBatch> = (0..20).map(&mut batch).collect();
        let config = SessionConfig::new().with_target_partitions(2).with_batch_size(100);
        let context = SessionContext::new_with_config(config);
        let parts = vec![batches[..7].to_vec(), batches[7..].to_vec()];
        let table = MemTable::try_new(batches[0].schema(), parts).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        if is_ours {
            context.register_udaf(function());
        }
        context
    }

    #[tokio::test]
    async fn counts_are_datafusions() {
        let (plain, ours) = (session(false), session(true));
        for query in [
            "SELECT few, count(*), count(value), count(1) FROM t GROUP BY few ORDER BY few",
            "SELECT many, count(*), count(value) FROM t GROUP BY many ORDER BY many",
            "SELECT few, count(value) FILTER (WHERE value > 2), count(*) FILTER (WHERE many < 50) FROM t GROUP BY few ORDER BY few",
            "SELECT few, count(DISTINCT value), count(DISTINCT many), count(*) FROM t GROUP BY few ORDER BY few",
            "SELECT count(*), count(value), count(DISTINCT many), count(null) FROM t",
            "SELECT few, many, count(few, value) AS n FROM t GROUP BY few, many ORDER BY n DESC, few, many LIMIT 50",
            "SELECT few, count(*) FROM (SELECT * FROM t ORDER BY few) GROUP BY few ORDER BY few",
            "SELECT few, count(*) FROM t WHERE value > 100 GROUP BY few",
            "SELECT few, value, count(*) FROM t GROUP BY ROLLUP (few, value) ORDER BY 1, 2, 3",
            "SELECT DISTINCT few, count(*) OVER (PARTITION BY few ORDER BY many ROWS 3 PRECEDING) AS n FROM t ORDER BY few, n",
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
