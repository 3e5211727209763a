//! Files that are written: never over an existing file unless asked, never over an input.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use crate::error::AnalyzeError;

/// Creates a file. One that exists is replaced only with `force`.
///
/// # Errors
/// Returns an error if the file exists and `force` is not set, or if it cannot be created.
pub fn create(path: &Path, force: bool) -> Result<File, AnalyzeError> {
    if !force && path.exists() {
        return Err(AnalyzeError::Exists(path.to_owned()));
    }
    File::create(path).map_err(|source| AnalyzeError::Io { path: path.to_owned(), source })
}

/// Refuses an output that is one of the inputs, by whatever name.
///
/// # Errors
/// Returns an error if the output is an input.
pub fn differs<'a>(out: &Path, inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), AnalyzeError> {
    let Ok(place) = out.canonicalize() else { return Ok(()) };
    match inputs.into_iter().any(|input| input.canonicalize().is_ok_and(|input| input == place)) {
        true => Err(AnalyzeError::Query(format!("{} is an input: give --out another name", out.display()))),
        false => Ok(()),
    }
}
