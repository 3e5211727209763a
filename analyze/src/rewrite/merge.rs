//! Merges several runs of one host into one: slices of a run, or recordings of different processes or times.
//!
//! The runs must share a clock, and no process may have rows of overlapping times in two of them, because
//! copies could not be told from originals.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::{Int64Type, UInt32Type, UInt64Type},
};
use trace_schema::{Kind, Run};
use trace_writer::Finished;

use super::{blocking, numbers, texts};
use crate::trace::Trace;
use analyze_run::new_file;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    reading::plain,
    run_file::RunFile,
};

/// Allowed difference between wall-clock offsets within one boot, in ns, beyond their known error: the wall
/// clock is corrected in steps.
const WALL_SLACK_NS: i64 = 1_000_000_000;

/// Result of a merge.
pub struct Merged {
    /// Number of rows and size of the merged run.
    pub finished: Finished,
    /// Descriptions of metadata that disagree between the runs.
    pub conflicts: Vec<String>,
}

/// Merges the runs of `trace` and writes them to `out`.
///
/// # Errors
/// Returns an error if the runs are from different hosts or boots, if they overlap, if they cannot be read,
/// or if `out` cannot be written.
pub async fn run(trace: &Trace, out: &Path, force: bool) -> Result<Merged, AnalyzeError> {
    let mut files = trace.files().to_vec();
    files.sort_by_key(|file| file.run.clock.start_ns);
    new_file::differs(out, files.iter().flat_map(|file| &file.paths))?;
    one_clock(&files)?;
    no_overlap(trace).await?;
    let (run, conflicts) = described(&files);
    let out = out.to_owned();
    let finished = blocking(move || {
        let inputs = files.into_iter().map(|file| plain::batches(file.paths, None)).collect();
        trace_writer::write(&out, force, Merge::new(inputs), || run)
    });
    Ok(Merged { finished: finished.await?, conflicts })
}

/// Checks that the runs' times are on the same clock.
fn one_clock(files: &[RunFile]) -> Result<(), AnalyzeError> {
    for pair in files.windows(2) {
        let [a, b] = pair else { continue };
        if a.run.host.name != b.run.host.name {
            return Err(AnalyzeError::Query(format!(
                "{} is of host {:?}, {} of {:?}: their clocks have nothing in common",
                a.name, a.run.host.name, b.name, b.run.host.name
            )));
        }
        let (first, second) = (&a.run.clock, &b.run.clock);
        let known = first.wall_error_ns.saturating_add(second.wall_error_ns);
        let moved = first.wall_step_ns.saturating_abs().saturating_add(second.wall_step_ns.saturating_abs());
        let apart = first.wall_offset_ns.saturating_sub(second.wall_offset_ns).saturating_abs();
        if apart > known.saturating_add(moved).saturating_add(WALL_SLACK_NS) {
            return Err(AnalyzeError::Query(format!(
                "{} and {} are of different boots of the host: their clocks are {apart} ns apart",
                a.name, b.name
            )));
        }
    }
    Ok(())
}

/// Checks that no process has rows of the same time in two runs.
async fn no_overlap(trace: &Trace) -> Result<(), AnalyzeError> {
    let query = "SELECT run, pid, min(ts) AS first_ns, max(ts) AS last_ns FROM events \
         WHERE kind NOT IN ('name', 'run') AND pid > 0 GROUP BY run, pid ORDER BY pid, first_ns, run";
    let mut last: Option<(i64, i64, String)> = None;
    for batch in trace.batches(query).await? {
        let (run, pid) = (strings(&batch, "run")?, integers(&batch, "pid")?);
        let (from, to) = (integers(&batch, "first_ns")?, integers(&batch, "last_ns")?);
        for row in 0..batch.num_rows() {
            let (pid, run) = (pid.value(row), run.at(row).unwrap_or_default());
            if let Some((_, end, other)) =
                last.as_ref().filter(|(of, end, _)| *of == pid && *end >= from.value(row))
            {
                return Err(AnalyzeError::Query(format!(
                    "process {pid} has rows of the same time in {other} (until {end} ns) and {run} (from {} ns): copies could \
                     not be told from originals; cut one with `analyze slice`",
                    from.value(row)
                )));
            }
            last = Some((pid, to.value(row), run.to_owned()));
        }
    }
    Ok(())
}

/// Builds the metadata of the merged run, and describes what disagrees.
fn described(files: &[RunFile]) -> (Run, Vec<String>) {
    let mut conflicts = Vec::new();
    let mut whole = files.first().map(|file| file.run.clone()).unwrap_or_default();
    (whole.part_number, whole.part_is_last) = (0, false);
    whole.not_captured.clear();
    let mut commands: BTreeMap<u32, &[String]> = BTreeMap::new();
    for file in files {
        let run = &file.run;
        whole.clock.end_ns = whole.clock.end_ns.max(run.clock.end_ns);
        if run.clock.end_ns >= whole.clock.end_ns {
            let drift = run.clock.wall_offset_ns.saturating_sub(whole.clock.wall_offset_ns);
            whole.clock.wall_step_ns = drift.saturating_add(run.clock.wall_step_ns);
        }
        let kept = whole.clock.is_synchronised.zip(run.clock.is_synchronised);
        whole.clock.is_synchronised = kept.map(|(one, other)| one && other);
        let utc_errors = whole.clock.utc_error_ns.zip(run.clock.utc_error_ns);
        whole.clock.utc_error_ns = utc_errors.map(|(one, other)| one.max(other));
        whole.lost_is_counted &= run.lost_is_counted;
        whole.throttling_is_recorded &= run.throttling_is_recorded;
        add_new(&mut whole.gpus, &run.gpus);
        add_new(&mut whole.libraries, &run.libraries);
        add_new(&mut whole.probes, &run.probes);
        add_new(&mut whole.threads, &run.threads);
        add_new(&mut whole.lost, &run.lost);
        add_new(&mut whole.stored, &run.stored);
        add_new(&mut whole.processes, &run.processes);
        if run.host.name.is_empty() {
            conflicts.push(format!(
                "the host of {} is not on record: that it is the others' is not known",
                file.name
            ));
        }
        for process in &run.processes {
            let command = commands.entry(process.pid).or_insert(&process.command);
            if *command != process.command.as_slice() {
                conflicts.push(format!(
                    "process {} is {:?} in one run and {:?} in {}",
                    process.pid,
                    command.join(" "),
                    process.command.join(" "),
                    file.name
                ));
            }
        }
        whole.not_captured.extend(run.not_captured.iter().map(|what| format!("in {}: {what}", file.name)));
    }
    for pair in files.windows(2) {
        if let [a, b] = pair
            && b.run.clock.start_ns > a.run.clock.end_ns
        {
            let gap = trace_schema::Nanos(b.run.clock.start_ns - a.run.clock.end_ns);
            whole
                .not_captured
                .push(format!("nothing was recorded for {gap} between {} and {}", a.name, b.name));
        }
    }
    whole.not_captured.extend(conflicts.iter().map(|what| format!("a merge: {what}")));
    (whole, conflicts)
}

fn add_new<T: Clone + PartialEq>(to: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

/// Identity of a name row: process, time, kind of name, function, stack, and the name itself.
type Name = (u32, i64, String, Option<u64>, Option<u32>, String);

/// Merges the batches of all inputs by their start times.
struct Merge<I: Iterator> {
    inputs: Vec<std::iter::Peekable<I>>,
    names: HashSet<Name>,
}

impl<I: Iterator<Item = Result<RecordBatch, AnalyzeError>>> Merge<I> {
    fn new(inputs: Vec<I>) -> Self {
        Self { inputs: inputs.into_iter().map(Iterator::peekable).collect(), names: HashSet::new() }
    }

    /// Removes name rows that another input already had.
    fn unique(&mut self, batch: &RecordBatch) -> Result<RecordBatch, AnalyzeError> {
        let kind = texts(batch, "kind")?;
        if !kind.iter().flatten().any(|kind| kind == Kind::Name.name()) {
            return Ok(batch.clone());
        }
        let (ts, pid) = (numbers::<Int64Type>(batch, "ts")?, numbers::<UInt32Type>(batch, "pid")?);
        let (op, detail) = (texts(batch, "op")?, texts(batch, "detail")?);
        let (func, stack) = (numbers::<UInt64Type>(batch, "func")?, numbers::<UInt32Type>(batch, "stack")?);
        let funcs: Vec<Option<u64>> = func.iter().collect();
        let stacks: Vec<Option<u32>> = stack.iter().collect();
        let mask: BooleanArray = (0..batch.num_rows())
            .map(|row| {
                let text = |texts: &arrow::array::StringArray| texts.at(row).unwrap_or_default().to_owned();
                let name = (pid.value(row), ts.value(row), text(&op), funcs[row], stacks[row], text(&detail));
                Some(kind.value(row) != Kind::Name.name() || self.names.insert(name))
            })
            .collect();
        filter_record_batch(batch, &mask).map_err(|error| AnalyzeError::Damaged(error.to_string()))
    }
}

impl<I: Iterator<Item = Result<RecordBatch, AnalyzeError>>> Iterator for Merge<I> {
    type Item = Result<RecordBatch, AnalyzeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let begin = |batch: &Result<RecordBatch, AnalyzeError>| {
            let ts = batch.as_ref().ok().and_then(|batch| numbers::<Int64Type>(batch, "ts").ok());
            // An unreadable batch sorts first: its error ends the merge.
            ts.and_then(|ts| ts.values().first().copied()).unwrap_or(i64::MIN)
        };
        let firsts = self.inputs.iter_mut().enumerate();
        let begins = firsts.filter_map(|(number, input)| Some((begin(input.peek()?), number)));
        let (_, number) = begins.min()?;
        let batch = self.inputs.get_mut(number)?.next()?;
        Some(batch.and_then(|batch| self.unique(&batch)))
    }
}
