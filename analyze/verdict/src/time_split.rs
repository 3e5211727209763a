//! The exact split of each call's time: the segments of its thread's states inside the call.
//!
//! ```text
//! call      ├──────────────────────────── dur ─────────────────────────────┤
//! off-CPU        ├─ preempted ─┤        ├── blocked ──┼─ runnable ─┤
//! on-CPU    ├────┤             ├────────┤                          ├───────┤
//! nested            (a child call may lie anywhere inside; its time is also its parent's)
//! ```
//! The parts of a finished call sum to its `dur`. A call without `dur` (censored) has no parts.

use crate::{
    blocker::Blocker,
    thread_state::{BlockedNs, State, ThreadState, cut},
};

/// The split of one call that returned, by thread state, in nanoseconds. The parts sum to its duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Running, including time in nested calls.
    pub on_cpu: i64,
    /// Runnable after another task had taken the CPU.
    pub preempted: i64,
    /// Runnable after a wakeup.
    pub runnable: i64,
    /// Throttled by the CPU quota of the control group.
    pub throttled: i64,
    /// Blocked, by class, in the order of [`Blocker::ALL`].
    pub blocked: BlockedNs,
    /// Stopped by a signal.
    pub stopped: i64,
    /// Off CPU for a reason that the source does not record.
    pub unknown: i64,
    /// The system call of the longest single interval in which the thread was blocked.
    pub blocked_syscall: Option<i64>,
}

impl Parts {
    /// Returns the time blocked in all classes together.
    pub fn blocked_ns(&self) -> i64 {
        self.blocked.iter().sum()
    }

    fn add(&mut self, ns: i64, state: State) {
        let part = match state {
            State::OnCpu => &mut self.on_cpu,
            State::Preempted => &mut self.preempted,
            State::Runnable => &mut self.runnable,
            State::Throttled => &mut self.throttled,
            State::Blocked(blocker) => &mut self.blocked[blocker as usize],
            State::Stopped => &mut self.stopped,
            State::Unknown => &mut self.unknown,
        };
        *part += ns;
    }
}

/// Splits `[from, to)` of a thread by its off-CPU `thread_states`. `near` is a hint: the approximate index
/// of the first state that matters.
#[inline]
pub fn parts(thread_states: &[ThreadState], near: usize, from: i64, to: i64) -> Parts {
    match thread_states.last() {
        Some(last) if last.end > from => parts_off_cpu(thread_states, near, from, to),
        _ => Parts { on_cpu: to - from, ..Parts::default() },
    }
}

fn parts_off_cpu(thread_states: &[ThreadState], near: usize, from: i64, to: i64) -> Parts {
    let mut parts = Parts::default();
    let mut longest = 0;
    cut(thread_states, near, from, to, |ts, end, state, thread_state| {
        parts.add(end - ts, state);
        if let State::Blocked(_) = state
            && end - ts > longest
        {
            longest = end - ts;
            parts.blocked_syscall = thread_state.and_then(ThreadState::syscall);
        }
    });
    parts
}

const _: () = {
    // The column of a class is the number of its variant.
    let mut index = 0;
    while index < Blocker::ALL.len() {
        assert!(Blocker::ALL[index] as usize == index);
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_state::LATEST;
    use analyze_run::random::Random;

    fn thread_state(ts: i64, end: i64, state: State) -> ThreadState {
        ThreadState::of(ts, end, state, 16)
    }

    #[test]
    fn parts_of_a_call() {
        let thread_states = [
            thread_state(90, 110, State::Preempted),
            thread_state(120, 140, State::Blocked(Blocker::Ioctl)),
            thread_state(140, 150, State::Runnable),
            thread_state(195, 197, State::Blocked(Blocker::Futex)),
            thread_state(197, 205, State::Runnable),
        ];
        let found = parts(&thread_states, 0, 100, 200);
        let mut blocked = [0; Blocker::ALL.len()];
        (blocked[0], blocked[1]) = (20, 2);
        let expected = Parts {
            on_cpu: 55,
            preempted: 10,
            runnable: 10 + 3,
            blocked,
            blocked_syscall: Some(16),
            ..Parts::default()
        };
        assert_eq!(found, expected);
        assert_eq!(found.blocked_ns(), 22);
    }

    #[test]
    fn touching_is_not_overlapping() {
        let thread_states =
            [thread_state(90, 100, State::Preempted), thread_state(110, 115, State::Preempted)];
        assert_eq!(parts(&thread_states, 0, 100, 110).on_cpu, 10);
    }

    /// Compares the split of random threads with a count of every nanosecond.
    #[test]
    fn agrees_with_counting_every_nanosecond() {
        let mut numbers = Random(42);
        let mut random = |below: usize| numbers.below(below) as i64;
        let states = [
            State::Preempted,
            State::Runnable,
            State::Throttled,
            State::Blocked(Blocker::Disk),
            State::Stopped,
            State::Unknown,
        ];
        for _ in 0..300 {
            let mut thread_states = Vec::new();
            let mut at = random(20);
            while at < 400 {
                let dur = 1 + random(30);
                thread_states.push(thread_state(at, at + dur, states[random(6) as usize]));
                at += dur + random(40);
            }
            let (from, dur) = (random(300), 1 + random(150));
            let found = parts(&thread_states, LATEST, from, from + dur);
            let mut counted = Parts { blocked_syscall: found.blocked_syscall, ..Parts::default() };
            for t in from..from + dur {
                let inside =
                    thread_states.iter().find(|thread_state| t >= thread_state.ts && t < thread_state.end);
                counted.add(1, inside.map_or(State::OnCpu, |thread_state| thread_state.state));
            }
            assert_eq!(found, counted, "{from} {dur} {thread_states:?}");
            let sum = found.on_cpu + found.preempted + found.runnable + found.throttled + found.blocked_ns();
            assert_eq!(sum + found.stopped + found.unknown, dur);
        }
    }
}
