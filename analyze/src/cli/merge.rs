//! `analyze merge`.

use std::path::PathBuf;

use trace_schema::Bytes;

use super::print;
use crate::{rewrite::merge, trace::Trace};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// Write several runs of one host as one run
#[derive(clap::Args)]
#[command(
    after_help = "Runs of different hosts or boots are refused, and so are two runs with rows of one process at the same time."
)]
pub(super) struct Args {
    /// The runs
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The run to write
    #[arg(long, value_name = "NEW.parquet")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&self.runs).await?;
        let merged = merge::run(&trace, &self.out, self.force).await?;
        let size = Bytes(merged.finished.size_bytes as i64);
        let mut text = format!("{} events, {size}: {}\n", merged.finished.rows_count, self.out.display());
        for conflict in &merged.conflicts {
            text += &format!("note: {}\n", text::harmless(conflict));
        }
        print(&text)
    }
}
