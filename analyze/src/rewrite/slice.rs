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

use std::{cell::Cell, path::Path};

use arrow::{
    array::{Array, BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::{Int64Type, UInt32Type},
};
use trace_schema::{Kind, Nanos, Run};
use trace_writer::Finished;

use super::{blocking, numbers, texts};
use crate::trace::Trace;
use analyze_run::new_file;
use analyze_run::{error::AnalyzeError, reading::plain};

/// What to keep. Times count from the beginning of the recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params {
    /// First time that is kept; `None` for the beginning.
    pub from: Option<Nanos>,
    /// Time from which rows are no longer kept; `None` for the end.
    pub to: Option<Nanos>,
    /// Process that is kept; `None` for all.
    pub pid: Option<u32>,
}

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
/// Returns an error if the interval is empty, the run's data cannot be read, or `out` cannot be written.
pub async fn run(trace: &Trace, params: Params, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let Some(file) = trace.files().first().cloned() else {
        return Err(AnalyzeError::Internal("a trace without files".to_owned()));
    };
    new_file::differs(out, &file.paths)?;
    let on_clock = |time: Option<Nanos>| time.map(|time| file.run.clock.start_ns.saturating_add(time.0));
    let bounds = Bounds {
        from_ns: on_clock(params.from).unwrap_or(i64::MIN),
        to_ns: on_clock(params.to).unwrap_or(i64::MAX),
        pid: params.pid,
    };
    if bounds.from_ns >= bounds.to_ns {
        return Err(AnalyzeError::Query("--from is not before --to".to_owned()));
    }
    let out = out.to_owned();
    blocking(move || {
        let cut_count = Cell::new(0);
        let kept = plain::batches(file.paths.clone(), None).map(|batch| keep(&batch?, bounds, &cut_count));
        trace_writer::write(&out, force, kept, || {
            described(file.run.clone(), params, bounds, cut_count.get())
        })
    })
    .await
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
    filter_record_batch(batch, &mask).map_err(|error| AnalyzeError::Damaged(error.to_string()))
}

/// Builds the metadata of the slice.
fn described(mut run: Run, params: Params, bounds: Bounds, cut_count: u64) -> Run {
    let clock = &mut run.clock;
    clock.start_ns = clock.start_ns.max(bounds.from_ns);
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
