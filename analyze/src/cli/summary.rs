//! `analyze summary`.

use std::path::PathBuf;

use super::{print_json, show};
use crate::{
    questions::{info, phases, summary},
    report::answer::summary::document,
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Show how often functions were called and how long they took, by group (size, direction, first call) and by phase
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
        let trace = Trace::open(&[self.run]).await?;
        let lines = summary::run(&trace).await?;
        let phases = phases::run(&trace).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        if self.json {
            return print_json(
                &serde_json::json!({ "strata": lines, "phases": phases, "warnings": warnings }),
            );
        }
        show(&document(&lines, &phases, warnings))
    }
}
