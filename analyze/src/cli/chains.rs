//! `analyze chains`.

use std::path::PathBuf;

use trace_schema::Nanos;

use super::answer;
use crate::{
    questions::chains::{self, EXAMPLES},
    report::answer::chains::document,
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_verdict::params::Params;

/// Explain why slow calls were slow, function by function, and what was not a factor
#[derive(clap::Args)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// A call is slow above this multiple of what calls of its group usually take
    #[arg(long, default_value_t = 3.0, value_name = "FACTOR", value_parser = factor)]
    slow: f64,
    /// A call is slow only if it took at least this much longer than usual, such as 10us
    #[arg(long, default_value = "0ns", value_name = "TIME")]
    slow_by: Nanos,
    /// Number of slowest calls whose chains are shown
    #[arg(long, default_value_t = 3, value_name = "N")]
    chains: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 1.0 => Ok(value),
        _ => Err("must be a number of at least 1".to_owned()),
    }
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let params = Params { slow_factor: self.slow, slow_by_ns: self.slow_by.0 };
        let chains = chains::run(&trace, params, self.chains.max(EXAMPLES)).await?;
        answer(self.json, &chains, |chains| document(chains, self.chains))
    }
}
