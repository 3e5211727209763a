//! Copies a part of a run: an interval of its time, one of its processes, or both.
//!
//! ```text
//!          from                  to
//! ├── a ────┼─┤  ├── b ──┤ ├─ c ┼──┤      kept: b and c, whole. a began before: `not_captured` counts it
//! ```
//! A row belongs to the slice that contains its `ts`, so that adjacent slices contain every row exactly once.
//! Names (of kernels and call stacks) are kept regardless of when they were recorded. A slice of one process
//! also keeps what its verdicts need: the scheduling slices of all processes on its CPUs, and samples of
//! devices.

use std::{borrow::Cow, cell::Cell, path::Path};

use arrow::{
    array::{Array, BooleanArray, RecordBatch, StringArray},
    compute::{cast, filter_record_batch},
    datatypes::{Int64Type, UInt32Type},
    error::ArrowError,
};
use trace_schema::{Kind, Nanos, Redaction, Redactor, Run};
use trace_writer::Finished;

use super::{blocking, numbers, texts};
use crate::trace::Trace;
use analyze_run::{columns::integers, error::AnalyzeError, new_file, reading::plain};

/// What to keep. Times count from the beginning of the recording.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// First time that is kept; `None` for the beginning.
    pub from: Option<Nanos>,
    /// Time from which rows are no longer kept; `None` for the end.
    pub to: Option<Nanos>,
    /// Process that is kept; `None` for all.
    pub pid: Option<u32>,
    /// What is taken out of command lines.
    pub redaction: Redaction,
}

/// Largest number of processes that an error names.
const NAMED: usize = 20;

/// The interval on the trace's clock, and the process.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    from_ns: i64,
    to_ns: i64,
    pid: Option<u32>,
}

/// Writes a slice of one run to `out`.
///
/// # Errors
/// Returns an error if the interval is empty, the run has no such process, the run's data cannot be read, or `out` cannot be
/// written.
pub async fn run(trace: &Trace, params: Params, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let Some(file) = trace.files().first().cloned() else {
        return Err(AnalyzeError::Internal("a trace without files".to_owned()));
    };
    new_file::check(out, force, &file.paths)?;
    let on_clock = |time: Option<Nanos>| time.map(|time| file.run.clock.start_ns.saturating_add(time.0));
    let bounds = Bounds {
        from_ns: on_clock(params.from).unwrap_or(i64::MIN),
        to_ns: on_clock(params.to).unwrap_or(i64::MAX),
        pid: params.pid,
    };
    if bounds.from_ns >= bounds.to_ns {
        return Err(AnalyzeError::Query("--from is not before --to".to_owned()));
    }
    if let Some(pid) = params.pid {
        has_process(trace, pid).await?;
    }
    let redactor = Redactor::new(params.redaction.clone(), &file.run);
    let out = out.to_owned();
    blocking(move || {
        let cut_count = Cell::new(0);
        let kept = plain::batches(file.paths.clone(), None)
            .map(|batch| redacted(keep(&batch?, bounds, &cut_count)?, &redactor));
        trace_writer::write(&out, force, kept, || {
            let mut run = described(file.run.clone(), &params, bounds, cut_count.get());
            redactor.run(&mut run);
            run
        })
    })
    .await
}

/// Checks that a process has rows of its own.
async fn has_process(trace: &Trace, wanted: u32) -> Result<(), AnalyzeError> {
    let query = "SELECT CAST(pid AS BIGINT) AS pid FROM events WHERE kind NOT IN ('name', 'run') AND pid > 0 \
         GROUP BY pid ORDER BY pid";
    let mut pids: Vec<i64> = Vec::new();
    for batch in trace.batches(query).await? {
        pids.extend(integers(&batch, "pid")?.values().iter());
    }
    if pids.contains(&i64::from(wanted)) {
        return Ok(());
    }
    let named: Vec<String> = pids.iter().take(NAMED).map(ToString::to_string).collect();
    let more = pids.len().saturating_sub(NAMED);
    Err(AnalyzeError::Query(match (named.is_empty(), more) {
        (true, _) => format!("the run has no events of process {wanted}, nor of any other"),
        (false, 0) => {
            format!("the run has no events of process {wanted}; it has those of {}", named.join(", "))
        }
        (false, _) => format!(
            "the run has no events of process {wanted}; it has those of {} and {more} more",
            named.join(", ")
        ),
    }))
}

fn damaged(error: ArrowError) -> AnalyzeError {
    AnalyzeError::Damaged(error.to_string())
}

/// Redacts the command lines in the rows of a batch.
fn redacted(batch: RecordBatch, redactor: &Redactor) -> Result<RecordBatch, AnalyzeError> {
    let (kind, op) = (texts(&batch, "kind")?, texts(&batch, "op")?);
    let is_command = |row: usize| kind.value(row) == Kind::Process.name() && op.value(row) == "exec";
    if redactor.is_off() || !(0..batch.num_rows()).any(is_command) {
        return Ok(batch);
    }
    let Ok(index) = batch.schema().index_of("detail") else { return Ok(batch) };
    let detail = texts(&batch, "detail")?;
    let shown = |row: usize| match is_command(row) {
        false => Cow::Borrowed(detail.value(row)),
        true => Cow::Owned(redactor.line(detail.value(row))),
    };
    let shown: StringArray =
        (0..batch.num_rows()).map(|row| detail.is_valid(row).then(|| shown(row))).collect();
    let mut columns = batch.columns().to_vec();
    columns[index] = cast(&shown, columns[index].data_type()).map_err(damaged)?;
    RecordBatch::try_new(batch.schema(), columns).map_err(damaged)
}

/// Returns the rows of a batch that are in the slice. Counts spans that begin before the slice and reach into
/// it.
fn keep(batch: &RecordBatch, bounds: Bounds, cut_count: &Cell<u64>) -> Result<RecordBatch, AnalyzeError> {
    let (ts, dur) = (numbers::<Int64Type>(batch, "ts")?, numbers::<Int64Type>(batch, "dur")?);
    let (pid, kind) = (numbers::<UInt32Type>(batch, "pid")?, texts(batch, "kind")?);
    let (name, slice) = (Kind::Name.name(), Kind::Run.name());
    let mask: BooleanArray = (0..batch.num_rows())
        .map(|row| {
            let (begin, kind) = (ts.value(row), kind.value(row));
            let of_process = bounds.pid.is_none_or(|wanted| pid.value(row) == wanted);
            let needed = of_process || kind == slice || pid.value(row) == 0;
            if kind == name {
                return Some(of_process);
            }
            let reaches = match dur.is_valid(row) {
                true => begin.saturating_add(dur.value(row)) > bounds.from_ns,
                false => kind == Kind::Call.name() || kind == Kind::OffCpu.name(),
            };
            if begin < bounds.from_ns && needed && reaches {
                cut_count.set(cut_count.get() + 1);
            }
            Some(needed && begin >= bounds.from_ns && begin < bounds.to_ns)
        })
        .collect();
    filter_record_batch(batch, &mask).map_err(damaged)
}

/// Builds the metadata of the slice.
fn described(mut run: Run, params: &Params, bounds: Bounds, cut_count: u64) -> Run {
    let clock = &mut run.clock;
    // A slice that begins after the end of the recording is empty, and begins at that end. (0: the end is not known.)
    let latest_ns = if clock.end_ns == 0 { i64::MAX } else { clock.end_ns };
    clock.start_ns = clock.start_ns.max(bounds.from_ns.min(latest_ns));
    clock.end_ns = clock.end_ns.min(bounds.to_ns);
    run.lost.retain(|lost| lost.to_ns > bounds.from_ns && lost.from_ns < bounds.to_ns);
    run.stored.retain(|stored| stored.to_ns > bounds.from_ns && stored.from_ns < bounds.to_ns);
    // The first event of its kind in the slice need not be the first of the process.
    run.joined_running |= params.from.is_some();
    (run.part_number, run.part_is_last) = (0, false);
    if let Some(pid) = bounds.pid {
        run.processes.retain(|process| process.pid == pid);
        run.threads.retain(|thread| thread.pid == pid);
        run.not_captured.push(format!("a slice: rows of processes other than {pid} were left out"));
    }
    if let Some(from) = params.from {
        run.not_captured.push(format!(
            "a slice: what began before {from} was left out, {cut_count} spans that reach past it among that"
        ));
    }
    if let Some(to) = params.to {
        run.not_captured.push(format!("a slice: what began at {to} or later was left out"));
    }
    run
}
