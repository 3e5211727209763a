//! Converts a column of times or numbers to `i64` ordinals with the same order, so that one sweep serves all
//! types.
//!
//! DataFusion compares floating-point numbers by their total order (NaN last) but treats both zeros as equal,
//! and so do the ordinals. Its sort puts the negative zero first, which is in order here too. Types whose
//! values do not fit into an `i64` are not supported.

use arrow::{
    array::{Array, AsArray},
    buffer::ScalarBuffer,
    compute::cast,
    datatypes::{DataType, Float32Type, Float64Type, Int64Type, UInt64Type},
};
use datafusion::error::Result;

/// Returns whether a type has ordinals.
pub(super) fn has_ordinals(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(
            data_type,
            Float32 | Float64 | Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_)
        )
}

/// Returns the ordinals of a column. The ordinal of a null is arbitrary.
pub(super) fn ordinals(column: &dyn Array) -> Result<ScalarBuffer<i64>> {
    Ok(match column.data_type() {
        DataType::UInt64 => {
            let values = column.as_primitive::<UInt64Type>().values();
            values.iter().map(|value| (value ^ (1 << 63)) as i64).collect()
        }
        // The bits of a float are ordered like those of a signed magnitude, so the bits of negative numbers
        // are inverted.
        DataType::Float64 => column
            .as_primitive::<Float64Type>()
            .values()
            .iter()
            .map(|value| {
                let bits = if *value == 0.0 { 0 } else { value.to_bits() as i64 };
                bits ^ (((bits >> 63) as u64) >> 1) as i64
            })
            .collect(),
        DataType::Float32 => column
            .as_primitive::<Float32Type>()
            .values()
            .iter()
            .map(|value| {
                let bits = if *value == 0.0 { 0 } else { value.to_bits() as i32 };
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
    use arrow::array::{Float32Array, Float64Array, Int8Array, UInt64Array};
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn the_order_of_the_ordinals_is_the_order_of_the_values() {
        let floats = [-f64::INFINITY, -1.5, -1e-300, 0.0, f64::MIN_POSITIVE, 2.0, f64::INFINITY, f64::NAN];
        let of_floats = ordinals(&Float64Array::from(floats.to_vec())).unwrap();
        assert!(of_floats.is_sorted_by(|a, b| a < b));
        let singles = Float32Array::from(vec![f32::NEG_INFINITY, -1.5, 0.0, 1e-30, 2.0, f32::NAN]);
        assert!(ordinals(&singles).unwrap().is_sorted_by(|a, b| a < b));
        assert_eq!(ordinals(&Float64Array::from(vec![-0.0])).unwrap()[0], 0);
        assert_eq!(ordinals(&Float32Array::from(vec![-0.0])).unwrap()[0], 0);
        let unsigned = UInt64Array::from(vec![0, 1, i64::MAX as u64, 1 << 63, u64::MAX]);
        assert!(ordinals(&unsigned).unwrap().is_sorted_by(|a, b| a < b));
    }
    #[test]
    fn every_type_that_is_taken_has_ordinals() {
        use DataType::*;
        let numbers = Int8Array::from(vec![1, 2, 3]);
        let timestamp = Timestamp(TimeUnit::Nanosecond, Some("+02:00".into()));
        let small = [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64];
        let times = [Date32, Time32(TimeUnit::Second), Time64(TimeUnit::Nanosecond), timestamp];
        let others = [Date64, Duration(TimeUnit::Microsecond)];
        for data_type in small.into_iter().chain(times).chain(others) {
            assert!(has_ordinals(&data_type), "{data_type}");
            // Not every number can be cast to every time directly, but it can be cast in steps.
            let wide = cast(&cast(&numbers, &Int32).unwrap(), &Int64).unwrap();
            let column = cast(&wide, &data_type)
                .or_else(|_| cast(&cast(&numbers, &Int32).unwrap(), &data_type))
                .unwrap();
            assert!(ordinals(&column).unwrap().is_sorted_by(|a, b| a < b), "{data_type}");
        }
        assert!(!has_ordinals(&Utf8) && !has_ordinals(&Float16));
    }
}
