//! `analyze baseline`.

use std::path::PathBuf;

use super::{print, print_json, show};
use crate::{
    compare::{baseline, wide},
    report::answer::baseline as document,
    trace::Options,
};
use analyze_run::error::AnalyzeError;
use analyze_run::new_file;

/// Save the figures of runs in a small file that `compare` and `trend` take in place of the runs
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Save the figures of runs
    Save {
        /// The file
        out: PathBuf,
        /// Runs, directories, patterns, or other baselines
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// Queries of your own; those named metrics_… are metrics
        #[arg(long, value_name = "DIR")]
        queries: Option<PathBuf>,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
    },
    /// List the runs of a baseline
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
    /// Show the figures of a baseline
    Show {
        /// The file
        baseline: PathBuf,
        /// Show only metrics whose names contain this text
        #[arg(long, default_value = "")]
        metric: String,
    },
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        match self.what {
            What::Save { out, runs, queries, force } => {
                new_file::check(&out, force, &runs)?;
                let measured = baseline::load(&runs, &Options { queries }).await?;
                baseline::save(&out, &measured, force)?;
                let figures: usize = measured.each().iter().map(|run| run.figures_count).sum();
                print(&format!("{}: {figures} figures of {} runs\n", out.display(), measured.each().len()))
            }
            What::List { baseline, json } => {
                let runs = baseline::open(&baseline)?;
                if json {
                    return print_json(
                        &runs.each().iter().map(|run| (&run.name, &run.facts)).collect::<Vec<_>>(),
                    );
                }
                show(&document::list(&runs))
            }
            What::Show { baseline, metric } => show(&document::figures(&baseline::open(&baseline)?, &metric)),
            What::Export { runs, out, queries, force } => {
                let format = wide::Format::of(&out)?;
                new_file::check(&out, force, &runs)?;
                let measured = baseline::load(&runs, &Options { queries }).await?;
                let columns = wide::save(&out, format, &measured, force)?;
                print(&format!("{}: {} runs, {columns} figures\n", out.display(), measured.each().len()))
            }
        }
    }
}
