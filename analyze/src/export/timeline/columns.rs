//! Columns of the queries' batches, and the slices that are made from their rows.

use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};

use super::model::{Owner, Slice, Value};
use analyze_run::{
    columns::{Cell, floats, integers, strings},
    error::AnalyzeError,
};

/// Columns of a batch that become values beside a slice.
pub(super) struct Args<'a> {
    texts: Vec<(&'a str, StringArray)>,
    integers: Vec<(&'a str, Int64Array)>,
    floats: Vec<(&'a str, Float64Array)>,
}

impl<'a> Args<'a> {
    /// Takes the named columns of a batch: texts, integers, and ratios as floating-point numbers.
    pub(super) fn new(
        batch: &RecordBatch,
        texts: &[&'a str],
        numbers: &[&'a str],
        ratios: &[&'a str],
    ) -> Result<Self, AnalyzeError> {
        let named = |names: &[&'a str]| names.to_vec();
        Ok(Self {
            texts: named(texts)
                .into_iter()
                .map(|n| Ok((n, strings(batch, n)?)))
                .collect::<Result<_, AnalyzeError>>()?,
            integers: named(numbers)
                .into_iter()
                .map(|n| Ok((n, integers(batch, n)?)))
                .collect::<Result<_, AnalyzeError>>()?,
            floats: named(ratios)
                .into_iter()
                .map(|n| Ok((n, floats(batch, n)?)))
                .collect::<Result<_, AnalyzeError>>()?,
        })
    }

    /// Collects the values of a row that are not null.
    pub(super) fn at<'b>(&'b self, row: usize, values: &mut Vec<(&'b str, Value<'b>)>) {
        values.clear();
        values.extend(self.texts.iter().filter_map(|(n, c)| Some((*n, Value::Text(c.at(row)?)))));
        values.extend(self.integers.iter().filter_map(|(n, c)| Some((*n, Value::Int(c.at(row)?)))));
        values.extend(self.floats.iter().filter_map(|(n, c)| Some((*n, Value::Float(c.at(row)?)))));
    }
}

/// Process, thread and time of each row.
pub(super) struct Keys {
    pid: Int64Array,
    tid: Int64Array,
    /// Start times in ns.
    pub(super) ts: Int64Array,
}

impl Keys {
    /// Takes the columns from a batch.
    pub(super) fn new(batch: &RecordBatch) -> Result<Self, AnalyzeError> {
        Ok(Self { pid: integers(batch, "pid")?, tid: integers(batch, "tid")?, ts: integers(batch, "ts")? })
    }

    /// Process and thread of a row.
    pub(super) fn thread(&self, row: usize) -> (u32, u32) {
        (self.pid.value(row) as u32, self.tid.value(row) as u32)
    }

    /// Process and thread of a row, as the owner of a track.
    pub(super) fn owner(&self, row: usize) -> Owner {
        Some(self.thread(row))
    }
}

/// ID of the flow from a slow call to its chain link with this number. It is the same in every export of a
/// run.
pub(super) fn flow(call: [i64; 4], number: i64) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    call.into_iter().chain([number]).flat_map(i64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, fnv)
}

/// Creates an instant.
pub(super) fn point<'a>(
    ts: i64,
    name: &'a str,
    category: &'a str,
    args: &'a [(&'a str, Value<'a>)],
) -> Slice<'a> {
    Slice { ts, dur: None, name, category, args, flows: &[], ended_flow: None }
}
