//! Collects rows into an Arrow batch, with one builder per column, generated from the schema's own list.
//!
//! Most cells of a row are null, so a null costs nothing when it comes: a column is brought up to date
//! when its next value does, or when the batch is taken.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{
        ArrayRef, ArrowPrimitiveType, DictionaryArray, Int32Array, PrimitiveArray, RecordBatch, StringArray,
    },
    buffer::NullBuffer,
    datatypes::{Int32Type, Int64Type, Schema, UInt32Type, UInt64Type},
    error::ArrowError,
};
use trace_schema::{Kind, Row, Text, arrow_schema, for_each_column};

/// Builder of a numeric column; it is shorter than the batch by the nulls at its end.
pub struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    /// Which values are not null; `None` while none is null.
    valid: Option<Vec<bool>>,
}

impl<T: ArrowPrimitiveType> Default for Numbers<T> {
    fn default() -> Self {
        Self { values: Vec::new(), valid: None }
    }
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    #[cold]
    fn pad(&mut self, rows: usize) {
        let there = self.values.len();
        self.valid.get_or_insert_with(|| vec![true; there]).resize(rows, false);
        self.values.resize(rows, T::default_value());
    }

    #[inline]
    fn put(&mut self, row: usize, value: T::Native) {
        if self.values.len() < row {
            self.pad(row);
        }
        self.values.push(value);
        if let Some(valid) = &mut self.valid {
            valid.push(true);
        }
    }

    fn finish(&mut self, rows: usize) -> (Vec<T::Native>, Option<NullBuffer>) {
        if self.values.len() < rows {
            self.pad(rows);
        }
        (std::mem::take(&mut self.values), self.valid.take().map(NullBuffer::from))
    }
}

/// Builder of a dictionary-encoded text column.
#[derive(Default)]
pub struct Texts {
    keys: Numbers<Int32Type>,
    words: Vec<Text>,
    known: HashMap<Text, i32>,
    /// The word last seen in each place, told by its address and length, and its key: most rows repeat it.
    recent: [(usize, usize, i32); RECENT],
    /// Keeps the words alive whose addresses are in `recent`, so that those mean nothing else.
    kept: [Option<Text>; RECENT],
}

/// Size of [`Texts::recent`]: a power of two.
const RECENT: usize = 16;

impl Texts {
    #[inline]
    fn put(&mut self, row: usize, word: &Text) {
        let (address, length) = (word.as_ptr() as usize, word.len());
        let place = (address >> 4) & (RECENT - 1);
        let (seen, seen_length, key) = self.recent[place];
        let key = if (seen, seen_length) == (address, length) { key } else { self.look_up(place, word) };
        self.keys.put(row, key);
    }

    #[cold]
    fn look_up(&mut self, place: usize, word: &Text) -> i32 {
        let next = self.words.len() as i32;
        let words = &mut self.words;
        let key = *self.known.entry(word.clone()).or_insert_with(|| {
            words.push(word.clone());
            next
        });
        self.kept[place] = matches!(word, Text::Shared(_)).then(|| word.clone());
        self.recent[place] = (word.as_ptr() as usize, word.len(), key);
        key
    }
}

/// A column builder that takes values of type `T`.
pub trait Column<T> {
    /// Sets the value of a row; earlier rows without a value become null.
    fn put(&mut self, row: usize, value: &T);
}

macro_rules! put_number {
    ($($ty:ident: $native:ty),*) => {$(
        impl Column<$native> for Numbers<$ty> {
            #[inline]
            fn put(&mut self, row: usize, value: &$native) {
                Numbers::put(self, row, *value);
            }
        }
        impl Column<Option<$native>> for Numbers<$ty> {
            #[inline]
            fn put(&mut self, row: usize, value: &Option<$native>) {
                if let Some(value) = value {
                    Numbers::put(self, row, *value);
                }
            }
        }
    )*};
}

put_number!(Int64Type: i64, Int32Type: i32, UInt64Type: u64, UInt32Type: u32);

impl Column<Text> for Texts {
    #[inline]
    fn put(&mut self, row: usize, value: &Text) {
        Texts::put(self, row, value);
    }
}

impl Column<Option<Text>> for Texts {
    #[inline]
    fn put(&mut self, row: usize, value: &Option<Text>) {
        if let Some(value) = value {
            Texts::put(self, row, value);
        }
    }
}

impl Column<Kind> for Texts {
    #[inline]
    fn put(&mut self, row: usize, value: &Kind) {
        Texts::put(self, row, &Text::Static(value.name()));
    }
}

/// What a column becomes; `None` if all of it is null.
trait Finish {
    fn array(&mut self, rows: usize) -> Result<Option<ArrayRef>, ArrowError>;
}

impl<T: ArrowPrimitiveType> Finish for Numbers<T> {
    fn array(&mut self, rows: usize) -> Result<Option<ArrayRef>, ArrowError> {
        if self.values.is_empty() {
            return Ok(None);
        }
        let (values, nulls) = self.finish(rows);
        Ok(Some(Arc::new(PrimitiveArray::<T>::try_new(values.into(), nulls)?)))
    }
}

impl Finish for Texts {
    fn array(&mut self, rows: usize) -> Result<Option<ArrayRef>, ArrowError> {
        if self.keys.values.is_empty() {
            return Ok(None);
        }
        let (keys, nulls) = self.keys.finish(rows);
        let words = StringArray::from_iter_values(self.words.iter().map(|word| &**word));
        *self = Self::default();
        let keys = Int32Array::try_new(keys.into(), nulls)?;
        Ok(Some(Arc::new(DictionaryArray::try_new(keys, Arc::new(words))?)))
    }
}

macro_rules! builder {
    (Int64) => {
        Numbers<Int64Type>
    };
    (Int32) => {
        Numbers<Int32Type>
    };
    (UInt64) => {
        Numbers<UInt64Type>
    };
    (UInt32) => {
        Numbers<UInt32Type>
    };
    (Text) => {
        Texts
    };
    (Kind) => {
        Texts
    };
}

macro_rules! define {
    ($($name:ident: $ty:ident, $need:ident, $unit:literal, $doc:literal;)*) => {
        /// Rows that wait to become a batch.
        #[derive(Default)]
        pub struct Rows {
            len: usize,
            $($name: builder!($ty),)*
        }

        impl Rows {
            /// Adds a row with all its columns.
            pub fn push(&mut self, row: &Row) {
                $(Column::put(&mut self.$name, self.len, &row.$name);)*
                self.len += 1;
            }

            #[inline]
            fn end_row(&mut self) {
                self.len += 1;
            }

            fn columns(&mut self) -> Result<Vec<Option<ArrayRef>>, ArrowError> {
                let rows = self.len;
                Ok(vec![$(self.$name.array(rows)?),*])
            }
        }
    };
}

for_each_column!(define);

macro_rules! define_setters {
    ($($name:ident: $ty:ident, $need:ident, $unit:literal, $doc:literal;)*) => {
        impl RowWriter<'_> {
            $(
                #[doc = $doc]
                #[inline]
                pub fn $name<T>(&mut self, value: T) -> &mut Self
                where
                    builder!($ty): Column<T>,
                {
                    let row = self.rows.len;
                    Column::put(&mut self.rows.$name, row, &value);
                    self
                }
            )*
        }
    };
}

/// A row that is being written column by column: columns without a value cost nothing. The row ends when this is
/// dropped.
pub struct RowWriter<'a> {
    rows: &'a mut Rows,
}

for_each_column!(define_setters);

impl Drop for RowWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        self.rows.end_row();
    }
}

impl Rows {
    /// Begins a row with its required values; it ends when the writer is dropped.
    #[inline]
    pub fn start(&mut self, ts: i64, kind: Kind, op: Text, pid: u32, tid: u32) -> RowWriter<'_> {
        let mut row = RowWriter { rows: self };
        row.ts(ts).kind(kind).op(op).pid(pid).tid(tid);
        row
    }

    /// Number of rows that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no row waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the waiting rows as one batch, without the columns that have no value.
    ///
    /// # Errors
    /// If Arrow refuses the columns, which would be an internal error.
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns()?;
        self.len = 0;
        let full = arrow_schema();
        let (fields, arrays): (Vec<_>, Vec<_>) = full
            .fields()
            .iter()
            .zip(columns)
            .filter_map(|(field, array)| Some((Arc::clone(field), array?)))
            .unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source may make a string of its own for every row, although all say the same.
    #[test]
    fn words_that_repeat_are_kept_once() {
        let mut rows = Rows::default();
        let made: Vec<_> = (0..1000)
            .map(|ts| {
                let word: Arc<str> = "the same".into();
                let weak = Arc::downgrade(&word);
                rows.push(&Row {
                    detail: Some(Text::Shared(word)),
                    ..Row::new(ts, Kind::Mark, "point".into(), 1, 1)
                });
                weak
            })
            .collect();
        let kept_count = made.iter().filter(|word| word.strong_count() > 0).count();
        assert!(kept_count <= RECENT + 1, "{kept_count} words are kept");
        let batch = rows.take().unwrap();
        assert_eq!(batch.num_rows(), 1000);
        assert!(made.iter().all(|word| word.strong_count() == 0), "a batch that is taken keeps none");
    }
}
