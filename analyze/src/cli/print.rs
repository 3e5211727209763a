//! Printing to standard output, and writing files.

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use trace_schema::Bytes;
use trace_writer::{Access, Finished, NewFile};

use crate::report::{Document, Screen, terminal};
use analyze_run::{error::AnalyzeError, progress, text::harmless};

/// Prints to standard output: harmless text on a terminal, and exact text elsewhere.
pub(super) fn print(text: &str) -> Result<(), AnalyzeError> {
    if std::io::stdout().is_terminal() { emit(&harmless(text)) } else { emit(text) }
}

/// Prints text as it is, with its colours; a reader that closed standard output early is no error.
fn emit(text: &str) -> Result<(), AnalyzeError> {
    progress::end();
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(source) => Err(AnalyzeError::Io { path: "standard output".into(), source }),
        Ok(()) => Ok(()),
    }
}

/// Writes texts into files of their own. None of the files has its name before all of them are written.
pub(super) fn write_all<'a>(
    files: impl IntoIterator<Item = (PathBuf, &'a str)>,
    force: bool,
) -> Result<(), AnalyzeError> {
    let mut written = Vec::new();
    for (path, text) in files {
        let new = NewFile::create(&path, force, Access::Umask)?;
        let io = |source| AnalyzeError::Io { path, source };
        new.writer()?.write_all(text.as_bytes()).map_err(io)?;
        written.push(new);
    }
    for new in written {
        new.finish()?;
    }
    Ok(())
}

/// Writes a text into a file of its own.
pub(super) fn write(path: &Path, text: &str, force: bool) -> Result<(), AnalyzeError> {
    write_all([(path.to_owned(), text)], force)
}

/// Creates a folder, unless it is there. Its name then survives a power cut, as the files in it do.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Not every file system can sync a folder.
    let _ = File::open(parent.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all());
    Ok(())
}

/// Describes a run that was written.
pub(super) fn written(finished: &Finished, out: &Path) -> String {
    format!("{} events, {}: {}\n", finished.rows_count, Bytes(finished.size_bytes as i64), out.display())
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

/// Prints a document for a terminal, which makes its texts harmless itself.
pub(super) fn show(document: &Document) -> Result<(), AnalyzeError> {
    emit(&terminal(document, screen()))
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
