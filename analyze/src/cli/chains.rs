//! `analyze chains`.

use std::path::PathBuf;

use trace_schema::Nanos;

use super::{print, print_json, summary::shown};
use crate::{
    output,
    questions::chains::{self, Chains, EXAMPLES},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::text;
use analyze_verdict::params::Params;

/// Links of one chain shown.
const LINKS: usize = 12;

/// Why slow calls were slow, function by function, and who is innocent
#[derive(clap::Args)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// A call is slow above this multiple of what calls of its kind usually take
    #[arg(long, default_value_t = 3.0, value_name = "FACTOR", value_parser = factor)]
    slow: f64,
    /// ... and if it took at least this much more, such as 10us
    #[arg(long, default_value = "0ns", value_name = "TIME")]
    slow_by: Nanos,
    /// Slowest calls whose chains are shown
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
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let params = Params { slow_factor: self.slow, slow_by_ns: self.slow_by.0 };
        let answer = chains::run(&trace, params, self.chains.max(EXAMPLES)).await?;
        if self.json { print_json(&answer) } else { print(&text(&answer, self.chains)) }
    }
}

fn text(answer: &Chains, chains: usize) -> String {
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
    let mut text =
        format!("Slow: more than {} × what calls of its kind usually take", answer.params.slow_factor);
    if answer.params.slow_by_ns > 0 {
        text += &format!(", and {} more", Nanos(answer.params.slow_by_ns));
    }
    text += ".\n\n";
    text += &output::columns(&header, &rows, &[1, 2, 3, 4, 5, 6, 7]);
    text += "\n";
    for verdict in &answer.verdicts {
        text += &format!("{}: {}\n", verdict.op, verdict.sentence);
        if let Some(line) = &verdict.size_line {
            text += &format!(
                "    {} costs {:.1} µs + {:.4} ns a byte (R² {:.4})\n",
                if verdict.class == Some(trace_schema::Class::Set.name()) { "setting" } else { "a copy" },
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
            "  {:>6.2} %  {:<18} {}\n",
            100.0 * share.share_ratio,
            share.cause.name(),
            Nanos(share.total_ns as i64)
        );
    }
    text += &culprits(answer);
    if !answer.alibis.is_empty() {
        text += "\nCleared:\n";
    }
    for alibi in &answer.alibis {
        text += &format!("  {:<24} {}\n", alibi.suspect, alibi.figure);
    }
    text += &slowest(answer, chains);
    for warning in &answer.warnings {
        text += &format!("note: {warning}\n");
    }
    text::harmless(&text)
}

fn culprits(answer: &Chains) -> String {
    let mut text = String::new();
    if !answer.culprits.is_empty() {
        text += &format!(
            "\nAt the roots of slow calls, with their shares of each cause there (waiting for a CPU: {}):\n",
            Nanos(answer.waiting_in_slow_ns)
        );
    }
    for culprit in &answer.culprits {
        text += &format!(
            "  {:>6.2} % of {:<18} {} (pid {})  {}; {} in the whole run\n",
            100.0 * culprit.share_ratio,
            culprit.cause.name(),
            if culprit.pid == 0 { "an interrupt or timer" } else { &culprit.comm },
            culprit.pid,
            Nanos(culprit.held_ns),
            Nanos(culprit.run_ns)
        );
    }
    if !answer.syscalls.is_empty() {
        text += "\nSystem calls slept in:\n";
    }
    for syscall in &answer.syscalls {
        text += &format!(
            "  {:<20} {} in slow calls, {} in the whole run\n",
            syscall.name,
            Nanos(syscall.slow_ns),
            Nanos(syscall.run_ns)
        );
    }
    text
}

/// The slowest outermost calls with their chains, link by link.
fn slowest(answer: &Chains, count: usize) -> String {
    let examples =
        answer.verdicts.iter().flat_map(|verdict| verdict.examples.iter().map(move |e| (verdict, e)));
    let mut examples: Vec<_> =
        examples.filter(|(_, example)| example.depth == 0 && !example.chain.is_empty()).collect();
    examples.sort_by_key(|(_, example)| std::cmp::Reverse(example.dur_ns));
    let mut text = String::new();
    for (verdict, example) in examples.into_iter().take(count) {
        text += &format!(
            "\n{} at {} on thread {}: {}, usually {}; {}, at the root {}\n",
            verdict.op,
            example.ts_ns,
            example.tid,
            Nanos(example.dur_ns),
            Nanos(example.baseline_ns as i64),
            example.verdict.name(),
            example.root.name()
        );
        let mut shown: Vec<_> = example.chain.iter().collect();
        shown.sort_by_key(|link| (std::cmp::Reverse(link.dur_ns), link.ts_ns));
        shown.truncate(LINKS);
        shown.sort_by_key(|link| link.ts_ns);
        for link in shown {
            let who = match (&link.task_comm, link.task_pid) {
                (_, Some(0)) if link.state == "blocked" => ", until an interrupt or timer".to_owned(),
                (Some(comm), Some(pid)) if link.state == "blocked" => {
                    format!(", until {comm} (pid {pid}) woke it")
                }
                (Some(comm), Some(pid)) if link.state == "stopped" => {
                    format!(", until {comm} (pid {pid}) let it go on")
                }
                (Some(comm), Some(pid)) => format!(", while {comm} (pid {pid}) had the CPU"),
                _ => String::new(),
            };
            text += &format!(
                "  +{:<12} {:>12} {}thread {} {}{who}\n",
                Nanos(link.ts_ns - example.ts_ns).to_string(),
                Nanos(link.dur_ns).to_string(),
                "  ".repeat(link.depth),
                link.tid,
                link.state,
            );
        }
        if example.chain.len() > LINKS {
            text += &format!(
                "  the longest {LINKS} of {} links; all: the view chain_links\n",
                example.chain.len()
            );
        }
    }
    text
}
