//! Typed access to the columns of query results, whatever physical form the planner chose.

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

/// An integer column, as 64-bit.
pub fn integers(batch: &RecordBatch, name: &str) -> Result<Int64Array, AnalyzeError> {
    Ok(column(batch, name, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// A floating-point column.
pub fn floats(batch: &RecordBatch, name: &str) -> Result<Float64Array, AnalyzeError> {
    Ok(column(batch, name, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

/// A string column.
pub fn strings(batch: &RecordBatch, name: &str) -> Result<StringArray, AnalyzeError> {
    Ok(column(batch, name, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// A truth column.
pub fn booleans(batch: &RecordBatch, name: &str) -> Result<BooleanArray, AnalyzeError> {
    Ok(column(batch, name, &DataType::Boolean)?.as_boolean().clone())
}

/// The columns of `events` with texts as such: dictionaries differ from batch to batch, and not every format has them.
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

/// The batch with these columns, of these types; one that it lacks is null.
///
/// # Errors
/// If a value does not fit the type, or one that must be there is missing.
pub fn conformed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let column = |field: &Arc<Field>| match batch.column_by_name(field.name()) {
        Some(column) => cast_with_options(column, field.data_type(), &strict)
            .map_err(|error| ArrowError::CastError(format!("column {}: {error}", field.name()))),
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
    };
    RecordBatch::try_new(Arc::clone(schema), schema.fields().iter().map(column).collect::<Result<_, _>>()?)
}

/// The value of a cell, if it is not null.
pub trait Cell {
    /// Its type.
    type Value<'a>
    where
        Self: 'a;

    /// The value at `row`.
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
