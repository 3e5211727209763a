//! The schedule of each thread: its time, cut into thread states without gap or overlap.
//!
//! ```text
//! thread   ──on-CPU──┤─ preempted ─├──on-CPU──┤──── blocked ────┼─ runnable ─├──on-CPU──
//! its CPU            ├── hog A ────┤                            ├─ hog B ─────┤
//! ```
//! Rows of one thread must not overlap; where broken input makes them overlap, the later one is cut and
//! counted in [`Fault`]. A thread whose interval has no end is off CPU until it is seen again, or to the end
//! of the run.

use crate::{
    blocker::Blocker,
    fault::{Fault, Faults},
    thread_state::{NONE, State, ThreadState, first_after},
};
use analyze_run::{
    hash::{HashMap, HashSet},
    reading::Names,
};

/// Run (its number in [`Names`]), process ID and thread ID.
pub type ThreadKey = (u32, u32, u32);

/// A task that held a CPU or woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Number of the task's name in [`Names`].
    pub comm: u32,
}

/// A scheduling slice: a task ran on a CPU over `[ts, end)`. It takes 24 bytes because all slices stay in
/// memory.
#[derive(Clone, Copy, Debug)]
pub struct SchedulingSlice {
    /// Start in nanoseconds.
    pub ts: i64,
    /// End in nanoseconds.
    pub end: i64,
    /// Number of the task in the schedule.
    task: u32,
}

/// A row of off-CPU time. A field is `None` where the column is null.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffCpuRow {
    /// Time of switch-out in nanoseconds.
    pub ts: i64,
    /// Duration in nanoseconds; `None` if the thread was not seen to return to a CPU.
    pub dur: Option<i64>,
    /// Number of the state's name in [`Names`].
    pub state: u32,
    /// Length of the last part of the interval, in which the thread could run and waited for a CPU, in
    /// nanoseconds.
    pub runnable_ns: Option<i64>,
    /// Number of the system call that the thread slept in.
    pub syscall: Option<i32>,
    /// The CPU that the thread waited for or had left.
    pub cpu: Option<u32>,
    /// The task that woke the thread.
    pub waker: Option<Task>,
    /// The thread that got the CPU at switch-out.
    pub next_tid: Option<u32>,
}

/// The states of one thread.
#[derive(Debug)]
struct Timeline {
    key: ThreadKey,
    /// True if there was a row of off-CPU time.
    is_known: bool,
    thread_states: Vec<ThreadState>,
}

/// Number of places in [`Schedule::recent_tasks`].
const RECENT: usize = 32;

/// The schedule of every thread of some runs, built from rows in order of time.
#[derive(Debug, Default)]
pub struct Schedule {
    /// The names that numbers stand for.
    pub names: Names,
    timelines: Vec<Timeline>,
    slots: HashMap<ThreadKey, usize>,
    tasks: Vec<Task>,
    task_numbers: HashMap<Task, u32>,
    /// The last task of each place and its number, because a comparison is cheaper than a hash.
    recent_tasks: [Option<(Task, u32)>; RECENT],
    /// Scheduling slices by run and CPU, sorted and disjoint.
    slices: HashMap<(u32, u32), Vec<SchedulingSlice>>,
    /// Runs with thread states of [`State::Unknown`].
    without_reasons: HashSet<u32>,
}

impl Schedule {
    /// Returns the number of a thread, which is a new one if the thread was not known.
    pub fn slot(&mut self, key: ThreadKey) -> usize {
        *self.slots.entry(key).or_insert_with(|| {
            self.timelines.push(Timeline { key, is_known: false, thread_states: Vec::new() });
            self.timelines.len() - 1
        })
    }

    /// Returns the number of a task, which is a new one if the task was not known.
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

    /// Adds a scheduling slice of `dur` nanoseconds. It must not begin before the slices added earlier.
    pub fn add_slice(&mut self, run: u32, cpu: u32, (ts, dur): (i64, i64), task: Task, faults: &mut Faults) {
        let end = ts.saturating_add(dur);
        if end < ts {
            *faults.entry((run, Fault::NegativeDuration)).or_default() += 1;
            return;
        }
        // An idle CPU is held by no task.
        if task.tid == 0 {
            return;
        }
        let task = self.task_number(task);
        let slices = self.slices.entry((run, cpu)).or_default();
        if let Some(last) = slices.last_mut().filter(|last| last.end > ts) {
            // The later slice is the better known one.
            last.end = ts;
            *faults.entry((run, Fault::OverlappingSlices)).or_default() += 1;
        }
        slices.push(SchedulingSlice { ts, end, task });
    }

    /// Adds an off-CPU interval of a thread. It must not begin before those added earlier; of intervals with
    /// the same start, the longest comes first.
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
        // An interval without length overlaps none, but it shows that the thread had returned.
        if end == row.ts {
            return self.seen(slot, row.ts, faults);
        }
        let start = self.begin(slot, row.ts, faults);
        if start >= end {
            return;
        }
        let thread_state = ThreadState {
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
                self.timelines[slot].thread_states.push(ThreadState {
                    state: State::Preempted,
                    has_moved,
                    ..thread_state
                });
            }
            "throttled" => self.timelines[slot]
                .thread_states
                .push(ThreadState { state: State::Throttled, ..thread_state }),
            "stopped" => {
                self.timelines[slot].thread_states.push(ThreadState { state: State::Stopped, ..thread_state })
            }
            "unknown" => {
                self.without_reasons.insert(run);
                self.timelines[slot].thread_states.push(thread_state);
            }
            _ => {
                let blocker = Blocker::of(uninterruptible, row.syscall.map(i64::from));
                let woken = match row.runnable_ns {
                    Some(runnable) if end < i64::MAX => end.saturating_sub(runnable.max(0)).clamp(start, end),
                    _ => end,
                };
                let thread_states = &mut self.timelines[slot].thread_states;
                if start < woken {
                    thread_states.push(ThreadState {
                        end: woken,
                        state: State::Blocked(blocker),
                        ..thread_state
                    });
                }
                if woken < end {
                    thread_states.push(ThreadState { ts: woken, state: State::Runnable, ..thread_state });
                }
            }
        }
    }

    /// Returns whether a preempted thread waited in the run queue of another CPU: the thread that got the CPU
    /// it left is not the one that held the CPU it is said to have waited for. Scheduling slices that begin
    /// together with the interval must have been added.
    fn has_moved(&self, run: u32, row: &OffCpuRow) -> bool {
        let (Some(cpu), Some(next_tid)) = (row.cpu, row.next_tid) else { return false };
        let slices = self.slices.get(&(run, cpu)).map_or(&[][..], Vec::as_slice);
        let holder = slices.last().filter(|slice| slice.ts <= row.ts && slice.end > row.ts);
        holder.is_some_and(|slice| self.tasks[slice.task as usize].tid != next_tid)
    }

    /// Returns where an interval of a thread may begin: not before the previous interval has ended.
    fn begin(&mut self, slot: usize, ts: i64, faults: &mut Faults) -> i64 {
        let timeline = &mut self.timelines[slot];
        let run = timeline.key.0;
        let Some(last) = timeline.thread_states.last_mut() else {
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

    /// Records that a thread entered a call: an earlier interval without an end must have ended by then.
    pub fn seen(&mut self, slot: usize, ts: i64, faults: &mut Faults) {
        let Timeline { key, thread_states, .. } = &mut self.timelines[slot];
        let Some(last) = thread_states.last_mut().filter(|last| last.end == i64::MAX && last.ts < ts) else {
            return;
        };
        *faults.entry((key.0, Fault::ReturnNotSeen)).or_default() += 1;
        last.end = ts;
    }

    /// Returns the task of a number.
    fn task(&self, number: u32) -> Option<Task> {
        self.tasks.get(number as usize).copied()
    }

    /// Returns the task that ended a sleep, if it is in the recording.
    pub fn waker(&self, thread_state: &ThreadState) -> Option<Task> {
        self.task(thread_state.waker)
    }

    /// Returns the number of a thread, if it is known.
    pub fn known_slot(&self, key: ThreadKey) -> Option<usize> {
        self.slots.get(&key).copied()
    }

    /// Returns the run, process and thread of a number. Panics if there is no such number.
    pub fn key(&self, slot: usize) -> ThreadKey {
        self.timelines[slot].key
    }

    /// Returns the off-CPU states of a thread, given by its number. Panics if there is no such number.
    pub fn pieces_of(&self, slot: usize) -> &[ThreadState] {
        &self.timelines[slot].thread_states
    }

    /// Returns the off-CPU states of a thread; empty if it is not known.
    pub fn thread_states(&self, key: ThreadKey) -> &[ThreadState] {
        self.slots.get(&key).map_or(&[], |slot| &self.timelines[*slot].thread_states)
    }

    /// Returns whether the off-CPU time of a thread, given by its number, was recorded. Panics if there is no
    /// such number.
    pub fn is_known(&self, slot: usize) -> bool {
        self.timelines[slot].is_known
    }

    /// Returns every thread whose off-CPU time was recorded.
    pub fn threads(&self) -> impl Iterator<Item = ThreadKey> {
        self.timelines.iter().filter(|timeline| timeline.is_known).map(|timeline| timeline.key)
    }

    /// Returns the tasks that ran on the recorded CPUs of a run, each with its total time in nanoseconds.
    /// Only slices on CPUs that a thread waited for are recorded.
    pub fn ran(&self, run: u32) -> impl Iterator<Item = (Task, i64)> {
        let mut totals = vec![None; self.tasks.len()];
        let of_run = self.slices.iter().filter(|((of, _), _)| *of == run);
        for slice in of_run.flat_map(|(_, slices)| slices) {
            let total: &mut Option<i64> = &mut totals[slice.task as usize];
            *total = Some(total.unwrap_or(0).saturating_add(slice.end - slice.ts));
        }
        self.tasks.iter().zip(totals).filter_map(|(task, total)| Some((*task, total?)))
    }

    /// Returns whether the source of a run does not record why threads were off CPU.
    pub fn is_without_reasons(&self, run: u32) -> bool {
        self.without_reasons.contains(&run)
    }

    /// Cuts `[from, to)` of a CPU, in nanoseconds, into the tasks that held it, and calls `holder` with
    /// start, end and task of each part, in order; the task is `None` where none is recorded. The search
    /// begins at `near`; the index of the first slice is returned as the hint for the next search.
    pub fn holders(
        &self,
        (run, cpu): (u32, u32),
        near: usize,
        (from, to): (i64, i64),
        mut holder: impl FnMut(i64, i64, Option<Task>),
    ) -> usize {
        let slices = self.slices.get(&(run, cpu)).map_or(&[][..], Vec::as_slice);
        let first = first_after(slices, near, |slice| slice.end <= from);
        let mut at = from;
        for slice in slices[first..].iter().take_while(|slice| slice.ts < to) {
            let (start, end) = (slice.ts.max(at), slice.end.min(to));
            if start > at {
                holder(at, start, None);
            }
            if end > start {
                holder(start, end, self.task(slice.task));
            }
            at = end;
        }
        if at < to {
            holder(at, to, None);
        }
        first
    }
}

#[cfg(test)]
/// Schedules of literal rows, which other modules' tests use, too.
pub mod tests {
    use super::*;

    /// Process ID and thread ID, start, duration (-1: no end), state, time runnable, system call (negative:
    /// none), CPU, and process ID and thread ID of the waker. Times are in nanoseconds.
    pub type OffRow = ((i32, i32), i64, i64, &'static str, Option<i64>, i32, i32, Option<(i32, i32)>);
    /// CPU, start and end in nanoseconds, process ID and thread ID.
    pub type SliceRow = (i32, i64, i64, (i32, i32));

    /// Builds the schedule of run 0 from rows in any order.
    pub fn schedule(rows: &[OffRow], slices: &[SliceRow]) -> Schedule {
        read(rows, slices).0
    }

    fn read(rows: &[OffRow], slices: &[SliceRow]) -> (Schedule, Faults) {
        let (mut schedule, mut faults) = (Schedule::default(), Faults::new());
        let run = schedule.names.number("r");
        let (hog, waker) = (schedule.names.number("hog"), schedule.names.number("waker"));
        let mut slices = slices.to_vec();
        slices.sort_by_key(|slice| (slice.1, slice.2));
        for (cpu, ts, end, (pid, tid)) in slices {
            let task = Task { pid: pid as u32, tid: tid as u32, comm: hog };
            schedule.add_slice(run, cpu as u32, (ts, end - ts), task, &mut faults);
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
        schedule
            .thread_states(key)
            .iter()
            .map(|thread_state| (thread_state.ts, thread_state.end, thread_state.state))
            .collect()
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
    fn an_interval_is_cut_where_the_thread_was_woken() {
        let sleep = |runnable: Option<i64>, dur| ((1, 1), 100, dur, "sleeping", runnable, 202, 0, None);
        let blocked = State::Blocked(Blocker::Futex);
        for (row, expected) in [
            (sleep(Some(0), 50), vec![(100, 150, blocked)]),
            (sleep(Some(1), 50), vec![(100, 149, blocked), (149, 150, State::Runnable)]),
            (sleep(Some(49), 50), vec![(100, 101, blocked), (101, 150, State::Runnable)]),
            (sleep(Some(50), 50), vec![(100, 150, State::Runnable)]),
            (sleep(Some(51), 50), vec![(100, 150, State::Runnable)]),
            (sleep(Some(-1), 50), vec![(100, 150, blocked)]),
            (sleep(None, 50), vec![(100, 150, blocked)]),
            // When it was woken is not known of a thread that did not return.
            (sleep(Some(5), -1), vec![(100, i64::MAX, blocked)]),
            (sleep(Some(5), 0), vec![]),
        ] {
            let (schedule, faults) = read(&[row], &[]);
            assert_eq!((states(&schedule, (0, 1, 1)), faults), (expected, Faults::new()), "{row:?}");
            assert!(schedule.is_known(0) && schedule.threads().eq([(0, 1, 1)]));
        }
    }

    #[test]
    fn of_two_intervals_that_begin_together_the_later_one_is_cut() {
        let away = |dur| ((1, 1), 100, dur, "preempted", None, -1, 0, None);
        for (first, second, expected) in [(-1, 20, i64::MAX), (30, 20, 130)] {
            let (schedule, faults) = read(&[away(first), away(second)], &[]);
            assert_eq!(states(&schedule, (0, 1, 1)), [(100, expected, State::Preempted)]);
            assert_eq!(faults, Faults::from([((0, Fault::OverlappingOffCpu), 1)]));
        }
    }

    /// The holders of a CPU over `[0, 100)`, by thread.
    fn holders(schedule: &Schedule) -> Vec<(i64, i64, Option<u32>)> {
        let mut found = Vec::new();
        let first = schedule.holders((0, 0), 5, (0, 100), |start, end, task| {
            found.push((start, end, task.map(|task| task.tid)));
        });
        assert_eq!(first, 0);
        found
    }

    #[test]
    fn the_holders_of_a_cpu_are_the_tasks_of_its_slices() {
        let slices = [
            (0, 10, 30, (7, 7)),
            // It begins when the one before ends.
            (0, 30, 40, (8, 8)),
            (0, 40, 40, (8, 8)),
            // The idle task holds no CPU, and another CPU is another one.
            (0, 60, 70, (0, 0)),
            (1, 0, 100, (9, 9)),
            (0, 90, 200, (7, 7)),
        ];
        let (schedule, faults) = read(&[], &slices);
        assert_eq!(faults, Faults::new());
        let expected =
            [(0, 10, None), (10, 30, Some(7)), (30, 40, Some(8)), (40, 90, None), (90, 100, Some(7))];
        assert_eq!(holders(&schedule), expected);
        let mut ran: Vec<(u32, i64)> = schedule.ran(0).map(|(task, ns)| (task.tid, ns)).collect();
        ran.sort_unstable();
        assert_eq!(ran, [(7, 130), (8, 10), (9, 100)]);
        assert_eq!(schedule.ran(1).count(), 0);
    }

    #[test]
    fn of_two_slices_that_overlap_the_earlier_one_is_cut() {
        let (schedule, faults) = read(&[], &[(0, 10, 30, (7, 7)), (0, 29, 40, (8, 8)), (0, 50, 45, (9, 9))]);
        let expected = [(0, 10, None), (10, 29, Some(7)), (29, 40, Some(8)), (40, 100, None)];
        assert_eq!(holders(&schedule), expected);
        let counts = [((0, Fault::NegativeDuration), 1), ((0, Fault::OverlappingSlices), 1)];
        assert_eq!(faults, Faults::from(counts));
    }

    /// A thread waits from 100 on, when thread 7 has its CPU; another thread got the CPU that it left.
    #[test]
    fn a_thread_has_moved_if_another_one_got_its_cpu() {
        let (mut schedule, mut faults) = read(&[], &[(0, 50, 150, (7, 7)), (1, 50, 100, (7, 7))]);
        let preempted = schedule.names.number("preempted");
        for (tid, cpu, next_tid, expected) in [
            (1, Some(0), Some(7), false),
            (2, Some(0), Some(8), true),
            (3, Some(0), None, false),
            (4, None, Some(8), false),
            // Nothing is on record of the holder at that time.
            (5, Some(1), Some(8), false),
            (6, Some(2), Some(8), false),
        ] {
            let slot = schedule.slot((0, 1, tid));
            let row =
                OffCpuRow { ts: 100, dur: Some(9), state: preempted, cpu, next_tid, ..OffCpuRow::default() };
            schedule.add_off_cpu(slot, &row, &mut faults);
            assert_eq!(schedule.pieces_of(slot)[0].has_moved, expected, "thread {tid}");
        }
    }

    /// In order of time, a thread is seen, or it leaves the CPU and does not return.
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
        let ends =
            schedule.pieces_of(slots[0]).iter().map(|thread_state| thread_state.end).collect::<Vec<_>>();
        assert_eq!(ends, [200, 500, i64::MAX], "it entered a call before it was off CPU again");
        assert_eq!(schedule.thread_states((0, 1, 2))[0].end, 250);
        assert_eq!(schedule.thread_states((0, 1, 3))[0].end, i64::MAX);
        assert_eq!(faults[&(0, Fault::ReturnNotSeen)], 3);
    }
}
