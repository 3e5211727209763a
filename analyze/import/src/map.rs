//! Maps that say which column of a foreign table becomes which column of a run:
//! `ts=time_ns,dur=lat_us:us,op=func,kind='call'`.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StringArray},
    datatypes::{DataType, Field, Int32Type, Int64Type, Schema, UInt32Type, UInt64Type},
};
use trace_schema::{COLUMNS, Column, ColumnType, Kind};

use super::{hex::from_hex, json::scaled};
use analyze_run::suggest::{alike, perhaps};

/// Units of time, each with the power of ten of a nanosecond that it is.
const UNITS: [(&str, i32); 5] = [("ns", 0), ("us", 3), ("µs", 3), ("ms", 6), ("s", 9)];

/// The source of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    /// A column of the table, by its name.
    Column(String),
    /// A constant that every row has.
    Constant(String),
}

/// One assignment of a map.
#[derive(Clone, Debug)]
struct Entry {
    column: &'static Column,
    from: From,
    /// Power of ten that converts the unit of the table's column to nanoseconds; 0 for a column that has no
    /// unit.
    power: i32,
}

/// Says how the columns of a table become those of a run.
#[derive(Clone, Debug)]
pub struct Map {
    entries: Vec<Entry>,
}

/// A value that does not fit its column.
pub(super) struct Wrong {
    /// Number of lines of the batch before the wrong row. A quoted cell may hold several lines.
    pub(super) lines: u64,
    /// The column, and what is wrong with its value.
    pub(super) reason: String,
}

/// Splits a text at the commas that are not within single quotes.
fn parts(text: &str) -> Vec<&str> {
    let mut is_quoted = false;
    text.split(|letter| {
        is_quoted ^= letter == '\'';
        letter == ',' && !is_quoted
    })
    .collect()
}

impl Map {
    /// Parses a map: assignments `COLUMN=NAME`, `COLUMN=NAME:UNIT` or `COLUMN='VALUE'`, separated by commas.
    ///
    /// # Errors
    /// Returns an error if an assignment is malformed, a column is not one of a run or is assigned twice, a
    /// unit is unknown or its column has none, or a required column is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut entries: Vec<Entry> = Vec::new();
        for part in parts(text) {
            let Some((name, source)) = part.split_once('=') else {
                return Err(format!("`{part}` is not COLUMN=NAME or COLUMN='VALUE'"));
            };
            let (name, source) = (name.trim(), source.trim());
            let Some(column) = COLUMNS.iter().find(|column| column.name == name) else {
                let near = alike(name, COLUMNS.iter().map(|column| column.name));
                return Err(format!("a run has no column {name}{}", perhaps(&near)));
            };
            if entries.iter().any(|entry| entry.column.name == name) {
                return Err(format!("{name} is there twice"));
            }
            let mut power = 0;
            let constant = source.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            let from = match (constant, source.rsplit_once(':')) {
                (Some(value), _) => From::Constant(value.to_owned()),
                (None, Some((source, unit))) => {
                    let Some((_, found)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                        return Err(format!("`{unit}` is no unit of {name}: ns, us, ms or s"));
                    };
                    if column.unit != "ns" {
                        return Err(format!("{name} is no time and has no unit"));
                    }
                    power = *found;
                    From::Column(source.to_owned())
                }
                (None, None) => From::Column(source.to_owned()),
            };
            entries.push(Entry { column, from, power });
        }
        let mut required = COLUMNS.iter().filter(|column| !column.nullable);
        match required.find(|column| entries.iter().all(|entry| entry.column.name != column.name)) {
            Some(missing) => Err(format!(
                "{name} is missing: say which column it is ({name}=NAME), or its value ({name}='VALUE')",
                name = missing.name
            )),
            None => Ok(Self { entries }),
        }
    }

    /// Checks that a table has all columns that the map takes from it.
    ///
    /// # Errors
    /// Returns an error that names the missing column, and a similar one if there is any.
    pub(super) fn check(&self, found: &Schema) -> Result<(), String> {
        let names = || found.fields().iter().map(|field| field.name().as_str());
        for entry in &self.entries {
            if let From::Column(name) = &entry.from
                && !names().any(|known| known == name)
            {
                let near = alike(name, names());
                return Err(format!("column {name}: there is none in line 1{}", perhaps(&near)));
            }
        }
        Ok(())
    }

    /// Converts rows of the table, whose columns are all text, to rows of a run.
    ///
    /// # Errors
    /// Returns an error if a value does not fit its column.
    pub(super) fn rows(&self, batch: &RecordBatch) -> Result<RecordBatch, Wrong> {
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for entry in &self.entries {
            let (name, cells) = match &entry.from {
                From::Column(name) => (name.as_str(), batch.column_by_name(name).cloned()),
                From::Constant(value) => {
                    let repeated = std::iter::repeat_n(value, batch.num_rows());
                    (entry.column.name, Some(Arc::new(StringArray::from_iter_values(repeated)) as ArrayRef))
                }
            };
            let cells = cells.unwrap_or_else(|| Arc::new(StringArray::new_null(batch.num_rows())));
            let array = entry.array(cells.as_string::<i32>()).map_err(|(row, reason)| Wrong {
                lines: lines_to(batch, row),
                reason: format!("column {name}: {reason}"),
            })?;
            fields.push(Field::new(entry.column.name, array.data_type().clone(), true));
            arrays.push(array);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|error| Wrong { lines: 0, reason: error.to_string() })
    }
}

/// Returns the number of lines that the rows before `row` take: a quoted cell may contain line ends.
pub(super) fn lines_to(batch: &RecordBatch, row: usize) -> u64 {
    let ends = |column: &ArrayRef| {
        let cells = column.as_string::<i32>();
        let of = |row: usize| if cells.is_null(row) { 0 } else { cells.value(row).matches('\n').count() };
        (0..row).map(of).sum::<usize>()
    };
    (row + batch.columns().iter().map(ends).sum::<usize>()) as u64
}

impl Entry {
    /// Converts the cells of one column. An error holds the row, counted from 0 in the batch, and the reason.
    fn array(&self, cells: &StringArray) -> Result<ArrayRef, (usize, String)> {
        Ok(match self.column.ty {
            ColumnType::Int64 if self.column.unit == "ns" => {
                self.numbers::<Int64Type>(cells, |text| scaled(text, self.power).filter(|ns| *ns >= 0))?
            }
            ColumnType::Int64 => self.numbers::<Int64Type>(cells, |text| text.parse().ok())?,
            ColumnType::Int32 => self.numbers::<Int32Type>(cells, |text| text.parse().ok())?,
            ColumnType::UInt32 => self.numbers::<UInt32Type>(cells, |text| text.parse().ok())?,
            ColumnType::UInt64 => {
                self.numbers::<UInt64Type>(cells, |text| match text.strip_prefix("0x") {
                    Some(hex) => from_hex(hex),
                    None => text.parse().ok(),
                })?
            }
            ColumnType::Text => {
                for row in 0..cells.len() {
                    self.present(cells, row)?;
                    if self.column.name == "kind" && Kind::from_name(cells.value(row).trim()).is_none() {
                        let near = alike(cells.value(row), Kind::ALL.iter().map(|kind| kind.name()));
                        return Err((row, format!("`{}` is no kind{}", cells.value(row), perhaps(&near))));
                    }
                }
                let texts = cells.iter().map(|cell| cell.map(str::trim).filter(|cell| !cell.is_empty()));
                Arc::new(texts.collect::<StringArray>())
            }
        })
    }

    /// Returns whether a cell has a value. Errs if it has none and the column must not be null.
    fn present(&self, cells: &StringArray, row: usize) -> Result<bool, (usize, String)> {
        let is_there = cells.is_valid(row) && !cells.value(row).trim().is_empty();
        if !is_there && !self.column.nullable {
            return Err((row, format!("there is no value, and {} needs one", self.column.name)));
        }
        Ok(is_there)
    }

    fn numbers<T: arrow::array::ArrowPrimitiveType>(
        &self,
        cells: &StringArray,
        parse: impl Fn(&str) -> Option<T::Native>,
    ) -> Result<ArrayRef, (usize, String)> {
        let mut values = arrow::array::PrimitiveBuilder::<T>::with_capacity(cells.len());
        for row in 0..cells.len() {
            if !self.present(cells, row)? {
                values.append_null();
                continue;
            }
            let text = cells.value(row).trim();
            match parse(text) {
                Some(value) => values.append_value(value),
                None => {
                    let shown: String = text.chars().take(40).collect();
                    let what = if self.column.unit == "ns" { "time" } else { "number" };
                    return Err((row, format!("`{shown}` is no {what} that {} can hold", self.column.name)));
                }
            }
        }
        Ok(Arc::new(values.finish()))
    }
}

/// Returns the schema of a table with all its columns as text.
pub(super) fn texts_of(found: &Schema) -> Schema {
    let text = |field: &Arc<Field>| Field::new(field.name(), DataType::Utf8, true);
    Schema::new(found.fields().iter().map(text).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_numbers_have_no_sign() {
        let entry = |text: &str| {
            let map = Map::parse("ts=t,kind='call',op=f,pid=p,tid=x,addr=a").unwrap();
            let entry = map.entries.into_iter().find(|entry| entry.column.name == "addr").unwrap();
            entry.array(&StringArray::from(vec![text])).is_ok()
        };
        assert!(entry("0x7f00") && entry("12"));
        for text in ["0x+7f00", "0x-1", "0x", "0x10000000000000000"] {
            assert!(!entry(text), "{text}");
        }
    }

    #[test]
    fn a_map_says_what_it_lacks() {
        assert!(Map::parse("ts=t:us, dur=d:ms,kind='call',op=f,pid='1',tid=x").is_ok());
        assert!(Map::parse("ts=t,kind='a,b',op=f,pid=p,tid=x").is_ok());
        for (text, words) in [
            ("ts=t,kind='call',op=f,pid=p", "tid is missing"),
            ("tss=t", "no column tss; perhaps ts"),
            ("ts=t:min", "`min` is no unit"),
            ("pid=t:us", "pid is no time"),
            ("ts=t,ts=u", "ts is there twice"),
            ("ts", "`ts` is not COLUMN=NAME"),
            ("", "is not COLUMN=NAME"),
        ] {
            let why = Map::parse(text).err().unwrap_or_default();
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
