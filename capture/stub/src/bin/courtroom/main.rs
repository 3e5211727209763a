//! The courtroom: faults with known culprits, recorded live, and the verdicts of `analyze` held against the truth.
//!
//! `cargo run -p cuda-stub --bin courtroom` runs every scenario of [`cuda_stub::scenario`] on this machine, without a GPU:
//!
//! ```text
//! hogs, control group ─► accused (stub CUDA libraries) ─► X.truth.jsonl ──────────────┐
//!                          └─ capture ─► X.parquet ─► analyze sql, slow_calls ─► judge ─► one table
//! ```
//! The build must be of the whole workspace (`cargo build --workspace --bins --examples`): `capture`, `analyze`, the accused
//! and the libraries are taken from beside this program. Needs what `capture` needs, root for priorities and control
//! groups, and two CPUs.
//!
//! Exit codes: 0 every verdict holds; 1 some do not, or a fault did not come about; 2 the courtroom could not work.
#![expect(unsafe_code, reason = "asks the kernel which CPUs are allowed")]

mod error;
mod guard;
mod judge;
mod stage;
mod table;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use cuda_stub::scenario::{SCENARIOS, Scenario};
use error::CourtError;

/// The default query: the verdict on every slow call.
const QUERY: &str = "SELECT op, ts, tid, verdict, root, culprit_comm FROM slow_calls ORDER BY ts";

/// Run faults whose causes are known, record them, and score the verdicts of `analyze`
#[derive(Parser)]
pub(crate) struct Cli {
    /// Run only this scenario (repeatable)
    #[arg(long)]
    scenario: Vec<String>,
    /// Keep X.parquet and X.truth.jsonl of each scenario in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Score the runs that --keep left in this directory instead of recording; X.truth.jsonl may be compressed (.gz)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["keep", "short"])]
    recorded: Option<PathBuf>,
    /// Make fewer calls: traces of a second or two, small enough for test data
    #[arg(long)]
    short: bool,
    /// Print the scores as JSON, with the confusion matrix
    #[arg(long)]
    json: bool,
    /// Ask `analyze` this query instead, whose columns are op, ts, tid, verdict, root and culprit_comm
    #[arg(long, value_name = "FILE")]
    query: Option<PathBuf>,
}

fn main() -> ExitCode {
    match try_all(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("courtroom: {error}");
            ExitCode::from(2)
        }
    }
}

fn try_all(cli: &Cli) -> Result<bool, CourtError> {
    let query = match &cli.query {
        Some(path) => std::fs::read_to_string(path).map_err(error::io(path.display()))?,
        None => QUERY.to_owned(),
    };
    let chosen: Vec<&Scenario> = if cli.scenario.is_empty() {
        SCENARIOS.iter().collect()
    } else {
        let find = |name: &String| Scenario::find(name).ok_or(CourtError::Scenario(name.clone()));
        cli.scenario.iter().map(find).collect::<Result<_, _>>()?
    };
    let stage = match cli.recorded {
        None => Some(stage::Stage::new(cli.keep.as_deref(), cli.short)?),
        Some(_) => None,
    };
    let mut scores = Vec::new();
    for scenario in chosen {
        let evidence = match (&stage, &cli.recorded) {
            (Some(stage), _) => {
                eprintln!("{} …", scenario.name);
                stage.play(scenario, &query)?
            }
            (None, recorded) => {
                let directory = recorded.as_deref().unwrap_or(Path::new("."));
                stage::hear(&stage::programs()?, directory, scenario, &query)?
            }
        };
        scores.push(judge::score(scenario, &evidence));
    }
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&scores)?);
    } else {
        print!("{}", table::render(&scores));
    }
    Ok(scores.iter().all(judge::Score::holds))
}
