//! `fmt_ns` and `fmt_bytes`: format times and sizes as the tables of `analyze` show them.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, StringArray},
    datatypes::{DataType, Float64Type, Int64Type},
};
use datafusion::{
    common::plan_err,
    error::Result,
    logical_expr::{
        ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};
use trace_schema::{Bytes, Nanos};

use super::document::{VALUES, document};

/// The unit of the formatted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unit {
    Ns,
    Bytes,
}

impl Unit {
    fn show(self, value: i64) -> String {
        match self {
            Self::Ns => Nanos(value).to_string(),
            Self::Bytes => Bytes(value).to_string(),
        }
    }
}

/// Either of the two functions, as `unit` says.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fmt {
    unit: Unit,
    signature: Signature,
    documentation: Documentation,
}

/// Returns both functions.
pub(super) fn functions() -> [ScalarUDF; 2] {
    let function = |unit, documentation| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Fmt { unit, signature, documentation })
    };
    let ns = document(
        VALUES,
        "A time with three digits and a unit. A fraction is rounded to whole nanoseconds; NaN and infinities give null.",
        "fmt_ns(ns)",
        "SELECT fmt_ns(12345) AS a, fmt_ns(3.5e9) AS b",
        &[("ns", "Nanoseconds, int64 or float64.")],
    );
    let bytes = document(
        VALUES,
        "A size with three digits and a binary unit (1 KiB is 1024 B). A fraction is rounded to whole bytes; NaN and infinities give null.",
        "fmt_bytes(bytes)",
        "SELECT fmt_bytes(8519680) AS a, fmt_bytes(1023) AS b",
        &[("bytes", "Bytes, int64 or float64.")],
    );
    [function(Unit::Ns, ns), function(Unit::Bytes, bytes)]
}

impl ScalarUDFImpl for Fmt {
    fn name(&self) -> &str {
        match self.unit {
            Unit::Ns => "fmt_ns",
            Unit::Bytes => "fmt_bytes",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [ty] if ty.is_integer() || ty.is_null() => Ok(vec![DataType::Int64]),
            [ty] if ty.is_numeric() => Ok(vec![DataType::Float64]),
            _ => plan_err!("{} takes one number", self.name()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = ColumnarValue::values_to_arrays(&args.args)?.remove(0);
        let shown: StringArray = match values.data_type() {
            DataType::Float64 => {
                let values = values.as_primitive::<Float64Type>().iter();
                let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
                values.map(|value| finite(value).map(|value| self.unit.show(value.round() as i64))).collect()
            }
            _ => values
                .as_primitive::<Int64Type>()
                .iter()
                .map(|value| value.map(|value| self.unit.show(value)))
                .collect(),
        };
        Ok(ColumnarValue::Array(Arc::new(shown)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
