//! `analyze info`.

use std::path::PathBuf;

use trace_schema::{Bytes, Nanos};

use super::{align, print, print_json};
use crate::{output, questions::info, trace::Trace};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// Where a run comes from, what was probed, what was lost, what is in it
#[derive(clap::Args)]
pub struct Args {
    /// Runs to describe
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let trace = Trace::open(&self.runs).await?;
        let infos = info::run(&trace).await?;
        if self.json {
            return print_json(&infos);
        }
        let texts: Vec<String> = infos.iter().map(text).collect();
        print(&texts.join("\n"))
    }
}

fn text(info: &info::Info) -> String {
    let run = &info.provenance;
    let fact = |name: &str, value: String| {
        if value.is_empty() { String::new() } else { format!("{name:<10} {value}\n") }
    };
    let mut text = fact("run", info.run.clone());
    text += &fact("size", format!("{} events, {}", info.rows_count, Bytes(info.size_bytes as i64)));
    text += &fact("producer", run.producer.clone());
    text += &fact("command", run.command.join(" "));
    text += &fact(
        "host",
        [&run.host.name, &run.host.os, &run.host.kernel].map(String::as_str).join(" ").trim().to_owned(),
    );
    text += &fact(
        "cpu",
        if run.host.cpu.is_empty() {
            String::new()
        } else {
            format!("{} × {}", run.host.cpu_count, run.host.cpu)
        },
    );
    for gpu in &run.gpus {
        text += &fact("gpu", format!("{}, driver {}", gpu.name, gpu.driver));
    }
    if run.clock.end_ns > run.clock.start_ns {
        text += &fact("recorded", Nanos(run.clock.end_ns - run.clock.start_ns).to_string());
    }
    for library in &run.libraries {
        text += &fact("library", format!("{} (build id {})", library.path, library.build_id));
    }
    let placed = run.probes.iter().filter(|probe| probe.error.is_none()).count();
    text += &fact("probes", format!("{placed} of {} placed", run.probes.len()));
    for probe in &run.probes {
        if let Some(error) = &probe.error {
            text += &format!("           {} in {}: {error}\n", probe.symbol, probe.library);
        }
    }
    for alignment in &run.alignments {
        text += &fact("aligned", format!("with {}, {}", alignment.profile, alignment.producer));
        for (name, value) in align::facts(alignment) {
            text += &format!("           {name}: {value}\n");
        }
    }
    let lost = if run.lost_is_counted {
        run.lost_count().to_string()
    } else {
        "not counted by the source".to_owned()
    };
    text += &fact("lost", lost);
    for warning in &info.warnings {
        text += &fact("note", warning.clone());
    }
    let rows: Vec<Vec<String>> = info
        .counts
        .iter()
        .map(|count| vec![count.kind.clone(), count.op.clone(), count.rows_count.to_string()])
        .collect();
    text::harmless(&text) + "\n" + &output::columns(&["kind", "op", "events"], &rows, &[2])
}
