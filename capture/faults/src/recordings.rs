//! A program that records into `run.parquet` as a scenario: whatever happens to it, what it had written out is there.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Command,
};

use arrow::{array::AsArray, datatypes::Int64Type};
use trace_schema::Run;
use trace_writer::{WriteError, part_path, recover};

use crate::{
    campaign::{Scenario, State, Verdict},
    error::FaultError,
    fault::{Fault, FileSystem},
    rows::{self, LOST_COUNT},
    trial::Trial,
};

/// The run that is recorded.
const RUN: &str = "run.parquet";
/// What stands in its place before it is replaced.
const OLD: &[u8] = b"a run of an earlier recording";
/// The most parts that a recording here has.
const PARTS_COUNT: u32 = 200;
/// The most that a kill may cost.
const MOST_LOST_NS: i64 = 1_000_000_000;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// So many of the rows in [`rows`].
    Rows(i64),
    /// Calls of `cudaLaunchKernel`.
    Launches,
}

/// A command that records.
///
/// On standard output it says the times in ns of rows that it has, a line each, and may say `flushed` before the time of a row
/// up to which everything was written out.
pub struct Recording {
    name: String,
    program: PathBuf,
    /// Arguments before and after the options for the output.
    before: Vec<String>,
    after: Vec<String>,
    subject: Subject,
    file_system: FileSystem,
    replaces: bool,
    /// Whether the times of rows are times, rather than counted up as fast as the program runs.
    is_timed: bool,
}

/// One file of a run, or the run recovered from its recording.
struct Part {
    batches: Vec<arrow::array::RecordBatch>,
    run: Run,
    is_finished: bool,
}

fn wrong(what: impl Into<String>) -> FaultError {
    FaultError::Wrong(what.into())
}

fn recording_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".recording");
    name.into()
}

impl Recording {
    /// Records made rows with `record-rows`: as fast as it can, or, with `is_timed`, a row each millisecond.
    pub fn rows(program: &Path, rows_count: i64, part_bytes: Option<i64>, is_timed: bool) -> Self {
        let mut after = vec!["--rows".to_owned(), rows_count.to_string()];
        after.extend(part_bytes.iter().flat_map(|bytes| ["--part-bytes".to_owned(), bytes.to_string()]));
        after.extend(is_timed.then(|| "--timed".to_owned()));
        Self {
            name: if part_bytes.is_some() { "record-rows in parts" } else { "record-rows" }.to_owned(),
            program: program.to_owned(),
            before: Vec::new(),
            after,
            subject: Subject::Rows(rows_count),
            file_system: FileSystem::Local,
            replaces: false,
            is_timed,
        }
    }

    /// Records a workload of the stub libraries with `capture`. The workload must say the times of its calls.
    pub fn captured(capture: &Path, workload: &[String]) -> Self {
        let before = ["--quiet", "--profile", "full"].map(str::to_owned).to_vec();
        let mut after = vec!["--".to_owned()];
        after.extend_from_slice(workload);
        Self {
            name: "capture".to_owned(),
            program: capture.to_owned(),
            before,
            after,
            subject: Subject::Launches,
            file_system: FileSystem::Local,
            replaces: false,
            is_timed: true,
        }
    }

    /// Lets a run of an earlier recording be there, which is replaced.
    #[must_use]
    pub fn replacing(self) -> Self {
        Self { replaces: true, name: format!("{} (replacing)", self.name), ..self }
    }

    /// Puts the folder on another kind of file system.
    #[must_use]
    pub fn on(self, file_system: FileSystem) -> Self {
        Self { file_system, name: format!("{} ({file_system:?})", self.name), ..self }
    }

    /// Reads a file of the run, or recovers it from its recording; `None` if it has neither.
    fn part(path: &Path) -> Result<Option<Part>, FaultError> {
        let recording = recording_of(path);
        let is_finished = path.exists() && fs::read(path).is_ok_and(|bytes| bytes != OLD);
        let mut recovered = None;
        if recording.exists() {
            let directory = tempfile::tempdir().map_err(FaultError::test("a temporary folder"))?;
            let out = directory.path().join(RUN);
            match recover(&recording, &out, false) {
                Ok(_) => recovered = Some(rows::read(&out)?),
                Err(WriteError::NothingRecorded(_)) => recovered = Some((Vec::new(), Run::default())),
                Err(error) => return Err(wrong(format!("it cannot be recovered: {error}"))),
            }
        }
        if is_finished {
            let (batches, run) = rows::read(path)?;
            return Ok(Some(Part { batches, run, is_finished }));
        }
        Ok(recovered.map(|(batches, run)| Part { batches, run, is_finished }))
    }

    /// The parts of the run, or the run itself, in order.
    fn parts(folder: &Path) -> Result<Vec<Part>, FaultError> {
        let out = folder.join(RUN);
        let mut parts: Vec<Part> = Self::part(&out)?.into_iter().collect();
        let mut known = vec![out.clone()];
        let mut is_missing = false;
        for number in 1..=PARTS_COUNT {
            let path = part_path(&out, number);
            match Self::part(&path)? {
                Some(_) if is_missing => {
                    return Err(wrong(format!("part {number} is there, and an earlier one is not")));
                }
                Some(part) => parts.push(part),
                None => is_missing = true,
            }
            known.push(path);
        }
        let io = || FaultError::test(folder.display().to_string());
        for entry in fs::read_dir(folder).map_err(io())? {
            let path = entry.map_err(io())?.path();
            let is_known = known.iter().any(|known| path == *known || path == recording_of(known));
            if !is_known && !path.to_string_lossy().contains(".inquest-") {
                return Err(wrong(format!("{} is neither a run nor a recording", path.display())));
            }
        }
        Ok(parts)
    }

    /// Checks the rows of all parts, and returns their number and the time of the last in ns. `has_gaps`: of a part that was not
    /// finished, the end may be missing although there is a later part.
    fn check(&self, parts: &[Part], has_gaps: bool) -> Result<(i64, Option<i64>), FaultError> {
        let (mut count, mut last) = (0, None);
        let mut may_skip = false;
        for part in parts {
            check_completeness(part)?;
            match self.subject {
                Subject::Rows(_) => {
                    if may_skip {
                        count = rows::first_number(&part.batches)?.unwrap_or(count).max(count);
                    }
                    may_skip = has_gaps && !part.is_finished;
                    let (next, time) = rows::check(&part.batches, count)?;
                    (count, last) = (next, time.or(last));
                    check_counts(part)?;
                }
                Subject::Launches => {
                    for batch in &part.batches {
                        let ts = rows::column(batch, "ts")?.as_primitive::<Int64Type>();
                        let op = rows::texts(batch, "op")?;
                        let ops = op.as_string::<i32>().iter();
                        let launches =
                            ops.zip(ts.values().iter()).filter(|(op, _)| *op == Some("cudaLaunchKernel"));
                        for (_, ts) in launches {
                            (count, last) = (count + 1, last.max(Some(*ts)));
                        }
                    }
                }
            }
        }
        Ok((count, last))
    }
}

/// Checks that a recovered run, and no other, says that it was interrupted, and that its losses are not known.
fn check_completeness(part: &Part) -> Result<(), FaultError> {
    let Part { batches, run, is_finished } = part;
    let says = run.not_captured.iter().any(|what| what.contains("interrupted"));
    // A recording without a row becomes no run.
    if batches.is_empty() || (run.lost_is_counted, says) == (*is_finished, !is_finished) {
        return Ok(());
    }
    Err(wrong(format!("it says {:?} of what it lacks", run.not_captured)))
}

/// Checks that a run has the counts that its recorder gave it, if that came to its end.
fn check_counts(part: &Part) -> Result<(), FaultError> {
    let Part { run, is_finished, .. } = part;
    // The recorder counts at its very end.
    let has_counts = *is_finished && (run.part_number == 0 || run.part_is_last);
    let expected = if has_counts { LOST_COUNT } else { 0 };
    match run.lost_count() {
        count if count == expected => Ok(()),
        count => Err(wrong(format!("{count} events are counted as lost, not {expected}"))),
    }
}

impl Scenario for Recording {
    fn name(&self) -> &str {
        &self.name
    }

    fn file_system(&self) -> FileSystem {
        self.file_system
    }

    fn prepare(&self, folder: &Path) -> Result<(), FaultError> {
        if self.replaces {
            fs::write(folder.join(RUN), OLD).map_err(FaultError::test(RUN))?;
        }
        Ok(())
    }

    fn command(&self, folder: &Path, force: bool) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.before).arg("--out").arg(folder.join(RUN));
        if force || self.replaces {
            command.arg("--force");
        }
        command.args(&self.after);
        command
    }

    fn judge(&self, folder: &Path, trial: &Trial, fault: Option<Fault>) -> Result<Verdict, FaultError> {
        let out = folder.join(RUN);
        if self.replaces && !out.exists() {
            return Err(wrong(format!("{RUN} was there before, and is gone")));
        }
        let is_power_cut = matches!(fault, Some(Fault::PowerCut(_)));
        let parts = Self::parts(folder)?;
        let (rows_count, last_ns) = self.check(&parts, is_power_cut)?;
        let is_finished = !parts.is_empty() && parts.iter().all(|part| part.is_finished);
        let is_complete = is_finished
            && match self.subject {
                Subject::Rows(count) => rows_count == count,
                Subject::Launches => rows_count > 0,
            };
        let state = match rows_count {
            _ if is_complete => State::Complete,
            0 => State::Kept,
            _ => State::Recovered,
        };
        // What the program had, and what it had written out.
        let times = |text: &str| text.trim().parse::<i64>().ok();
        let had_ns = trial.stdout.lines().filter_map(times).max();
        let flushed_ns =
            trial.stdout.lines().filter_map(|line| line.strip_prefix("flushed").and_then(times)).max();
        let is_lost = |ns: Option<i64>| ns.is_some_and(|ns| last_ns.is_none_or(|last| last < ns));
        // A power cut takes what the background sync has not reached yet, which the time tells.
        if !is_power_cut && is_lost(flushed_ns) {
            return Err(wrong(format!(
                "rows up to {flushed_ns:?} were flushed, and the last is of {last_ns:?}"
            )));
        }
        let first_ns = trial.stdout.lines().find_map(times);
        let lost_ns = match (had_ns, last_ns.or(first_ns)) {
            (Some(had), Some(last)) if !is_complete => (had - last).max(0),
            _ => 0,
        };
        // Where time is only counted, the background sync is slower than it.
        let is_bounded = self.is_timed || !is_power_cut;
        if is_bounded && trial.status.signal().is_some() && lost_ns > MOST_LOST_NS {
            return Err(wrong(format!("{} ms are lost", lost_ns / 1_000_000)));
        }
        Ok(Verdict { state, lost_ns: if is_bounded { lost_ns } else { 0 } })
    }
}
