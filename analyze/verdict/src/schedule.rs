//! What the scheduler did to each thread: its time, cut into segments without gap or overlap.
//!
//! ```text
//! thread   ──on-CPU──┤─ preempted ─├──on-CPU──┤──── blocked ────┼─ runnable ─├──on-CPU──
//! its CPU            ├── hog A ────┤                            ├─ hog B ─────┤
//! ```
//! Rows of one thread may not overlap; where broken input makes them, the later one is cut, and counted in
//! [`Fault`]. A thread whose interval has no end is off CPU until it is seen again, or for ever.

use crate::{
    blocker::Blocker,
    fault::{Fault, Faults},
    thread_state::{NONE, Piece, State, first_after},
};
use analyze_run::{
    hash::{HashMap, HashSet},
    reading::Names,
};

/// Run (its number in [`Names`]), process, thread.
pub type ThreadKey = (u32, u32, u32);

/// A task that held a CPU or woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    pub pid: u32,
    pub tid: u32,
    /// Number of its name.
    pub comm: u32,
}

/// A stint of a task on a CPU: 24 bytes, which stay in memory, too.
#[derive(Clone, Copy, Debug)]
pub struct Stint {
    pub ts: i64,
    pub end: i64,
    /// Number of the task.
    task: u32,
}

/// A row of off-CPU time. `None`: null.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffCpuRow {
    pub ts: i64,
    pub dur: Option<i64>,
    /// Number of the state's name.
    pub state: u32,
    pub runnable_ns: Option<i64>,
    pub syscall: Option<i32>,
    pub cpu: Option<u32>,
    pub waker: Option<Task>,
    /// The thread that got the CPU at switch-out.
    pub next_tid: Option<u32>,
}

/// What is known of one thread.
#[derive(Debug)]
struct Timeline {
    key: ThreadKey,
    /// A row of off-CPU time was seen.
    is_known: bool,
    pieces: Vec<Piece>,
}

/// Places of [`Schedule::recent_tasks`].
const RECENT: usize = 32;

/// The schedule of every thread of some runs, built from rows in the order of time.
#[derive(Debug, Default)]
pub struct Schedule {
    pub names: Names,
    timelines: Vec<Timeline>,
    slots: HashMap<ThreadKey, usize>,
    tasks: Vec<Task>,
    task_numbers: HashMap<Task, u32>,
    /// The last task of each place, and its number: a hash costs more than a look.
    recent_tasks: [Option<(Task, u32)>; RECENT],
    /// By run and CPU, sorted, not overlapping.
    stints: HashMap<(u32, u32), Vec<Stint>>,
    /// Runs with pieces of [`State::Unknown`].
    without_reasons: HashSet<u32>,
}

impl Schedule {
    /// The number of a thread, new or known.
    pub fn slot(&mut self, key: ThreadKey) -> usize {
        *self.slots.entry(key).or_insert_with(|| {
            self.timelines.push(Timeline { key, is_known: false, pieces: Vec::new() });
            self.timelines.len() - 1
        })
    }

    fn task_number(&mut self, task: Task) -> u32 {
        let place = (task.tid ^ task.comm << 2) as usize % RECENT;
        if let Some((_, number)) = self.recent_tasks[place].filter(|(of, _)| *of == task) {
            return number;
        }
        let next = self.tasks.len() as u32;
        let number = *self.task_numbers.entry(task).or_insert(next);
        if number == next {
            self.tasks.push(task);
        }
        self.recent_tasks[place] = Some((task, number));
        number
    }

    /// Adds a stint; none is earlier than those before.
    pub fn add_stint(&mut self, run: u32, cpu: u32, (ts, dur): (i64, i64), task: Task, faults: &mut Faults) {
        let end = ts.saturating_add(dur);
        if end < ts {
            *faults.entry((run, Fault::NegativeDuration)).or_default() += 1;
            return;
        }
        // Nobody holds a CPU that is idle.
        if task.tid == 0 {
            return;
        }
        let task = self.task_number(task);
        let stints = self.stints.entry((run, cpu)).or_default();
        if let Some(last) = stints.last_mut().filter(|last| last.end > ts) {
            // What came later is better known.
            last.end = ts;
            *faults.entry((run, Fault::OverlappingStints)).or_default() += 1;
        }
        stints.push(Stint { ts, end, task });
    }

    /// Adds an interval of a thread; none is earlier than those before, and of equal ones the longest came first.
    pub fn add_off_cpu(&mut self, slot: usize, row: &OffCpuRow, faults: &mut Faults) {
        let run = self.timelines[slot].key.0;
        let end = match row.dur {
            None => i64::MAX,
            Some(dur) if dur < 0 => {
                *faults.entry((run, Fault::NegativeDuration)).or_default() += 1;
                return;
            }
            Some(dur) => row.ts.saturating_add(dur),
        };
        self.timelines[slot].is_known = true;
        let start = self.begin(slot, row.ts, faults);
        if start >= end {
            return;
        }
        let piece = Piece {
            ts: start,
            end,
            cpu: row.cpu.unwrap_or(NONE),
            waker: row.waker.map_or(NONE, |waker| self.task_number(waker)),
            syscall: row.syscall.unwrap_or(-1),
            state: State::Unknown,
            has_moved: false,
        };
        let state = self.names.name(row.state);
        let uninterruptible = state == "uninterruptible";
        match state {
            "preempted" => {
                let has_moved = self.has_moved(run, row);
                self.timelines[slot].pieces.push(Piece { state: State::Preempted, has_moved, ..piece });
            }
            "throttled" => self.timelines[slot].pieces.push(Piece { state: State::Throttled, ..piece }),
            "stopped" => self.timelines[slot].pieces.push(Piece { state: State::Stopped, ..piece }),
            "unknown" => {
                self.without_reasons.insert(run);
                self.timelines[slot].pieces.push(piece);
            }
            _ => {
                let blocker = Blocker::of(uninterruptible, row.syscall.map(i64::from));
                let woken = match row.runnable_ns {
                    Some(runnable) if end < i64::MAX => end.saturating_sub(runnable.max(0)).clamp(start, end),
                    _ => end,
                };
                let pieces = &mut self.timelines[slot].pieces;
                if start < woken {
                    pieces.push(Piece { end: woken, state: State::Blocked(blocker), ..piece });
                }
                if woken < end {
                    pieces.push(Piece { ts: woken, state: State::Runnable, ..piece });
                }
            }
        }
    }

    /// Whether a thread that lost its CPU waited in the queue of another one: who got the CPU that it left is not who
    /// had the CPU that it is said to have waited for. Stints that begin with the interval are known.
    fn has_moved(&self, run: u32, row: &OffCpuRow) -> bool {
        let (Some(cpu), Some(next_tid)) = (row.cpu, row.next_tid) else { return false };
        let stints = self.stints.get(&(run, cpu)).map_or(&[][..], Vec::as_slice);
        let holder = stints.last().filter(|stint| stint.ts <= row.ts && stint.end > row.ts);
        holder.is_some_and(|stint| self.tasks[stint.task as usize].tid != next_tid)
    }

    /// Where an interval of a thread may begin: not before the one before has ended.
    fn begin(&mut self, slot: usize, ts: i64, faults: &mut Faults) -> i64 {
        let timeline = &mut self.timelines[slot];
        let run = timeline.key.0;
        let Some(last) = timeline.pieces.last_mut() else {
            return ts;
        };
        if last.end == i64::MAX && last.ts < ts {
            *faults.entry((run, Fault::ReturnNotSeen)).or_default() += 1;
            last.end = ts;
        } else if last.end > ts {
            *faults.entry((run, Fault::OverlappingOffCpu)).or_default() += 1;
        }
        last.end.max(ts)
    }

    /// A thread entered a call: it cannot have been away without end since before.
    pub fn seen(&mut self, slot: usize, ts: i64, faults: &mut Faults) {
        let Timeline { key, pieces, .. } = &mut self.timelines[slot];
        let Some(last) = pieces.last_mut().filter(|last| last.end == i64::MAX && last.ts < ts) else {
            return;
        };
        *faults.entry((key.0, Fault::ReturnNotSeen)).or_default() += 1;
        last.end = ts;
    }

    /// The task of a number.
    fn task(&self, number: u32) -> Option<Task> {
        self.tasks.get(number as usize).copied()
    }

    /// Who ended a sleep, if that is on record.
    pub fn waker(&self, piece: &Piece) -> Option<Task> {
        self.task(piece.waker)
    }

    /// The number of a thread, if it is known.
    pub fn known_slot(&self, key: ThreadKey) -> Option<usize> {
        self.slots.get(&key).copied()
    }

    /// Run, process and thread of a number.
    pub fn key(&self, slot: usize) -> ThreadKey {
        self.timelines[slot].key
    }

    /// Off-CPU time of the thread of a number.
    pub fn pieces_of(&self, slot: usize) -> &[Piece] {
        &self.timelines[slot].pieces
    }

    /// Off-CPU time of a thread.
    pub fn pieces(&self, key: ThreadKey) -> &[Piece] {
        self.slots.get(&key).map_or(&[], |slot| &self.timelines[*slot].pieces)
    }

    /// Whether the schedule of the thread of a number is known.
    pub fn is_known(&self, slot: usize) -> bool {
        self.timelines[slot].is_known
    }

    /// Every thread whose schedule is known.
    pub fn threads(&self) -> impl Iterator<Item = ThreadKey> {
        self.timelines.iter().filter(|timeline| timeline.is_known).map(|timeline| timeline.key)
    }

    /// Who had the CPUs of a run that somebody waited for, and how long in all.
    pub fn ran(&self, run: u32) -> impl Iterator<Item = (Task, i64)> {
        let mut totals = vec![None; self.tasks.len()];
        let of_run = self.stints.iter().filter(|((of, _), _)| *of == run);
        for stint in of_run.flat_map(|(_, stints)| stints) {
            let total: &mut Option<i64> = &mut totals[stint.task as usize];
            *total = Some(total.unwrap_or(0).saturating_add(stint.end - stint.ts));
        }
        self.tasks.iter().zip(totals).filter_map(|(task, total)| Some((*task, total?)))
    }

    /// Whether the source of a run does not record why threads were off CPU.
    pub fn is_without_reasons(&self, run: u32) -> bool {
        self.without_reasons.contains(&run)
    }

    /// Cuts `[from, to)` of a CPU into who had it, in order; `None`: nobody that is on record. Searched from `near` on;
    /// the place of the first is given back, for the next search.
    pub fn holders(
        &self,
        (run, cpu): (u32, u32),
        near: usize,
        (from, to): (i64, i64),
        mut holder: impl FnMut(i64, i64, Option<Task>),
    ) -> usize {
        let stints = self.stints.get(&(run, cpu)).map_or(&[][..], Vec::as_slice);
        let first = first_after(stints, near, |stint| stint.end <= from);
        let mut at = from;
        for stint in stints[first..].iter().take_while(|stint| stint.ts < to) {
            let (start, end) = (stint.ts.max(at), stint.end.min(to));
            if start > at {
                holder(at, start, None);
            }
            if end > start {
                holder(start, end, self.task(stint.task));
            }
            at = end.max(at);
        }
        if at < to {
            holder(at, to, None);
        }
        first
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// (pid, tid), ts, dur (below zero: open if -1), state, runnable, syscall (below zero: none), cpu, waker.
    pub type OffRow = ((i32, i32), i64, i64, &'static str, Option<i64>, i32, i32, Option<(i32, i32)>);
    /// CPU, from, to, (pid, tid).
    pub type StintRow = (i32, i64, i64, (i32, i32));

    /// A schedule of run 0, of rows in any order.
    pub fn schedule(rows: &[OffRow], stints: &[StintRow]) -> Schedule {
        read(rows, stints).0
    }

    fn read(rows: &[OffRow], stints: &[StintRow]) -> (Schedule, Faults) {
        let (mut schedule, mut faults) = (Schedule::default(), Faults::new());
        let run = schedule.names.number("r");
        let (hog, waker) = (schedule.names.number("hog"), schedule.names.number("waker"));
        let mut stints = stints.to_vec();
        stints.sort_by_key(|stint| (stint.1, stint.2));
        for (cpu, ts, end, (pid, tid)) in stints {
            let task = Task { pid: pid as u32, tid: tid as u32, comm: hog };
            schedule.add_stint(run, cpu as u32, (ts, end - ts), task, &mut faults);
        }
        let mut rows = rows.to_vec();
        rows.sort_by_key(|row| row.1);
        for (thread, ts, dur, state, runnable_ns, syscall, cpu, by) in rows {
            let slot = schedule.slot((run, thread.0 as u32, thread.1 as u32));
            let row = OffCpuRow {
                ts,
                dur: (dur != -1).then_some(dur),
                state: schedule.names.number(state),
                runnable_ns,
                syscall: (syscall >= 0).then_some(syscall),
                cpu: Some(cpu as u32),
                waker: by.map(|(pid, tid)| Task { pid: pid as u32, tid: tid as u32, comm: waker }),
                next_tid: None,
            };
            schedule.add_off_cpu(slot, &row, &mut faults);
        }
        (schedule, faults)
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

    /// In the order of time: a thread is seen, or it leaves the CPU and does not come back.
    #[test]
    fn a_thread_that_never_came_back_is_away_until_it_is_seen() {
        let (mut schedule, mut faults) = read(&[((1, 1), 100, -1, "sleeping", None, 202, 0, None)], &[]);
        let state = schedule.names.number("sleeping");
        let away = |ts| OffCpuRow { ts, state, ..OffCpuRow::default() };
        let slots = [1, 2, 3].map(|tid| schedule.slot((0, 1, tid)));
        schedule.seen(slots[1], 50, &mut faults);
        schedule.add_off_cpu(slots[1], &away(100), &mut faults);
        schedule.seen(slots[1], 250, &mut faults);
        schedule.seen(slots[1], 260, &mut faults);
        schedule.seen(slots[2], 50, &mut faults);
        schedule.add_off_cpu(slots[2], &away(100), &mut faults);
        schedule.seen(slots[0], 100, &mut faults);
        schedule.seen(slots[0], 200, &mut faults);
        schedule.add_off_cpu(slots[0], &away(400), &mut faults);
        schedule.add_off_cpu(slots[0], &away(500), &mut faults);
        let ends = schedule.pieces_of(slots[0]).iter().map(|piece| piece.end).collect::<Vec<_>>();
        assert_eq!(ends, [200, 500, i64::MAX], "it entered a call before it was off CPU again");
        assert_eq!(schedule.pieces((0, 1, 2))[0].end, 250);
        assert_eq!(schedule.pieces((0, 1, 3))[0].end, i64::MAX);
        assert_eq!(faults[&(0, Fault::ReturnNotSeen)], 3);
    }
}
