//! `analyze summary`.

use std::path::PathBuf;

use trace_schema::Nanos;

use super::{print, print_json};
use crate::{
    output,
    questions::{info, phases, summary},
    trace::Trace,
};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// How often and how long, by function and stratum (size, direction, first call), and by the workload's phases
#[derive(clap::Args)]
pub struct Args {
    /// The run
    run: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A time for reading; a dash where there is none.
pub fn shown(ns: Option<f64>) -> String {
    ns.map_or_else(|| "–".to_owned(), |ns| Nanos(ns.round() as i64).to_string())
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&[self.run]).await?;
        let lines = summary::run(&trace).await?;
        let phases = phases::run(&trace).await?;
        let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
        if self.json {
            return print_json(
                &serde_json::json!({ "strata": lines, "phases": phases, "warnings": warnings }),
            );
        }
        let rows: Vec<Vec<String>> = lines
            .iter()
            .map(|line| {
                vec![
                    line.op.clone(),
                    line.stratum(),
                    line.calls_count.to_string(),
                    shown(line.p50_ns),
                    shown(line.p90_ns),
                    shown(line.p99_ns),
                    shown(line.max_ns.map(|ns| ns as f64)),
                    shown(line.total_ns.map(|ns| ns as f64)),
                ]
            })
            .collect();
        let header = ["op", "stratum", "n", "p50", "p90", "p99", "max", "total"];
        let mut text = output::columns(&header, &rows, &[2, 3, 4, 5, 6, 7]);
        if !phases.is_empty() {
            let time = |ns: i64| Nanos(ns).to_string();
            let rows: Vec<Vec<String>> = phases
                .iter()
                .map(|phase| {
                    vec![
                        text::harmless(&phase.phase),
                        phase.ranges_count.to_string(),
                        time(phase.total_ns),
                        phase.calls_count.to_string(),
                        time(phase.calls_ns),
                        time(phase.scheduler_ns),
                        time(phase.blocked_ns),
                    ]
                })
                .collect();
            let header = ["phase", "n", "total", "calls", "in calls", "scheduler", "blocked"];
            text += &format!("\n{}", output::columns(&header, &rows, &[1, 2, 3, 4, 5, 6]));
        }
        for warning in warnings {
            text += &format!("note: {}\n", text::harmless(&warning));
        }
        print(&text)
    }
}
