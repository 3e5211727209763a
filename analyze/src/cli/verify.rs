//! `analyze verify`.

use std::path::PathBuf;

use super::answer;
use crate::{questions::verify, report::answer::verify::document, trace::Trace};
use analyze_run::error::AnalyzeError;

/// Check that a run is intact: its schema, order, ranges and losses
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 the file is intact (events may have been lost while recording); 2 it is broken, or no run; \
5 reading failed; 70 internal error.\n\
quality_ratio = recorded / (recorded + lost) × (1 − rows that contradict others / rows); null if losses are not counted."
)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        let check = verify::run(&trace).await?;
        answer(self.json, &check, document)?;
        match check.faults.len() {
            0 => Ok(()),
            count => Err(AnalyzeError::Broken { path: self.run, count }),
        }
    }
}
