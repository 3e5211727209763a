//! Writes a run from batches of rows that exist already.

use std::{fs, path::Path};

use arrow::array::RecordBatch;
use trace_schema::Run;

use crate::{Finished, WriteError, parquet_file::Writer, recording::beside};

/// Writes the batches of `rows` as the run `out`, which appears complete or not at all. `run` is called for the
/// metadata after the last batch.
///
/// # Errors
/// If `out` exists and `force` is false, if `rows` yields an error, or if writing fails.
pub fn write<E: From<WriteError>>(
    out: &Path,
    force: bool,
    rows: impl Iterator<Item = Result<RecordBatch, E>>,
    run: impl FnOnce() -> Run,
) -> Result<Finished, E> {
    if !force && out.exists() {
        return Err(WriteError::Exists(out.to_owned()).into());
    }
    let temporary = beside(out, ".tmp");
    let written = copy(&temporary, out, rows, run);
    if written.is_err() {
        // The error is returned; that the temporary file cannot be removed, too, adds nothing.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn copy<E: From<WriteError>>(
    temporary: &Path,
    out: &Path,
    rows: impl Iterator<Item = Result<RecordBatch, E>>,
    run: impl FnOnce() -> Run,
) -> Result<Finished, E> {
    let mut failed = None;
    let whole = rows.map_while(|rows| match rows {
        Ok(rows) => Some(rows),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let writer = Writer::create(temporary)?.rows(whole)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let rows_count = writer.finish(&run())?;
    let io = |source| WriteError::Io { path: temporary.to_owned(), source };
    let size_bytes = fs::metadata(temporary).map_err(io)?.len();
    fs::rename(temporary, out).map_err(io)?;
    Ok(Finished { rows_count, size_bytes, parts_count: 0 })
}
