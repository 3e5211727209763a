//! Printing to standard output, and writing files.

use std::{
    io::{IsTerminal, Write},
    path::Path,
};

use serde::Serialize;

use crate::report::{Document, Screen, terminal};
use analyze_run::{error::AnalyzeError, new_file, progress};

/// Prints to standard output; a reader that closed it early is no error.
pub(super) fn print(text: &str) -> Result<(), AnalyzeError> {
    progress::end();
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(source) => Err(AnalyzeError::Io { path: "standard output".into(), source }),
        Ok(()) => Ok(()),
    }
}

/// Writes a text into a file of its own.
pub(super) fn write(path: &Path, text: &str, force: bool) -> Result<(), AnalyzeError> {
    new_file::create(path, force)?
        .write_all(text.as_bytes())
        .map_err(|source| AnalyzeError::Io { path: path.to_owned(), source })
}

/// Returns the name of a run, directory or pattern for a file in the current directory.
pub(super) fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = stem.trim_matches(|c: char| !c.is_alphanumeric());
    if name.is_empty() { "report".to_owned() } else { name.replace(['*', '?', '[', ']'], "_") }
}

/// Returns what standard output is: a terminal's width, and whether colours are wanted there (NO_COLOR is not set).
fn screen() -> Screen {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return Screen::default();
    }
    let size = terminal_size::terminal_size_of(stdout);
    let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Screen { width: Some(size.map_or(80, |(width, _)| usize::from(width.0))), is_coloured }
}

/// Prints a document for a terminal.
pub(super) fn show(document: &Document) -> Result<(), AnalyzeError> {
    print(&terminal(document, screen()))
}

/// Prints an analysis as JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), AnalyzeError> {
    let json =
        serde_json::to_string_pretty(value).map_err(|error| AnalyzeError::Internal(error.to_string()))?;
    print(&(json + "\n"))
}

/// Prints the answer to a question: as JSON if that is asked for, else as a document.
pub(super) fn answer<T: Serialize>(
    json: bool,
    value: &T,
    document: impl FnOnce(&T) -> Document,
) -> Result<(), AnalyzeError> {
    if json { print_json(value) } else { show(&document(value)) }
}
