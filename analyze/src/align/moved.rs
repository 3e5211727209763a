//! Moves the rows of a profile onto the clock of the run that it is aligned with.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array},
    compute::filter_record_batch,
};
use trace_schema::Kind;

use super::{
    alignment::{Aligned, REACH_NS},
    coded::{Coded, Marks},
    line::Line,
};
use analyze_run::{
    columns::{Cell, integers},
    error::AnalyzeError,
};

/// State of moving the rows of a profile.
pub(super) struct Move {
    line: Line,
    /// Row numbers, within the profile, of calls that the run has too, ascending.
    matched: Vec<u64>,
    /// Threads of the run (process, thread), by those of the profile.
    threads: HashMap<(u32, u32), (u32, u32)>,
    pids: HashMap<u32, u32>,
    /// Process of the run, if the profile covers exactly one.
    only_pid: Option<u32>,
    /// Kinds of rows that the run has itself.
    kinds: HashSet<String>,
    marks: Marks,
    /// Number of the next row of the profile.
    next: u64,
}

/// Numbers of rows that were added and left out, by kind.
#[derive(Default)]
pub(super) struct Moved {
    /// Rows added to the run.
    pub(super) added: BTreeMap<String, u64>,
    /// Rows left out because the run has them.
    pub(super) left_out: BTreeMap<String, u64>,
}

/// How rows of one kind are treated.
struct Fate {
    name: String,
    is_call: bool,
    is_mark: bool,
    is_added: bool,
}

impl Move {
    /// Prepares to move the rows of an aligned profile. `kinds` and `marks` are those of the captured run.
    pub(super) fn new(aligned: &Aligned, kinds: HashSet<String>, marks: Marks) -> Self {
        let mut matched: Vec<u64> = aligned.matched.iter().map(|matched| matched.profile_row).collect();
        matched.sort_unstable();
        let pids: HashMap<u32, u32> =
            aligned.threads.iter().map(|threads| (threads.profile.0, threads.captured.0)).collect();
        let mut only = pids.values().copied();
        let only_pid = only.next().filter(|_| pids.len() == 1);
        let threads = aligned.threads.iter().map(|threads| (threads.profile, threads.captured)).collect();
        Self { line: aligned.line, matched, threads, pids, only_pid, kinds, marks, next: 0 }
    }

    /// Returns whether the run has a mark with this name on this thread at about this time.
    fn has_mark(&self, tid: u32, name: &Arc<str>, ts: i64) -> bool {
        let times = self.marks.get(&(tid, Arc::clone(name))).map(Vec::as_slice).unwrap_or_default();
        let place = times.partition_point(|time| *time < ts.saturating_sub(REACH_NS));
        times.get(place).is_some_and(|time| *time <= ts.saturating_add(REACH_NS))
    }

    /// Moves the rows of a batch and returns those that the run lacks.
    pub(super) fn batch(
        &mut self,
        batch: &RecordBatch,
        moved: &mut Moved,
    ) -> Result<RecordBatch, AnalyzeError> {
        let fates = Coded::new(batch, "kind", |kind| {
            let is = |known: Kind| kind == known.name();
            let is_both = is(Kind::Call) || is(Kind::Mark) || is(Kind::Device) || is(Kind::Host);
            Fate {
                name: kind.to_owned(),
                is_call: is(Kind::Call),
                is_mark: is(Kind::Mark),
                is_added: is_both || !self.kinds.contains(kind),
            }
        })?;
        let details = Coded::new(batch, "detail", |name| Arc::<str>::from(name))?;
        let (ts, dur) = (integers(batch, "ts")?, integers(batch, "dur")?);
        let (pid, tid) = (integers(batch, "pid")?, integers(batch, "tid")?);
        let rows = batch.num_rows();
        let mut keep = Vec::with_capacity(rows);
        let (mut starts, mut lengths) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let (mut pids, mut tids) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for row in 0..rows {
            let (start, length) = (ts.value(row), dur.at(row));
            let new = self.line.apply(start);
            let end = length.map(|length| self.line.apply(start.saturating_add(length)));
            let own = (pid.at(row).unwrap_or(0) as u32, tid.at(row).unwrap_or(0) as u32);
            let (pid, tid) = match own {
                (0, tid) => (self.only_pid.unwrap_or(0), tid),
                (pid, tid) => {
                    let process = (self.pids.get(&pid).copied().unwrap_or(pid), tid);
                    self.threads.get(&own).copied().unwrap_or(process)
                }
            };
            let number = self.next + row as u64;
            let is_kept = fates.at(row).is_some_and(|fate| {
                let is_ours = fate.is_call && self.matched.binary_search(&number).is_ok()
                    || fate.is_mark && details.at(row).is_some_and(|name| self.has_mark(tid, name, new));
                let is_kept = fate.is_added && !is_ours;
                let counts = if is_kept { &mut moved.added } else { &mut moved.left_out };
                *counts.entry(fate.name.clone()).or_default() += 1;
                is_kept
            });
            keep.push(is_kept);
            starts.push(new);
            lengths.push(end.map(|end| end.saturating_sub(new)));
            pids.push(pid);
            tids.push(tid);
        }
        self.next += rows as u64;
        let columns: [(&str, ArrayRef); 4] = [
            ("ts", Arc::new(Int64Array::from(starts))),
            ("dur", Arc::new(Int64Array::from(lengths))),
            ("pid", Arc::new(UInt32Array::from(pids))),
            ("tid", Arc::new(UInt32Array::from(tids))),
        ];
        let damaged = |error: arrow::error::ArrowError| AnalyzeError::Damaged(error.to_string());
        let mut all: Vec<ArrayRef> = batch.columns().to_vec();
        for (name, column) in columns {
            let index = batch.schema().index_of(name).map_err(damaged)?;
            if let Some(place) = all.get_mut(index) {
                *place = column;
            }
        }
        let whole = RecordBatch::try_new(batch.schema(), all).map_err(damaged)?;
        filter_record_batch(&whole, &BooleanArray::from(keep)).map_err(damaged)
    }
}
