//! Text columns of a profile and of a run, decoded once per distinct text.

use std::{collections::HashMap, sync::Arc};

use analyze_run::error::AnalyzeError;
use arrow::{
    array::{Array, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Int32Type},
};

/// A text column decoded once per distinct text, with the result available by row.
pub(super) struct Coded<T> {
    keys: arrow::array::Int32Array,
    values: Vec<T>,
}

impl<T> Coded<T> {
    /// Decodes the column `name`, calling `of` once for each distinct text.
    pub(super) fn new(
        batch: &RecordBatch,
        name: &str,
        of: impl FnMut(&str) -> T,
    ) -> Result<Self, AnalyzeError> {
        let damaged = |what: String| AnalyzeError::Damaged(format!("column {name}: {what}"));
        let column = batch.column_by_name(name).ok_or_else(|| damaged("it is missing".to_owned()))?;
        let ty = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let column = cast(column, &ty).map_err(|error| damaged(error.to_string()))?;
        let texts = column.as_dictionary::<Int32Type>();
        let values =
            texts.values().as_string::<i32>().iter().map(Option::unwrap_or_default).map(of).collect();
        Ok(Self { keys: texts.keys().clone(), values })
    }

    /// Returns the value of a row; `None` if it is null.
    pub(super) fn at(&self, row: usize) -> Option<&T> {
        (!self.keys.is_null(row)).then(|| self.values.get(self.keys.value(row) as usize)).flatten()
    }
}

/// Start times of marks in ns, ascending, by thread and name.
pub(super) type Marks = HashMap<(u32, Arc<str>), Vec<i64>>;
