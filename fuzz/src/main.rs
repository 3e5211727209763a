//! `inquest-fuzz`: lists the targets, writes their seeds, runs them with a seed, and replays inputs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use analyze_run::memory_budget::held_bytes;
use inquest_fuzz::{
    campaign::{self, Budget},
    target::Target,
    targets::{TARGETS, find},
};

const USAGE: &str = "inquest-fuzz: fuzz targets for every reader of foreign bytes

  inquest-fuzz list                                   the targets, and what each reads
  inquest-fuzz seeds FOLDER                           writes the seeds of every target to FOLDER/TARGET/
  inquest-fuzz run TARGET|all [SECONDS] [SEED]        inputs made from the seeds [10 s, seed 1]; findings are kept in target/fuzz
  inquest-fuzz replay TARGET FILE…                    passes files to a target; RUST_BACKTRACE=1 shows where it panics

Exit codes: 0 done; 1 a finding; 2 wrong usage.";

/// The folder in which inputs are kept.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/fuzz")
}

fn target(name: &str) -> Result<&'static Target, String> {
    find(name).ok_or_else(|| format!("there is no target {name}: `inquest-fuzz list` has them"))
}

fn seeds(folder: &Path) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    for target in TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder).map_err(io)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed).map_err(io)?;
        }
    }
    Ok(())
}

fn run(name: &str, budget: &Budget) -> Result<ExitCode, String> {
    let targets: Vec<&Target> = if name == "all" { TARGETS.iter().collect() } else { vec![target(name)?] };
    let mut code = ExitCode::SUCCESS;
    for target in targets {
        let started = Instant::now();
        match campaign::run(target, budget, &folder()) {
            Ok(report) => println!(
                "{}: {} inputs in {:.1} s, {} of them read",
                target.name,
                report.inputs_count,
                started.elapsed().as_secs_f64(),
                report.read_count
            ),
            Err(finding) => {
                println!("{finding}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn replay(name: &str, files: &[String]) -> Result<(), String> {
    let target = target(name)?;
    for file in files {
        let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        let started = Instant::now();
        let outcome = (target.run)(&bytes);
        let held_mebibytes = held_bytes().unwrap_or_default() >> 20;
        println!("{file}: {outcome:?}, {:.3} s, {held_mebibytes} MiB held", started.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Parses a number, if one is given.
fn number(text: Option<&String>, default: u64) -> Result<u64, String> {
    text.map_or(Ok(default), |text| text.parse().map_err(|_| format!("{text} is no number")))
}

fn done(words: &[String]) -> Result<ExitCode, String> {
    match words {
        [verb] if verb == "list" => {
            TARGETS.iter().for_each(|target| println!("{:<16} {}", target.name, target.about));
            Ok(ExitCode::SUCCESS)
        }
        [verb, folder] if verb == "seeds" => seeds(Path::new(folder)).map(|()| ExitCode::SUCCESS),
        [verb, name, rest @ ..] if verb == "run" && rest.len() <= 2 => {
            let time = Duration::from_secs(number(rest.first(), 10)?);
            run(name, &Budget { seed: number(rest.get(1), 1)?, time, rounds: usize::MAX })
        }
        [verb, name, files @ ..] if verb == "replay" => replay(name, files).map(|()| ExitCode::SUCCESS),
        _ => Err(USAGE.to_owned()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    done(&words).unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(2)
    })
}
