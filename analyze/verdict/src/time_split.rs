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
pub fn parts(thread_states: &[ThreadState], near: usize, from: i64, to: i64) -> Parts {
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
    use proptest::prelude::*;

    use super::*;
    use crate::thread_state::tests::thread_states;

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

    proptest! {
        #[test]
        fn agrees_with_counting_every_nanosecond(
            states in thread_states(), near in 0..14_usize, from in -5..100_i64, length in 0..60_i64
        ) {
            let to = from + length;
            let found = parts(&states, near, from, to);
            let inside = |state: &&ThreadState| (state.end.min(to) - state.ts.max(from)).max(0);
            let blocked = states.iter().filter(|state| matches!(state.state, State::Blocked(_)));
            // Of several that are equally long, the first one counts.
            let longest = blocked.rev().filter(|state| inside(state) > 0).max_by_key(inside);
            let mut counted =
                Parts { blocked_syscall: longest.and_then(ThreadState::syscall), ..Parts::default() };
            for time in from..to {
                let there = states.iter().find(|state| (state.ts..state.end).contains(&time));
                counted.add(1, there.map_or(State::OnCpu, |there| there.state));
            }
            prop_assert_eq!(found, counted);
            let sum = found.on_cpu + found.preempted + found.runnable + found.throttled + found.blocked_ns();
            prop_assert_eq!(sum + found.stopped + found.unknown, length);
        }
    }
}
