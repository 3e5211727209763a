//! Writes a run from batches of rows that exist already.

use std::path::Path;

use arrow::array::RecordBatch;
use trace_schema::Run;

use crate::{
    Finished, WriteError,
    new_file::{Access, NewFile, check_run},
    parquet_file::Writer,
};

/// Writes the batches of `rows` as the run `out`, which appears complete or not at all. `run` is called for the
/// metadata after the last batch.
///
/// # Errors
/// If `out` cannot be written, or exists and `force` is false, if `rows` yields an error, or if writing fails.
pub fn write<E: From<WriteError>>(
    out: &Path,
    force: bool,
    rows: impl Iterator<Item = Result<RecordBatch, E>>,
    run: impl FnOnce() -> Run,
) -> Result<Finished, E> {
    check_run(out, force)?;
    let new = NewFile::create(out, force, Access::Owner)?;
    let mut failed = None;
    let whole = rows.map_while(|rows| match rows {
        Ok(rows) => Some(rows),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let writer = Writer::create(out, new.writer()?)?.rows(whole)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let rows_count = writer.finish(&run())?;
    let size_bytes = new.finish()?;
    Ok(Finished { rows_count, size_bytes, parts_count: 0 })
}
