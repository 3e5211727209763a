//! Errors of polars.

use analyze_run::error::AnalyzeError;
use polars::error::PolarsError;

/// Converts an error of polars. Its plans are fixed and its columns made here, so that it is never the user's.
pub(crate) fn failed(error: PolarsError) -> AnalyzeError {
    AnalyzeError::Internal(error.to_string())
}
