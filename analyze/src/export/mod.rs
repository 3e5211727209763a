//! Runs to formats of other tools. One file a format; [`mod@timeline`] says what all formats of timelines show, [`folded`] what
//! flame graphs and profiles do, and [`events`] hands out the rows themselves.

mod chrome;
pub mod events;
pub mod flame_graph;
pub mod folded;
mod lanes;
mod new_file;
mod perfetto;
mod pprof;
mod timeline;

use std::path::Path;

pub use new_file::{NewFile, is_gzip};
pub use timeline::Counts;

use crate::{questions::info, trace::Trace};
use analyze_run::error::AnalyzeError;
use folded::{Folded, What};

/// Formats of timelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Perfetto,
    Chrome,
}

/// Writes the timeline of a run; with gzip if `out` ends in `.gz`.
///
/// # Errors
/// If the run's data cannot be read, or the file not be written.
pub async fn timeline(
    trace: &Trace,
    format: Format,
    out: &Path,
    force: bool,
) -> Result<Counts, AnalyzeError> {
    let mut file = NewFile::create(trace, out, force, is_gzip(out))?;
    let counts = match format {
        Format::Perfetto => timeline::write(trace, perfetto::Perfetto::new(&mut file), out).await?,
        Format::Chrome => timeline::write(trace, chrome::Chrome::new(&mut file), out).await?,
    };
    file.finish()?;
    Ok(counts)
}

/// Writes sums by call stack as a profile for pprof.
///
/// # Errors
/// If the file cannot be written.
pub fn pprof(trace: &Trace, found: &[(What, Folded)], out: &Path, force: bool) -> Result<(), AnalyzeError> {
    let Some(run) = trace.files().first().map(|file| &file.run) else {
        return Err(AnalyzeError::Internal("a trace without files".to_owned()));
    };
    let mut notes = info::warnings(run);
    notes.extend(found.iter().flat_map(|(_, folded)| folded.notes.iter().cloned()));
    let mut file = NewFile::create(trace, out, force, true)?;
    pprof::write(found, run, &notes, &mut file)
        .map_err(|source| AnalyzeError::Io { path: out.to_owned(), source })?;
    file.finish()
}
