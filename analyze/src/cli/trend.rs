//! `analyze trend`.

use std::path::PathBuf;

use super::{print, print_json};
use crate::{
    compare::{
        baseline,
        gate::Rules,
        judge::signed,
        samples::Level,
        trend::{self, Series},
    },
    output,
    report::spark,
    trace::Options,
};
use analyze_run::error::AnalyzeError;

/// When did it change? Change points in a series of runs
#[derive(clap::Args)]
#[command(
    after_help = "E-divisive change points (Matteson and James 2014): levels of at least 3 runs, each change tested by permuting runs.\n\
A run that several changes begin with is the one to look at."
)]
pub struct Args {
    /// Runs, directories, patterns, or baselines
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Figures, named as in gates: wall_ns, p99(cudaLaunchKernel), calls_count(*) [default: those of the usual gates]
    #[arg(long, value_name = "METRIC")]
    metric: Vec<String>,
    /// In which order runs were made
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    /// By the wall clock, when recording began
    Time,
    /// As given; files of a directory or pattern by name
    Given,
}

fn line(series: &Series) -> Vec<String> {
    let (least, most) =
        series.values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
    let scaled: Vec<f64> =
        series.values.iter().map(|v| if most > least { (v - least) / (most - least) } else { 0.0 }).collect();
    let range = if series.values.is_empty() {
        "–".to_owned()
    } else {
        format!("{} to {}", series.key.show(least), series.key.show(most))
    };
    vec![
        series.key.to_string(),
        series.values.len().to_string(),
        range,
        spark(&scaled, series.values.len().min(24)),
    ]
}

/// Returns a table of each run's figure, and the level of the runs before it.
fn windows(all: &[Series]) -> String {
    let row = |(series, place): (&Series, usize)| {
        let (window, value) = (series.windows[place], series.values[place]);
        let shown = |of: fn(Level) -> f64| {
            window.level.map_or_else(|| "–".to_owned(), |level| series.key.show(of(level)))
        };
        let verdict = match (window.is_outlier, window.is_worse) {
            (false, _) => "",
            (true, true) => "outlier, worse",
            (true, false) => "outlier, better",
        };
        vec![
            series.runs[place].clone(),
            series.key.to_string(),
            series.key.show(value),
            shown(|level| level.median),
            shown(|level| level.mad),
            verdict.to_owned(),
        ]
    };
    let places = all.iter().flat_map(|series| (0..series.windows.len()).map(move |place| (series, place)));
    let rows: Vec<Vec<String>> = places.map(row).collect();
    output::columns(&["run", "figure", "value", "median", "MAD", ""], &rows, &[2, 3, 4])
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        let gates: Vec<String> = self.metric.iter().map(|metric| format!("{metric} < +0%")).collect();
        let rules = Rules::new(&gates, Some(self.alpha), None)?;
        let mut runs =
            baseline::load(&self.runs, &Options { queries: self.queries, ..Options::default() }).await?;
        if self.order == Order::Time {
            if let Some(run) = runs.iter().find(|run| run.facts.start_wall_ns.is_none()) {
                return Err(AnalyzeError::Inconclusive(format!(
                    "{} does not say when it was made: --order given",
                    run.name
                )));
            }
            runs.sort_by_key(|run| run.facts.start_wall_ns);
        }
        let figures = rules.figures(runs.iter().flat_map(|run| run.figures.keys()))?;
        let mut all: Vec<Series> =
            figures.iter().map(|(_, key)| trend::series(&runs, key, rules.alpha)).collect();
        if let Some(window) = self.window {
            for series in &mut all {
                series.windows = trend::windows(series, window as usize);
            }
        }
        let longest = all.iter().map(|series| series.values.len()).max().unwrap_or(0);
        if self.json {
            print_json(&all)?;
        } else {
            let rows: Vec<Vec<String>> = all.iter().map(line).collect();
            let mut text = output::columns(&["figure", "runs", "from", "in order"], &rows, &[1]) + "\n";
            let points = all.iter().flat_map(|series| series.points.iter().map(move |point| (series, point)));
            let row = |(series, point): (&Series, &trend::Point)| {
                vec![
                    point.run.clone(),
                    series.key.to_string(),
                    series.key.show(point.before),
                    series.key.show(point.after),
                    point.change_ratio.map_or_else(|| "from 0".to_owned(), signed),
                    format!("{:.3}", point.p),
                ]
            };
            let changes: Vec<Vec<String>> = points.map(row).collect();
            text += &if changes.is_empty() {
                "No change.\n".to_owned()
            } else {
                output::columns(
                    &["changed with", "figure", "before", "after", "by", "p"],
                    &changes,
                    &[2, 3, 4, 5],
                )
            };
            if self.window.is_some() {
                text += &format!("\n{}", windows(&all));
            }
            print(&text)?;
        }
        if longest < 2 * trend::SEGMENT {
            return Err(AnalyzeError::Inconclusive(format!(
                "{longest} runs are too few to tell levels apart: at least {} are needed",
                2 * trend::SEGMENT
            )));
        }
        Ok(())
    }
}
