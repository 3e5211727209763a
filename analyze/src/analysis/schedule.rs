//! What the scheduler did to each thread: its time, cut into segments without gap or overlap.
//!
//! ```text
//! thread   ──on-CPU──┤─ preempted ─├──on-CPU──┤──── blocked ────┼─ runnable ─├──on-CPU──
//! its CPU            ├── hog A ────┤                            ├─ hog B ─────┤
//! ```
//! Rows of one thread may not overlap; where broken input makes them, the later one is cut, and counted in
//! [`Fault`]. A thread whose interval has no end is off CPU until it is seen again, or for ever.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use arrow::array::RecordBatch;

use super::blocker::{self, Blocker};
use crate::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// Run (its number in [`Names`]), process, thread.
pub(crate) type ThreadKey = (u32, u32, u32);

/// Strings by number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    /// The number of a name, new or known.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The number of a known name.
    pub(crate) fn known(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The name of a number.
    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }
}

/// What a thread did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    OnCpu,
    /// It could have run on; another task had the CPU.
    Preempted,
    /// It had been woken and waited for a CPU.
    Runnable,
    /// It could have run, and its control group had used up its time.
    Throttled,
    Blocked(Blocker),
    /// By a signal; while recording a command, by the recorder itself.
    Stopped,
    /// The source does not tell.
    Unknown,
}

/// A task that held a CPU or woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Task {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Number of its name.
    pub(crate) comm: u32,
}

/// Off-CPU time of one thread in one state: `[ts, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) ts: i64,
    pub(crate) end: i64,
    pub(crate) state: State,
    pub(crate) cpu: Option<u32>,
    pub(crate) syscall: Option<i64>,
    pub(crate) waker: Option<Task>,
    /// The thread was not seen to come back.
    pub(crate) open: bool,
}

/// A stint of a task on a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stint {
    pub(crate) ts: i64,
    pub(crate) end: i64,
    pub(crate) task: Task,
}

/// What broken input was found to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Off-CPU intervals of one thread that overlap: the later one was cut.
    OverlappingOffCpu,
    /// Durations below zero: the row was left out, or taken as open.
    NegativeDuration,
    /// Calls of one thread that overlap without one containing the other: taken as siblings.
    CrossingCalls,
    /// Two tasks on one CPU at a time: the earlier one was cut.
    OverlappingStints,
    /// Times or durations that no clock tells.
    OutOfRange,
    /// A thread that was seen again although it never came back: off CPU until then.
    ReturnNotSeen,
}

impl Fault {
    /// What users read.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OverlappingOffCpu => "off-CPU intervals of one thread overlap; the later one was cut",
            Self::NegativeDuration => {
                "a duration is below zero; the call counts as open, the interval not at all"
            }
            Self::CrossingCalls => {
                "calls of one thread overlap and none contains the other; they count as siblings"
            }
            Self::OverlappingStints => "two tasks had one CPU at a time; the earlier one was cut",
            Self::OutOfRange => "a time beyond 36 years or a duration beyond 100 days; the row was left out",
            Self::ReturnNotSeen => {
                "a thread goes on that never came back on CPU; it counts as away until then"
            }
        }
    }
}

/// Faults by run and kind.
pub(crate) type Faults = BTreeMap<(u32, Fault), u64>;

/// The schedule of every thread of some runs.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    pub(crate) names: Names,
    pieces: Vec<Piece>,
    threads: HashMap<ThreadKey, Range<usize>>,
    /// By run and CPU, sorted, not overlapping.
    stints: HashMap<(u32, u32), Vec<Stint>>,
}

/// Rows that a schedule is made of, each sorted: see the queries in [`crate::functions`].
pub(crate) struct Input<'a> {
    /// run, pid, tid, ts, dur, op, runnable_ns, syscall, cpu, waker_pid, waker_tid, waker_comm; by thread and time.
    pub(crate) off_cpu: &'a [RecordBatch],
    /// run, cpu, ts, dur, pid, tid, comm; by run, CPU and time.
    pub(crate) stints: &'a [RecordBatch],
}

impl Schedule {
    /// Builds it.
    ///
    /// # Errors
    /// If a column is missing or cannot be read.
    pub(crate) fn read(input: &Input<'_>) -> Result<(Self, Faults), AnalyzeError> {
        let mut schedule = Self::default();
        let mut faults = Faults::new();
        schedule.read_stints(input.stints, &mut faults)?;
        for batch in input.off_cpu {
            schedule.read_off_cpu(batch, &mut faults)?;
        }
        Ok((schedule, faults))
    }

    fn read_stints(&mut self, batches: &[RecordBatch], faults: &mut Faults) -> Result<(), AnalyzeError> {
        for batch in batches {
            let whole = |name| integers(batch, name);
            let (runs, comms) = (strings(batch, "run")?, strings(batch, "comm")?);
            let (cpu, ts, dur) = (whole("cpu")?, whole("ts")?, whole("dur")?);
            let (pid, tid) = (whole("pid")?, whole("tid")?);
            for row in 0..batch.num_rows() {
                let run = self.names.number(runs.value(row));
                let Some(cpu) = cpu.at(row) else { continue };
                let end = ts.value(row).saturating_add(dur.at(row).unwrap_or(0));
                if end < ts.value(row) {
                    *faults.entry((run, Fault::NegativeDuration)).or_default() += 1;
                    continue;
                }
                // Nobody holds a CPU that is idle.
                if tid.value(row) == 0 {
                    continue;
                }
                let comm = self.names.number(comms.at(row).unwrap_or_default());
                let task = Task { pid: pid.value(row) as u32, tid: tid.value(row) as u32, comm };
                let stints = self.stints.entry((run, cpu as u32)).or_default();
                if let Some(last) = stints.last_mut().filter(|last: &&mut Stint| last.end > ts.value(row)) {
                    // What came later is better known.
                    last.end = ts.value(row);
                    *faults.entry((run, Fault::OverlappingStints)).or_default() += 1;
                }
                stints.push(Stint { ts: ts.value(row), end, task });
            }
        }
        Ok(())
    }

    fn read_off_cpu(&mut self, batch: &RecordBatch, faults: &mut Faults) -> Result<(), AnalyzeError> {
        let whole = |name| integers(batch, name);
        let (runs, states) = (strings(batch, "run")?, strings(batch, "op")?);
        let (pids, tids, ts, dur) = (whole("pid")?, whole("tid")?, whole("ts")?, whole("dur")?);
        let (runnable, syscall, cpu) = (whole("runnable_ns")?, whole("syscall")?, whole("cpu")?);
        let (waker_pid, waker_tid) = (whole("waker_pid")?, whole("waker_tid")?);
        let waker_comm = strings(batch, "waker_comm")?;
        for row in 0..batch.num_rows() {
            let run = self.names.number(runs.value(row));
            let key = (run, pids.value(row) as u32, tids.value(row) as u32);
            let end = match dur.at(row) {
                None => i64::MAX,
                Some(dur) if dur < 0 => {
                    *faults.entry((run, Fault::NegativeDuration)).or_default() += 1;
                    continue;
                }
                Some(dur) => ts.value(row).saturating_add(dur),
            };
            let start = self.begin(key, ts.value(row), faults);
            if start >= end {
                continue;
            }
            let waker = waker_tid.at(row).map(|tid| Task {
                pid: waker_pid.at(row).unwrap_or_default() as u32,
                tid: tid as u32,
                comm: self.names.number(waker_comm.at(row).unwrap_or_default()),
            });
            let piece = Piece {
                ts: start,
                end,
                state: State::Unknown,
                cpu: cpu.at(row).map(|cpu| cpu as u32),
                syscall: syscall.at(row),
                waker,
                open: end == i64::MAX,
            };
            match states.value(row) {
                "preempted" => self.pieces.push(Piece { state: State::Preempted, ..piece }),
                "throttled" => self.pieces.push(Piece { state: State::Throttled, ..piece }),
                "stopped" => self.pieces.push(Piece { state: State::Stopped, ..piece }),
                "unknown" => self.pieces.push(piece),
                state => {
                    let blocker = Blocker::of(state == "uninterruptible", syscall.at(row));
                    let woken = match runnable.at(row) {
                        Some(runnable) if end < i64::MAX => {
                            end.saturating_sub(runnable.max(0)).clamp(start, end)
                        }
                        _ => end,
                    };
                    if start < woken {
                        self.pieces.push(Piece { end: woken, state: State::Blocked(blocker), ..piece });
                    }
                    if woken < end {
                        self.pieces.push(Piece { ts: woken, state: State::Runnable, ..piece });
                    }
                }
            }
            if let Some(range) = self.threads.get_mut(&key) {
                range.end = self.pieces.len();
            }
        }
        Ok(())
    }

    /// Where an interval of a thread may begin: not before the one before has ended.
    fn begin(&mut self, key: ThreadKey, ts: i64, faults: &mut Faults) -> i64 {
        let next = self.pieces.len();
        let range = self.threads.entry(key).or_insert(next..next);
        let last = (range.end == next && range.start < next).then(|| next - 1);
        let Some(last) = last.map(|last| &mut self.pieces[last]) else {
            return ts;
        };
        if last.end == i64::MAX && last.ts < ts {
            *faults.entry((key.0, Fault::ReturnNotSeen)).or_default() += 1;
            last.end = ts;
        } else if last.end > ts {
            *faults.entry((key.0, Fault::OverlappingOffCpu)).or_default() += 1;
        }
        last.end.max(ts)
    }

    /// A thread entered calls at these times, in order: it cannot have been away without end since before.
    pub(crate) fn seen(&mut self, key: ThreadKey, ts: &[i64], faults: &mut Faults) {
        let Some(range) = self.threads.get(&key) else { return };
        for piece in self.pieces[range.clone()].iter_mut().filter(|piece| piece.open) {
            let next = ts.partition_point(|ts| *ts <= piece.ts);
            if let Some(ts) = ts.get(next).filter(|ts| **ts < piece.end) {
                if piece.end == i64::MAX {
                    *faults.entry((key.0, Fault::ReturnNotSeen)).or_default() += 1;
                }
                piece.end = *ts;
            }
        }
    }

    /// Off-CPU time of a thread.
    pub(crate) fn pieces(&self, key: ThreadKey) -> &[Piece] {
        self.threads.get(&key).map_or(&[], |range| &self.pieces[range.clone()])
    }

    /// Whether the schedule of this thread is known.
    pub(crate) fn knows(&self, key: ThreadKey) -> bool {
        self.threads.contains_key(&key)
    }

    /// Every thread.
    pub(crate) fn threads(&self) -> impl Iterator<Item = ThreadKey> {
        self.threads.keys().copied()
    }

    /// Every CPU that somebody waited for, with the tasks on it.
    pub(crate) fn stints(&self) -> impl Iterator<Item = (u32, &[Stint])> {
        self.stints.iter().map(|((run, _), stints)| (*run, stints.as_slice()))
    }

    /// Cuts `[from, to)` of a thread into segments, in order; together they are all of it.
    pub(crate) fn segments(
        &self,
        key: ThreadKey,
        from: i64,
        to: i64,
        segment: impl FnMut(i64, i64, State, Option<&Piece>),
    ) {
        cut(self.pieces(key), from, to, segment);
    }

    /// Cuts `[from, to)` of a CPU into who had it, in order; `None`: nobody that is on record.
    pub(crate) fn holders(
        &self,
        run: u32,
        cpu: u32,
        from: i64,
        to: i64,
        mut holder: impl FnMut(i64, i64, Option<Task>),
    ) {
        let stints = self.stints.get(&(run, cpu)).map_or(&[][..], Vec::as_slice);
        let first = stints.partition_point(|stint| stint.end <= from);
        let mut at = from;
        for stint in stints[first..].iter().take_while(|stint| stint.ts < to) {
            let (start, end) = (stint.ts.max(at), stint.end.min(to));
            if start > at {
                holder(at, start, None);
            }
            if end > start {
                holder(start, end, Some(stint.task));
            }
            at = end.max(at);
        }
        if at < to {
            holder(at, to, None);
        }
    }
}

/// See [`Schedule::segments`].
pub(crate) fn cut(
    pieces: &[Piece],
    from: i64,
    to: i64,
    mut segment: impl FnMut(i64, i64, State, Option<&Piece>),
) {
    let first = pieces.partition_point(|piece| piece.end <= from);
    let mut at = from;
    for piece in pieces[first..].iter().take_while(|piece| piece.ts < to) {
        if piece.ts > at {
            segment(at, piece.ts, State::OnCpu, None);
        }
        let (start, end) = (piece.ts.max(at), piece.end.min(to));
        segment(start, end, piece.state, Some(piece));
        at = end;
    }
    if at < to {
        segment(at, to, State::OnCpu, None);
    }
}

/// Nanoseconds blocked, by class.
pub(crate) type BlockedNs = [i64; blocker::COUNT];

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    /// (pid, tid), ts, dur (below zero: open if -1), state, runnable, syscall (below zero: none), cpu, waker.
    pub(crate) type OffRow = ((i32, i32), i64, i64, &'static str, Option<i64>, i32, i32, Option<(i32, i32)>);
    /// CPU, from, to, (pid, tid).
    pub(crate) type StintRow = (i32, i64, i64, (i32, i32));

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
            .expect("columns of one length")
    }

    fn numbers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        Arc::new(values.collect::<Int64Array>())
    }

    /// A schedule of run 0, of rows in any order.
    pub(crate) fn schedule(rows: &[OffRow], stints: &[StintRow]) -> Schedule {
        read(rows, stints).0
    }

    fn read(rows: &[OffRow], stints: &[StintRow]) -> (Schedule, Faults) {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|row| (row.0, row.1));
        let whole = |get: &dyn Fn(&OffRow) -> Option<i64>| numbers(rows.iter().map(get));
        let text = |get: &dyn Fn(&OffRow) -> Option<&'static str>| -> ArrayRef {
            Arc::new(rows.iter().map(get).collect::<StringArray>())
        };
        let off_cpu = batch(vec![
            ("run", text(&|_| Some("r"))),
            ("pid", whole(&|row| Some(row.0.0.into()))),
            ("tid", whole(&|row| Some(row.0.1.into()))),
            ("ts", whole(&|row| Some(row.1))),
            ("dur", whole(&|row| (row.2 != -1).then_some(row.2))),
            ("op", text(&|row| Some(row.3))),
            ("runnable_ns", whole(&|row| row.4)),
            ("syscall", whole(&|row| (row.5 >= 0).then_some(row.5.into()))),
            ("cpu", whole(&|row| Some(row.6.into()))),
            ("waker_pid", whole(&|row| row.7.map(|waker| waker.0.into()))),
            ("waker_tid", whole(&|row| row.7.map(|waker| waker.1.into()))),
            ("waker_comm", text(&|_| Some("waker"))),
        ]);
        let mut stints = stints.to_vec();
        stints.sort_by_key(|stint| (stint.0, stint.1));
        let whole = |get: &dyn Fn(&StintRow) -> i64| numbers(stints.iter().map(|stint| Some(get(stint))));
        let held = batch(vec![
            ("run", Arc::new(StringArray::from(vec!["r"; stints.len()]))),
            ("cpu", whole(&|stint| stint.0.into())),
            ("ts", whole(&|stint| stint.1)),
            ("dur", whole(&|stint| stint.2 - stint.1)),
            ("pid", whole(&|stint| stint.3.0.into())),
            ("tid", whole(&|stint| stint.3.1.into())),
            ("comm", Arc::new(StringArray::from(vec!["hog"; stints.len()]))),
        ]);
        Schedule::read(&Input { off_cpu: &[off_cpu], stints: &[held] }).expect("columns")
    }

    fn states(schedule: &Schedule, key: ThreadKey) -> Vec<(i64, i64, State)> {
        schedule.pieces(key).iter().map(|piece| (piece.ts, piece.end, piece.state)).collect()
    }

    #[test]
    fn overlapping_rows_are_cut_and_counted() {
        let rows = [
            ((1, 1), 100, 50, "preempted", Some(50), -1, 0, None),
            ((1, 1), 120, 80, "sleeping", Some(20), 16, 0, None),
            ((1, 1), 130, 10, "sleeping", Some(0), 16, 0, None),
            ((1, 1), 250, 20, "throttled", Some(20), -1, 0, None),
            ((1, 1), 300, -7, "sleeping", Some(0), 16, 0, None),
        ];
        let (schedule, faults) = read(&rows, &[]);
        let expected = [
            (100, 150, State::Preempted),
            (150, 180, State::Blocked(Blocker::Ioctl)),
            (180, 200, State::Runnable),
            (250, 270, State::Throttled),
        ];
        assert_eq!(states(&schedule, (0, 1, 1)), expected);
        assert_eq!(faults[&(0, Fault::OverlappingOffCpu)], 2);
        assert_eq!(faults[&(0, Fault::NegativeDuration)], 1);
    }

    #[test]
    fn a_thread_that_never_came_back_is_away_until_it_is_seen() {
        let rows = [
            ((1, 1), 100, -1, "sleeping", None, 202, 0, None),
            ((1, 1), 400, 10, "preempted", Some(10), -1, 0, None),
            ((1, 2), 100, -1, "sleeping", None, 202, 0, None),
            ((1, 3), 100, -1, "sleeping", None, 202, 0, None),
        ];
        let (mut schedule, mut faults) = read(&rows, &[]);
        schedule.seen((0, 1, 2), &[50, 250, 260], &mut faults);
        schedule.seen((0, 1, 3), &[50], &mut faults);
        schedule.seen((0, 1, 1), &[50, 200, 420], &mut faults);
        assert_eq!(schedule.pieces((0, 1, 1))[0].end, 200, "it entered a call before it was off CPU again");
        assert_eq!(schedule.pieces((0, 1, 2))[0].end, 250);
        assert_eq!(schedule.pieces((0, 1, 3))[0].end, i64::MAX);
        assert_eq!(faults[&(0, Fault::ReturnNotSeen)], 2);
    }
}
