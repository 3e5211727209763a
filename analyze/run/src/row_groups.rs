//! The row groups of a run's file, and the order that they declare.

use std::ops::Range;

use parquet::file::{metadata::ParquetMetaData, statistics::Statistics};

/// The column that row groups are sorted by.
pub const ORDER: &str = "ts";

/// A row group: where it lies in the file, and the times of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// The bytes of its columns.
    pub bytes: Range<i64>,
    /// The time of its first row, in ns.
    pub first_ts: i64,
    /// The time of its last row, in ns.
    pub last_ts: i64,
}

/// The row groups of a file, if all of them are sorted by time and say from when to when they go.
pub fn row_groups(metadata: &ParquetMetaData) -> Option<Vec<RowGroup>> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let column = columns.iter().position(|column| column.name() == ORDER)?;
    let groups = metadata.row_groups().iter().map(|group| {
        let by = group.sorting_columns()?.first()?;
        if usize::try_from(by.column_idx).ok()? != column || by.descending {
            return None;
        }
        let Some(Statistics::Int64(times)) = group.column(column).statistics() else { return None };
        let start = group.columns().iter().map(|column| column.byte_range().0).min()?;
        let end = group.columns().iter().map(|column| column.byte_range()).map(|(at, len)| at + len).max()?;
        let bytes = i64::try_from(start).ok()?..i64::try_from(end).ok()?;
        Some(RowGroup { bytes, first_ts: *times.min_opt()?, last_ts: *times.max_opt()? })
    });
    groups.collect()
}
