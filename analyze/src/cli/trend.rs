//! `analyze trend`.

use std::path::PathBuf;

use super::{answer, write};
use crate::{
    compare::{
        baseline,
        gate::Rules,
        trend::{self, Series},
    },
    report::{self, answer::trend::document},
    trace::Options,
};
use analyze_run::{error::AnalyzeError, new_file};

/// Find the runs at which figures changed in a series of runs
#[derive(clap::Args)]
#[command(
    after_help = "E-divisive change points (Matteson and James 2014): levels of at least 3 runs, each change tested by permuting runs.\n\
Look first at a run with which several figures changed."
)]
pub(super) struct Args {
    /// Runs, directories, patterns, or baselines
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Figures, named as in gates: wall_ns, p99(cudaLaunchKernel), calls_count(*) [default: those of the usual gates]
    #[arg(long, value_name = "METRIC")]
    metric: Vec<String>,
    /// Order in which the runs were made
    #[arg(long, value_enum, default_value_t = Order::Time)]
    order: Order,
    /// Probability of a change point in a series without a change
    #[arg(long, default_value_t = 0.01)]
    alpha: f64,
    /// Compare each run with the median and MAD of up to N runs before it (5 or more), and mark those far from it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(5..))]
    window: Option<u32>,
    /// Queries of your own; those named metrics_… are metrics
    #[arg(long, value_name = "DIR")]
    queries: Option<PathBuf>,
    /// Write a chart of each figure, with its change points, as one SVG file
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Replace what exists
    #[arg(long, requires = "svg")]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    /// By the time of day at which recording began
    Time,
    /// As given; files of a directory or pattern by name
    Given,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        // What cannot be written is said before the work, not after it.
        self.svg.iter().try_for_each(|svg| new_file::check(svg, self.force, &self.runs))?;
        let gates: Vec<String> = self.metric.iter().map(|metric| format!("{metric} < +0%")).collect();
        let rules = Rules::new(&gates, Some(self.alpha), None)?;
        let mut runs = baseline::load_for(&rules, &self.runs, &Options { queries: self.queries }).await?;
        if self.order == Order::Time {
            if let Some(run) = runs.each().iter().find(|run| run.facts.start_wall_ns.is_none()) {
                return Err(AnalyzeError::Inconclusive(format!(
                    "{} does not say when it was made: --order given",
                    run.name
                )));
            }
            runs = runs.sorted_by_key(|facts| facts.start_wall_ns)?;
        }
        let figures = rules.figures(runs.keys().iter())?;
        let mut all: Vec<Series> =
            figures.iter().map(|(_, key)| trend::series(&runs, key, rules.alpha)).collect();
        if let Some(window) = self.window {
            for series in &mut all {
                series.windows = trend::windows(series, window);
            }
        }
        let longest = all.iter().map(|series| series.values.len()).max().unwrap_or(0);
        if let Some(svg) = &self.svg {
            write(svg, &report::trend(&all), self.force)?;
        }
        answer(self.json, &all, |all| document(all))?;
        if longest < 2 * trend::SEGMENT {
            return Err(AnalyzeError::Inconclusive(format!(
                "{longest} runs are too few to tell levels apart: at least {} are needed",
                2 * trend::SEGMENT
            )));
        }
        Ok(())
    }
}
