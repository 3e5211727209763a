//! `analyze check`.

use std::path::PathBuf;

use serde_json::json;
use trace_schema::{Nanos, UnitError};

use super::{print_json, show};
use crate::{
    questions::findings::{self, Decision, Limits},
    report::answer::findings::checked,
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Check a run's findings against limits, for CI
///
/// A crash, a hang, a request for memory that failed and a leak fail the check, and so does a cost over the limits. A finding
/// that is inconclusive, or bounded by figures on both sides of a limit, decides nothing. A finding costs a share of the wall
/// time of its process.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 passed; 1 at least one finding fails; 2 wrong usage or bad input; 3 inconclusive, and no \
    finding fails; 5 reading or writing failed; 70 internal error."
)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Largest share of the wall time that a finding may cost
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = part)]
    max_share: f64,
    /// Largest time that a finding may cost, such as 2s [default: any]
    #[arg(long, value_name = "TIME")]
    max_cost: Option<Nanos>,
    /// A kind of finding that does not fail the check; can be given several times
    #[arg(long, value_name = "KIND", value_parser = kind)]
    allow: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn part(text: &str) -> Result<f64, UnitError> {
    trace_schema::parse_share(text, 100.0)
}

fn kind(text: &str) -> Result<String, String> {
    let kinds: Vec<&str> =
        findings::detectors().iter().flat_map(|detector| detector.kinds).map(|(kind, _)| *kind).collect();
    if kinds.contains(&text) { Ok(text.to_owned()) } else { Err(format!("is none of {}", kinds.join(", "))) }
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open_one(&self.run).await?;
        let findings = findings::run(&trace).await?;
        let limits = Limits {
            share_ratio: self.max_share,
            cost_ns: self.max_cost.map(|cost| cost.0),
            allowed: self.allow,
        };
        let decided: Vec<_> =
            findings.findings.iter().map(|finding| (finding, limits.decide(finding))).collect();
        let named = |wanted: Decision| -> Vec<&str> {
            decided.iter().filter(|(_, found)| *found == wanted).map(|(finding, _)| finding.kind).collect()
        };
        let (failed, mut open) = (named(Decision::Fails).join(", "), named(Decision::Open).join(", "));
        if findings.is_open && open.is_empty() {
            open = "the run's time is not on record".to_owned();
        }
        if self.json {
            let decisions: Vec<_> =
                decided.iter().map(|(finding, found)| json!({"finding": finding, "check": found})).collect();
            print_json(&json!({ "run": findings.run, "findings": decisions }))?;
        } else {
            let words = decided.iter().map(|(finding, found)| (*finding, found.words()));
            show(&checked(words, failed.is_empty() && open.is_empty()))?;
        }
        match (failed.is_empty(), open.is_empty()) {
            (false, _) => Err(AnalyzeError::Alert(format!("over the limits: {failed}"))),
            (true, false) => {
                Err(AnalyzeError::Inconclusive(format!("{open}: see the answer for the reason")))
            }
            (true, true) => Ok(()),
        }
    }
}
