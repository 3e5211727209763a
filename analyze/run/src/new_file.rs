//! Where an answer may be written: never over an existing file unless asked, never over an input.

use std::path::{Path, PathBuf};

use trace_writer::NewFile;

use crate::error::AnalyzeError;

/// Refuses, before any work, an output that is one of the inputs by whatever name, and one that cannot be written. An
/// existing file is accepted only with `force`.
///
/// # Errors
/// Returns an error if the output is an input, or if it cannot be written.
pub fn check<'a>(
    out: &Path,
    force: bool,
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), AnalyzeError> {
    if let Ok(place) = out.canonicalize()
        && inputs.into_iter().any(|input| input.canonicalize().is_ok_and(|input| input == place))
    {
        return Err(AnalyzeError::Query(format!("{} is an input: give --out another name", out.display())));
    }
    Ok(NewFile::check(out, force)?)
}
