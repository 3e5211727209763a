//! `analyze memory`.

use std::path::PathBuf;

use super::{answer, print_json, show};
use crate::{
    questions::{
        info,
        memory::{
            advice,
            state::{self, At},
        },
    },
    report::answer as report,
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Show where PyTorch's memory is at an instant, to the byte, and which live blocks hold the free memory around them
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// The instant: peak (when most was reserved), end, a time since recording began (1.5s), or the name of a mark
    #[arg(long, value_name = "peak|end|TIME|MARK", default_value = "peak")]
    at: String,
    /// Number of segments shown that live blocks hold
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Show why memory was reserved and released over the whole run, and what would use less
    #[arg(long)]
    advice: bool,
    /// Print JSON, with every segment that live blocks hold
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        if self.advice {
            return answer(self.json, &advice::run(&trace).await?, report::advice::document);
        }
        let moment = state::run(&trace, &At::parse(&self.at)).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        if self.json {
            return print_json(&serde_json::json!({ "moment": moment, "warnings": warnings }));
        }
        show(&report::memory::document(&moment, warnings, self.top))
    }
}
