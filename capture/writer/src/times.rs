//! What is wrong with the times of a recording's rows, if anything is.

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::Int64Type,
};
use trace_schema::TIME_LIMIT_NS;

/// The columns that hold times, each with the least that it may hold: lengths of time are not below zero.
const TIMES: [(&str, i64); 3] = [("ts", -TIME_LIMIT_NS), ("dur", 0), ("runnable_ns", 0)];

/// Describes the first time of some rows that a run cannot have: one beyond the bound, or a length below zero.
pub(crate) fn rows_fault(rows: &RecordBatch) -> Option<String> {
    TIMES.iter().find_map(|(name, least)| {
        let times = rows.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
        let is_wrong = |time: Option<i64>| time.is_some_and(|time| !(*least..=TIME_LIMIT_NS).contains(&time));
        let (row, time) = times.iter().enumerate().find(|(_, time)| is_wrong(*time))?;
        Some(format!("row {row}: {name} is {} ns, which no run can have", time.unwrap_or_default()))
    })
}
