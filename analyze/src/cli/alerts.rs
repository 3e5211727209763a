//! `analyze alerts`.

use std::path::PathBuf;

use trace_schema::Nanos;

use super::{print_json, show};
use crate::{
    questions::{
        alerts::{Alert, Verdict},
        alerts_per::{self, Per},
        info,
        threshold::Threshold,
    },
    report::answer::alerts::{NOTHING_READ, document, subject},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;

/// Find when GPU memory, of a GPU, PyTorch allocator, process, container or pod, was over a threshold for too long
///
/// A reading of a GPU is valid until the next one. More than three usual intervals between two readings are a gap, in which
/// the use is unknown. A span over the threshold lasts from the first reading over it to the first that is not, or to a gap.
/// If a span is long enough only with the gaps around it, the answer is `inconclusive`. Memory reserved by PyTorch's
/// allocators is known at every instant. In SQL: the view memory_use.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 no alert; 1 at least one alert; 2 wrong usage or bad input; 3 inconclusive, and no alert; \
    5 reading or writing failed; 70 internal error."
)]
pub(super) struct Args {
    /// The run
    run: PathBuf,
    /// Threshold: a percentage of the GPU's memory, or a size
    #[arg(long, value_name = "PERCENT|SIZE", default_value = "90%")]
    over: Threshold,
    /// Smallest length of a span over the threshold that is an alert
    #[arg(long = "for", value_name = "TIME", default_value = "5m")]
    lasts: Nanos,
    /// What the threshold holds for; may be repeated. Memory of processes is what the driver counts for them
    #[arg(long, value_name = "SUBJECT", default_values = ["gpu", "allocator"])]
    per: Vec<Per>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let alerts = alerts_per::run(&trace, self.over, self.lasts.0, &self.per).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        if self.json {
            print_json(&serde_json::json!({ "alerts": alerts, "warnings": warnings }))?;
        } else {
            let start_ns = trace.files().first().map_or(0, |file| file.run.clock.start_ns);
            show(&document(&alerts, warnings, start_ns))?;
        }
        verdict(&alerts)
    }
}

/// What the exit code says.
fn verdict(alerts: &[Alert]) -> Result<(), AnalyzeError> {
    let named = |verdict| {
        let all = alerts.iter().filter(|alert| alert.verdict == verdict).map(|alert| subject(&alert.subject));
        all.collect::<Vec<String>>().join("; ")
    };
    let (found, open) = (named(Verdict::Alert), named(Verdict::Inconclusive));
    match (found.is_empty(), open.is_empty()) {
        (false, _) => Err(AnalyzeError::Alert(format!("{found}: over the threshold for too long"))),
        (true, false) => Err(AnalyzeError::Inconclusive(format!("{open}: see the answer for the reason"))),
        (true, true) if alerts.is_empty() => Err(AnalyzeError::Inconclusive(NOTHING_READ.to_owned())),
        (true, true) => Ok(()),
    }
}
