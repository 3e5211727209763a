//! Typed access to the columns of query results, independent of the physical type that the planner chose.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
        UInt64Array, new_null_array,
    },
    compute::{CastOptions, cast, cast_with_options},
    datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef},
    error::ArrowError,
};
use trace_schema::{COLUMNS, Column, ColumnType};

use crate::error::AnalyzeError;

fn column(batch: &RecordBatch, name: &str, ty: &DataType) -> Result<ArrayRef, AnalyzeError> {
    let array = batch
        .column_by_name(name)
        .ok_or_else(|| AnalyzeError::Internal(format!("a query has no column {name}")))?;
    cast(array, ty).map_err(|error| AnalyzeError::Damaged(format!("column {name}: {error}")))
}

/// Returns a column as 64-bit signed integers.
pub fn integers(batch: &RecordBatch, name: &str) -> Result<Int64Array, AnalyzeError> {
    Ok(column(batch, name, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// Returns a column as 64-bit floating-point numbers.
pub fn floats(batch: &RecordBatch, name: &str) -> Result<Float64Array, AnalyzeError> {
    Ok(column(batch, name, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

/// Returns a column as strings.
pub fn strings(batch: &RecordBatch, name: &str) -> Result<StringArray, AnalyzeError> {
    Ok(column(batch, name, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// Returns a column as booleans.
pub fn booleans(batch: &RecordBatch, name: &str) -> Result<BooleanArray, AnalyzeError> {
    Ok(column(batch, name, &DataType::Boolean)?.as_boolean().clone())
}

/// Returns the schema of `events` with strings in place of dictionaries: dictionaries differ from batch to
/// batch, and not every format supports them.
pub fn plain_schema() -> Schema {
    let field = |column: &Column| {
        let ty = match column.ty {
            ColumnType::Text => DataType::Utf8,
            other => other.data_type(),
        };
        Field::new(column.name, ty, column.nullable)
    };
    Schema::new(COLUMNS.iter().map(field).collect::<Vec<_>>())
}

/// Returns the batch with the columns of `schema`, cast to its types. A column that the batch lacks is all
/// null.
///
/// # Errors
/// Returns an error if a value does not fit the type, or if a value of a non-nullable column is missing.
pub fn conformed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let column = |field: &Arc<Field>| match batch.column_by_name(field.name()) {
        Some(column) => cast_with_options(column, field.data_type(), &strict)
            .map_err(|error| ArrowError::CastError(format!("column {}: {error}", field.name()))),
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
    };
    RecordBatch::try_new(Arc::clone(schema), schema.fields().iter().map(column).collect::<Result<_, _>>()?)
}

/// Access to one cell of an Arrow array as an `Option`, which is `None` for a null.
pub trait Cell {
    /// The type of a value that is not null.
    type Value<'a>
    where
        Self: 'a;

    /// Returns the value at `row`, or `None` if it is null. Panics if `row` is out of bounds.
    fn at(&self, row: usize) -> Option<Self::Value<'_>>;
}

macro_rules! cell {
    ($($array:ty => $value:ty),*) => {$(
        impl Cell for $array {
            type Value<'a> = $value;

            fn at(&self, row: usize) -> Option<Self::Value<'_>> {
                (!self.is_null(row)).then(|| self.value(row))
            }
        }
    )*};
}

cell!(Int64Array => i64, UInt64Array => u64, Float64Array => f64, StringArray => &'a str, BooleanArray => bool);
