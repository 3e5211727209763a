//! Exports runs to the formats of other tools. Each format is one file; `timeline` defines what all
//! timeline formats show, [`folded`] what flame graphs and profiles show, and [`events`] exports the rows
//! themselves.

mod chrome;
mod dictionaries;
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

/// Format of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protobuf trace format.
    Perfetto,
    /// Chrome's trace event format (JSON).
    Chrome,
}

/// Writes the timeline of a run, compressed with gzip if `out` ends in `.gz`.
///
/// # Errors
/// Returns an error if the run's data cannot be read, or if the file cannot be written.
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

/// Writes sums by call stack as a profile for pprof, compressed with gzip.
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
