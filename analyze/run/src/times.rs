//! The bound of times. A file is refused whose times lie beyond [`trace_schema::TIME_LIMIT_NS`], so that sums and
//! differences of a few times cannot overflow. Statistics are checked when a file is opened, and rows when they are read, because statistics may be wrong.

use arrow::{
    array::{AsArray, Int64Array, RecordBatch},
    compute::{max, min},
    datatypes::Int64Type,
};
pub use trace_schema::{metadata_fault, time_fault as fault};

/// The columns that hold times or lengths of time.
pub const TIMES: [&str; 3] = ["ts", "dur", "runnable_ns"];

/// Describes the first time beyond the bound of a column; `None` if all lie within.
pub fn column_fault(name: &str, times: &Int64Array) -> Option<String> {
    [min(times), max(times)].into_iter().flatten().find_map(|time| fault(&format!("column {name}"), time))
}

/// Describes the first time beyond the bound of a batch with columns of `events`; `None` if all lie within.
pub fn batch_fault(batch: &RecordBatch) -> Option<String> {
    TIMES
        .iter()
        .find_map(|name| column_fault(name, batch.column_by_name(name)?.as_primitive_opt::<Int64Type>()?))
}

#[cfg(test)]
mod tests {
    use trace_schema::TIME_LIMIT_NS;

    use super::*;

    #[test]
    fn a_time_beyond_the_bound_is_named() {
        let times = Int64Array::from(vec![Some(0), None, Some(-TIME_LIMIT_NS), Some(TIME_LIMIT_NS)]);
        assert_eq!(column_fault("ts", &times), None);
        for time in [TIME_LIMIT_NS + 1, -TIME_LIMIT_NS - 1, i64::MAX, i64::MIN] {
            let said = column_fault("ts", &Int64Array::from(vec![0, time, 5])).expect("a fault");
            assert_eq!(said, format!("column ts: {time} ns is no time: the bound is 2^61 ns"));
        }
        assert_eq!(column_fault("dur", &Int64Array::from(vec![None, None])), None);
    }
}
