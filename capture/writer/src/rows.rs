//! Rows to an Arrow batch, one builder a column, generated from the schema's own list.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, Int32Builder, Int64Builder, RecordBatch, StringDictionaryBuilder, UInt32Builder,
        UInt64Builder,
    },
    datatypes::{Int32Type, SchemaRef},
    error::ArrowError,
};
use trace_schema::{Kind, Row, Text, arrow_schema, for_each_column};

type TextBuilder = StringDictionaryBuilder<Int32Type>;

/// Appends one cell, null or not, to a column's builder.
trait Put<T> {
    fn put(&mut self, value: T);
}

macro_rules! put_number {
    ($($builder:ty: $native:ty),*) => {$(
        impl Put<&$native> for $builder {
            fn put(&mut self, value: &$native) {
                self.append_value(*value);
            }
        }
        impl Put<&Option<$native>> for $builder {
            fn put(&mut self, value: &Option<$native>) {
                self.append_option(*value);
            }
        }
    )*};
}

put_number!(Int64Builder: i64, Int32Builder: i32, UInt64Builder: u64, UInt32Builder: u32);

impl Put<&Text> for TextBuilder {
    fn put(&mut self, value: &Text) {
        self.append_value(value);
    }
}

impl Put<&Option<Text>> for TextBuilder {
    fn put(&mut self, value: &Option<Text>) {
        self.append_option(value.as_deref());
    }
}

impl Put<&Kind> for TextBuilder {
    fn put(&mut self, value: &Kind) {
        self.append_value(value.name());
    }
}

macro_rules! builder {
    (Int64) => {
        Int64Builder
    };
    (Int32) => {
        Int32Builder
    };
    (UInt64) => {
        UInt64Builder
    };
    (UInt32) => {
        UInt32Builder
    };
    (Text) => {
        TextBuilder
    };
    (Kind) => {
        TextBuilder
    };
}

macro_rules! define {
    ($($name:ident: $ty:ident, $need:ident, $unit:literal, $doc:literal;)*) => {
        /// Rows that have not become a batch yet.
        #[derive(Default)]
        pub struct Rows {
            len: usize,
            $($name: builder!($ty),)*
        }

        impl Rows {
            /// Adds a row.
            pub fn push(&mut self, row: &Row) {
                self.len += 1;
                $(self.$name.put(&row.$name);)*
            }

            fn columns(&mut self) -> Vec<ArrayRef> {
                vec![$(Arc::new(self.$name.finish())),*]
            }
        }
    };
}

for_each_column!(define);

impl Rows {
    /// How many rows wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the rows out as one batch of the `events` table.
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        self.len = 0;
        let schema: SchemaRef = Arc::new(arrow_schema());
        RecordBatch::try_new(schema, self.columns())
    }
}
