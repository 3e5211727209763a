//! Rows that say whether they are whole: each has a number, and every other value follows from it.

use std::{fs::File, path::Path};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::cast,
    datatypes::{DataType, Int64Type, UInt32Type, UInt64Type},
};
use parquet::{arrow::arrow_reader::ParquetRecordBatchReaderBuilder, file::metadata::KeyValue};
use trace_schema::{Kind, Lost, META_RUN, Row, Run};

use crate::error::FaultError;

/// The functions whose calls the rows are.
const OPS: [&str; 3] = ["cudaMalloc", "cudaFree", "cudaLaunchKernel"];
/// What the metadata of a finished run counts as lost.
pub const LOST_COUNT: u64 = 4711;

/// A number that looks like any other (the finalizer of SplitMix64).
fn mix(number: i64) -> u64 {
    let mut value = (number as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The row with a number, at a time in ns.
pub fn row(number: i64, ts: i64) -> Row {
    let mixed = mix(number);
    let op = OPS[(mixed % OPS.len() as u64) as usize];
    Row {
        dur: (mixed & 3 != 0).then_some((mixed >> 40) as i64),
        addr: Some(mixed),
        size_bytes: Some(number),
        detail: (mixed & 15 == 0).then(|| format!("row {number}").into()),
        ..Row::new(ts, Kind::Call, op.into(), 7, 7 + (mixed >> 8 & 3) as u32)
    }
}

/// The metadata of a run of such rows, once it is finished.
pub fn finished(start: &Run) -> Run {
    let lost = Lost { probe: "cudaMalloc".to_owned(), from_ns: 0, to_ns: 1, count: LOST_COUNT };
    Run { lost: vec![lost], lost_is_counted: true, ..start.clone() }
}

/// The rows of a file.
pub(crate) fn read(path: &Path) -> Result<(Vec<RecordBatch>, Run), FaultError> {
    let wrong = |what: &dyn std::fmt::Display| FaultError::Wrong(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| wrong(&error))?;
    let pairs = builder.metadata().file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    let run =
        pairs.iter().find(|pair: &&KeyValue| pair.key == META_RUN).and_then(|pair| pair.value.as_deref());
    let run = serde_json::from_str(run.unwrap_or_default()).map_err(|error| wrong(&error))?;
    let batches = builder.build().map_err(|error| wrong(&error))?;
    let batches = batches.collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
    Ok((batches, run))
}

/// A column of a batch.
pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, FaultError> {
    batch.column_by_name(name).ok_or_else(|| FaultError::Wrong(format!("there is no column {name}")))
}

/// A column of text.
pub(crate) fn texts(batch: &RecordBatch, name: &str) -> Result<ArrayRef, FaultError> {
    cast(column(batch, name)?, &DataType::Utf8)
        .map_err(|error| FaultError::Wrong(format!("column {name}: {error}")))
}

/// The number of the first row; `None` if there is none.
pub(crate) fn first_number(batches: &[RecordBatch]) -> Result<Option<i64>, FaultError> {
    let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else { return Ok(None) };
    Ok(Some(column(batch, "size_bytes")?.as_primitive::<Int64Type>().value(0)))
}

/// Checks that the rows of the batches have the numbers from `first` on, that each is whole, and that their times increase.
/// Returns the number of the next row, and the time of the last in ns.
pub(crate) fn check(batches: &[RecordBatch], first: i64) -> Result<(i64, Option<i64>), FaultError> {
    let (mut number, mut last) = (first, None);
    for batch in batches {
        let ts = column(batch, "ts")?.as_primitive::<Int64Type>();
        let (dur, size) = (column(batch, "dur")?, column(batch, "size_bytes")?);
        let (dur, size) = (dur.as_primitive::<Int64Type>(), size.as_primitive::<Int64Type>());
        let addr = column(batch, "addr")?.as_primitive::<UInt64Type>();
        let tid = column(batch, "tid")?.as_primitive::<UInt32Type>();
        let (op, detail) = (texts(batch, "op")?, texts(batch, "detail")?);
        let (op, detail) = (op.as_string::<i32>(), detail.as_string::<i32>());
        for at in 0..batch.num_rows() {
            let expected = row(number, ts.value(at));
            let is_whole = (size.is_valid(at) && size.value(at) == number)
                && dur.is_valid(at).then(|| dur.value(at)) == expected.dur
                && addr.is_valid(at).then(|| addr.value(at)) == expected.addr
                && detail.is_valid(at).then(|| detail.value(at)) == expected.detail.as_deref()
                && tid.value(at) == expected.tid
                && *op.value(at) == *expected.op;
            if !is_whole {
                let found = size.value(at);
                return Err(FaultError::Wrong(format!(
                    "in place of row {number} stands {found}, or half of it"
                )));
            }
            if last.is_some_and(|last| ts.value(at) <= last) {
                return Err(FaultError::Wrong(format!("row {number} is not later than the one before it")));
            }
            last = Some(ts.value(at));
            number += 1;
        }
    }
    Ok((number, last))
}
