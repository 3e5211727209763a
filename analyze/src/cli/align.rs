//! `analyze align`.

use std::path::PathBuf;

use trace_schema::{Alignment, Bytes, Nanos};

use super::{print, print_json};
use crate::{
    align::rewrite::{self, Outcome},
    rewrite::blocking,
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// Put a profiler's trace of a captured process on the run's clock: kernels beside the calls that caused them
#[derive(clap::Args)]
#[command(
    after_help = "The calls that both recorded are matched, which tells how the clocks relate and how well that is known. \
    The new run has the captured rows, with `correlation` in matched calls, and what only the profile has, moved. \
    If the alignment does not hold, nothing is written: exit code 3, and why."
)]
pub struct Args {
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
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let captured = Trace::open(&[self.run]).await?;
        let profile = Trace::open(&[self.profile]).await?;
        let out = self.out.clone();
        let outcome = blocking(move || rewrite::run(&captured, &profile, &out, self.force)).await?;
        if self.json {
            return print_json(&outcome);
        }
        let size = Bytes(outcome.size_bytes as i64);
        let text =
            format!("{}{} events, {size}: {}\n", text(&outcome), outcome.rows_count, self.out.display());
        print(&text::harmless(&text))
    }
}

/// How well an alignment is known, in lines of a name and a value.
pub(super) fn facts(alignment: &Alignment) -> [(&'static str, String); 4] {
    let Alignment { matched_count, matchable_count, offset_ns, drift_ppm, drift_error_ppm, .. } = alignment;
    let share = *matched_count as f64 / (*matchable_count).max(1) as f64 * 100.0;
    let error = match alignment.offset_error_ns {
        Some(error) => format!("within {}", Nanos(error)),
        None => "error not known: records of calls do not enclose one another".to_owned(),
    };
    [
        ("matched", format!("{matched_count} of {matchable_count} calls ({share:.2} %)")),
        ("offset", format!("{offset_ns} ns, {error}")),
        (
            "drift",
            format!(
                "{drift_ppm:.3} ± {drift_error_ppm:.3} ppm; no part is more than {} off the line",
                Nanos(alignment.nonlinearity_ns)
            ),
        ),
        (
            "residual",
            format!(
                "median {}, p99 {}, largest {}",
                Nanos(alignment.residual_median_ns),
                Nanos(alignment.residual_p99_ns),
                Nanos(alignment.residual_max_ns)
            ),
        ),
    ]
}

fn text(outcome: &Outcome) -> String {
    let mut facts = facts(&outcome.alignment).to_vec();
    facts.push((
        "wall",
        outcome.wall_difference_ns.map_or_else(
            || "not known to both".to_owned(),
            |ns| format!("the two differ by {} on the time of day", Nanos(ns.saturating_abs())),
        ),
    ));
    for (name, counts) in [("added", &outcome.added), ("left out", &outcome.left_out)] {
        let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        facts.push((name, if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }));
    }
    facts.iter().map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}
