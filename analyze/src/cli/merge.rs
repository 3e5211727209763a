//! `analyze merge`.

use std::path::PathBuf;

use super::{print, written};
use crate::{
    rewrite::{join::StatedOffset, merge},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// Write several runs of one host as one run, or join calls with a scheduler trace of the same process
#[derive(clap::Args)]
#[command(
    after_help = "Runs of different hosts or boots are refused, and so are two runs with rows of one process at the same time.\n\n\
    Calls of one source and a scheduler trace of another source are joined if they have threads in common: two files, one with \
    calls and nothing of the scheduler, the other with the scheduler and no calls, in any order. Both must say that they are on the \
    same clock of the same boot and host; if not, state how the clocks relate with --offset and --offset-error. An offset by which \
    threads are off CPU when they enter or leave a call is refused. A call that begins or ends within the error of an off-CPU \
    interval of its thread is inconclusive, and so is one outside of the scheduler trace."
)]
pub(super) struct Args {
    /// The runs
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The run to write
    #[arg(long, value_name = "NEW.parquet")]
    out: PathBuf,
    /// Time to add to the times of the scheduler trace to get those of the calls, in ns
    #[arg(long, value_name = "NS", allow_negative_numbers = true, requires = "offset_error")]
    offset: Option<i64>,
    /// Largest error of that offset over the whole trace, in ns
    #[arg(long, value_name = "NS", requires = "offset", value_parser = clap::value_parser!(i64).range(0..))]
    offset_error: Option<i64>,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&self.runs).await?;
        let stated = self.offset.zip(self.offset_error);
        let stated = stated.map(|(offset_ns, error_ns)| StatedOffset { offset_ns, error_ns });
        let merged = merge::run(&trace, stated, &self.out, self.force).await?;
        let mut text = written(&merged.finished, &self.out);
        for conflict in merged.joined.iter().chain(&merged.conflicts) {
            text += &format!("note: {}\n", text::harmless(conflict));
        }
        print(&text)
    }
}
