//! `analyze info`.

use std::path::PathBuf;

use super::answer;
use crate::{questions::info, report::answer::info::document, trace::Trace};
use analyze_run::error::AnalyzeError;

/// Show where a run comes from, what was probed, what was lost, and what it contains
#[derive(clap::Args)]
pub(super) struct Args {
    /// Runs to describe
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&self.runs).await?;
        answer(self.json, &info::run(&trace).await?, |infos| document(infos))
    }
}
