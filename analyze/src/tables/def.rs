//! What defines a table.

use analyze_engine::derived_table;
use analyze_run::{error::AnalyzeError, run_file::RunFile};
use analyze_verdict::derived::Source;
use arrow::array::RecordBatch;

/// A table that is derived from the events of some runs.
pub type TableDef = derived_table::TableDef<Source>;

/// A table of what files say about themselves; its rows are made when the files are opened.
pub struct FactDef {
    /// The name in SQL.
    pub name: &'static str,
    /// What makes the rows.
    pub rows: fn(&[RunFile]) -> Result<RecordBatch, AnalyzeError>,
}
