//! Converts traces of other tools to runs. Each format has one file or folder, which reads the source,
//! converts it to rows, and states what the source cannot show.

mod compressed;
mod events;
mod ingero;
mod json;
mod kineto;
mod map;
mod nsys;
mod perfetto;
mod pickle;
pub mod protobuf;
mod sched;
mod sniff;
mod sqlite;
mod torch_snapshot;

use std::path::Path;

use clap::ValueEnum;
use trace_writer::Finished;

use analyze_run::{error::AnalyzeError, new_file};

pub use map::Map;
pub use sniff::sniff;

/// A format that `analyze import` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Table of any tool as CSV, also with gzip: `--map` says which column is which
    Csv,
    /// Rows of the table `events`: CSV or JSON lines, as `analyze export events` writes them, also with gzip;
    /// or Parquet
    Events,
    /// SQLite database of the ingero eBPF tracer
    Ingero,
    /// Text of ftrace (`trace` or `trace_pipe` of tracefs, `trace-cmd report`) with sched events, also with
    /// gzip
    Ftrace,
    /// Trace of PyTorch's profiler (Kineto, Chrome JSON), also with gzip
    Kineto,
    /// Export of Nsight Systems (`nsys export --type sqlite`, or `parquetdir`: a folder)
    Nsys,
    /// Text of `perf script` with sched events, or of `perf sched timehist`, also with gzip
    Perf,
    /// Trace of Perfetto (`.pftrace`, `.perfetto-trace`) with ftrace's sched events, also with gzip
    Perfetto,
    /// Pickle of `torch.cuda.memory._snapshot()` or `_dump_snapshot()`, also with gzip
    TorchSnapshot,
}

impl Format {
    /// Returns the name of the format on the command line of `analyze import`.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// How the columns of a CSV table are separated and assigned.
pub struct Layout {
    /// Assigns the table's columns to those of a run. `None` means that they are named as in the table
    /// `events`.
    pub map: Option<Map>,
    /// Byte that separates two cells.
    pub delimiter: u8,
}

impl Default for Layout {
    fn default() -> Self {
        Self { map: None, delimiter: b',' }
    }
}

/// Converts `file` to a run at `out`. If `format` is `None`, it is detected from the content of the file. An
/// existing run is replaced only if `force` is set.
///
/// # Errors
/// Returns an error if the format is unknown, the file is not of that format or is damaged, or the run cannot
/// be written.
pub fn run(
    format: Option<Format>,
    layout: &Layout,
    file: &Path,
    out: &Path,
    force: bool,
) -> Result<Finished, AnalyzeError> {
    let format = match format {
        Some(format) => format,
        None => sniff(file)
            .map_err(|source| AnalyzeError::Io { path: file.to_owned(), source })?
            .ok_or_else(|| AnalyzeError::UnknownFormat { path: file.to_owned() })?,
    };
    new_file::differs(out, [&file.to_owned()])?;
    match format {
        Format::Csv if layout.map.is_none() => Err(AnalyzeError::Query(
            "csv needs --map: which column of the table is which of a run".to_owned(),
        )),
        Format::Csv | Format::Events => events::import(layout, file, out, force),
        Format::Ftrace => sched::import(sched::Source::Ftrace, file, out, force),
        Format::Ingero => ingero::import(file, out, force),
        Format::Kineto => kineto::import(file, out, force),
        Format::Nsys => nsys::import(file, out, force),
        Format::Perf => sched::import(sched::Source::Perf, file, out, force),
        Format::Perfetto => perfetto::import(file, out, force),
        Format::TorchSnapshot => torch_snapshot::import(file, out, force),
    }
}
