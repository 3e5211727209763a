//! `analyze align`.

use std::path::PathBuf;

use super::answer;
use crate::{align::rewrite, report::answer::align::document, rewrite::blocking, trace::Trace};
use analyze_run::error::AnalyzeError;

/// Align a profiler's trace of a captured process with the run's clock, so that kernels are beside the calls that launched them
#[derive(clap::Args)]
#[command(
    after_help = "The calls that both recorded are matched, which gives the offset and drift of the clocks and their errors. \
    The new run has the captured rows, with `correlation` in matched calls, and the rows that only the profile has, on the run's clock. \
    If the alignment is inconclusive, nothing is written and the exit code is 3."
)]
pub(super) struct Args {
    /// The captured run
    run: PathBuf,
    /// The profile of the same process: an imported run, or a trace that `analyze import` knows
    profile: PathBuf,
    /// The run to write
    #[arg(long, value_name = "NEW.parquet")]
    out: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let captured = Trace::open(&[self.run]).await?;
        let profile = Trace::open(&[self.profile]).await?;
        let out = self.out.clone();
        let outcome = blocking(move || rewrite::run(&captured, &profile, &out, self.force)).await?;
        answer(self.json, &outcome, |outcome| document(outcome, &self.out))
    }
}
