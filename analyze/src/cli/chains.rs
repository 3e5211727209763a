//! `analyze chains`.

use std::path::PathBuf;

use trace_schema::Nanos;

use super::{print, print_json, summary::shown};
use crate::{
    analysis::chains::{self, Chains, Params},
    error::AnalyzeError,
    output,
    trace::Trace,
};

/// Why slow calls were slow, function by function, and who is innocent
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The run
    run: PathBuf,
    /// A call is slow above this multiple of its function's median
    #[arg(long, default_value_t = 3.0, value_name = "FACTOR", value_parser = factor)]
    slow: f64,
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
    pub(crate) async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let answer = chains::run(&trace, Params::of(&trace, self.slow)).await?;
        if self.json { print_json(&answer) } else { print(&text(&answer)) }
    }
}

fn text(answer: &Chains) -> String {
    let rows: Vec<Vec<String>> = answer
        .verdicts
        .iter()
        .map(|verdict| {
            vec![
                verdict.op.clone(),
                verdict.calls_count.to_string(),
                shown(Some(verdict.p50_ns)),
                shown(Some(verdict.p99_ns)),
                shown(Some(verdict.p99_without_scheduler_ns)),
                verdict.slow_count.to_string(),
                verdict.overlapping_count.to_string(),
                shown(Some(verdict.excess_ns)),
            ]
        })
        .collect();
    let header = ["op", "calls", "p50", "p99", "p99 w/o sched", "slow", "off-CPU", "excess"];
    let mut text = format!("Slow: more than {} × the function's median.\n\n", answer.params.slow_factor);
    text += &output::columns(&header, &rows, &[1, 2, 3, 4, 5, 6, 7]);
    text += "\n";
    for verdict in &answer.verdicts {
        text += &format!("{}: {}\n", verdict.op, verdict.sentence);
        if let Some(line) = &verdict.size_line {
            text += &format!(
                "    a copy costs {:.1} µs + {:.4} ns a byte (R² {:.4})\n",
                line.fixed_ns / 1e3,
                line.ns_per_byte,
                line.r_squared
            );
        }
    }
    text += &format!(
        "\nAll outermost slow calls: {}, excess {}\n",
        answer.overall_slow_count,
        Nanos(answer.overall_excess_ns as i64)
    );
    for share in &answer.overall {
        text += &format!(
            "  {:>6.2} %  {:<13} {}\n",
            100.0 * share.share_ratio,
            share.cause.name(),
            Nanos(share.total_ns as i64)
        );
    }
    if !answer.culprits.is_empty() {
        text += &format!(
            "\nWho had the CPU while slow calls waited for it ({}):\n",
            Nanos(answer.waiting_in_slow_ns)
        );
        for culprit in &answer.culprits {
            text += &format!(
                "  {:>6.2} %  {} (pid {})  {}\n",
                100.0 * culprit.share_ratio,
                culprit.comm,
                culprit.pid,
                Nanos(culprit.held_ns)
            );
        }
    }
    for warning in &answer.warnings {
        text += &format!("note: {warning}\n");
    }
    output::harmless(&text)
}
