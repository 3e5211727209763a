//! Waits for CPython's global interpreter lock (GIL), recognised by the way in which CPython waits for it.
//!
//! ```text
//! waiter  ├───── futex, 5 ms ─────┤├─ futex ─┤ has the lock
//!               a timer ends it ──▲          ▲── the holder ends it
//! holder  ────────────── on CPU ─────────────┤ releases the lock
//! ```
//! A thread that wants the lock sleeps for the switch interval, which is 5 ms unless the program sets another one. If a timer
//! ends that sleep, the thread asks the holder to release the lock, and sleeps again until the holder does. Such sleeps are
//! one wait. Its holder is the thread of the process that ends the last sleep, and that was on CPU for at least half of the
//! wait; if the lock was free before the thread slept again, it is the usual holder of the thread's other waits. A wait
//! that is over within the interval looks like a wait for any other lock, and is not recognised.

use std::{collections::BTreeMap, ops::RangeInclusive};

use analyze_verdict::{
    blocker::Blocker,
    schedule::Schedule,
    thread_state::{LATEST, State, cut},
};

/// Lengths of a sleep of the switch interval, in nanoseconds. It is a little shorter than 5 ms, because the deadline is set
/// before the thread leaves its CPU, or longer, because timers run late: by 50 µs, and on busy or virtual machines by up to
/// a millisecond.
const INTERVAL_NS: RangeInclusive<i64> = 4_900_000..=6_000_000;
/// Longest time on CPU between two sleeps of one wait, in nanoseconds: the thread does nothing but sleep again.
const AWAKE_NS: i64 = 200_000;

/// A wait for the lock over `[ts, end)`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    ts: i64,
    end: i64,
    /// Number of the thread in the schedule that had the lock.
    holder: usize,
}

/// Returns the thread that had the lock which another thread waited for at a time, if it waited for the lock.
pub(super) fn holder_at(waits: &[Wait], ts: i64) -> Option<usize> {
    let next = waits.partition_point(|wait| wait.end <= ts);
    waits.get(next).filter(|wait| wait.ts <= ts).map(|wait| wait.holder)
}

/// Returns whether a thread was on CPU for at least half of `[from, to)`.
fn was_on_cpu(schedule: &Schedule, slot: usize, from: i64, to: i64) -> bool {
    let mut on_cpu_ns = 0;
    cut(schedule.pieces_of(slot), LATEST, from, to, |ts, end, state, _| {
        if state == State::OnCpu {
            on_cpu_ns += end - ts;
        }
    });
    2 * on_cpu_ns >= to - from
}

/// Returns the waits of a thread, given by its number in the schedule, in the order of time.
pub(super) fn waits(schedule: &Schedule, slot: usize) -> Vec<Wait> {
    let (run, pid, _) = schedule.key(slot);
    let mut found: Vec<(i64, i64, Option<usize>)> = Vec::new();
    // Start of a wait whose last sleep a timer ended, and when the thread could run again.
    let mut open: Option<(i64, i64)> = None;
    for state in schedule.pieces_of(slot) {
        if !matches!(state.state, State::Blocked(_)) {
            if let Some((_, awake)) = &mut open
                && state.ts.saturating_sub(*awake) <= AWAKE_NS
            {
                *awake = state.end;
            }
            continue;
        }
        let is_futex = state.state == State::Blocked(Blocker::Futex);
        let continued = open.filter(|(_, awake)| is_futex && state.ts.saturating_sub(*awake) <= AWAKE_NS);
        if continued.is_none() {
            found.extend(open.map(|(ts, end)| (ts, end, None)));
        }
        open = None;
        let start = continued.map_or(state.ts, |(ts, _)| ts);
        let waker = schedule.waker(state).filter(|_| is_futex);
        match waker {
            Some(task) if task.tid == 0 && INTERVAL_NS.contains(&state.end.saturating_sub(state.ts)) => {
                open = Some((start, state.end));
            }
            Some(task) if task.pid == pid && continued.is_some() => {
                found.push((start, state.end, schedule.known_slot((run, pid, task.tid))));
            }
            _ => found.extend(continued.map(|(ts, end)| (ts, end, None))),
        }
    }
    found.extend(open.map(|(ts, end)| (ts, end, None)));
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for holder in found.iter().filter_map(|(_, _, holder)| *holder) {
        *counts.entry(holder).or_default() += 1;
    }
    let usual = counts.into_iter().max_by_key(|(_, count)| *count).map(|(holder, _)| holder);
    let wait = |(ts, end, holder): (i64, i64, Option<usize>)| {
        let holder = holder.or(usual).filter(|holder| was_on_cpu(schedule, *holder, ts, end))?;
        Some(Wait { ts, end, holder })
    };
    found.into_iter().filter_map(wait).collect()
}

#[cfg(test)]
mod tests {
    use analyze_verdict::{
        fault::Faults,
        schedule::{OffCpuRow, Task},
    };

    use super::*;

    const FUTEX: i32 = 202;
    const MS: i64 = 1_000_000;

    /// Makes the schedule of a process whose threads slept: thread, start, length, system call and who ended the sleep.
    fn schedule(sleeps: &[(u32, i64, i64, i32, u32)]) -> Schedule {
        let (mut schedule, mut faults) = (Schedule::default(), Faults::default());
        let (run, state) = (schedule.names.number("run"), schedule.names.number("sleeping"));
        for (tid, ts, dur, syscall, waker) in sleeps {
            let slot = schedule.slot((run, 1, *tid));
            let row = OffCpuRow {
                ts: *ts,
                dur: Some(*dur),
                state,
                runnable_ns: Some(0),
                syscall: Some(*syscall),
                waker: Some(Task { pid: u32::from(*waker > 0), tid: *waker, comm: state }),
                ..OffCpuRow::default()
            };
            schedule.add_off_cpu(slot, &row, &mut faults);
        }
        schedule
    }

    fn found(sleeps: &[(u32, i64, i64, i32, u32)]) -> Vec<(i64, i64, u32)> {
        let schedule = schedule(sleeps);
        let slot = schedule.known_slot((0, 1, 1)).expect("a thread");
        let thread = |wait: &Wait| (wait.ts, wait.end, schedule.key(wait.holder).2);
        waits(&schedule, slot).iter().map(thread).collect()
    }

    #[test]
    fn a_timer_and_then_the_holder_end_a_wait() {
        let holder = (2, 0, 10, FUTEX, 3);
        // The second wait lasts for two intervals; the third one is over when the timer ends the sleep.
        let sleeps = [
            holder,
            (1, 100, 5 * MS, FUTEX, 0),
            (1, 110 + 5 * MS, 1000, FUTEX, 2),
            (1, 20 * MS, 5 * MS + 60_000, FUTEX, 0),
            (1, 25 * MS + 70_000, 5 * MS, FUTEX, 0),
            (1, 30 * MS + 80_000, MS, FUTEX, 2),
            (1, 40 * MS, 5 * MS, FUTEX, 0),
        ];
        let expected = [(100, 5 * MS + 1110, 2), (20 * MS, 31 * MS + 80_000, 2), (40 * MS, 45 * MS, 2)];
        assert_eq!(found(&sleeps), expected);
        let schedule = schedule(&sleeps);
        let all = waits(&schedule, schedule.known_slot((0, 1, 1)).expect("a thread"));
        assert!(holder_at(&all, 99).is_none() && holder_at(&all, 5 * MS + 1110).is_none());
        assert_eq!(holder_at(&all, 100), schedule.known_slot((0, 1, 2)));
    }

    #[test]
    fn other_sleeps_are_no_waits_for_the_lock() {
        let holder = (2, 0, 10, FUTEX, 3);
        let second = (1, 5 * MS + 110, 1000, FUTEX, 2);
        assert!(found(&[holder, (1, 100, 5 * MS, FUTEX, 2), second]).is_empty(), "a thread ended it");
        assert!(found(&[holder, (1, 100, 5 * MS, 230, 0), second]).is_empty(), "the thread asked to sleep");
        assert!(found(&[holder, (1, 100, 4 * MS, FUTEX, 0), second]).is_empty(), "another interval");
        assert!(found(&[holder, (1, 100, 5 * MS, FUTEX, 0)]).is_empty(), "nobody is known to hold it");
        let late = (1, 6 * MS, 1000, FUTEX, 2);
        assert!(found(&[holder, (1, 100, 5 * MS, FUTEX, 0), late]).is_empty(), "the thread ran in between");
        let asleep = (2, 50, 4 * MS, FUTEX, 3);
        assert!(found(&[holder, asleep, (1, 100, 5 * MS, FUTEX, 0), second]).is_empty(), "the holder slept");
    }
}
