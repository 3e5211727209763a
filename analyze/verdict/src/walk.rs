//! The chain behind a wait: which task had the CPU, which thread woke this one, and what that thread had been
//! doing until then.
//!
//! ```text
//! call       ├──on-CPU──┤──────────────── blocked (futex) ───────────────┼ runnable ┤──┤
//! its CPU                                                                ├── hog B ─┤
//! the waker             ├──on-CPU──┤──── preempted ────┤──────on-CPU─────┤ wakes
//! its CPU                          ├────── hog A ──────┤
//! links      │ own CPU  │ waker works │ hog A had the   │  waker works    │ hog B had │
//!                                      waker's CPU                         the CPU
//! ```
//! Links cut the time from end to end: they do not overlap, and they sum to it. A chain has no cycles: it
//! does not enter a thread that it came from, and it is at most [`MAX_DEPTH`] threads deep.

use crate::{
    blocker::Blocker,
    schedule::{Schedule, Task, ThreadKey},
    thread_state::{State, ThreadState, cut, first_after},
    time_split::{Parts, parts},
};

/// Maximum number of threads that a chain follows.
pub const MAX_DEPTH: usize = 8;

/// One link of a chain: `[ts, end)` of the time asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Start in nanoseconds.
    pub ts: i64,
    /// End in nanoseconds.
    pub end: i64,
    /// Run, process and thread whose time this is.
    pub thread: ThreadKey,
    /// Number of wakeups between the thread asked about and this one: 0 is the thread asked about, 1 the
    /// thread that woke it, and so on.
    pub depth: usize,
    /// State of the thread.
    pub state: State,
    /// The task that had the CPU, or that ended the sleep; `None` if it is not in the recording.
    pub task: Option<Task>,
    /// What the thread asked about was blocked on, if `depth` is above 0.
    pub slept_in: Option<Blocker>,
    /// Start of that sleep in nanoseconds, if `depth` is above 0.
    pub slept_from: Option<i64>,
    /// The CPU that the thread waited for or had left, if it is known.
    pub cpu: Option<u32>,
    /// The number of the system call that the thread slept in, if there was one.
    pub syscall: Option<i64>,
}

/// Number of places in which a [`Walker`] remembers where searches begin.
const PLACES: usize = 1024;

/// Follows chains through a complete schedule. Each search begins where the last one in the same thread, or
/// on the same CPU, ended: if queries come in order of time, the answer is near.
pub struct Walker<'a> {
    schedule: &'a Schedule,
    /// Where searches begin, by number of the thread and by CPU, modulo the number of places. A wrong place
    /// costs time, but does not change the result.
    thread_states: Vec<usize>,
    slices: Vec<usize>,
    /// The threads that the chain has come through, up to the current one.
    path: Vec<usize>,
    /// The links found so far.
    links: Vec<Link>,
}

impl<'a> Walker<'a> {
    /// Makes a walker over a schedule.
    pub fn new(schedule: &'a Schedule) -> Self {
        let places = || vec![0; PLACES];
        Self { schedule, thread_states: places(), slices: places(), path: Vec::new(), links: Vec::new() }
    }

    /// Returns the schedule.
    pub fn schedule(&self) -> &'a Schedule {
        self.schedule
    }

    /// Returns the states of a thread, and the index of the first that ends after `from`.
    fn thread_states(&mut self, slot: usize, from: i64) -> (&'a [ThreadState], usize) {
        let thread_states = self.schedule.pieces_of(slot);
        let near = &mut self.thread_states[slot % PLACES];
        *near = first_after(thread_states, *near, |thread_state| thread_state.end <= from);
        (thread_states, *near)
    }

    /// Splits `[from, to)` of a thread, given by its number in the schedule, by thread state.
    pub fn parts(&mut self, slot: usize, from: i64, to: i64) -> Parts {
        let (thread_states, first) = self.thread_states(slot, from);
        parts(thread_states, first, from, to)
    }

    /// Cuts `[from, to)` of a thread, given by its number in the schedule, into segments as [`cut`] does.
    pub fn cut(
        &mut self,
        slot: usize,
        (from, to): (i64, i64),
        segment: impl FnMut(i64, i64, State, Option<&ThreadState>),
    ) {
        let (thread_states, first) = self.thread_states(slot, from);
        cut(thread_states, first, from, to, segment);
    }

    /// Returns the chain behind `[from, to)` of a thread, given by its number in the schedule. The links are
    /// in order of time.
    pub fn walk(&mut self, slot: usize, from: i64, to: i64) -> &[Link] {
        self.links.clear();
        self.follow(slot, (from, to), None);
        &self.links
    }

    /// Appends the links of one thread's time.
    fn follow(&mut self, slot: usize, (from, to): (i64, i64), slept: Option<(Blocker, i64)>) {
        self.path.push(slot);
        let (thread_states, first) = self.thread_states(slot, from);
        cut(thread_states, first, from, to, |ts, end, state, thread_state| {
            self.link(slot, (ts, end), state, thread_state, slept);
        });
        self.path.pop();
    }

    /// Appends the links of one segment of a thread's time.
    fn link(
        &mut self,
        slot: usize,
        (ts, end): (i64, i64),
        state: State,
        thread_state: Option<&ThreadState>,
        slept: Option<(Blocker, i64)>,
    ) {
        let schedule = self.schedule;
        let thread = schedule.key(slot);
        let link = Link {
            ts,
            end,
            thread,
            depth: self.path.len() - 1,
            state,
            task: None,
            slept_in: slept.map(|(blocker, _)| blocker),
            slept_from: slept.map(|(_, from)| from),
            cpu: thread_state.and_then(ThreadState::cpu),
            syscall: thread_state.and_then(ThreadState::syscall),
        };
        match (state, thread_state) {
            (State::Preempted | State::Runnable, Some(thread_state)) => {
                // If the thread waited in two run queues, and it is not known how long in each, no task is
                // blamed.
                let Some(cpu) = thread_state.cpu().filter(|_| !thread_state.has_moved) else {
                    self.links.push(link);
                    return;
                };
                let near = &mut self.slices[cpu as usize % PLACES];
                *near = schedule.holders((thread.0, cpu), *near, (ts, end), |ts, end, task| {
                    // A thread that migrates may be recorded on two CPUs for a moment.
                    let task = task.filter(|task| task.tid != thread.2);
                    self.links.push(Link { ts, end, task, ..link });
                });
            }
            (State::Blocked(blocker), Some(thread_state)) => {
                let woken_by = schedule.waker(thread_state);
                // The waker is known only if the sleep ended inside the time asked about.
                let waker = woken_by.filter(|_| thread_state.end <= end && self.path.len() < MAX_DEPTH);
                let waker = waker.and_then(|task| schedule.known_slot((thread.0, task.pid, task.tid)));
                let onward = waker.filter(|waker| schedule.is_known(*waker) && !self.path.contains(waker));
                match onward {
                    Some(waker) => self.follow(waker, (ts, end), slept.or(Some((blocker, thread_state.ts)))),
                    // A task that ends the sleep after the time asked about has not ended it yet.
                    None => {
                        self.links.push(Link { task: woken_by.filter(|_| thread_state.end <= end), ..link })
                    }
                }
            }
            // The task that continued the thread is known.
            (State::Stopped, Some(thread_state)) if thread_state.end <= end => {
                self.links.push(Link { task: schedule.waker(thread_state), ..link });
            }
            _ => self.links.push(link),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;
    use crate::schedule::tests::{OffRow, SliceRow, schedule};

    fn slot(schedule: &Schedule, tid: u32) -> usize {
        schedule.known_slot((0, 1, tid)).expect("a thread")
    }

    #[test]
    fn a_chain_leads_to_who_kept_the_lock_holder_off_its_cpu() {
        // Thread 1 sleeps for a lock from 100 to 500; thread 2 holds it and is preempted by a hog.
        let schedule = schedule(
            &[
                ((1, 1), 100, 400, "sleeping", Some(100), 202, 0, Some((1, 2))),
                ((1, 2), 200, 150, "preempted", Some(150), -1, 1, None),
            ],
            &[(0, 400, 480, (9, 9)), (1, 200, 350, (7, 7))],
        );
        let mut walker = Walker::new(&schedule);
        let links = walker.walk(slot(&schedule, 1), 50, 600);
        let seen: Vec<_> = links
            .iter()
            .map(|link| (link.ts, link.end, link.depth, link.task.map(|task| task.tid)))
            .collect();
        let expected = [
            (50, 100, 0, None),
            (100, 200, 1, None),
            (200, 350, 1, Some(7)),
            (350, 400, 1, None),
            (400, 480, 0, Some(9)),
            (480, 500, 0, None),
            (500, 600, 0, None),
        ];
        assert_eq!(seen, expected);
        let slept = |link: &Link| (link.slept_in, link.slept_from);
        assert!(links[1..4].iter().all(|link| slept(link) == (Some(Blocker::Futex), Some(100))));
        assert_eq!(slept(&links[4]), (None, None));
    }

    #[test]
    fn a_chain_does_not_run_in_a_circle() {
        let schedule = schedule(
            &[
                ((1, 1), 100, 400, "sleeping", Some(0), 202, 0, Some((1, 2))),
                ((1, 2), 150, 300, "sleeping", Some(0), 202, 0, Some((1, 1))),
            ],
            &[],
        );
        let mut walker = Walker::new(&schedule);
        let links = walker.walk(slot(&schedule, 1), 0, 600);
        assert!(links.iter().all(|link| link.depth <= 1));
        assert_eq!(links.iter().map(|link| link.end - link.ts).sum::<i64>(), 600);
    }

    #[test]
    fn a_chain_is_at_most_eight_threads_deep() {
        // Each thread sleeps until the next one wakes it.
        let sleep = |tid| ((1, tid), 100, 100, "sleeping", Some(0), 202, 0, Some((1, tid + 1)));
        let rows: Vec<OffRow> = (1..=10).map(sleep).collect();
        let schedule = schedule(&rows, &[]);
        let mut walker = Walker::new(&schedule);
        let links = walker.walk(slot(&schedule, 1), 0, 300);
        let seen: Vec<_> = links.iter().map(|link| (link.ts, link.end, link.depth, link.thread.2)).collect();
        assert_eq!(seen, [(0, 100, 0, 1), (100, 200, MAX_DEPTH - 1, 8), (200, 300, 0, 1)]);
        assert_eq!(links[1].task.map(|task| task.tid), Some(9), "its waker is named, and not followed");
    }

    /// What a chain says of one nanosecond: depth, thread, state, task and what the first thread slept in.
    type Moment = (usize, u32, State, Option<u32>, Option<Blocker>);

    /// Finds what is behind one nanosecond of a thread, by its rows: it lies in `[from, to)` of the thread, which the threads of
    /// `path` have waited for.
    fn moment(
        (rows, slices): (&[OffRow], &[SliceRow]),
        tid: i32,
        time: i64,
        (from, to): (i64, i64),
        path: &[i32],
    ) -> Moment {
        let depth = path.len();
        let slept_in = (depth > 0).then_some(Blocker::Futex);
        let of_thread = |row: &&OffRow| row.0.1 == tid && (row.1..row.1 + row.2).contains(&time);
        let Some(row) = rows.iter().find(of_thread) else {
            return (depth, tid as u32, State::OnCpu, None, slept_in);
        };
        let (start, end, cpu, waker) = (row.1, row.1 + row.2, row.6, row.7.map(|waker| waker.1));
        let woken = end - row.4.unwrap_or(0);
        let (state, start, end) = match row.3 {
            "preempted" => (State::Preempted, start, end),
            "stopped" => (State::Stopped, start, end),
            _ if time < woken => (State::Blocked(Blocker::Futex), start, woken),
            _ => (State::Runnable, woken, end),
        };
        let holds = |slice: &&SliceRow| slice.0 == cpu && (slice.1..slice.2).contains(&time);
        let task = match state {
            State::Preempted | State::Runnable => slices.iter().find(holds).map(|slice| slice.3.1),
            // A task that ends the state later has not ended it yet.
            _ => waker.filter(|_| end <= to),
        };
        let is_followed = |waker: &i32| {
            let is_known = rows.iter().any(|row| row.0.1 == *waker);
            is_known && *waker != tid && !path.contains(waker) && depth + 1 < MAX_DEPTH
        };
        match task.filter(|task| matches!(state, State::Blocked(_)) && is_followed(task)) {
            Some(waker) => {
                let path = [path, &[tid]].concat();
                moment((rows, slices), waker, time, (start.max(from), end.min(to)), &path)
            }
            None => (depth, tid as u32, state, task.map(|task| task as u32), slept_in),
        }
    }

    fn away(tid: i32) -> impl Strategy<Value = Vec<OffRow>> {
        let state = select(vec!["preempted", "sleeping", "sleeping", "uninterruptible", "stopped"]);
        vec((0..15_i64, 1..25_i64, state, 0..9_i64, 0..2_i32, 1..6_i32), 0..6).prop_map(move |rows| {
            let mut at = 0;
            let row = |(gap, dur, state, runnable, cpu, waker): (i64, i64, &'static str, i64, i32, i32)| {
                at += gap + dur;
                ((1, tid), at - dur, dur, state, Some(runnable.min(dur)), 202, cpu, Some((1, waker)))
            };
            rows.into_iter().map(row).collect()
        })
    }

    fn slices(cpu: i32) -> impl Strategy<Value = Vec<SliceRow>> {
        vec((0..9_i64, 1..25_i64, 90..93_i32), 0..8).prop_map(move |slices| {
            let mut at = 0;
            let slice = |(gap, dur, tid): (i64, i64, i32)| {
                at += gap + dur;
                (cpu, at - dur, at, (9, tid))
            };
            slices.into_iter().map(slice).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Links leave nothing out, do not overlap, never lead back to a thread that they came from, and say of each nanosecond
        /// what its rows say, wherever their searches begin.
        #[test]
        fn links_say_of_each_nanosecond_what_its_rows_say(
            away in [1, 2, 3, 4].map(away),
            slices in [0, 1].map(slices),
            asked in vec((0..4_usize, 0..120_i64, 1..60_i64), 1..5),
        ) {
            let (rows, slices) = (away.concat(), slices.concat());
            let schedule = schedule(&rows, &slices);
            let mut used = Walker::new(&schedule);
            for (thread, from, dur) in asked {
                let tid = thread as i32 + 1;
                let Some(slot) = schedule.known_slot((0, 1, tid as u32)) else { continue };
                let (to, mut at) = (from + dur, from);
                for link in used.walk(slot, from, to) {
                    prop_assert!(link.ts == at && link.end > at, "{:?}", link);
                    at = link.end;
                    for time in link.ts..link.end {
                        let (_, _, found) = link.thread;
                        let task = link.task.map(|task| task.tid);
                        let found = (link.depth, found, link.state, task, link.slept_in);
                        prop_assert_eq!(found, moment((&rows, &slices), tid, time, (from, to), &[]));
                    }
                }
                prop_assert_eq!(at, to);
            }
        }
    }
}
