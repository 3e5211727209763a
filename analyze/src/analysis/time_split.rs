//! Where the time of each call went, exactly: its own thread's off-CPU intervals, intersected with it.
//!
//! ```text
//! call      ├──────────────────────────── dur ─────────────────────────────┤
//! off-CPU        ├─ preempted ─┤        ├── blocked ──┼─ runnable ─┤
//! on-CPU    ├────┤             ├────────┤                          ├───────┤
//! nested            (a child call may lie anywhere inside; its time is also its parent's)
//! ```
//! Intervals are half-open; those of one thread never overlap, so a sorted thread needs one sweep. The
//! parts of a finished call sum to its `dur`. A call without `dur` (censored) has no parts. An off-CPU
//! interval of unknown length reaches to the end of time: no finished call contains its end.

use std::{collections::HashMap, ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray},
    compute::{cast, concat_batches},
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
};

use trace_schema::{Class, Op};

use crate::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// A call on its thread. Sorted by start, longest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) ts: i64,
    /// `None`: not finished when recording ended.
    pub(crate) dur: Option<i64>,
}

/// Why a thread was off CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It could have gone on: all of it is waiting for a CPU.
    Preempted,
    /// It waited for something, and then for a CPU.
    Blocked,
    /// It was stopped by a signal; while recording a command, by the recorder itself.
    Stopped,
    /// The source does not tell.
    Unknown,
}

/// An off-CPU interval of the thread. Sorted, not overlapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Off {
    pub(crate) ts: i64,
    pub(crate) dur: Option<i64>,
    /// Its last part, spent waiting for a CPU; `None`: not known, counts as blocked.
    pub(crate) runnable: Option<i64>,
    pub(crate) state: State,
    pub(crate) syscall: Option<i64>,
}

/// The split of one finished call, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) on_cpu: i64,
    pub(crate) preempted: i64,
    pub(crate) runnable: i64,
    pub(crate) blocked: i64,
    pub(crate) stopped: i64,
    pub(crate) unknown: i64,
    /// System call in which it was blocked longest.
    pub(crate) blocked_syscall: Option<i64>,
}

/// A call's place among the others of its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Calls around it.
    pub(crate) depth: i64,
    /// The innermost of them.
    pub(crate) parent: Option<usize>,
    /// The direct child that took longest.
    pub(crate) child: Option<usize>,
    /// Time in direct children.
    pub(crate) child_ns: i64,
}

fn end(ts: i64, dur: Option<i64>) -> i64 {
    dur.map_or(i64::MAX, |dur| ts.saturating_add(dur))
}

/// Length of the intersection of `[a, b)` and `[c, d)`.
pub(crate) fn overlap(a: i64, b: i64, c: i64, d: i64) -> i64 {
    b.min(d).saturating_sub(a.max(c)).max(0)
}

/// Nesting of the calls of one thread.
pub(crate) fn places(calls: &[Span]) -> Vec<Place> {
    let mut places = vec![Place::default(); calls.len()];
    let mut around: Vec<usize> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        while around.last().is_some_and(|&outer| end(calls[outer].ts, calls[outer].dur) <= call.ts) {
            around.pop();
        }
        let call_end = end(call.ts, call.dur);
        // Only a clock error makes calls of one thread overlap without containing each other.
        around.retain(|&outer| end(calls[outer].ts, calls[outer].dur) >= call_end);
        places[index].depth = around.len() as i64;
        if let Some(&outer) = around.last() {
            places[index].parent = Some(outer);
            let longest = places[outer].child.and_then(|child| calls[child].dur);
            let parent = &mut places[outer];
            if let Some(dur) = call.dur {
                parent.child_ns += dur;
                if longest.is_none_or(|longest| dur > longest) {
                    parent.child = Some(index);
                }
            }
        }
        around.push(index);
    }
    places
}

/// Split of every call of one thread; `None` for unfinished ones.
pub(crate) fn parts(calls: &[Span], off: &[Off]) -> Vec<Option<Parts>> {
    calls
        .iter()
        .map(|call| {
            let dur = call.dur?;
            let call_end = call.ts + dur;
            let first = off.partition_point(|interval| end(interval.ts, interval.dur) <= call.ts);
            let inside = off[first..].iter().take_while(|interval| interval.ts < call_end);
            let mut parts = Parts::default();
            let mut longest = 0;
            for interval in inside {
                let interval_end = end(interval.ts, interval.dur);
                let total = overlap(call.ts, call_end, interval.ts, interval_end);
                match interval.state {
                    State::Preempted => parts.preempted += total,
                    State::Stopped => parts.stopped += total,
                    State::Unknown => parts.unknown += total,
                    State::Blocked => {
                        let woken = interval_end - interval.runnable.unwrap_or(0).max(0);
                        let waiting = overlap(call.ts, call_end, woken.max(interval.ts), interval_end);
                        parts.runnable += waiting;
                        parts.blocked += total - waiting;
                        if total - waiting > longest {
                            longest = total - waiting;
                            parts.blocked_syscall = interval.syscall;
                        }
                    }
                }
            }
            let off_cpu = parts.preempted + parts.runnable + parts.blocked + parts.stopped + parts.unknown;
            parts.on_cpu = dur - off_cpu;
            Some(parts)
        })
        .collect()
}

fn dictionary() -> DataType {
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

const DERIVED: [&str; 9] = [
    "depth",
    "child_ns",
    "on_cpu_ns",
    "preempted_ns",
    "runnable_ns",
    "blocked_ns",
    "stopped_ns",
    "unknown_ns",
    "blocked_syscall",
];

/// Schema of the result of [`split`].
pub(crate) fn schema() -> SchemaRef {
    let mut fields: Vec<Field> = HANDED.iter().map(|(name, ty)| Field::new(*name, ty(), true)).collect();
    fields.extend(["nested_in", "child_op", "phase"].map(|name| Field::new(name, dictionary(), true)));
    fields.push(Field::new("first_call", DataType::Boolean, true));
    fields.extend(DERIVED.map(|name| Field::new(name, DataType::Int64, true)));
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

fn state(name: &str) -> State {
    match name {
        "preempted" => State::Preempted,
        "stopped" => State::Stopped,
        "unknown" => State::Unknown,
        _ => State::Blocked,
    }
}

fn off_intervals(batch: &RecordBatch) -> Result<Vec<Off>, AnalyzeError> {
    let (ts, dur) = (integers(batch, "ts")?, integers(batch, "dur")?);
    let (runnable, syscall) = (integers(batch, "runnable_ns")?, integers(batch, "syscall")?);
    let states = strings(batch, "op")?;
    Ok((0..batch.num_rows())
        .map(|row| Off {
            ts: ts.value(row),
            dur: dur.at(row),
            runnable: runnable.at(row),
            state: state(states.value(row)),
            syscall: syscall.at(row),
        })
        .collect())
}

fn one_batch(batches: &[RecordBatch]) -> Result<Option<RecordBatch>, ArrowError> {
    match batches.first() {
        None => Ok(None),
        Some(first) => concat_batches(&first.schema(), batches).map(Some),
    }
}

/// The innermost range around each of the sorted times `ts`: of those that contain it, the one that began
/// last. Ranges are sorted by start; those of several threads may overlap in any way.
fn innermost(ts: impl Iterator<Item = i64>, ranges: &[Span]) -> Vec<Option<usize>> {
    let mut around: Vec<usize> = Vec::new();
    let mut next = 0;
    ts.map(|ts| {
        while ranges.get(next).is_some_and(|range| range.ts <= ts) {
            around.push(next);
            next += 1;
        }
        around.retain(|&range| end(ranges[range].ts, ranges[range].dur) > ts);
        around.last().copied()
    })
    .collect()
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

/// Derives `_calls`. Calls and intervals are sorted by run, process, thread and start, `ranges` (of marks)
/// by run, process and start.
///
/// # Errors
/// If a column is missing or cannot be read.
pub(crate) fn split(
    calls: &[RecordBatch],
    off_cpu: &[RecordBatch],
    ranges: &[RecordBatch],
) -> Result<RecordBatch, AnalyzeError> {
    let damaged = |error: ArrowError| AnalyzeError::Damaged(error.to_string());
    let Some(calls) = one_batch(calls).map_err(damaged)? else {
        return Ok(RecordBatch::new_empty(schema()));
    };
    let mut off_by_thread: HashMap<Thread, Range<usize>> = HashMap::new();
    let mut off = Vec::new();
    if let Some(batch) = one_batch(off_cpu).map_err(damaged)? {
        off_by_thread = threads(&batch)?.into_iter().collect();
        off = off_intervals(&batch)?;
    }
    let (ts, dur) = (integers(&calls, "ts")?, integers(&calls, "dur")?);
    let mut all_places = Vec::with_capacity(calls.num_rows());
    let mut all_parts = Vec::with_capacity(calls.num_rows());
    let phases = Phases::read(ranges)?;
    let mut all_phases = Vec::with_capacity(calls.num_rows());
    for (thread, rows) in threads(&calls)? {
        let spans: Vec<Span> = rows.clone().map(|row| Span { ts: ts.value(row), dur: dur.at(row) }).collect();
        let own_off = off_by_thread.get(&thread).map_or(&[][..], |range| &off[range.clone()]);
        let first = rows.start;
        all_places.extend(places(&spans).into_iter().map(|place| Place {
            parent: place.parent.map(|index| index + first),
            child: place.child.map(|index| index + first),
            ..place
        }));
        all_parts.extend(parts(&spans, own_off));
        all_phases.extend(phases.of(&thread, &spans));
    }
    assemble(&calls, &all_places, &all_parts, &all_phases)
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
        columns.push(cast(column, &ty()).map_err(damaged)?);
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
    columns.push(of_parts(|parts| Some(parts.blocked)));
    columns.push(of_parts(|parts| Some(parts.stopped)));
    columns.push(of_parts(|parts| Some(parts.unknown)));
    columns.push(of_parts(|parts| parts.blocked_syscall));
    RecordBatch::try_new(schema(), columns).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(ts: i64, dur: i64) -> Span {
        Span { ts, dur: Some(dur) }
    }

    fn off(ts: i64, dur: i64, state: State, runnable: Option<i64>) -> Off {
        Off { ts, dur: Some(dur), runnable, state, syscall: Some(16) }
    }

    #[test]
    fn a_call_belongs_to_the_range_that_began_last() {
        let range = |ts, dur| Span { ts, dur };
        let ranges = [range(0, Some(100)), range(10, Some(20)), range(15, Some(50)), range(200, None)];
        let found = innermost([5, 10, 20, 40, 65, 99, 100, 150, 200, 900].into_iter(), &ranges);
        let expected = [Some(0), Some(1), Some(2), Some(2), Some(0), Some(0), None, None, Some(3), Some(3)];
        assert_eq!(found, expected);
    }

    #[test]
    fn parts_of_a_call() {
        let calls = [span(100, 100)];
        let intervals = [
            off(90, 20, State::Preempted, Some(20)),
            off(120, 30, State::Blocked, Some(10)),
            off(195, 10, State::Blocked, Some(8)),
        ];
        let parts = parts(&calls, &intervals)[0].expect("finished");
        assert_eq!(
            parts,
            Parts {
                on_cpu: 55,
                preempted: 10,
                runnable: 10 + 3,
                blocked: 20 + 2,
                blocked_syscall: Some(16),
                ..Parts::default()
            }
        );
    }

    #[test]
    fn touching_is_not_overlapping() {
        let calls = [span(100, 10)];
        let intervals = [off(90, 10, State::Preempted, None), off(110, 5, State::Preempted, None)];
        assert_eq!(parts(&calls, &intervals)[0].expect("finished").on_cpu, 10);
    }

    #[test]
    fn unfinished_calls_have_no_parts_but_have_children() {
        let calls = [Span { ts: 0, dur: None }, span(10, 5), span(20, 7)];
        assert_eq!(parts(&calls, &[])[0], None);
        let places = places(&calls);
        assert_eq!(places[1].parent, Some(0));
        assert_eq!((places[0].child, places[0].child_ns), (Some(2), 12));
    }

    #[test]
    fn nesting_follows_containment() {
        let calls = [span(0, 100), span(10, 50), span(20, 10), span(70, 10), span(200, 1)];
        let places = places(&calls);
        let depths: Vec<_> = places.iter().map(|place| place.depth).collect();
        assert_eq!(depths, [0, 1, 2, 1, 0]);
        assert_eq!((places[0].child, places[0].child_ns), (Some(1), 60));
        assert_eq!(places[4].parent, None);
    }

    /// Random threads against a count of every nanosecond.
    #[test]
    fn agrees_with_counting_every_nanosecond() {
        let mut seed = 42_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % below) as i64
        };
        for _ in 0..300 {
            let mut intervals = Vec::new();
            let mut at = random(20);
            while at < 400 {
                let dur = 1 + random(30);
                let state =
                    [State::Preempted, State::Blocked, State::Stopped, State::Unknown][random(4) as usize];
                intervals.push(off(at, dur, state, Some(random(dur as u64 + 1))));
                at += dur + random(40);
            }
            let call = span(random(300), 1 + random(150));
            let found = parts(&[call], &intervals)[0].expect("finished");
            let mut counted = Parts { blocked_syscall: found.blocked_syscall, ..Parts::default() };
            for t in call.ts..call.ts + call.dur.unwrap_or(0) {
                let inside = intervals.iter().find(|i| t >= i.ts && t < i.ts + i.dur.unwrap_or(0));
                match inside.map(|i| (i.state, i)) {
                    None => counted.on_cpu += 1,
                    Some((State::Preempted, _)) => counted.preempted += 1,
                    Some((State::Stopped, _)) => counted.stopped += 1,
                    Some((State::Unknown, _)) => counted.unknown += 1,
                    Some((State::Blocked, i)) => {
                        let woken = i.ts + i.dur.unwrap_or(0) - i.runnable.unwrap_or(0);
                        if t >= woken { counted.runnable += 1 } else { counted.blocked += 1 }
                    }
                }
            }
            assert_eq!(found, counted, "{call:?} {intervals:?}");
        }
    }
}
