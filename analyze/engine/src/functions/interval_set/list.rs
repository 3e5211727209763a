//! Converts sets from and to Arrow lists. A list that is not sorted, or that overlaps, is read as the set
//! that it covers.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, Int64Array, Int64Builder, ListArray, StructArray},
    buffer::{NullBuffer, OffsetBuffer},
    datatypes::{DataType, Field, Fields, Int64Type},
};
use datafusion::{
    common::{exec_datafusion_err, exec_err},
    error::Result,
};

use super::algebra::{self, Interval, OPEN};

fn fields() -> Fields {
    Fields::from(vec![Field::new("ts", DataType::Int64, true), Field::new("dur", DataType::Int64, true)])
}

fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Struct(fields()), true))
}

/// Returns the Arrow type of a set.
pub(super) fn data_type() -> DataType {
    DataType::List(item())
}

/// Returns whether values of a type can be cast to sets.
pub(super) fn is_set(ty: &DataType) -> bool {
    match ty {
        DataType::Null => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            match item.data_type() {
                DataType::Struct(fields) => {
                    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
                    names == ["ts", "dur"] && fields.iter().all(|field| is_whole(field.data_type()))
                }
                DataType::Null => true,
                _ => false,
            }
        }
        _ => false,
    }
}

fn is_whole(ty: &DataType) -> bool {
    ty.is_integer() || ty.is_null()
}

/// Converts a span to an interval. Returns `None` if the span is empty or has no start.
///
/// # Errors
/// Returns an error if the length is negative, or if the end exceeds the range of times.
pub(super) fn interval(ts: Option<i64>, dur: Option<i64>) -> Result<Option<Interval>> {
    let Some(ts) = ts else { return Ok(None) };
    match dur {
        None => Ok(Some(Interval { ts, end: OPEN })),
        Some(0) => Ok(None),
        Some(dur) if dur < 0 => exec_err!("the span at {ts} has the negative length {dur} ns"),
        Some(dur) => match ts.checked_add(dur) {
            Some(end) if end < OPEN => Ok(Some(Interval { ts, end })),
            _ => Err(exec_datafusion_err!("the span at {ts} of {dur} ns ends after every time there is")),
        },
    }
}

fn at(array: &Int64Array, row: usize) -> Option<i64> {
    array.is_valid(row).then(|| array.value(row))
}

/// Appends the intervals of spans.
///
/// # Errors
/// Returns an error under the same conditions as [`interval`].
pub(super) fn extend(intervals: &mut Vec<Interval>, ts: &Int64Array, dur: &Int64Array) -> Result<()> {
    for row in 0..ts.len() {
        intervals.extend(interval(at(ts, row), at(dur, row))?);
    }
    Ok(())
}

/// Returns the set in a row, or `None` if it is null.
///
/// # Errors
/// Returns an error under the same conditions as [`interval`].
pub(super) fn read(sets: &ListArray, row: usize) -> Result<Option<Vec<Interval>>> {
    if sets.is_null(row) {
        return Ok(None);
    }
    let spans = sets.value(row);
    let spans = spans.as_struct();
    let (ts, dur) =
        (spans.column(0).as_primitive::<Int64Type>(), spans.column(1).as_primitive::<Int64Type>());
    let mut intervals = Vec::with_capacity(spans.len());
    for span in (0..spans.len()).filter(|span| spans.is_valid(*span)) {
        intervals.extend(interval(at(ts, span), at(dur, span))?);
    }
    algebra::merge(&mut intervals);
    Ok(Some(intervals))
}

/// Builds an array of sets.
#[derive(Default)]
pub(super) struct Builder {
    ts: Int64Builder,
    dur: Int64Builder,
    lengths: Vec<usize>,
    is_valid: Vec<bool>,
}

impl Builder {
    /// Appends a set; `None` appends a null.
    pub(super) fn append(&mut self, set: Option<&[Interval]>) {
        let intervals = set.unwrap_or_default();
        for interval in intervals {
            self.ts.append_value(interval.ts);
            self.dur.append_option((interval.end != OPEN).then(|| interval.end - interval.ts));
        }
        self.lengths.push(intervals.len());
        self.is_valid.push(set.is_some());
    }

    /// Returns the array of all appended sets.
    ///
    /// # Errors
    /// Returns an error if there are too many intervals for one array.
    pub(super) fn finish(mut self) -> Result<ListArray> {
        let (ts, dur) = (self.ts.finish(), self.dur.finish());
        if i32::try_from(ts.len()).is_err() {
            return exec_err!("{} intervals are too many for one batch", ts.len());
        }
        let spans = StructArray::try_new(fields(), vec![Arc::new(ts), Arc::new(dur)], None)?;
        let (offsets, nulls) = (OffsetBuffer::from_lengths(self.lengths), NullBuffer::from(self.is_valid));
        Ok(ListArray::try_new(item(), offsets, Arc::new(spans), Some(nulls))?)
    }
}
