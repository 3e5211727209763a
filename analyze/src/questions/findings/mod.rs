//! What is wrong with a run: one list over everything that the program knows, ranked, with costs and what to do.
//!
//! ```text
//! where_time_went ─► ledgers ─┐ each nanosecond is claimed once
//! chains, memory, info ───────┼─► detectors, in order ─► findings, ranked
//! records (failed calls, …) ──┘
//! ```
//! A detector is one file in `detect` and one line in its list. It claims the time that it explains from the ledger of a
//! process, so that no two findings count the same time; those that come first claim first.

mod bound;
mod detect;
mod facts;
mod finding;
mod inputs;
mod ledger;
mod limits;
mod records;

use serde::Serialize;

pub use detect::all as detectors;
pub use facts::{Detector, Facts};
pub use finding::{Confidence, Evidence, Finding, LEAST_SHARE_RATIO, Rank};
pub use inputs::{Inputs, Outline};
pub use ledger::{Claim, Ledger};
pub use limits::{Decision, Limits};
pub use records::{CallSum, CollectiveSum, End, Failures, GpuMemory, Handoff, OpenCall, OpenSleep, Records};

use crate::{questions::where_time_went::ProcessTime, trace::Trace};
use analyze_run::error::AnalyzeError;
use trace_schema::Nanos;

/// The answer for one run.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Name of the run.
    pub run: String,
    /// Wall time of the process with the longest one, in nanoseconds; `None` if no process made calls.
    pub wall_ns: Option<i64>,
    /// What was found: what ended the run first, then by cost.
    pub findings: Vec<Finding>,
    /// What bounds the run, in one sentence: what the largest part of its time was spent on.
    pub bound: String,
    /// True if most of that wall time is not on record, so that finding nothing proves nothing.
    pub is_open: bool,
    /// Conditions that weaken the answer.
    pub warnings: Vec<String>,
}

impl Findings {
    /// Finds what is wrong.
    pub fn of(facts: &Facts<'_>) -> Self {
        let mut ledgers: Vec<Ledger<'_>> = facts.run_time.iter().map(Ledger::new).collect();
        let mut findings: Vec<Finding> =
            detectors().iter().flat_map(|detector| (detector.detect)(facts, &mut ledgers)).collect();
        if !facts.has_schedule {
            findings = findings.into_iter().map(Finding::without_schedule).collect();
        }
        findings.retain(|finding| {
            finding.rank < Rank::Cost || finding.share_ratio.is_none_or(|ratio| ratio >= LEAST_SHARE_RATIO)
        });
        let order = |finding: &Finding| {
            let most_ns = finding.cost_ns.unwrap_or(0);
            let least_ns = finding.cost_range_ns.map_or(most_ns, |(least_ns, _)| least_ns);
            let cost = (least_ns, most_ns, finding.cost_bytes.unwrap_or(0));
            (finding.rank, std::cmp::Reverse(cost), finding.kind, finding.pid)
        };
        findings.sort_by_key(order);
        Self {
            run: facts.info.run.clone(),
            wall_ns: facts.run_time.first().map(|process| process.wall_ns),
            findings,
            bound: facts
                .run_time
                .first()
                .map_or_else(String::new, |process| bound::of(process, &facts.records.gpu)),
            is_open: facts.run_time.first().is_none_or(is_open),
            warnings: facts.info.warnings.iter().cloned().chain(recorder(facts.run_time)).collect(),
        }
    }
}

/// Returns whether more of a process's time than this is not on record.
fn is_open(process: &ProcessTime) -> bool {
    const MOST_RATIO: f64 = 0.5;
    process.part_ns("unknown") as f64 > MOST_RATIO * process.wall_ns as f64
}

/// Says for how long the recorder kept processes from running, if it did.
fn recorder(processes: &[ProcessTime]) -> Option<String> {
    let sum = |part: &str| {
        let slices = processes.iter().flat_map(|process| &process.slices);
        let kept = slices.filter(|slice| slice.is_by_recorder() && slice.part == part);
        kept.fold(0_i64, |sum, slice| sum.saturating_add(slice.time_ns))
    };
    let (stopped_ns, waited_ns) = (sum("stopped"), sum("waiting_for_cpu"));
    (stopped_ns > 0 || waited_ns > 0).then(|| {
        format!(
            "the recorder cost the processes {} while it stopped them to probe libraries, and {} while it had their CPU",
            Nanos(stopped_ns),
            Nanos(waited_ns)
        )
    })
}

/// Reads what is needed of one run, and finds what is wrong with it.
///
/// # Errors
/// Returns an error if the run cannot be read.
pub async fn run(trace: &Trace) -> Result<Findings, AnalyzeError> {
    let outline = Outline::of(trace).await?;
    let together = trace.together();
    let inputs = outline.read(trace, &together, 0).await?;
    Ok(Findings::of(&inputs.facts(&outline)))
}
