//! `analyze findings`, which is what `analyze RUN` stands for.

use std::path::PathBuf;

use super::answer;
use crate::{questions::findings, report::answer::findings::document, trace::Trace};
use analyze_run::error::AnalyzeError;

/// Say what is wrong with a run: ranked, with costs, evidence and what to do (`analyze RUN` is short for it)
///
/// What ended the run comes first (a crash, a hang, a request for memory that failed, a leak), then what costs most of the run's
/// wall time. A cost is a sum over parts of the run's account (the view run_time); no two findings count the same time.
/// Where the record only bounds a cost, or does not tell, the finding says so. `analyze report` shows the same list with
/// everything behind it. The kinds of findings are in VERDICTS.md.
#[derive(clap::Args)]
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
        answer(self.json, &findings::run(&trace).await?, document)
    }
}
