//! A seeded and bounded run of a target: what the tests do on every machine, within seconds and without coverage.
//!
//! Round `n` of a seed has always the same input, so a finding is found again by its seed and its round as well as by its
//! input, which is kept. A round ends the process if it takes too long or takes too much memory: nothing else could.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use analyze_run::{memory_budget::held_bytes, random::Random};

use crate::{
    findings,
    target::{Outcome, Target},
};

/// The longest time that one input may take.
const ROUND_LIMIT: Duration = Duration::from_secs(10);
/// The most memory that the process may hold, in bytes.
const MEMORY_LIMIT_BYTES: usize = 2 << 30;
/// The largest input that is made, in bytes.
const INPUT_BYTES: usize = 1 << 20;
/// Rounds that are made whatever time they take: a machine that is too slow must not pass for that.
const LEAST_ROUNDS: usize = 8;
/// The time between two looks at a round.
const PERIOD: Duration = Duration::from_millis(50);

/// How far a campaign goes.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Seed of the random numbers.
    pub seed: u64,
    /// The time after which no round begins.
    pub time: Duration,
    /// The largest number of rounds.
    pub rounds: usize,
}

/// What a campaign without a finding has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of inputs, seeds among them.
    pub inputs_count: usize,
    /// Number of inputs that the reader has read.
    pub read_count: usize,
}

/// An input that is not handled as it should be.
#[derive(Debug)]
pub struct Finding {
    target: &'static str,
    /// The round, and the seed of the campaign.
    place: String,
    what: String,
    /// Where the input is kept.
    input: PathBuf,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, place, what, input } = self;
        let input = input.display();
        write!(
            f,
            "fuzz target {target}, {place}: {what}\nthe input is {input}; to see it again:\n  \
             cargo run --bin inquest-fuzz -- replay {target} {input}"
        )
    }
}

/// The round that is under way, for the thread that watches it.
struct Watched {
    target: &'static str,
    input: PathBuf,
    round: Mutex<Option<(Instant, String)>>,
}

impl Watched {
    fn set(&self, round: Option<(Instant, String)>) {
        *self.round.lock().unwrap_or_else(PoisonError::into_inner) = round;
    }

    /// Ends the process if the round takes too long or too much.
    fn look(&self) {
        let round = self.round.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((since, place)) = round else { return };
        let held = held_bytes().unwrap_or_default();
        let what = if since.elapsed() > ROUND_LIMIT {
            format!("it has taken {:.0} s so far", since.elapsed().as_secs_f64())
        } else if held > MEMORY_LIMIT_BYTES {
            format!("the process holds {} MiB, more than {}", held >> 20, MEMORY_LIMIT_BYTES >> 20)
        } else {
            return;
        };
        eprintln!("{}", Finding { target: self.target, place, what, input: self.input.clone() });
        process::exit(1);
    }
}

/// One campaign.
struct Campaign<'a> {
    target: &'a Target,
    folder: &'a Path,
    watched: Arc<Watched>,
    report: Report,
}

impl Campaign<'_> {
    /// Passes one input to the target.
    fn input(&mut self, place: &str, bytes: &[u8]) -> Result<Outcome, Finding> {
        // If the process ends in the middle, this is what it was about.
        let finding = |what: String| Finding {
            target: self.target.name,
            place: place.to_owned(),
            what,
            input: self.watched.input.clone(),
        };
        let write = |path: &Path| fs::write(path, bytes);
        write(&self.watched.input).map_err(|error| finding(format!("the input cannot be kept: {error}")))?;
        self.watched.set(Some((Instant::now(), place.to_owned())));
        let (outcome, found) = findings::of(|| (self.target.run)(bytes));
        self.watched.set(None);
        self.report.inputs_count += 1;
        match outcome {
            Some(outcome) if found.is_empty() => {
                self.report.read_count += usize::from(outcome == Outcome::Read);
                Ok(outcome)
            }
            _ => {
                let kept = self.folder.join(format!("{}-{:08x}", self.target.name, crc32fast::hash(bytes)));
                let input = if write(&kept).is_ok() { kept } else { self.watched.input.clone() };
                Err(Finding { input, ..finding(found.join("; ")) })
            }
        }
    }

    fn run(mut self, budget: &Budget) -> Result<Report, Finding> {
        for file in kept(self.target.name) {
            let bytes = fs::read(&file).unwrap_or_default();
            self.input(&format!("the earlier finding {}", file.display()), &bytes)?;
        }
        let seeds = (self.target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            if self.input(&format!("its seed {number}"), seed)? == Outcome::Refused {
                return Err(Finding {
                    target: self.target.name,
                    place: format!("its seed {number}"),
                    what: "the reader refuses it: what follows from it would test nothing".to_owned(),
                    input: self.watched.input.clone(),
                });
            }
        }
        let started = Instant::now();
        for round in 0..budget.rounds {
            if round >= LEAST_ROUNDS && started.elapsed() >= budget.time {
                break;
            }
            let bytes = input_of(self.target, &seeds, budget.seed, round);
            self.input(&format!("seed {}, round {round}", budget.seed), &bytes)?;
        }
        Ok(self.report)
    }
}

/// Returns the files with inputs of a target that were findings once, sorted.
fn kept(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("findings").join(target);
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Returns the input of a round.
fn input_of(target: &Target, seeds: &[Vec<u8>], seed: u64, round: usize) -> Vec<u8> {
    let mut random = Random::nth(seed, round as u64);
    let mut bytes = if seeds.is_empty() { Vec::new() } else { seeds[random.below(seeds.len())].clone() };
    for _ in 0..1 + random.below(3) {
        (target.mutate)(&mut bytes, &mut random);
    }
    bytes.truncate(INPUT_BYTES);
    bytes
}

/// Runs a target on the findings of earlier campaigns, on its seeds, and on inputs that are made of them. Inputs are kept in
/// `folder`.
///
/// # Errors
/// Returns the first finding. An input that takes too long or too much memory ends the process instead.
pub fn run(target: &'static Target, budget: &Budget, folder: &Path) -> Result<Report, Finding> {
    let input = folder.join(format!("{}.current", target.name));
    let watched = Arc::new(Watched { target: target.name, input, round: Mutex::new(None) });
    let watcher = Arc::downgrade(&watched);
    let watch = move || {
        while let Some(watched) = watcher.upgrade() {
            watched.look();
            drop(watched);
            thread::sleep(PERIOD);
        }
    };
    let failed = |error: io::Error| Finding {
        target: target.name,
        place: "at the start".to_owned(),
        what: error.to_string(),
        input: folder.to_owned(),
    };
    fs::create_dir_all(folder).map_err(failed)?;
    thread::Builder::new().spawn(watch).map_err(failed)?;
    let campaign = Campaign { target, folder, watched: Arc::clone(&watched), report: Report::default() };
    let result = campaign.run(budget);
    if result.is_ok() {
        let _ = fs::remove_file(&watched.input);
    }
    result
}
