//! Tries a program under many faults, and counts what it leaves.
//!
//! A first run without faults says which system calls the program makes on the files of its folder: those are the points.
//! Each trial then runs it with one fault at one of them, in a folder of its own, and examines the folder:
//!
//! | the program | what must be there |
//! |---|---|
//! | ends with 0 | everything, whole |
//! | ends with an error | what was there before, or everything, or a recording with all that was flushed; nothing else |
//! | was killed, or the power was cut | the same, and perhaps leftovers, which the next run removes |

use std::{
    fmt, fs,
    ops::AddAssign,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    disk::files,
    error::FaultError,
    fault::{Fault, FileSystem, Plan, PowerCut, When},
    trial::{self, Trial},
};

/// The exit code of both programs when reading or writing failed.
const EXIT_IO: i32 = 5;

/// What a folder holds after a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All that the program was to write.
    Complete,
    /// What was there before, and nothing new.
    Kept,
    /// Some of several files, each of them whole.
    Partial,
    /// A recording from which a run was recovered.
    Recovered,
}

/// What was found in a folder.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// What it holds.
    pub state: State,
    /// The time in ns from the last row that was recovered to the last that the program had.
    pub lost_ns: i64,
}

/// A program that writes files, and what they may be afterwards.
pub trait Scenario: Sync {
    /// Its name in messages.
    fn name(&self) -> &str;

    /// What the file system of its folder can do.
    fn file_system(&self) -> FileSystem;

    /// Puts into the folder what is there before the program runs.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    fn prepare(&self, folder: &Path) -> Result<(), FaultError>;

    /// The program that writes into the folder. `force`: what an earlier run left may be replaced.
    fn command(&self, folder: &Path, force: bool) -> Command;

    /// Looks at what the program left.
    ///
    /// # Errors
    /// Returns [`FaultError::Wrong`] if that is not what it may leave.
    fn judge(&self, folder: &Path, trial: &Trial, fault: Option<Fault>) -> Result<Verdict, FaultError>;
}

/// Counts of trials.
#[derive(Debug, Default)]
pub struct Tally {
    /// System calls at which a fault can come.
    pub points_count: usize,
    /// Trials.
    pub trials_count: usize,
    /// Trials after which everything was there.
    pub complete_count: usize,
    /// Trials after which nothing new was there.
    pub kept_count: usize,
    /// Trials after which some of several files were there.
    pub partial_count: usize,
    /// Trials after which a run was recovered.
    pub recovered_count: usize,
    /// Trials in which the program ended with an error.
    pub refused_count: usize,
    /// Trials in which it was killed.
    pub killed_count: usize,
    /// The most that a kill has cost, in ns.
    pub most_lost_ns: i64,
    /// What was wrong, each with the trial in which it was.
    pub wrong: Vec<String>,
}

impl Tally {
    /// The tally as a JSON object, with the name of its campaign, the seed and the time in seconds that it took.
    pub fn json(&self, campaign: &str, seed: u64, took: Duration) -> serde_json::Value {
        serde_json::json!({
            "campaign": campaign,
            "seed": seed,
            "took_s": took.as_secs(),
            "points_count": self.points_count,
            "trials_count": self.trials_count,
            "complete_count": self.complete_count,
            "absent_count": self.kept_count,
            "partial_count": self.partial_count,
            "recovered_count": self.recovered_count,
            "refused_count": self.refused_count,
            "killed_count": self.killed_count,
            "most_lost_ns": self.most_lost_ns,
            "wrong": self.wrong,
        })
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.points_count += other.points_count;
        self.trials_count += other.trials_count;
        self.complete_count += other.complete_count;
        self.kept_count += other.kept_count;
        self.partial_count += other.partial_count;
        self.recovered_count += other.recovered_count;
        self.refused_count += other.refused_count;
        self.killed_count += other.killed_count;
        self.most_lost_ns = self.most_lost_ns.max(other.most_lost_ns);
        self.wrong.extend(other.wrong);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} points, {} trials ({} killed, {} ended with an error): {} complete, {} absent, {} in part, \
             {} recovered, {} WRONG; at most {} ms lost",
            self.points_count,
            self.trials_count,
            self.killed_count,
            self.refused_count,
            self.complete_count,
            self.kept_count,
            self.partial_count,
            self.recovered_count,
            self.wrong.len(),
            self.most_lost_ns / 1_000_000
        )
    }
}

fn wrong(what: impl Into<String>) -> FaultError {
    FaultError::Wrong(what.into())
}

/// What is in a folder that nobody wants there: unfinished files, and folders without a file.
fn leftovers(folder: &Path) -> Result<Vec<PathBuf>, FaultError> {
    let io = || FaultError::test(folder.display().to_string());
    let is_unfinished =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".inquest-"));
    let mut found: Vec<PathBuf> = files(folder).map_err(io())?.into_iter().filter(is_unfinished).collect();
    for entry in fs::read_dir(folder).map_err(io())? {
        let path = entry.map_err(io())?.path();
        if path.is_dir() && files(&path).map_err(io())?.is_empty() {
            found.push(path);
        }
    }
    Ok(found)
}

/// Checks how a program ended; `fault` is the one that came.
fn check_end(trial: &Trial, fault: Option<Fault>) -> Result<(), FaultError> {
    let said = trial.stderr.trim();
    if trial.is_hung {
        return Err(wrong("it does not end"));
    }
    match (trial.status.code(), fault) {
        (Some(0), _) => Ok(()),
        (Some(EXIT_IO), Some(fault)) if !fault.is_harmless() && !said.is_empty() => Ok(()),
        (None, Some(fault)) if fault.kills() => Ok(()),
        _ => Err(wrong(format!("{}: {said}", trial.status))),
    }
}

/// Whether a trial ended with a kill.
fn is_killed(trial: &Trial) -> bool {
    trial.status.signal() == Some(Signal::KILL.as_raw())
}

fn examine(
    scenario: &dyn Scenario,
    folder: &Path,
    trial: &Trial,
    plan: &Plan,
) -> Result<Verdict, FaultError> {
    let fault = plan.fault.map(|(_, fault)| fault).filter(|_| trial.is_hit);
    check_end(trial, fault)?;
    if !is_killed(trial) {
        let left = leftovers(folder)?;
        if !left.is_empty() {
            return Err(wrong(format!("it leaves {left:?}")));
        }
    }
    let verdict = scenario.judge(folder, trial, fault)?;
    if trial.status.success() && verdict.state != State::Complete {
        return Err(wrong(format!("it says that all is well, and its output is {:?}", verdict.state)));
    }
    if is_killed(trial) {
        let plan = Plan { fault: None, ..*plan };
        let again = trial::run(&mut scenario.command(folder, true), folder, &plan)?;
        check_end(&again, None).map_err(|error| wrong(format!("the next run: {error}")))?;
        let left = leftovers(folder)?;
        if !left.is_empty() && plan.file_system.has_locks() {
            return Err(wrong(format!("the next run leaves {left:?}")));
        }
        let found = scenario.judge(folder, &again, None)?;
        if found.state != State::Complete {
            return Err(wrong(format!("the output of the next run is {:?}", found.state)));
        }
    }
    Ok(verdict)
}

/// Runs a program once in a folder of its own, and counts what it leaves. Returns its run.
fn attempt(scenario: &dyn Scenario, plan: &Plan, tally: &mut Tally) -> Result<Trial, FaultError> {
    let directory = tempfile::tempdir().map_err(FaultError::test("a temporary folder"))?;
    let folder = directory.path().join("out");
    fs::create_dir(&folder).map_err(FaultError::test("a temporary folder"))?;
    scenario.prepare(&folder)?;
    let trial = trial::run(&mut scenario.command(&folder, false), &folder, plan)?;
    tally.trials_count += 1;
    tally.killed_count += usize::from(is_killed(&trial));
    tally.refused_count += usize::from(trial.status.code() == Some(EXIT_IO));
    match examine(scenario, &folder, &trial, plan) {
        Ok(verdict) => {
            *match verdict.state {
                State::Complete => &mut tally.complete_count,
                State::Kept => &mut tally.kept_count,
                State::Partial => &mut tally.partial_count,
                State::Recovered => &mut tally.recovered_count,
            } += 1;
            tally.most_lost_ns = tally.most_lost_ns.max(verdict.lost_ns);
        }
        Err(FaultError::Wrong(what)) => {
            tally.wrong.push(format!("{}, {}: {what}", scenario.name(), describe(plan, &trial)));
        }
        Err(error) => return Err(error),
    }
    Ok(trial)
}

/// Says what happened to a program.
fn describe(plan: &Plan, trial: &Trial) -> String {
    match plan.fault {
        None => "without a fault".to_owned(),
        Some((When::After(time), fault)) => format!("after {} ms: {fault}", time.as_millis()),
        Some((When::End, fault)) => format!("at its end: {fault}"),
        Some((When::Call(number), fault)) => match trial.hit.and_then(|index| trial.calls.get(index)) {
            Some(call) => {
                format!("call {number} or later ({:?} {}): {fault}", call.kind, call.path.display())
            }
            None => format!("call {number}, after which none came that can have it: {fault}"),
        },
    }
}

/// Every point at which a program can be hit, with every fault there.
///
/// # Errors
/// Returns an error if the program cannot be run, or fails without a fault.
pub fn points(scenario: &dyn Scenario) -> Result<Vec<(When, Fault)>, FaultError> {
    let mut tally = Tally::default();
    let plan = Plan { file_system: scenario.file_system(), fault: None };
    let calls = attempt(scenario, &plan, &mut tally)?.calls;
    if let Some(what) = tally.wrong.pop() {
        return Err(FaultError::Wrong(what));
    }
    let at_calls = calls.iter().enumerate().flat_map(|(index, call)| {
        Fault::all(call.kind).into_iter().map(move |fault| (When::Call(index + 1), fault))
    });
    let at_the_end = PowerCut::ALL.map(|cut| (When::End, Fault::PowerCut(cut)));
    Ok(at_calls.chain(at_the_end).collect())
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of trials.
    pub trials_count: usize,
    /// Number of trials at a time.
    pub threads_count: usize,
    /// What decides which trials these are.
    pub seed: u64,
}

/// Tries a program under all plans, several at a time.
fn attempt_all(scenario: &dyn Scenario, plans: &[Plan], threads_count: usize) -> Result<Tally, FaultError> {
    let share = plans.len().div_ceil(threads_count.max(1)).max(1);
    let attempts = &|plans: &[Plan]| -> Result<Tally, FaultError> {
        let mut tally = Tally::default();
        plans.iter().try_for_each(|plan| attempt(scenario, plan, &mut tally).map(drop))?;
        Ok(tally)
    };
    thread::scope(|scope| {
        let shares = plans.chunks(share);
        let threads: Vec<_> = shares.map(|plans| scope.spawn(move || attempts(plans))).collect();
        let mut all = Tally::default();
        for thread in threads {
            all += thread.join().unwrap_or_else(|_| Err(wrong("a thread of the campaign panicked")))?;
        }
        Ok(all)
    })
}

/// Tries a program under the faults that `is_wanted` selects: each once in an order that the seed decides, and then all over
/// again.
///
/// # Errors
/// Returns an error if the program cannot be run, or fails without a fault. What it does wrong under one is in the tally.
pub fn walk(
    scenario: &dyn Scenario,
    effort: Effort,
    is_wanted: impl Fn(Fault) -> bool,
) -> Result<Tally, FaultError> {
    let mut faults = points(scenario)?;
    faults.retain(|(_, fault)| is_wanted(*fault));
    fastrand::Rng::with_seed(effort.seed).shuffle(&mut faults);
    let plan = |fault: &(When, Fault)| Plan { file_system: scenario.file_system(), fault: Some(*fault) };
    let plans: Vec<Plan> = faults.iter().map(plan).cycle().take(effort.trials_count).collect();
    let tally = attempt_all(scenario, &plans, effort.threads_count)?;
    Ok(Tally { points_count: faults.len(), ..tally })
}

/// Kills a program again and again, each time after another part of `span`.
///
/// # Errors
/// Returns an error if the program cannot be run. What it does wrong is in the tally.
pub fn kill_at_random(scenario: &dyn Scenario, effort: Effort, span: Duration) -> Result<Tally, FaultError> {
    let mut random = fastrand::Rng::with_seed(effort.seed);
    let plans: Vec<Plan> = (0..effort.trials_count)
        .map(|_| {
            let after = When::After(span.mul_f64(random.f64()));
            Plan { file_system: scenario.file_system(), fault: Some((after, Fault::Kill)) }
        })
        .collect();
    attempt_all(scenario, &plans, effort.threads_count)
}
