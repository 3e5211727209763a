//! `analyze compare`.

use std::path::PathBuf;

use super::{answer, print, print_json, show, stem, write};
use crate::{
    compare::{
        baseline,
        gate::{self, Rules},
        judge::{self, Comparison, Outcome},
        junit,
        runs::Runs,
        simulate::{self, Line, Noise, Plan, Simulated},
    },
    report::{self, answer::power},
    trace::{Options, Trace},
};
use analyze_run::new_file;
use analyze_run::text;
use analyze_run::{columns::floats, error::AnalyzeError};

/// Compare two sets of runs: did they get slower, or use more memory?
///
/// The unit of comparison is a run, not a call. Give several runs a side, 5 or more if possible, and record the two sides in
/// turn. A side is one or more runs, directories, patterns, or baselines (`analyze baseline save`).
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "A gate is METRIC[(SUBJECT[; GROUP])] < +LIMIT [floor QUANTITY], as in:\n  \
'wall_ns < +2%'   'p99(cudaLaunchKernel) < +5% floor 2us'   'calls_count(*) < +0'   'copy_rate_bytes(h2d) > -5%'\n\
Metrics are the columns of the views metrics_… (analyze queries), and of your own in --queries DIR.\n\
Without gates: wall time, time between launches and time in calls < +5%, allocating calls and peaks of memory < +2%.\n\n\
Exit codes: 0 no gate fails; 1 regression; 2 wrong usage or bad input; 3 inconclusive; 5 reading or writing failed; \
70 internal error. (`make` turns every failure into 2: read the code in the recipe, or --format json.)"
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The base and the new side: a run, a directory, a pattern or a baseline each
    #[arg(num_args = 2, value_names = ["BASE", "NEW"], conflicts_with_all = ["base", "new"])]
    sides: Vec<PathBuf>,
    /// Runs of the base
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "new")]
    base: Vec<PathBuf>,
    /// Runs that are compared with the base
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "base")]
    new: Vec<PathBuf>,
    #[command(flatten)]
    rules: RuleArgs,
    /// Circumstances that may differ between the sides, as the output names them (GPU, CPU, probes, …)
    #[arg(long, value_name = "WHAT")]
    allow: Vec<String>,
    /// Format of the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write one self-contained HTML page, too [without a name: BASE-vs-NEW.html in the current directory]
    #[arg(long, value_name = "FILE.html", num_args = 0..=1)]
    html: Option<Option<PathBuf>>,
    /// Replace the page if it exists
    #[arg(long)]
    force: bool,
}

/// How gates are given.
#[derive(clap::Args)]
struct RuleArgs {
    /// A gate, or a TOML file of gates
    #[arg(long = "gate", value_name = "GATE|FILE.toml")]
    gates: Vec<String>,
    /// Probability that any gate fails although nothing has changed [default: 0.05]
    #[arg(long, value_name = "P")]
    alpha: Option<f64>,
    /// A gate passes only if a change beyond its limit (or this, if larger) is excluded; else it is inconclusive
    #[arg(long, value_name = "SHARE", value_parser = gate::share)]
    resolution: Option<f64>,
    /// Queries of your own; those named metrics_… are metrics
    #[arg(long, value_name = "DIR")]
    queries: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Estimate how many runs a side are enough: how often gates would find a change among runs like these
    Plan {
        /// Runs of one side, or a baseline; at least 3
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        #[command(flatten)]
        rules: RuleArgs,
        /// Number of comparisons that are simulated for every number of runs
        #[arg(long, default_value_t = 500)]
        comparisons: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure the false alarm rate of the gates on generated runs, and on recorded ones without a change
    Calibrate {
        /// At least 6 runs without a change, or a baseline of them
        runs: Vec<PathBuf>,
        #[command(flatten)]
        rules: RuleArgs,
        /// Number of comparisons for every line
        #[arg(long, default_value_t = 2000)]
        comparisons: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// How a result is printed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text for a terminal
    Text,
    /// JSON, with a version
    Json,
    /// Markdown, for the summary of a CI job
    Markdown,
    /// JUnit XML, with a test case per gate; inconclusive gates are skipped tests
    Junit,
    /// Annotations of GitHub Actions
    Github,
}

impl RuleArgs {
    fn rules(&self) -> Result<Rules, AnalyzeError> {
        Rules::new(&self.gates, self.alpha, self.resolution)
    }

    fn options(&self) -> Options {
        Options { queries: self.queries.clone() }
    }
}

/// A workflow command's text: what would end it is escaped.
fn github(text: &str) -> String {
    text::harmless(text).replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// One line a gate that does not pass.
fn annotations(comparison: &Comparison) -> String {
    let line = |gate: &judge::Judged| {
        let level = match gate.outcome {
            Outcome::Pass => return None,
            Outcome::Regression => "error",
            Outcome::Inconclusive | Outcome::Suspect => "warning",
        };
        // In a property `:` and `,` end it, too.
        let title =
            github(&format!("{}: {}", gate.outcome.name(), gate.key)).replace(':', "%3A").replace(',', "%2C");
        Some(format!(
            "::{level} title={title}::{}\n",
            github(&format!("{}: {}", gate.gate.text, gate.reason))
        ))
    };
    comparison.gates.iter().filter_map(line).collect()
}

/// What the exit code says.
fn verdict(comparison: &Comparison) -> Result<(), AnalyzeError> {
    let named = |outcome| {
        let all = comparison.gates.iter().filter(|gate| gate.outcome == outcome);
        all.map(|gate| format!("{} {}", gate.key, gate.reason)).collect::<Vec<_>>().join("; ")
    };
    match comparison.outcome {
        Outcome::Pass => Ok(()),
        Outcome::Regression => Err(AnalyzeError::Regression(named(Outcome::Regression))),
        Outcome::Suspect => Err(AnalyzeError::Inconclusive(format!("suspect: {}", named(Outcome::Suspect)))),
        Outcome::Inconclusive if comparison.gates.is_empty() => Err(AnalyzeError::Inconclusive(
            "no gate could be judged: the runs measure none of its figures".to_owned(),
        )),
        Outcome::Inconclusive => Err(AnalyzeError::Inconclusive(named(Outcome::Inconclusive))),
    }
}

/// Two sides by the usual gates.
pub(super) async fn usual(base: PathBuf, new: PathBuf) -> Result<Comparison, AnalyzeError> {
    let options = Options::default();
    let (base, new) = (load(&[base], &options).await?, load(&[new], &options).await?);
    judge::compare(&base, &new, &Rules::new(&[], None, None)?, &[])
}

/// Both sides from their paths.
async fn load(paths: &[PathBuf], options: &Options) -> Result<Runs, AnalyzeError> {
    baseline::load(paths, options).await
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        match self.what {
            Some(What::Plan { runs, rules, comparisons, json }) => {
                plan(&runs, &rules, comparisons, json).await
            }
            Some(What::Calibrate { runs, rules, comparisons, json }) => {
                calibrate(&runs, &rules, comparisons, json).await
            }
            None => self.compare().await,
        }
    }

    async fn compare(self) -> Result<(), AnalyzeError> {
        let (base, new) = match self.sides.as_slice() {
            [base, new] => (vec![base.clone()], vec![new.clone()]),
            _ if self.base.is_empty() => {
                return Err(AnalyzeError::Query(
                    "two sides are needed: analyze compare BASE NEW, or --base RUN… --new RUN…".to_owned(),
                ));
            }
            _ => (self.base.clone(), self.new.clone()),
        };
        // What is wrong with them is said before the work.
        let rules = self.rules.rules()?;
        let versus = || format!("{}-vs-{}.html", stem(&base[0]), stem(&new[0])).into();
        let html: Option<PathBuf> = self.html.clone().map(|path| path.unwrap_or_else(versus));
        html.iter().try_for_each(|html| new_file::check(html, self.force, base.iter().chain(&new)))?;
        let options = self.rules.options();
        let (base, new) = (load(&base, &options).await?, load(&new, &options).await?);
        let comparison = judge::compare(&base, &new, &rules, &self.allow)?;
        let document = report::comparison(&comparison);
        if let Some(html) = &html {
            let page = report::page(&document, &comparison.json()?)?;
            write(html, &page, self.force)?;
        }
        match self.format {
            Format::Text => show(&document)?,
            Format::Json => print_json(&comparison)?,
            Format::Markdown => print(&report::markdown(&document))?,
            Format::Junit => print(&junit::text(&comparison)?)?,
            Format::Github => print(&annotations(&comparison))?,
        }
        verdict(&comparison)
    }
}

async fn plan(runs: &[PathBuf], args: &RuleArgs, comparisons: usize, json: bool) -> Result<(), AnalyzeError> {
    let rules = args.rules()?;
    let recorded = baseline::load_for(&rules, runs, &args.options()).await?;
    let powers = simulate::power(&rules, &recorded, comparisons)?;
    answer(json, &powers, |powers| power::plan(powers, recorded.each().len(), comparisons))
}

/// Calls of a run that are kept for tests on calls.
const CALLS: usize = 1000;

/// Recorded runs, with the durations of calls of the function that all have most of, where they are traces.
async fn recorded(paths: &[PathBuf], options: &Options) -> Result<Vec<Simulated>, AnalyzeError> {
    let mut all = Vec::new();
    for path in paths {
        for path in crate::trace::expand(path)? {
            let runs = load(std::slice::from_ref(&path), options).await?;
            let mut calls_ns = Vec::new();
            if let Ok(trace) = Trace::open_one(&path).await {
                let query = format!(
                    "SELECT CAST(dur AS DOUBLE) AS dur FROM ops WHERE op = (SELECT op FROM ops WHERE dur > 0 GROUP BY op ORDER BY count(*) DESC, op LIMIT 1) AND dur > 0 ORDER BY ts LIMIT {CALLS}"
                );
                for batch in trace.batches(&query).await? {
                    calls_ns.extend(floats(&batch, "dur")?.iter().flatten());
                }
            }
            all.extend(
                runs.apart(|_| true).into_iter().map(|run| Simulated { run, calls_ns: calls_ns.clone() }),
            );
        }
    }
    Ok(all)
}

async fn calibrate(
    runs: &[PathBuf],
    args: &RuleArgs,
    comparisons: usize,
    json: bool,
) -> Result<(), AnalyzeError> {
    let rules = args.rules()?;
    let recorded = recorded(runs, &args.options()).await?;
    let plan = Plan { rules: &rules, comparisons, recorded: &recorded };
    let mut lines: Vec<Line> = Vec::new();
    let noises = Noise::GENERATED.into_iter().chain((!recorded.is_empty()).then_some(Noise::Recorded));
    for noise in noises {
        for runs in [3, 5, 8] {
            for change in [0.0, 0.05, 0.10] {
                lines.extend(plan.line(noise, runs, change)?);
            }
        }
    }
    answer(json, &lines, |lines| power::calibration(lines, comparisons))
}
