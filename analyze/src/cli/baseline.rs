//! `analyze baseline`.

use std::path::PathBuf;

use trace_schema::Nanos;

use super::{print, print_json};
use crate::{
    compare::{
        baseline,
        facts::RunFigures,
        figure::{Figure, Key},
        wide,
    },
    output,
    trace::Options,
};
use analyze_run::error::AnalyzeError;
use analyze_run::new_file;

/// Keep the figures of runs, so that their traces need not be kept; `compare` and `trend` take them in place of runs
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Write the figures of runs into one small file
    Save {
        /// The file
        out: PathBuf,
        /// Runs, directories, patterns, or other baselines
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// Queries of your own; those named metrics_… are metrics
        #[arg(long, value_name = "DIR")]
        queries: Option<PathBuf>,
        /// Replace what exists
        #[arg(long)]
        force: bool,
    },
    /// The runs in it
    List {
        /// The file
        baseline: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write the figures as one table, a row per run and a column per figure, for pandas, polars and spreadsheets
    Export {
        /// Runs, directories, patterns, or baselines
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// The file: FILE.parquet or FILE.csv
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Queries of your own; those named metrics_… are metrics
        #[arg(long, value_name = "DIR")]
        queries: Option<PathBuf>,
        /// Replace what exists
        #[arg(long)]
        force: bool,
    },
    /// The figures in it
    Show {
        /// The file
        baseline: PathBuf,
        /// Only metrics whose names contain this
        #[arg(long, default_value = "")]
        metric: String,
    },
}

fn list(runs: &[RunFigures]) -> String {
    let row = |run: &RunFigures| {
        let wall = run.figures.get(&Key::of("wall_ns", None, None));
        vec![
            run.name.clone(),
            run.figures.len().to_string(),
            wall.map_or_else(|| "–".to_owned(), |figure| Nanos(figure.value as i64).to_string()),
            run.facts.rows_count.to_string(),
            run.facts.lost_count.to_string(),
            run.facts.gpus.join(", "),
            run.facts.command.clone(),
        ]
    };
    let header = ["run", "figures", "wall", "events", "lost", "GPU", "command"];
    output::columns(&header, &runs.iter().map(row).collect::<Vec<_>>(), &[1, 2, 3, 4])
}

fn show(runs: &[RunFigures], metric: &str) -> String {
    let all = runs.iter().flat_map(|run| run.figures.iter().map(move |(key, figure)| (run, key, figure)));
    let row = |(run, key, figure): (&RunFigures, &Key, &Figure)| {
        vec![run.name.clone(), key.to_string(), key.show(figure.value)]
    };
    let rows: Vec<Vec<String>> =
        all.filter(|(_, key, _)| key.metric.name().contains(metric)).map(row).collect();
    output::columns(&["run", "figure", "value"], &rows, &[2])
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        match self.what {
            What::Save { out, runs, queries, force } => {
                if out.exists() && !force {
                    return Err(AnalyzeError::Exists(out));
                }
                new_file::differs(&out, &runs)?;
                let measured = baseline::load(&runs, &Options { queries, ..Options::default() }).await?;
                baseline::save(&out, &measured, force)?;
                let figures: usize = measured.iter().map(|run| run.figures.len()).sum();
                print(&format!("{}: {figures} figures of {} runs\n", out.display(), measured.len()))
            }
            What::List { baseline, json } => {
                let runs = baseline::open(&baseline)?;
                if json {
                    return print_json(&runs.iter().map(|run| (&run.name, &run.facts)).collect::<Vec<_>>());
                }
                print(&list(&runs))
            }
            What::Export { runs, out, queries, force } => {
                let format = wide::Format::of(&out)?;
                if out.exists() && !force {
                    return Err(AnalyzeError::Exists(out));
                }
                new_file::differs(&out, &runs)?;
                let measured = baseline::load(&runs, &Options { queries, ..Options::default() }).await?;
                let columns = wide::save(&out, format, &measured, force)?;
                print(&format!("{}: {} runs, {columns} figures\n", out.display(), measured.len()))
            }
            What::Show { baseline, metric } => print(&show(&baseline::open(&baseline)?, &metric)),
        }
    }
}
