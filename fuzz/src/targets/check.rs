//! What every reader promises about what it returns.

use std::path::Path;

use analyze_run::{error::AnalyzeError, reading::plain, run_file};
use trace_writer::WriteError;

/// Checks that an error blames the input: that nothing in the program has failed, and neither reading nor writing has.
pub(super) fn blames_the_input(error: &AnalyzeError) {
    let is_clear = match error {
        AnalyzeError::Internal(_) | AnalyzeError::Io { .. } => false,
        AnalyzeError::Write(error) => is_about_the_input(error),
        _ => true,
    };
    assert!(is_clear, "it is no error of the input: {error:?}");
}

/// Returns whether an error of writing blames what was to be written, which only a recording can be the reason for.
pub(super) fn is_about_the_input(error: &WriteError) -> bool {
    matches!(error, WriteError::NotARecording { .. } | WriteError::NothingRecorded(_))
}

/// Reads every row of a run. Returns their number.
///
/// # Errors
/// Returns an error if the file is no run, or if its rows cannot be decoded.
pub(super) fn every_row(path: &Path) -> Result<u64, AnalyzeError> {
    let file = run_file::open(path)?;
    let mut rows_count = 0;
    for batch in plain::batches(file.paths, None) {
        rows_count += batch?.num_rows() as u64;
    }
    assert_eq!(rows_count, file.rows_count, "the rows are not as many as the file says");
    Ok(rows_count)
}
