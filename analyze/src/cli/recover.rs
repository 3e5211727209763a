//! `analyze recover`.

use std::path::PathBuf;

use super::{print, written};
use analyze_run::{error::AnalyzeError, new_file, panics};

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
        new_file::check(&out, self.force, [&self.recording])?;
        let recover = || trace_writer::recover(&self.recording, &out, self.force).map_err(AnalyzeError::from);
        let finished = panics::decoding(&self.recording, recover)?;
        print(&written(&finished, &out))
    }
}
