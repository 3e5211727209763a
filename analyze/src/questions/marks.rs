//! Marks that a user names.

use analyze_run::error::AnalyzeError;

/// Returns the error of a mark that no run has.
pub(super) fn missing(name: &str) -> AnalyzeError {
    AnalyzeError::Query(format!(
        "the run has no mark {name:?}; `analyze sql RUN 'SELECT name FROM marks'` lists them"
    ))
}
