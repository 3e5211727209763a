//! `_calls`: every call with its place on its thread, its phase, and the exact split of its time.

use std::{collections::HashMap, ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray},
    compute::{cast, concat_batches},
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};
use trace_schema::{Class, Op};

use super::{
    blocker::Blocker,
    nesting::{Place, Span, innermost, places},
    schedule::{Fault, Faults, Schedule},
    time_split::{self, Parts},
};
use crate::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// Type of columns of few strings.
pub(super) fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// A type made on demand, because a dictionary's is not a constant.
type Type = fn() -> DataType;

/// The columns handed through, then the derived ones.
const HANDED: [(&str, Type); 14] = [
    ("run", || DataType::Utf8),
    ("pid", || DataType::UInt32),
    ("tid", || DataType::UInt32),
    ("ts", || DataType::Int64),
    ("dur", || DataType::Int64),
    ("op", dictionary),
    ("ret", || DataType::Int32),
    ("addr", || DataType::UInt64),
    ("src_addr", || DataType::UInt64),
    ("size_bytes", || DataType::Int64),
    ("direction", dictionary),
    ("stream", || DataType::UInt64),
    ("func", || DataType::UInt64),
    ("caller", dictionary),
];

/// Columns of whole numbers that are derived, but for the classes of blocking, which come last.
const DERIVED: [&str; 10] = [
    "depth",
    "child_ns",
    "on_cpu_ns",
    "preempted_ns",
    "runnable_ns",
    "throttled_ns",
    "blocked_ns",
    "stopped_ns",
    "unknown_ns",
    "blocked_syscall",
];

/// The column of a class of blocking.
pub(crate) fn blocked_column(blocker: Blocker) -> String {
    format!("blocked_{}_ns", blocker.name().replace('-', "_"))
}

/// Schema of the result of [`derive()`].
pub(crate) fn schema() -> SchemaRef {
    let mut fields: Vec<Field> = HANDED.iter().map(|(name, ty)| Field::new(*name, ty(), true)).collect();
    fields.extend(["nested_in", "child_op", "phase"].map(|name| Field::new(name, dictionary(), true)));
    fields.push(Field::new("first_call", DataType::Boolean, true));
    fields.extend(DERIVED.map(|name| Field::new(name, DataType::Int64, true)));
    fields.extend(Blocker::ALL.map(|blocker| Field::new(blocked_column(blocker), DataType::Int64, true)));
    Arc::new(Schema::new(fields))
}

type Thread = (String, i64, i64);

/// Consecutive rows of one thread.
fn threads(batch: &RecordBatch) -> Result<Vec<(Thread, Range<usize>)>, AnalyzeError> {
    let (runs, pids, tids) = (strings(batch, "run")?, integers(batch, "pid")?, integers(batch, "tid")?);
    let key = |row: usize| (runs.value(row), pids.value(row), tids.value(row));
    let mut found: Vec<(Thread, Range<usize>)> = Vec::new();
    let mut start = 0;
    for row in 1..=batch.num_rows() {
        if row == batch.num_rows() || key(row) != key(start) {
            let (run, pid, tid) = key(start);
            found.push(((run.to_owned(), pid, tid), start..row));
            start = row;
        }
    }
    Ok(found)
}

fn one_batch(batches: &[RecordBatch]) -> Result<Option<RecordBatch>, ArrowError> {
    match batches.first() {
        None => Ok(None),
        Some(first) => concat_batches(&first.schema(), batches).map(Some),
    }
}

/// The ranges that a workload named, by process.
#[derive(Default)]
struct Phases {
    spans: HashMap<(String, i64), Vec<Span>>,
    names: HashMap<(String, i64), Vec<String>>,
}

impl Phases {
    fn read(batches: &[RecordBatch]) -> Result<Self, AnalyzeError> {
        let mut phases = Self::default();
        for batch in batches {
            let (runs, pids, names) =
                (strings(batch, "run")?, integers(batch, "pid")?, strings(batch, "detail")?);
            let (ts, dur) = (integers(batch, "ts")?, integers(batch, "dur")?);
            for row in 0..batch.num_rows() {
                let key = (runs.value(row).to_owned(), pids.value(row));
                phases
                    .spans
                    .entry(key.clone())
                    .or_default()
                    .push(Span { ts: ts.value(row), dur: dur.at(row) });
                phases.names.entry(key).or_default().push(names.value(row).to_owned());
            }
        }
        Ok(phases)
    }

    /// The phase that each call of one thread began in.
    fn of(&self, (run, pid, _): &Thread, calls: &[Span]) -> Vec<Option<&str>> {
        let key = (run.clone(), *pid);
        match (self.spans.get(&key), self.names.get(&key)) {
            (Some(spans), Some(names)) => innermost(calls.iter().map(|call| call.ts), spans)
                .into_iter()
                .map(|range| range.map(|range| names[range].as_str()))
                .collect(),
            _ => vec![None; calls.len()],
        }
    }
}

/// Derives `_calls`. Calls are sorted by run, process, thread and start, longest first, `ranges` (of marks) by
/// run, process and start. What is wrong with the calls is added to `faults`.
///
/// # Errors
/// If a column is missing or cannot be read.
pub(crate) fn derive(
    calls: &[RecordBatch],
    ranges: &[RecordBatch],
    schedule: &mut Schedule,
    faults: &mut Faults,
) -> Result<RecordBatch, AnalyzeError> {
    let damaged = |error: ArrowError| AnalyzeError::Damaged(error.to_string());
    let Some(calls) = one_batch(calls).map_err(damaged)? else {
        return Ok(RecordBatch::new_empty(schema()));
    };
    let ts = integers(&calls, "ts")?;
    let durations = integers(&calls, "dur")?;
    // A call that ends before it began is one whose end is not known.
    let dur: Int64Array = durations.iter().map(|dur| dur.filter(|dur| *dur >= 0)).collect();
    let mut all_places = Vec::with_capacity(calls.num_rows());
    let mut all_parts = Vec::with_capacity(calls.num_rows());
    let phases = Phases::read(ranges)?;
    let mut all_phases = Vec::with_capacity(calls.num_rows());
    for (thread, rows) in threads(&calls)? {
        let spans: Vec<Span> = rows.clone().map(|row| Span { ts: ts.value(row), dur: dur.at(row) }).collect();
        let first = rows.start;
        let run = schedule.names.number(&thread.0);
        let key = (run, thread.1 as u32, thread.2 as u32);
        let mut count = |fault, number: u64| {
            if number > 0 {
                *faults.entry((run, fault)).or_default() += number;
            }
        };
        let negative = rows.clone().filter(|row| durations.at(*row).is_some_and(|dur| dur < 0)).count();
        count(Fault::NegativeDuration, negative as u64);
        let mut crossing = 0;
        all_places.extend(places(&spans, &mut crossing).into_iter().map(|place| Place {
            parent: place.parent.map(|index| index + first),
            child: place.child.map(|index| index + first),
            ..place
        }));
        count(Fault::CrossingCalls, crossing);
        schedule.seen(key, &ts.values()[rows], faults);
        all_parts.extend(time_split::split(&spans, schedule.pieces(key)));
        all_phases.extend(phases.of(&thread, &spans));
    }
    assemble(&calls, &dur, &all_places, &all_parts, &all_phases)
}

/// Whether a row is the first in its run and process of its function with its kernel.
fn first_calls(calls: &RecordBatch) -> Result<BooleanArray, AnalyzeError> {
    let (runs, ops) = (strings(calls, "run")?, strings(calls, "op")?);
    let (pids, funcs, ts) = (integers(calls, "pid")?, integers(calls, "func")?, integers(calls, "ts")?);
    let key = |row: usize| (runs.value(row), pids.value(row), ops.value(row), funcs.value(row));
    // Other calls are about handles, too, but only a launch is dearer the first time.
    let is_launch = |op: &str| Op::from_name(op).is_some_and(|op| op.class() == Class::Launch);
    let with_kernel = |row: &usize| funcs.at(*row).is_some() && is_launch(ops.value(*row));
    // Rows are in order of threads, so the earliest need not come first.
    let mut earliest = HashMap::new();
    for row in (0..calls.num_rows()).filter(with_kernel) {
        let first: &mut usize = earliest.entry(key(row)).or_insert(row);
        if ts.value(row) < ts.value(*first) {
            *first = row;
        }
    }
    let mut first = vec![false; calls.num_rows()];
    earliest.into_values().for_each(|row| first[row] = true);
    Ok(first.into())
}

fn assemble(
    calls: &RecordBatch,
    dur: &Int64Array,
    places: &[Place],
    parts: &[Option<Parts>],
    phases: &[Option<&str>],
) -> Result<RecordBatch, AnalyzeError> {
    let damaged = |error: ArrowError| AnalyzeError::Damaged(error.to_string());
    let ops = strings(calls, "op")?;
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (name, ty) in HANDED {
        let column =
            calls.column_by_name(name).ok_or_else(|| AnalyzeError::Internal(format!("no column {name}")))?;
        columns.push(match name {
            "dur" => Arc::new(dur.clone()),
            _ => cast(column, &ty()).map_err(damaged)?,
        });
    }
    let op_at = |index: Option<usize>| index.map(|index| ops.value(index));
    let names = |get: fn(&Place) -> Option<usize>| {
        let array: StringArray = places.iter().map(|place| op_at(get(place))).collect();
        cast(&array, &dictionary()).map_err(damaged)
    };
    columns.push(names(|place| place.parent)?);
    columns.push(names(|place| place.child)?);
    let phases: StringArray = phases.iter().copied().collect();
    columns.push(cast(&phases, &dictionary()).map_err(damaged)?);
    columns.push(Arc::new(first_calls(calls)?));
    let of_places = |get: fn(&Place) -> i64| -> ArrayRef {
        Arc::new(places.iter().map(get).map(Some).collect::<Int64Array>())
    };
    columns.push(of_places(|place| place.depth));
    columns.push(of_places(|place| place.child_ns));
    let of_parts = |get: fn(&Parts) -> Option<i64>| -> ArrayRef {
        Arc::new(parts.iter().map(|parts| parts.as_ref().and_then(get)).collect::<Int64Array>())
    };
    columns.push(of_parts(|parts| Some(parts.on_cpu)));
    columns.push(of_parts(|parts| Some(parts.preempted)));
    columns.push(of_parts(|parts| Some(parts.runnable)));
    columns.push(of_parts(|parts| Some(parts.throttled)));
    columns.push(of_parts(|parts| Some(parts.blocked_ns())));
    columns.push(of_parts(|parts| Some(parts.stopped)));
    columns.push(of_parts(|parts| Some(parts.unknown)));
    columns.push(of_parts(|parts| parts.blocked_syscall));
    for blocker in Blocker::ALL {
        let blocked = |parts: &Option<Parts>| parts.map(|parts| parts.blocked[blocker as usize]);
        columns.push(Arc::new(parts.iter().map(blocked).collect::<Int64Array>()));
    }
    RecordBatch::try_new(schema(), columns).map_err(damaged)
}
