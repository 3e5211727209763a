//! The scalar functions `interval_of`, `interval_intersect`, `interval_subtract` and `interval_coverage_ns`.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, ListArray},
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    common::{exec_datafusion_err, plan_err},
    error::Result,
    logical_expr::{
        ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};

use super::{algebra, list};
use crate::functions::document::{INTERVALS, document};

/// The operation of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Of,
    Intersect,
    Subtract,
    CoverageNs,
}

/// A function, as `kind` says.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Operation {
    kind: Kind,
    signature: Signature,
    documentation: Documentation,
}

const SET: (&str, &str) = ("set", "A set of time, as `interval_union` makes it, or any list of `{ts, dur}`.");

/// Returns all functions.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let function = |kind, description, syntax, example, arguments: &[(&str, &str)]| {
        let documentation = document(INTERVALS, description, syntax, example, arguments);
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Operation { kind, signature, documentation })
    };
    vec![
        function(
            Kind::Of,
            "The set of time of one span. `interval_of(0, 0)` is the empty set; without `ts`, it is null.",
            "interval_of(ts, dur)",
            "SELECT interval_of(5, 10) AS a, interval_of(5, NULL) AS b, interval_of(0, 0) AS c",
            &[
                ("ts", "Begin of the span, in nanoseconds."),
                ("dur", "Its length in nanoseconds; null: still open."),
            ],
        ),
        function(
            Kind::Intersect,
            "What is in both sets. With the span of a window it cuts a set, open spans too, to that window.",
            "interval_intersect(set, other)",
            "SELECT interval_intersect(interval_of(0, NULL), interval_of(5, 10)) AS a",
            &[SET, ("other", "Another.")],
        ),
        function(
            Kind::Subtract,
            "What is in the first set and not in the second.",
            "interval_subtract(set, other)",
            "SELECT interval_subtract(interval_of(0, 10), interval_of(2, 3)) AS a",
            &[SET, ("other", "What is taken out of it.")],
        ),
        function(
            Kind::CoverageNs,
            "Nanoseconds in a set, each counted once. Null if a span in it was still open: how long it lasts is not on record (`interval_intersect` with a window makes it known).",
            "interval_coverage_ns(set)",
            "SELECT interval_coverage_ns(interval_union(ts, dur)) AS a FROM (VALUES (0, 10), (5, 10)) AS spans (ts, dur)",
            &[SET],
        ),
    ]
}

fn of(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let (ts, dur) = (arrays[0].as_primitive::<Int64Type>(), arrays[1].as_primitive::<Int64Type>());
    let mut builder = list::Builder::default();
    for (ts, dur) in ts.iter().zip(dur) {
        let interval = list::interval(ts, dur)?;
        builder.append(ts.is_some().then_some(interval.as_slice()));
    }
    Ok(Arc::new(builder.finish()?))
}

fn sets(arrays: &[ArrayRef], index: usize) -> &ListArray {
    arrays[index].as_list::<i32>()
}

fn binary(
    arrays: &[ArrayRef],
    compute: fn(&[algebra::Interval], &[algebra::Interval]) -> Vec<algebra::Interval>,
) -> Result<ArrayRef> {
    let (left, right) = (sets(arrays, 0), sets(arrays, 1));
    let mut builder = list::Builder::default();
    for row in 0..left.len() {
        let both = list::read(left, row)?.zip(list::read(right, row)?);
        builder.append(both.map(|(a, b)| compute(&a, &b)).as_deref());
    }
    Ok(Arc::new(builder.finish()?))
}

fn coverage_ns(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let sets = sets(arrays, 0);
    let covered = |row| {
        let set = list::read(sets, row)?;
        let covered_ns = set.and_then(|set| algebra::coverage_ns(&set));
        let too_long = |_| exec_datafusion_err!("a set covers more nanoseconds than 64 bits count");
        covered_ns.map(i64::try_from).transpose().map_err(too_long)
    };
    Ok(Arc::new((0..sets.len()).map(covered).collect::<Result<Int64Array>>()?))
}

impl ScalarUDFImpl for Operation {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Of => "interval_of",
            Kind::Intersect => "interval_intersect",
            Kind::Subtract => "interval_subtract",
            Kind::CoverageNs => "interval_coverage_ns",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name();
        let takes_count = if self.kind == Kind::CoverageNs { 1 } else { 2 };
        if types.len() != takes_count {
            return plan_err!("{name} does not take {} arguments", types.len());
        }
        let (fits, takes): (fn(&DataType) -> bool, _) = match self.kind {
            Kind::Of => (|ty| ty.is_integer() || ty.is_null(), "whole nanoseconds"),
            _ => (list::is_set, "sets of time, as interval_union and interval_of make them"),
        };
        if let Some(other) = types.iter().find(|ty| !fits(ty)) {
            return plan_err!("{name} takes {takes}, not {other}");
        }
        let coerced = if self.kind == Kind::Of { DataType::Int64 } else { list::data_type() };
        Ok(vec![coerced; types.len()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.kind == Kind::CoverageNs { DataType::Int64 } else { list::data_type() })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        Ok(ColumnarValue::Array(match self.kind {
            Kind::Of => of(&arrays)?,
            Kind::Intersect => binary(&arrays, algebra::intersect)?,
            Kind::Subtract => binary(&arrays, algebra::subtract)?,
            Kind::CoverageNs => coverage_ns(&arrays)?,
        }))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
