//! Other tools' traces to runs. One file a format: it reads, converts to rows, and says what the source
//! cannot tell.

mod compressed;
mod ingero;
mod json;
mod kineto;
mod pickle;
mod torch_snapshot;

use std::path::Path;

use trace_writer::Finished;

use crate::error::AnalyzeError;

/// What can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// SQLite database of the ingero eBPF tracer
    Ingero,
    /// Trace of PyTorch's profiler (Kineto, Chrome JSON), also with gzip
    Kineto,
    /// Pickle of `torch.cuda.memory._snapshot()` or `_dump_snapshot()`, also with gzip
    TorchSnapshot,
}

/// Converts a file.
///
/// # Errors
/// If it is not of that format, is damaged, or the run cannot be written.
pub(crate) fn run(format: Format, file: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    match format {
        Format::Ingero => ingero::import(file, out, force),
        Format::Kineto => kineto::import(file, out, force),
        Format::TorchSnapshot => torch_snapshot::import(file, out, force),
    }
}
