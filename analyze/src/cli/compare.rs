//! `analyze compare`.

use std::path::PathBuf;

use super::{print, print_json, show, write};
use crate::{
    compare::{
        baseline,
        facts::RunFigures,
        gate::{self, Rules},
        judge::{self, Comparison, Outcome},
        junit,
        simulate::{self, Line, Noise, Plan, Power, Simulated},
    },
    output, report,
    trace::{Options, Trace},
};
use analyze_run::new_file;
use analyze_run::text;
use analyze_run::{columns::floats, error::AnalyzeError};

/// Did it get slower or hungrier? Two sets of runs, with error bars that hold
///
/// Runs are compared, not calls: give several a side, 5 or more if you can, recorded in turn. A side is runs, directories,
/// patterns, or baselines (`analyze baseline save`).
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "A gate is METRIC[(SUBJECT[; STRATUM])] < +LIMIT [floor QUANTITY], as in:\n  \
'wall_ns < +2%'   'p99(cudaLaunchKernel) < +5% floor 2us'   'calls_count(*) < +0'   'copy_rate_bytes(h2d) > -5%'\n\
Metrics are the columns of the views metrics_… (analyze queries), and of your own in --queries DIR.\n\
Without gates: wall time, time between launches, time in calls, allocating calls, peaks of memory, each < +2%.\n\n\
Exit codes: 0 no gate fails; 1 regression; 2 wrong usage or bad input; 3 inconclusive; 5 reading or writing failed; \
70 a defect of this program. (`make` turns every failure into 2: read the code in the recipe, or --format json.)"
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The base and the new side: a run, a directory, a pattern or a baseline each
    #[arg(num_args = 2, value_names = ["BASE", "NEW"], conflicts_with_all = ["base", "new"])]
    sides: Vec<PathBuf>,
    /// Runs of the base
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "new")]
    base: Vec<PathBuf>,
    /// Runs to judge
    #[arg(long, num_args = 1.., value_name = "RUN", requires = "base")]
    new: Vec<PathBuf>,
    #[command(flatten)]
    rules: RuleArgs,
    /// Circumstances that may differ all the same, as the output names them (GPU, CPU, probes, …)
    #[arg(long, value_name = "WHAT")]
    allow: Vec<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write it as one self-contained HTML page, too
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Replace what exists
    #[arg(long)]
    force: bool,
}

/// How gates are given.
#[derive(clap::Args)]
struct RuleArgs {
    /// A gate, or a TOML file of gates
    #[arg(long = "gate", value_name = "GATE|FILE.toml")]
    gates: Vec<String>,
    /// Probability that any gate fails though nothing has changed [default: 0.05]
    #[arg(long, value_name = "P")]
    alpha: Option<f64>,
    /// A gate passes only if a change beyond this is excluded; else it is inconclusive [default: 10%]
    #[arg(long, value_name = "SHARE", value_parser = gate::share)]
    resolution: Option<f64>,
    /// Queries of your own; those named metrics_… are metrics
    #[arg(long, value_name = "DIR")]
    queries: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum What {
    /// How many runs a side are enough: what gates would find among runs like these
    Plan {
        /// Runs of one side, or a baseline; at least 3
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        #[command(flatten)]
        rules: RuleArgs,
        /// Comparisons that are simulated for every number
        #[arg(long, default_value_t = 500)]
        comparisons: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// How often the gates cry wolf: comparisons of generated runs, and of recorded ones without a change
    Calibrate {
        /// Runs without a change, or a baseline: at least 6; of runs the calls, too
        runs: Vec<PathBuf>,
        #[command(flatten)]
        rules: RuleArgs,
        /// Comparisons for every line
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
    /// For a terminal of 80 columns
    Text,
    /// The data, versioned
    Json,
    /// For the summary of a CI job's step
    Markdown,
    /// XML of JUnit: a test case a gate, inconclusive ones skipped
    Junit,
    /// Annotations of GitHub Actions
    Github,
}

impl RuleArgs {
    fn rules(&self) -> Result<Rules, AnalyzeError> {
        Rules::new(&self.gates, self.alpha, self.resolution)
    }

    fn options(&self) -> Options {
        Options { queries: self.queries.clone(), ..Options::default() }
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
pub async fn usual(base: PathBuf, new: PathBuf) -> Result<Comparison, AnalyzeError> {
    let options = Options::default();
    let (base, new) = (load(&[base], &options).await?, load(&[new], &options).await?);
    judge::compare(&base, &new, &Rules::new(&[], None, None)?, &[])
}

/// Both sides from their paths.
async fn load(paths: &[PathBuf], options: &Options) -> Result<Vec<RunFigures>, AnalyzeError> {
    baseline::load(paths, options).await
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
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
        if let Some(html) = self.html.as_ref().filter(|html| html.exists() && !self.force) {
            return Err(AnalyzeError::Exists(html.clone()));
        }
        self.html.iter().try_for_each(|html| new_file::differs(html, base.iter().chain(&new)))?;
        let options = self.rules.options();
        let (base, new) = (load(&base, &options).await?, load(&new, &options).await?);
        let comparison = judge::compare(&base, &new, &rules, &self.allow)?;
        let document = report::comparison(&comparison);
        if let Some(html) = &self.html {
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

/// A share for reading, `None` as a dash.
fn percent(ratio: impl Into<Option<f64>>) -> String {
    ratio.into().map_or_else(|| "–".to_owned(), |ratio: f64| format!("{:.1} %", 100.0 * ratio))
}

async fn plan(runs: &[PathBuf], args: &RuleArgs, comparisons: usize, json: bool) -> Result<(), AnalyzeError> {
    let rules = args.rules()?;
    let recorded = load(runs, &args.options()).await?;
    let powers = simulate::power(&rules, &recorded, comparisons)?;
    if json {
        return print_json(&powers);
    }
    let changes: Vec<String> =
        simulate::CHANGES.iter().map(|change| format!("+{:.0}%", 100.0 * change)).collect();
    let mut header = vec!["runs a side", "false alarms", "undecided"];
    header.extend(changes.iter().map(String::as_str));
    let row = |power: &Power| {
        let mut row =
            vec![power.runs_a_side.to_string(), percent(power.false_ratio), percent(power.undecided_ratio)];
        row.extend(changes.iter().map(|change| percent(power.found.get(change).copied())));
        row
    };
    let rows: Vec<Vec<String>> = powers.iter().map(row).collect();
    let right: Vec<usize> = (0..header.len()).collect();
    let mut text = format!(
        "How often a change of all times would be found, by runs like these {} ({comparisons} simulated comparisons each):\n\n{}\n",
        recorded.len(),
        output::columns(&header, &rows, &right)
    );
    for change in &changes {
        let enough = powers.iter().find(|power| power.found.get(change).is_some_and(|found| *found >= 0.9));
        text += &match enough {
            Some(power) => {
                format!("{change}: {} runs a side find it nine times in ten.\n", power.runs_a_side)
            }
            None => format!(
                "{change}: not even {} runs a side find it nine times in ten.\n",
                simulate::RUNS[simulate::RUNS.len() - 1]
            ),
        };
    }
    print(&text)
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
            all.extend(runs.into_iter().map(|run| Simulated { run, calls_ns: calls_ns.clone() }));
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
    if json {
        return print_json(&lines);
    }
    let header = [
        "runs come from",
        "a side",
        "slower by",
        "gates",
        "undecided",
        "ranks of calls",
        "means of calls",
        "> 5 %",
    ];
    let row = |line: &Line| {
        vec![
            line.noise.name().to_owned(),
            line.runs_a_side.to_string(),
            format!("{:.0} %", 100.0 * line.change_ratio),
            percent(line.gates_ratio),
            percent(line.undecided_ratio),
            percent(line.pooled_ranks_ratio),
            percent(line.pooled_means_ratio),
            percent(line.percent_ratio),
        ]
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    print(&format!(
        "Share of {comparisons} comparisons called a regression; where nothing is slower, each is a false alarm:\n\n{}",
        output::columns(&header, &rows, &[1, 2, 3, 4, 5, 6, 7])
    ))
}
