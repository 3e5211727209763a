//! Rows of derived tables. [`rows!`](crate::rows!) declares a row type once, and derives from it the table's Arrow schema
//! and the builders of its columns:
//!
//! ```text
//! rows! { struct GapRow<'a> => GapRows { run: &'a str, ts: i64, dur: Option<i64>, } }
//!
//! GapRows::schema()   run Utf8, ts Int64, dur Int64
//! rows.push(row)      one value to the builder of each column that is asked for
//! rows.take()         a RecordBatch of those columns
//! ```
//! A macro makes them rather than `serde_arrow`, which would be one more dependency and would dispatch on the type of every
//! value of every row.

use analyze_run::error::AnalyzeError;
use arrow::{
    array::{
        ArrayBuilder, ArrayRef, BooleanBuilder, Float64Builder, Int32Builder, Int64Builder, RecordBatch,
        RecordBatchOptions, StringBuilder, StringDictionaryBuilder, UInt32Builder, UInt64Builder,
    },
    datatypes::{DataType, Int32Type, Schema, SchemaRef},
};

/// A type of values of a column. `Option` of a type makes its `None` null.
pub trait Cell {
    /// What collects the values of a column.
    type Builder: ArrayBuilder + Default;
    /// Returns the type of the column.
    fn data_type() -> DataType;
    /// Adds this value to a column.
    fn append(self, builder: &mut Self::Builder);
    /// Adds a null to a column.
    fn append_null(builder: &mut Self::Builder);
}

/// A string of a column with few distinct ones, which is stored as a dictionary; `&str` is stored as it is.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a>(pub &'a str);

macro_rules! cells {
    ($($cell:ty: $builder:ty, $ty:expr, |$value:ident| $append:expr;)*) => {$(
        impl Cell for $cell {
            type Builder = $builder;

            fn data_type() -> DataType {
                $ty
            }

            fn append(self, builder: &mut $builder) {
                let $value = self;
                builder.append_value($append);
            }

            fn append_null(builder: &mut $builder) {
                builder.append_null();
            }
        }
    )*};
}

cells! {
    bool: BooleanBuilder, DataType::Boolean, |value| value;
    f64: Float64Builder, DataType::Float64, |value| value;
    i32: Int32Builder, DataType::Int32, |value| value;
    i64: Int64Builder, DataType::Int64, |value| value;
    u32: UInt32Builder, DataType::UInt32, |value| value;
    u64: UInt64Builder, DataType::UInt64, |value| value;
    &str: StringBuilder, DataType::Utf8, |value| value;
    Word<'_>: StringDictionaryBuilder<Int32Type>,
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)), |word| word.0;
}

impl<C: Cell> Cell for Option<C> {
    type Builder = C::Builder;

    fn data_type() -> DataType {
        C::data_type()
    }

    fn append(self, builder: &mut C::Builder) {
        match self {
            Some(cell) => cell.append(builder),
            None => C::append_null(builder),
        }
    }

    fn append_null(builder: &mut C::Builder) {
        C::append_null(builder);
    }
}

/// The values of one column, with the column's place among those that are asked for; `None` if it is not.
#[derive(Debug)]
pub struct Column<B>(Option<(usize, B)>);

impl<B: ArrayBuilder + Default> Column<B> {
    /// Makes a column without values; `wanted` are the columns that are asked for.
    pub fn new(name: &str, wanted: &Schema) -> Self {
        Self(wanted.column_with_name(name).map(|(place, _)| (place, B::default())))
    }

    /// Adds a value.
    pub fn push(&mut self, cell: impl Cell<Builder = B>) {
        if let Some((_, builder)) = &mut self.0 {
            cell.append(builder);
        }
    }

    /// Moves the values to `arrays`, with the place of the column.
    pub fn finish(&mut self, arrays: &mut Vec<(usize, ArrayRef)>) {
        arrays.extend(self.0.as_mut().map(|(place, builder)| (*place, builder.finish())));
    }
}

/// Makes a batch of the columns that are asked for.
///
/// # Errors
/// Returns an error if a column is missing, which is an internal error.
pub fn batch(
    wanted: &SchemaRef,
    mut columns: Vec<(usize, ArrayRef)>,
    rows_count: usize,
) -> Result<RecordBatch, AnalyzeError> {
    columns.sort_by_key(|(place, _)| *place);
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows_count));
    RecordBatch::try_new_with_options(SchemaRef::clone(wanted), columns, &options)
        .map_err(|error| AnalyzeError::Internal(error.to_string()))
}

/// The builders of a row type's columns; [`rows!`](crate::rows!) implements it.
pub trait Rows: Send + Sized + 'static {
    /// The row type.
    type Row<'a>;

    /// Returns all columns.
    fn schema() -> SchemaRef;
    /// Makes builders of the columns that are asked for.
    fn new(wanted: SchemaRef) -> Self;
    /// Returns the number of rows since the last [`Self::take`].
    fn rows_count(&self) -> usize;
    /// Adds a row.
    fn push(&mut self, row: Self::Row<'_>);
    /// Returns the rows since the last call as a batch.
    ///
    /// # Errors
    /// Returns an error if a column that is asked for is none of this row type, which is an internal error.
    fn take(&mut self) -> Result<RecordBatch, AnalyzeError>;
}

/// The builders that belong to a row type, whatever the lifetime of its strings; [`rows!`](crate::rows!) implements it.
pub trait Row {
    /// A tuple of [`Column`]s.
    type Columns: Send;
}

/// Declares a row type and its builders, which implement [`Rows`]. A last entry
/// `..group: [T; N] = NAMES` stands for `N` columns of one type with the names in the array `NAMES`. The columns are nullable,
/// whatever the rows hold, unless `not null` follows the name of the builders.
#[macro_export]
macro_rules! rows {
    ($(#[$doc:meta])* $vis:vis struct $row:ident<$life:lifetime> => $rows:ident { $($body:tt)* }) => {
        $crate::rows! { @nullable true; $(#[$doc])* $vis struct $row<$life> => $rows { $($body)* } }
    };
    ($(#[$doc:meta])* $vis:vis struct $row:ident<$life:lifetime> => $rows:ident not null { $($body:tt)* }) => {
        $crate::rows! { @nullable false; $(#[$doc])* $vis struct $row<$life> => $rows { $($body)* } }
    };
    (@nullable $nullable:literal; $(#[$doc:meta])* $vis:vis struct $row:ident<$life:lifetime> => $rows:ident {
        $($column:ident: $cell:ty,)* $(..$group:ident: [$each:ty; $count:expr] = $names:expr $(,)?)?
    }) => {
        $(#[$doc])*
        $vis struct $row<$life> {
            $($column: $cell,)*
            $($group: [$each; $count],)?
        }

        impl<$life> $crate::rows::Row for $row<$life> {
            type Columns = (
                $($crate::rows::Column<<$cell as $crate::rows::Cell>::Builder>,)*
                $(Vec<$crate::rows::Column<<$each as $crate::rows::Cell>::Builder>>,)?
            );
        }

        #[doc = concat!("The columns of [`", stringify!($row), "`].")]
        $vis struct $rows {
            wanted: ::arrow::datatypes::SchemaRef,
            rows_count: usize,
            columns: <$row<'static> as $crate::rows::Row>::Columns,
        }

        impl $crate::rows::Rows for $rows {
            type Row<'a> = $row<'a>;

            fn schema() -> ::arrow::datatypes::SchemaRef {
                use ::arrow::datatypes::{Field, Schema};
                fn fields<$life>() -> Vec<Field> {
                    let fields = [
                        $(Field::new(stringify!($column), <$cell as $crate::rows::Cell>::data_type(), $nullable),)*
                    ];
                    let fields = fields.into_iter();
                    $(
                        let ty = <$each as $crate::rows::Cell>::data_type();
                        let fields = fields.chain($names.map(|name| Field::new(name, ty.clone(), $nullable)));
                    )?
                    fields.collect()
                }
                ::std::sync::Arc::new(Schema::new(fields()))
            }

            fn new(wanted: ::arrow::datatypes::SchemaRef) -> Self {
                let columns = (
                    $($crate::rows::Column::new(stringify!($column), &wanted),)*
                    $($names.iter().map(|name| $crate::rows::Column::new(name.as_ref(), &wanted)).collect(),)?
                );
                Self { wanted, rows_count: 0, columns }
            }

            fn rows_count(&self) -> usize {
                self.rows_count
            }

            fn push(&mut self, row: $row<'_>) {
                let ($($column,)* $($group,)?) = &mut self.columns;
                $($column.push(row.$column);)*
                $(
                    for (column, cell) in $group.iter_mut().zip(row.$group) {
                        column.push(cell);
                    }
                )?
                self.rows_count += 1;
            }

            fn take(&mut self) -> Result<::arrow::array::RecordBatch, ::analyze_run::error::AnalyzeError> {
                let ($($column,)* $($group,)?) = &mut self.columns;
                let mut columns = Vec::new();
                $($column.finish(&mut columns);)*
                $($group.iter_mut().for_each(|column| column.finish(&mut columns));)?
                $crate::rows::batch(&self.wanted, columns, ::std::mem::take(&mut self.rows_count))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::extra_unused_lifetimes,
        reason = "the macro names the row's lifetime where no cell has it, too"
    )]

    use super::*;
    use arrow::util::pretty::pretty_format_batches;

    rows! {
        /// A row with a cell of every kind.
        struct TestRow<'a> => TestRows {
            run: &'a str,
            state: Option<Word<'a>>,
            dur: Option<i64>,
            ..parts: [f64; 2] = ["a_ns", "b_ns"],
        }
    }

    rows! {
        /// A row without nulls.
        struct KnownRow<'a> => KnownRows not null {
            op: &'a str,
        }
    }

    #[test]
    fn a_batch_has_the_columns_that_are_asked_for_in_their_order() {
        let all = TestRows::schema();
        let names: Vec<_> = all.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["run", "state", "dur", "a_ns", "b_ns"]);
        assert!(all.fields().iter().all(|field| field.is_nullable()));
        assert!(!KnownRows::schema().field(0).is_nullable());
        let mut rows = TestRows::new(std::sync::Arc::new(all.project(&[4, 1, 2]).unwrap()));
        rows.push(TestRow { run: "r", state: Some(Word("active")), dur: None, parts: [1.0, 2.0] });
        rows.push(TestRow { run: "r", state: None, dur: Some(3), parts: [4.0, 5.0] });
        let text = pretty_format_batches(&[rows.take().unwrap()]).unwrap().to_string();
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with('|')).map(cells).collect();
        assert_eq!(lines[0], ["", "b_ns", "state", "dur", ""]);
        assert_eq!(lines[1], ["", "2.0", "active", "", ""]);
        assert_eq!(lines[2], ["", "5.0", "", "3", ""]);
        assert_eq!(rows.take().unwrap().num_rows(), 0, "rows are taken once");
    }

    #[test]
    fn rows_are_counted_though_no_column_is_asked_for() {
        let mut rows = KnownRows::new(std::sync::Arc::new(Schema::empty()));
        rows.push(KnownRow { op: "cudaMalloc" });
        assert_eq!(rows.take().unwrap().num_rows(), 1);
    }
}
