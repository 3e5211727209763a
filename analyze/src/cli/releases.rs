//! `analyze releases`.

use std::path::PathBuf;

use super::answer;
use crate::{questions::memory::history, report::answer::releases::document, trace::Trace};
use analyze_run::error::AnalyzeError;

/// Show what GPU memory empty_cache(), ipc_collect(), pauses, process exits and phases released, what stayed reserved, and why
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Number of rows shown of each table: those that released most
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Print JSON, with every row
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let history = history::run(&trace).await?;
        answer(self.json, &history, |history| document(history, self.top))
    }
}
