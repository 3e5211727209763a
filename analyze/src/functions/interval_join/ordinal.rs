//! A column of times or numbers as `i64` ordinals of the same order, so that one sweep serves all types.
//!
//! SQL compares floating-point numbers by their total order here (a negative zero before zero, NaN last); the
//! ordinals do too. Types whose values do not fit are not taken.

use arrow::{
    array::{Array, AsArray},
    buffer::ScalarBuffer,
    compute::cast,
    datatypes::{DataType, Float32Type, Float64Type, Int64Type, UInt64Type},
};
use datafusion::error::Result;

/// Whether a type has ordinals.
pub(super) fn has_ordinals(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(
            data_type,
            Float32 | Float64 | Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_)
        )
}

/// The ordinals of a column; what a null has is of no meaning.
pub(super) fn ordinals(column: &dyn Array) -> Result<ScalarBuffer<i64>> {
    Ok(match column.data_type() {
        DataType::UInt64 => {
            let values = column.as_primitive::<UInt64Type>().values();
            values.iter().map(|value| (value ^ (1 << 63)) as i64).collect()
        }
        // The bits of a float are ordered as those of a signed magnitude: negative ones are turned around.
        DataType::Float64 => column
            .as_primitive::<Float64Type>()
            .values()
            .iter()
            .map(|value| {
                let bits = value.to_bits() as i64;
                bits ^ (((bits >> 63) as u64) >> 1) as i64
            })
            .collect(),
        DataType::Float32 => column
            .as_primitive::<Float32Type>()
            .values()
            .iter()
            .map(|value| {
                let bits = value.to_bits() as i32;
                i64::from(bits ^ (((bits >> 31) as u32) >> 1) as i32)
            })
            .collect(),
        DataType::Date32 | DataType::Time32(_) => cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?
            .as_primitive::<Int64Type>()
            .values()
            .clone(),
        _ => cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().values().clone(),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array, UInt64Array};

    use super::*;

    #[test]
    fn the_order_of_the_ordinals_is_the_order_of_the_values() {
        let floats = [-f64::INFINITY, -1.5, -0.0, 0.0, f64::MIN_POSITIVE, 2.0, f64::INFINITY, f64::NAN];
        let of_floats = ordinals(&Float64Array::from(floats.to_vec())).unwrap();
        assert!(of_floats.is_sorted_by(|a, b| a < b));
        let singles: Vec<f32> = floats[..4].iter().map(|value| *value as f32).collect();
        assert!(ordinals(&Float32Array::from(singles)).unwrap().is_sorted_by(|a, b| a < b));
        let unsigned = UInt64Array::from(vec![0, 1, i64::MAX as u64, 1 << 63, u64::MAX]);
        assert!(ordinals(&unsigned).unwrap().is_sorted_by(|a, b| a < b));
    }
}
