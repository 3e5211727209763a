//! One dictionary of texts for each text column of a run: an Arrow file has one a column, for all its batches.
//!
//! The rows are read twice: first for the distinct texts, then with keys in place of the texts. A column with so many texts that
//! a dictionary would not be worth its memory has the texts themselves.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, DictionaryArray, Int32Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Int32Type, Schema, SchemaRef},
    error::ArrowError,
};
use trace_schema::{COLUMNS, ColumnType, arrow_schema};

use analyze_run::{
    columns::{conformed, plain_schema},
    error::AnalyzeError,
    reading::plain,
};

/// The largest number of distinct texts of a column that has a dictionary.
const MAX_TEXTS: usize = 1 << 20;
/// The largest size of a column's distinct texts in bytes.
const MAX_BYTES: usize = 256 << 20;

/// The distinct texts of a column, with their keys.
#[derive(Default)]
struct Texts {
    keys: HashMap<String, i32>,
    bytes: usize,
    is_too_large: bool,
}

impl Texts {
    /// Takes the texts of an array's dictionary.
    fn take(&mut self, texts: &StringArray) {
        for text in texts.iter().flatten() {
            if self.is_too_large || self.keys.contains_key(text) {
                continue;
            }
            let key = self.keys.len();
            self.bytes += text.len();
            self.is_too_large = key >= MAX_TEXTS || self.bytes > MAX_BYTES;
            match i32::try_from(key) {
                Ok(key) if !self.is_too_large => drop(self.keys.insert(text.to_owned(), key)),
                _ => self.keys = HashMap::new(),
            }
        }
    }
}

/// A column's dictionary.
struct Dictionary {
    keys: HashMap<String, i32>,
    values: ArrayRef,
}

/// The dictionaries of a run's text columns, by the column's name.
pub(super) struct Dictionaries(HashMap<&'static str, Dictionary>);

impl Dictionaries {
    /// Reads the distinct texts of the rows in these files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, AnalyzeError> {
        let schema: SchemaRef = Arc::new(arrow_schema());
        let names = COLUMNS.iter().filter(|column| column.ty == ColumnType::Text).map(|column| column.name);
        let mut all: HashMap<&'static str, Texts> = names.map(|name| (name, Texts::default())).collect();
        for batch in plain::batches(paths.to_vec(), None) {
            let batch =
                conformed(&batch?, &schema).map_err(|error| AnalyzeError::Damaged(error.to_string()))?;
            for (name, texts) in &mut all {
                if let Some(column) = batch.column_by_name(name) {
                    texts.take(column.as_dictionary::<Int32Type>().values().as_string::<i32>());
                }
            }
        }
        let dictionary = |texts: Texts| {
            let mut values = vec![""; texts.keys.len()];
            for (text, key) in &texts.keys {
                values[*key as usize] = text.as_str();
            }
            let values: ArrayRef = Arc::new(StringArray::from(values));
            Dictionary { keys: texts.keys, values }
        };
        let kept = all.into_iter().filter(|(_, texts)| !texts.is_too_large);
        Ok(Self(kept.map(|(name, texts)| (name, dictionary(texts))).collect()))
    }

    /// Returns the schema of the rows with these dictionaries.
    pub(super) fn schema(&self) -> Schema {
        let plain = plain_schema();
        let field = |field: &Arc<Field>| match self.0.contains_key(field.name().as_str()) {
            true => {
                let ty = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
                Field::new(field.name(), ty, field.is_nullable())
            }
            false => field.as_ref().clone(),
        };
        Schema::new(plain.fields().iter().map(field).collect::<Vec<_>>())
    }

    /// Returns rows with keys of the dictionaries in place of texts. `schema` is that of [`Self::schema`], with metadata.
    ///
    /// # Errors
    /// Returns an error if the rows do not have the columns of a run.
    pub(super) fn apply(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let batch = conformed(batch, schema)?;
        let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
            let Some(dictionary) = self.0.get(field.name().as_str()) else { return Ok(Arc::clone(column)) };
            let found = column.as_dictionary::<Int32Type>();
            let texts = found.values().as_string::<i32>();
            let places: Vec<Option<i32>> =
                texts.iter().map(|text| dictionary.keys.get(text?).copied()).collect();
            let keys =
                found.keys().iter().map(|key| places.get(usize::try_from(key?).ok()?).copied().flatten());
            let keys: Int32Array = keys.collect();
            let array = DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(&dictionary.values))?;
            Ok(Arc::new(array) as ArrayRef)
        });
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        RecordBatch::try_new(Arc::clone(schema), columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_too_many_texts_has_no_dictionary() {
        let mut texts = Texts::default();
        texts.take(&StringArray::from(vec![Some("a"), None, Some("b"), Some("a")]));
        assert_eq!((texts.keys.len(), texts.bytes, texts.is_too_large), (2, 2, false));
        let long = "x".repeat(MAX_BYTES);
        texts.take(&StringArray::from(vec![long.as_str()]));
        texts.take(&StringArray::from(vec!["c"]));
        assert!(texts.is_too_large && texts.keys.is_empty());
    }
}
