//! `time_bucket`: returns the start of the time bucket that a time lies in.
//!
//! ```text
//!      −width     origin     +width
//! ─────┼───────────┼───────────┼─────►   half-open: a bucket's begin is in it, its end in the next
//! ```

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, Int64Array},
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    common::{exec_datafusion_err, exec_err},
    error::Result,
    logical_expr::{
        ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
        Volatility,
        sort_properties::{ExprProperties, SortProperties},
    },
};

use super::document::{VALUES, document};

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeBucket {
    signature: Signature,
    documentation: Documentation,
}

fn documentation() -> Documentation {
    document(
        VALUES,
        "The begin of the bucket that a time lies in: the last of origin, origin ± width, origin ± 2 width, … that is not after it, also for times before the origin. A width that is not positive is an error.",
        "time_bucket(width_ns, ts[, origin])",
        "SELECT time_bucket(1000, 2999) AS a, time_bucket(1000, -1) AS b, time_bucket(1000, 2999, 500) AS c",
        &[
            ("width_ns", "Length of a bucket, in nanoseconds."),
            ("ts", "The time."),
            ("origin", "Where a bucket begins; 0 unless given."),
        ],
    )
}

pub(super) fn function() -> ScalarUDF {
    let takes = |count| TypeSignature::Exact(vec![DataType::Int64; count]);
    let signature = Signature::one_of(vec![takes(2), takes(3)], Volatility::Immutable);
    ScalarUDF::from(TimeBucket { signature, documentation: documentation() })
}

fn bucket(width_ns: i64, ts: i64, origin: i64) -> Result<i64> {
    if width_ns <= 0 {
        return exec_err!("time_bucket: the width is {width_ns} ns; it must be positive");
    }
    // The difference of two times may not fit into 64 bits, and neither may the start of the very first
    // bucket.
    let (width_ns, ts, origin) = (i128::from(width_ns), i128::from(ts), i128::from(origin));
    let begin = origin + (ts - origin).div_euclid(width_ns) * width_ns;
    i64::try_from(begin)
        .map_err(|_| exec_datafusion_err!("time_bucket: the bucket of {ts} begins before any time there is"))
}

impl ScalarUDFImpl for TimeBucket {
    fn name(&self) -> &str {
        "time_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let arrays: Vec<&Int64Array> = arrays.iter().map(|array| array.as_primitive::<Int64Type>()).collect();
        let at = |array: &Int64Array, row: usize| array.is_valid(row).then(|| array.value(row));
        let begin = |row: usize| {
            let origin = arrays.get(2).map_or(Some(0), |array| at(array, row));
            match (at(arrays[0], row), at(arrays[1], row), origin) {
                (Some(width_ns), Some(ts), Some(origin)) => bucket(width_ns, ts, origin).map(Some),
                _ => Ok(None),
            }
        };
        let begins = (0..arrays[1].len()).map(begin).collect::<Result<Int64Array>>()?;
        Ok(ColumnarValue::Array(Arc::new(begins)))
    }

    /// The buckets have the order of the times, so that rows in the order of time are grouped as they stream.
    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        let is_constant = |input: &ExprProperties| input.sort_properties == SortProperties::Singleton;
        let others = inputs.iter().enumerate().filter(|(index, _)| *index != 1);
        let of_ts = inputs.get(1).map_or(SortProperties::Unordered, |input| input.sort_properties);
        let all_constant = others.map(|(_, input)| input).all(is_constant);
        Ok(if all_constant { of_ts } else { SortProperties::Unordered })
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
