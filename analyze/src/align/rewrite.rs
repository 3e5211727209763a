//! Combines a captured run with a profiler's profile of the same process, on the run's clock.
//!
//! ```text
//! run      call ──────────── correlation ◄─┐   its rows stay as they are; a call that the profile has, too,
//! profile  call (matched) ────────────────►│   gets its `correlation`, which leads to the work it caused
//!          device, host, mark, other calls ┴►  moved onto the run's clock
//! ```
//! Rows of the profile whose kind the run records itself (allocator events, off-CPU time, samples, …) are
//! left out.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt64Array},
    datatypes::{DataType, Field, Schema, UInt64Type},
};
use serde::Serialize;
use trace_schema::{Alignment, Kind, Nanos, Run};
use trace_writer::Finished;

use super::{
    alignment::{Aligned, Recording},
    calls::{Call, Functions, Side},
    coded::{Coded, Marks},
    moved::{Move, Moved},
    solve,
};
use crate::trace::Trace;
use analyze_run::new_file;
use analyze_run::{
    columns::{Cell, integers},
    error::AnalyzeError,
    reading::plain,
    run_file::RunFile,
};

/// Largest difference between the wall clocks of the two recordings, in ns.
const MAX_WALL_DIFFERENCE_NS: i64 = 10_000_000_000;

/// Columns needed to match calls and marks.
const COLUMNS: &[&str] = &["ts", "dur", "kind", "op", "pid", "tid", "detail"];

/// Result of an alignment.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Relation between the clocks, and its uncertainty.
    pub alignment: Alignment,
    /// Wall-clock time of the profile minus that of the run, in ns; `None` if one of them does not record it.
    pub wall_difference_ns: Option<i64>,
    /// Number of rows added from the profile, by kind.
    pub added: BTreeMap<String, u64>,
    /// Number of rows of the profile left out because the run has them itself, by kind.
    pub left_out: BTreeMap<String, u64>,
    /// Number of rows of the new run.
    pub rows_count: u64,
    /// Size of the new run in bytes.
    pub size_bytes: u64,
}

/// Data read from one side before the relation of the clocks is known.
struct Read {
    side: Side,
    marks: Marks,
    kinds: HashSet<String>,
}

fn read(paths: &[PathBuf], functions: &mut Functions) -> Result<Read, AnalyzeError> {
    let mut read = Read { side: Side::default(), marks: Marks::new(), kinds: HashSet::new() };
    let mut base = 0;
    for batch in plain::batches(paths.to_vec(), Some(COLUMNS)) {
        let batch = batch?;
        let kinds = Coded::new(&batch, "kind", |kind| {
            read.kinds.insert(kind.to_owned());
            Kind::ALL.into_iter().find(|known| known.name() == kind)
        })?;
        let (ts, dur) = (integers(&batch, "ts")?, integers(&batch, "dur")?);
        let (pid, tid) = (integers(&batch, "pid")?, integers(&batch, "tid")?);
        let ops = Coded::new(&batch, "op", |op| functions.number(op))?;
        let details = Coded::new(&batch, "detail", |name| Arc::<str>::from(name))?;
        for row in 0..batch.num_rows() {
            let number = |of: &Int64Array| of.at(row).unwrap_or(0) as u32;
            let start = ts.value(row);
            match kinds.at(row) {
                Some(Some(Kind::Call)) => {
                    let end = start.saturating_add(dur.at(row).unwrap_or(0).max(0));
                    if let Some(op) = ops.at(row) {
                        let call = Call { start, end, op: *op, row: base + row as u64 };
                        read.side.push(number(&pid), number(&tid), call);
                    }
                }
                Some(Some(Kind::Mark)) => {
                    if let Some(name) = details.at(row) {
                        read.marks.entry((number(&tid), Arc::clone(name))).or_default().push(start);
                    }
                }
                _ => {}
            }
        }
        base += batch.num_rows() as u64;
    }
    read.marks.values_mut().for_each(|times| times.sort_unstable());
    Ok(read)
}

fn one<'a>(trace: &'a Trace, what: &str) -> Result<&'a RunFile, AnalyzeError> {
    match trace.files() {
        [file] => Ok(file),
        files => {
            Err(AnalyzeError::Query(format!("{what}: {} runs are given, and one is needed", files.len())))
        }
    }
}

fn recording(run: &Run) -> Recording {
    let span = match run.clock.end_ns > run.clock.start_ns {
        true => run.clock.start_ns..run.clock.end_ns,
        false => i64::MIN..i64::MAX,
    };
    Recording { span, lost: run.lost.iter().map(|lost| lost.from_ns..lost.to_ns).collect() }
}

/// Aligns `profile` with `captured` and writes both as one run to `out`. This function blocks.
///
/// # Errors
/// Returns an error if a side cannot be read or is not exactly one run, if the alignment does not hold, or if
/// `out` cannot be written.
pub fn run(captured: &Trace, profile: &Trace, out: &Path, force: bool) -> Result<Outcome, AnalyzeError> {
    let (run, other) = (one(captured, "the captured run")?, one(profile, "the profile")?);
    new_file::check(out, force, run.paths.iter().chain(&other.paths))?;
    let inconclusive = |why: String| {
        AnalyzeError::Inconclusive(format!("{} cannot be aligned with {}: {why}", other.name, run.name))
    };
    let mut functions = Functions::default();
    let ours = read(&run.paths, &mut functions)?;
    let theirs = read(&other.paths, &mut functions)?;
    let Read { marks, kinds, .. } = ours;
    let aligned =
        solve::run(theirs.side, ours.side, &functions, &recording(&run.run)).map_err(inconclusive)?;
    let walls = run.run.clock.wall_offset().zip(other.run.clock.wall_offset());
    let wall_difference_ns = walls
        .map(|((ours, _), (theirs, _))| theirs.saturating_sub(aligned.line.offset_ns).saturating_sub(ours));
    if let Some(difference) = wall_difference_ns.filter(|d| d.saturating_abs() > MAX_WALL_DIFFERENCE_NS) {
        return Err(inconclusive(format!(
            "their calls fit, but by the time of day the two are {} apart: they are of different processes",
            Nanos(difference.saturating_abs())
        )));
    }
    let alignment = described(&aligned, other);
    if let Some(pid) =
        alignment.pids.iter().find(|pid| run.run.alignments.iter().any(|a| a.pids.contains(pid)))
    {
        return Err(AnalyzeError::Query(format!("{}: it has a profile of process {pid} already", run.name)));
    }
    let moving = Move::new(&aligned, kinds, marks);
    let (finished, moved) = write(run, other, &aligned, moving, &alignment, out, force)?;
    let Moved { added, left_out, .. } = moved;
    let Finished { rows_count, size_bytes, .. } = finished;
    Ok(Outcome { alignment, wall_difference_ns, added, left_out, rows_count, size_bytes })
}

fn described(aligned: &Aligned, profile: &RunFile) -> Alignment {
    let Aligned { line, quality, .. } = aligned;
    let mut pids: Vec<u32> = aligned.threads.iter().map(|threads| threads.captured.0).collect();
    pids.sort_unstable();
    pids.dedup();
    Alignment {
        profile: profile.name.clone(),
        producer: profile.run.producer.clone(),
        pids,
        origin_ns: line.origin_ns,
        offset_ns: line.offset_ns,
        drift_ppm: line.drift * 1e6,
        drift_error_ppm: line.drift_error * 1e6,
        offset_error_ns: quality.offset_error_ns(),
        matchable_count: quality.matchable_count,
        matched_count: quality.matched_count,
        residual_median_ns: quality.residual_median_ns,
        residual_p99_ns: quality.residual_p99_ns,
        residual_max_ns: quality.residual_max_ns,
        nonlinearity_ns: quality.nonlinearity_ns,
    }
}

/// Returns the matched rows of the run, ascending, each with the correlation ID that the profile has for the
/// call.
fn correlations(profile: &RunFile, aligned: &Aligned) -> Result<Vec<(u64, u64)>, AnalyzeError> {
    let mut matched = aligned.matched.clone();
    matched.sort_unstable();
    let (mut next, mut base) = (0, 0);
    let mut found = Vec::with_capacity(matched.len());
    for batch in plain::batches(profile.paths.clone(), Some(&["correlation"])) {
        let batch = batch?;
        let numbers = batch.column_by_name("correlation").and_then(|c| c.as_primitive_opt::<UInt64Type>());
        let Some(numbers) = numbers else { break };
        while let Some(pair) = matched.get(next).filter(|pair| pair.profile_row - base < numbers.len() as u64)
        {
            found.extend(
                numbers.at((pair.profile_row - base) as usize).map(|number| (pair.captured_row, number)),
            );
            next += 1;
        }
        base += numbers.len() as u64;
    }
    found.sort_unstable();
    Ok(found)
}

/// Sets the correlation IDs in a batch of the run whose first row has the number `base`.
fn correlate(batch: &RecordBatch, base: u64, numbers: &[(u64, u64)]) -> Result<RecordBatch, AnalyzeError> {
    let place = |row: u64| numbers.partition_point(|(of, _)| *of < row);
    let new = numbers.get(place(base)..place(base + batch.num_rows() as u64)).unwrap_or_default();
    if new.is_empty() {
        return Ok(batch.clone());
    }
    let index = batch.schema().index_of("correlation").ok();
    let had = index.and_then(|index| batch.column(index).as_primitive_opt::<UInt64Type>());
    let mut column: Vec<Option<u64>> =
        had.map_or_else(|| vec![None; batch.num_rows()], |had| had.iter().collect());
    for (row, number) in new {
        if let Some(cell) = column.get_mut((row - base) as usize) {
            *cell = Some(*number);
        }
    }
    let column: ArrayRef = Arc::new(UInt64Array::from(column));
    let schema = batch.schema();
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
    match index.and_then(|index| columns.get_mut(index)) {
        Some(place) => *place = column,
        None => {
            fields.push(Arc::new(Field::new("correlation", DataType::UInt64, true)));
            columns.push(column);
        }
    }
    let damaged = |error: arrow::error::ArrowError| AnalyzeError::Damaged(error.to_string());
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(damaged)
}

/// Start time of a batch in ns. An unreadable batch sorts first, so that its error ends the write.
fn begin(batch: &Result<RecordBatch, AnalyzeError>) -> i64 {
    let ts = batch.as_ref().ok().and_then(|batch| integers(batch, "ts").ok());
    ts.filter(|ts| !ts.is_empty()).map_or(i64::MIN, |ts| ts.value(0))
}

fn write(
    run: &RunFile,
    other: &RunFile,
    aligned: &Aligned,
    mut moving: Move,
    alignment: &Alignment,
    out: &Path,
    force: bool,
) -> Result<(Finished, Moved), AnalyzeError> {
    let numbers = correlations(other, aligned)?;
    let mut base = 0;
    let mut ours = plain::batches(run.paths.clone(), None)
        .map(|batch| {
            let batch = batch?;
            let first = base;
            base += batch.num_rows() as u64;
            correlate(&batch, first, &numbers)
        })
        .peekable();
    let mut moved = Moved::default();
    let mut theirs = plain::batches(other.paths.clone(), None)
        .map(|batch| moving.batch(&batch?, &mut moved))
        .filter(|batch| batch.as_ref().map_or(true, |batch| batch.num_rows() > 0))
        .peekable();
    let rows = std::iter::from_fn(|| {
        let ours_first = match (ours.peek(), theirs.peek()) {
            (Some(a), Some(b)) => begin(a) <= begin(b),
            (a, _) => a.is_some(),
        };
        if ours_first { ours.next() } else { theirs.next() }
    });
    let finished = trace_writer::write(out, force, rows, || whole(run, other, alignment))?;
    Ok((finished, moved))
}

/// Builds the metadata of the new run.
fn whole(run: &RunFile, other: &RunFile, alignment: &Alignment) -> Run {
    let mut whole = run.run.clone();
    (whole.part_number, whole.part_is_last) = (0, false);
    whole.alignments.push(alignment.clone());
    let had = whole.not_captured.len();
    whole.not_captured.retain(|what| what != Run::NO_DEVICE_ROWS);
    if whole.not_captured.len() < had {
        whole.not_captured.push(format!(
            "GPU-side execution outside of the profile {}, which took {}",
            other.name,
            Nanos(other.run.clock.end_ns.saturating_sub(other.run.clock.start_ns))
        ));
    }
    if !other.run.lost_is_counted {
        whole.not_captured.push(format!(
            "what the profile {} lost: that a call has no work on the GPU proves nothing",
            other.name
        ));
    }
    let limits = other.run.not_captured.iter();
    whole.not_captured.extend(limits.map(|what| format!("in the profile {}: {what}", other.name)));
    let known: HashSet<(u32, u32)> = whole.threads.iter().map(|thread| (thread.pid, thread.tid)).collect();
    let pids = &alignment.pids;
    let new = other.run.threads.iter().filter(|t| pids.contains(&t.pid) && !known.contains(&(t.pid, t.tid)));
    whole.threads.extend(new.cloned());
    whole
}
