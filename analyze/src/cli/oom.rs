//! `analyze oom`.

use std::path::PathBuf;

use super::answer;
use crate::{questions::memory::expandable, report::answer::oom::document, trace::Trace};
use analyze_run::error::AnalyzeError;

/// Explain why requests for GPU memory failed: what was free, how it was fragmented, what used the rest, and what would have made room
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Number of segments shown of each failure that live blocks hold
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let ooms = expandable::failures(&trace).await?;
        answer(self.json, &ooms, |ooms| document(ooms, self.top))
    }
}
