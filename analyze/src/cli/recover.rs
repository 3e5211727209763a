//! `analyze recover`.

use std::path::PathBuf;

use trace_schema::Bytes;

use super::print;
use analyze_run::error::AnalyzeError;

/// Convert an interrupted recording (RUN.parquet.recording) to a run
#[derive(clap::Args)]
pub(super) struct Args {
    /// The unfinished recording
    recording: PathBuf,
    /// The run to write [default: the recording's name without `.recording`]
    #[arg(long, value_name = "RUN.parquet")]
    out: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let out = self.out.unwrap_or_else(|| {
            if self.recording.extension().is_some_and(|extension| extension == "recording") {
                self.recording.with_extension("")
            } else {
                self.recording.with_extension("parquet")
            }
        });
        let finished = trace_writer::recover(&self.recording, &out, self.force)?;
        let size = Bytes(finished.size_bytes as i64);
        print(&format!("{} events, {size}: {}\n", finished.rows_count, out.display()))
    }
}
