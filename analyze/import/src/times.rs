//! Converts columns of times and durations that an Arrow or Parquet table holds in another unit to nanoseconds, exactly.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Field, Int64Type, Schema, TimeUnit},
    error::ArrowError,
};
use trace_schema::COLUMNS;

/// Returns a column of times or durations as whole nanoseconds. A column of another type is returned as it is.
///
/// # Errors
/// Returns an error if a value has more nanoseconds than 64 bits hold.
pub(super) fn nanoseconds(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let (DataType::Timestamp(unit, _) | DataType::Duration(unit)) = array.data_type() else {
        return Ok(Arc::clone(array));
    };
    let factor: i64 = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let numbers = cast(array, &DataType::Int64)?;
    let whole = numbers.as_primitive::<Int64Type>().try_unary::<_, Int64Type, ArrowError>(|number| {
        number
            .checked_mul(factor)
            .ok_or_else(|| ArrowError::CastError(format!("{number} × {factor} ns do not fit into 64 bits")))
    })?;
    Ok(Arc::new(whole))
}

/// Returns the rows of a table with times and durations in nanoseconds.
///
/// # Errors
/// Returns an error if a time is out of range, or stands in a column of a run that holds none.
pub(super) fn in_nanoseconds(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let name = field.name();
        let told = |error: ArrowError| ArrowError::CastError(format!("column {name}: {error}"));
        if field.data_type().is_temporal()
            && !COLUMNS.iter().any(|column| column.name == name && column.unit == "ns")
        {
            return Err(told(ArrowError::CastError(format!(
                "it is of the type {}, and {name} is no time",
                field.data_type()
            ))));
        }
        let array = nanoseconds(array).map_err(told)?;
        fields.push(Field::new(name, array.data_type().clone(), field.is_nullable()));
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

#[cfg(test)]
mod tests {
    use arrow::array::{DurationMillisecondArray, Int32Array, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn times_of_every_unit_are_exact() {
        let batch = |name: &str, array: ArrayRef| {
            in_nanoseconds(&RecordBatch::try_from_iter_with_nullable([(name, array, true)]).unwrap())
        };
        let ts = TimestampMicrosecondArray::from(vec![Some(1_790_857_026_123_456), None]);
        let found = batch("ts", Arc::new(ts.with_timezone("UTC"))).unwrap();
        let found = found.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        assert_eq!(found, [Some(1_790_857_026_123_456_000), None]);
        let found = batch("dur", Arc::new(DurationMillisecondArray::from(vec![-7]))).unwrap();
        assert_eq!(found.column(0).as_primitive::<Int64Type>().values(), &[-7_000_000]);
        let why = batch("ts", Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX]))).unwrap_err();
        assert!(why.to_string().contains("column ts") && why.to_string().contains("64 bits"), "{why}");
        let why = batch("pid", Arc::new(TimestampMicrosecondArray::from(vec![1]))).unwrap_err();
        assert!(why.to_string().contains("pid is no time"), "{why}");
        assert!(batch("pid", Arc::new(Int32Array::from(vec![1]))).is_ok());
    }
}
