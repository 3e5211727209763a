//! Tries the programs beside this one under injected failures and kills, and counts what they leave on the disk.
//!
//! Each line is a tally; the last is that of all. It ends with 1 if anything was wrong, and then says what.

use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
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
    let mut all = Tally::default();
    let mut add = |what: &str, tally: Tally| {
        say(&format!("{what}: {tally}"));
        all += tally;
    };
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
            let tally = campaign::walk(scenario.as_ref(), effort, |fault: Fault| fault.kills() == kills)?;
            add(&format!("{what}, {}", scenario.name()), tally);
        }
    }
    let rows = Recording::rows(&record_rows, TIMED_ROWS_COUNT, None, true);
    let effort = Effort { trials_count: args.random_kills, threads_count: WAITING_COUNT, seed: args.seed };
    add("kills at random moments, record-rows", campaign::kill_at_random(&rows, effort, SPAN)?);
    if can_record(&capture) {
        let (stub, libraries) = (built("cuda-stub")?, built("examples")?);
        let workload = [stub.to_string_lossy(), libraries.to_string_lossy()].map(String::from).to_vec();
        let workload = [workload, ["/dev/null", "steady", LAUNCHES].map(str::to_owned).to_vec()].concat();
        let captured = Recording::captured(&capture, &workload);
        let effort = Effort { threads_count: 1, ..effort };
        add("kills at random moments, capture", campaign::kill_at_random(&captured, effort, SPAN)?);
    } else {
        say("This machine cannot record with eBPF (`capture check` says why): capture is not tried.");
    }
    Ok(all)
}

fn main() -> ExitCode {
    match crash(&Args::parse()) {
        Ok(tally) => {
            tally.wrong.iter().for_each(|wrong| say(&format!("WRONG: {wrong}")));
            say(&format!("all: {tally}"));
            if tally.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_WRONG) }
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "crash-test: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}
