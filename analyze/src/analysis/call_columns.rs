//! The columns of `_calls`, read in place: strings as numbers, nothing copied by the row.

use std::collections::HashMap;

use arrow::{
    array::{Array, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array},
    datatypes::{Int32Type, Int64Type, UInt32Type},
};
use trace_schema::{Class, Op};

use super::{
    blocker::Blocker,
    call_rows::blocked_column,
    schedule::{BlockedNs, Names, ThreadKey},
    time_split::Parts,
};
use crate::{columns::Cell, error::AnalyzeError};

/// Class of a function, if it is a known one.
fn class_of(op: &str) -> Option<Class> {
    Op::from_name(op).map(|op| op.class())
}

/// A column of few strings; each has one number.
pub(crate) struct Words {
    numbers: Vec<Option<u32>>,
    /// The strings, by number.
    pub(crate) words: Vec<String>,
}

impl Words {
    /// The number at `row`.
    pub(crate) fn at(&self, row: usize) -> Option<u32> {
        self.numbers[row]
    }

    /// The string of a number.
    pub(crate) fn word(&self, number: u32) -> &str {
        self.words.get(number as usize).map_or("", String::as_str)
    }

    /// The string at `row`.
    pub(crate) fn text(&self, row: usize) -> Option<&str> {
        self.at(row).map(|number| self.word(number))
    }
}

/// The columns.
pub(crate) struct CallColumns {
    /// Numbers of the schedule's names.
    runs: Vec<u32>,
    pid: UInt32Array,
    tid: UInt32Array,
    ts: Int64Array,
    dur: Int64Array,
    size: Int64Array,
    depth: Int64Array,
    child_ns: Int64Array,
    first: BooleanArray,
    parts: [Int64Array; 6],
    blocked: Vec<Int64Array>,
    syscall: Int64Array,
    /// By number of the function, and of the nested one.
    classes: Vec<Option<Class>>,
    child_classes: Vec<Option<Class>>,
    pub(crate) op: Words,
    pub(crate) direction: Words,
    pub(crate) child: Words,
    pub(crate) phase: Words,
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a dyn Array, AnalyzeError> {
    batch
        .column_by_name(name)
        .map(AsRef::as_ref)
        .ok_or_else(|| AnalyzeError::Internal(format!("_calls has no column {name}")))
}

fn whole(batch: &RecordBatch, name: &str) -> Result<Int64Array, AnalyzeError> {
    Ok(column(batch, name)?.as_primitive::<Int64Type>().clone())
}

fn words(batch: &RecordBatch, name: &str) -> Result<Words, AnalyzeError> {
    let array = column(batch, name)?.as_dictionary::<Int32Type>();
    let values: &StringArray = array.values().as_string();
    let mut known: HashMap<&str, u32> = HashMap::new();
    let mut words = Vec::new();
    let of_value: Vec<u32> = values
        .iter()
        .map(|value| {
            let value = value.unwrap_or_default();
            *known.entry(value).or_insert_with(|| {
                words.push(value.to_owned());
                words.len() as u32 - 1
            })
        })
        .collect();
    let numbers = array.keys().iter().map(|key| key.map(|key| of_value[key as usize])).collect();
    Ok(Words { numbers, words })
}

impl CallColumns {
    /// Of the table `_calls`, whose runs have these numbers.
    ///
    /// # Errors
    /// If a column is missing: a defect of this program.
    pub(crate) fn new(calls: &RecordBatch, names: &Names) -> Result<Self, AnalyzeError> {
        let run: &StringArray = column(calls, "run")?.as_string();
        let mut runs: Vec<u32> = Vec::with_capacity(run.len());
        for row in 0..run.len() {
            let same = row > 0 && run.value(row) == run.value(row - 1);
            let number = if same { runs[row - 1] } else { names.known(run.value(row)).unwrap_or_default() };
            runs.push(number);
        }
        let parts = ["on_cpu_ns", "preempted_ns", "runnable_ns", "throttled_ns", "stopped_ns", "unknown_ns"];
        let [on_cpu, preempted, runnable, throttled, stopped, unknown] = parts.map(|name| whole(calls, name));
        let (op, child) = (words(calls, "op")?, words(calls, "child_op")?);
        let classes = |words: &Words| words.words.iter().map(|op| class_of(op)).collect();
        Ok(Self {
            runs,
            pid: column(calls, "pid")?.as_primitive::<UInt32Type>().clone(),
            tid: column(calls, "tid")?.as_primitive::<UInt32Type>().clone(),
            ts: whole(calls, "ts")?,
            dur: whole(calls, "dur")?,
            size: whole(calls, "size_bytes")?,
            depth: whole(calls, "depth")?,
            child_ns: whole(calls, "child_ns")?,
            first: column(calls, "first_call")?.as_boolean().clone(),
            parts: [on_cpu?, preempted?, runnable?, throttled?, stopped?, unknown?],
            blocked: Blocker::ALL
                .iter()
                .map(|blocker| whole(calls, &blocked_column(*blocker)))
                .collect::<Result<_, _>>()?,
            syscall: whole(calls, "blocked_syscall")?,
            classes: classes(&op),
            child_classes: classes(&child),
            op,
            direction: words(calls, "direction")?,
            child,
            phase: words(calls, "phase")?,
        })
    }

    /// How many calls there are.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Run, process and thread.
    pub(crate) fn thread(&self, row: usize) -> ThreadKey {
        (self.runs[row], self.pid.value(row), self.tid.value(row))
    }

    /// What the function of this number is for, if it is a known one.
    pub(crate) fn class_of(&self, op: u32) -> Option<Class> {
        self.classes[op as usize]
    }

    /// What the function is for.
    pub(crate) fn class(&self, row: usize) -> Option<Class> {
        self.op.at(row).and_then(|op| self.class_of(op))
    }

    /// What the longest nested call is for; the outer `None`: there is none.
    pub(crate) fn child_class(&self, row: usize) -> Option<Option<Class>> {
        self.child.at(row).map(|child| self.child_classes[child as usize])
    }

    /// Whether waiting for the GPU is what the call is for.
    pub(crate) fn is_sync(&self, row: usize) -> bool {
        self.class(row) == Some(Class::Sync)
    }

    /// Whether it copies or sets bytes.
    pub(crate) fn is_sized(&self, row: usize) -> bool {
        matches!(self.class(row), Some(Class::Copy | Class::Set))
    }

    /// Entry.
    pub(crate) fn ts(&self, row: usize) -> i64 {
        self.ts.value(row)
    }

    /// Length; `None`: not finished.
    pub(crate) fn dur(&self, row: usize) -> Option<i64> {
        self.dur.at(row)
    }

    /// Bytes.
    pub(crate) fn size(&self, row: usize) -> Option<i64> {
        self.size.at(row)
    }

    /// Calls around it.
    pub(crate) fn depth(&self, row: usize) -> i64 {
        self.depth.value(row)
    }

    /// Time in direct nested calls.
    pub(crate) fn child_ns(&self, row: usize) -> i64 {
        self.child_ns.value(row)
    }

    /// The first launch of its kernel in its process that the run has seen.
    pub(crate) fn first(&self, row: usize) -> bool {
        self.first.at(row).unwrap_or(false)
    }

    /// The split of a finished call; zeros of another.
    pub(crate) fn parts(&self, row: usize) -> Parts {
        let [on_cpu, preempted, runnable, throttled, stopped, unknown] =
            std::array::from_fn(|part| self.parts[part].at(row).unwrap_or_default());
        let blocked: BlockedNs = std::array::from_fn(|class| self.blocked[class].at(row).unwrap_or_default());
        let blocked_syscall = self.syscall.at(row);
        Parts { on_cpu, preempted, runnable, throttled, blocked, stopped, unknown, blocked_syscall }
    }
}
