//! Tries the programs beside this one under injected failures and kills, and counts what they leave on the disk.
//!
//! Each line is a tally; the last is that of all. It ends with 1 if anything was wrong, and then says what. `--out` writes each
//! tally, once it is complete, as a line of JSON.

use std::{
    env,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use fault_injection::{
    FaultError,
    campaign::{self, Effort, Scenario, Tally},
    fault::Fault,
    recordings::Recording,
    scenarios,
};

/// The exit code when a program did what it must not do.
const EXIT_WRONG: u8 = 1;
/// The exit code when a program could not be tried.
const EXIT_FAILED: u8 = 5;
/// Rows of recordings that are tried at system calls, and of those that are killed at random moments (a row each millisecond).
const ROWS_COUNT: i64 = 10_000;
const TIMED_ROWS_COUNT: i64 = 4_500;
/// The time in which kills at random moments come.
const SPAN: Duration = Duration::from_secs(4);
/// Launches of the workload that `capture` records, 20 µs each.
const LAUNCHES: &str = "250000";
/// Waiting recorders that are tried at a time.
const WAITING_COUNT: usize = 16;

/// Try recorders and verbs under injected failures and kills, and count what they leave on the disk
#[derive(Parser)]
struct Args {
    /// Number of injected failures, over all recorders and verbs
    #[arg(long, default_value_t = 10_000)]
    failures: usize,
    /// Number of kills and power cuts at system calls, over all recorders and verbs
    #[arg(long, default_value_t = 300)]
    kills: usize,
    /// Number of kills at random moments, of each recorder: of made rows and, where this machine can record, `capture`
    #[arg(long, default_value_t = 500)]
    random_kills: usize,
    /// What decides which failures and moments these are
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a JSON object a line for each campaign, and one for all, to this new file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What is tried, and where the results go.
struct Results {
    file: Option<File>,
    seed: u64,
    all: Tally,
}

impl Results {
    /// Begins without results.
    fn new(args: &Args) -> Result<Self, FaultError> {
        let file = args.out.as_ref().map(|path| {
            let what = path.display().to_string();
            File::create_new(path).map_err(|source| FaultError::Test { what, source })
        });
        Ok(Self { file: file.transpose()?, seed: args.seed, all: Tally::default() })
    }

    /// Prints and writes the tally of a campaign that has just ended.
    fn write(&mut self, campaign: &str, tally: &Tally, took: Duration) -> Result<(), FaultError> {
        say(&format!("{campaign}: {tally}"));
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = tally.json(campaign, self.seed, took);
        let what = "the file of results".to_owned();
        writeln!(file, "{line}").map_err(|source| FaultError::Test { what, source })
    }

    /// Tries something, and adds its tally.
    fn add(
        &mut self,
        campaign: &str,
        tried: impl FnOnce() -> Result<Tally, FaultError>,
    ) -> Result<(), FaultError> {
        let start = Instant::now();
        let tally = tried()?;
        self.write(campaign, &tally, start.elapsed())?;
        self.all += tally;
        Ok(())
    }
}

/// A program or folder of this build.
fn built(name: &str) -> Result<PathBuf, FaultError> {
    let this = env::current_exe().map_err(|error| FaultError::Wrong(error.to_string()))?;
    let path = this.with_file_name(name);
    if path.exists() {
        return Ok(path);
    }
    Err(FaultError::Wrong(format!("{} is not built: build the whole workspace", path.display())))
}

fn say(text: &str) {
    // Who closed standard output does not want to know.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Whether this machine can record with eBPF.
fn can_record(capture: &Path) -> bool {
    Command::new(capture).arg("check").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn crash(args: &Args) -> Result<Tally, FaultError> {
    let threads_count = thread::available_parallelism().map_or(1, usize::from);
    let (record_rows, analyze, capture) = (built("record-rows")?, built("analyze")?, built("capture")?);
    let (start, mut results) = (Instant::now(), Results::new(args)?);
    let mut tried: Vec<Box<dyn Scenario>> = Vec::new();
    for recorder in scenarios::recorders(&record_rows, ROWS_COUNT) {
        tried.push(Box::new(recorder));
    }
    for verbs in [scenarios::quick_verbs, scenarios::slow_verbs, scenarios::other_verbs] {
        for verb in verbs(&analyze)? {
            tried.push(Box::new(verb));
        }
    }
    for (what, trials_count, kills) in [("failures", args.failures, false), ("kills", args.kills, true)] {
        for (index, scenario) in tried.iter().enumerate() {
            // The first get what cannot be divided.
            let share = trials_count / tried.len() + usize::from(index < trials_count % tried.len());
            let effort = Effort { trials_count: share, threads_count, seed: args.seed };
            let is_wanted = |fault: Fault| fault.kills() == kills;
            results.add(&format!("{what}, {}", scenario.name()), || {
                campaign::walk(scenario.as_ref(), effort, is_wanted)
            })?;
        }
    }
    let rows = Recording::rows(&record_rows, TIMED_ROWS_COUNT, None, true);
    let effort = Effort { trials_count: args.random_kills, threads_count: WAITING_COUNT, seed: args.seed };
    results.add("kills at random moments, record-rows", || campaign::kill_at_random(&rows, effort, SPAN))?;
    if can_record(&capture) {
        let (stub, libraries) = (built("cuda-stub")?, built("examples")?);
        let workload = [stub.to_string_lossy(), libraries.to_string_lossy()].map(String::from).to_vec();
        let workload = [workload, ["/dev/null", "steady", LAUNCHES].map(str::to_owned).to_vec()].concat();
        let captured = Recording::captured(&capture, &workload);
        let effort = Effort { threads_count: 1, ..effort };
        results
            .add("kills at random moments, capture", || campaign::kill_at_random(&captured, effort, SPAN))?;
    } else {
        say("This machine cannot record with eBPF (`capture check` says why): capture is not tried.");
    }
    let all = std::mem::take(&mut results.all);
    all.wrong.iter().for_each(|wrong| say(&format!("WRONG: {wrong}")));
    results.write("all", &all, start.elapsed())?;
    Ok(all)
}

fn main() -> ExitCode {
    match crash(&Args::parse()) {
        Ok(tally) => {
            if tally.wrong.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(EXIT_WRONG)
            }
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "crash-test: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}
