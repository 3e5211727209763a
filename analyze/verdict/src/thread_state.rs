//! Thread states: what a thread did over time, as half-open intervals `[ts, end)` that are sorted and do not
//! overlap. Between two of them the thread was running.
//!
//! ```text
//! thread   ──on-CPU──┤─ preempted ─├──on-CPU──┤──── blocked ────┼─ runnable ─├──on-CPU──
//! asked          from├─────────────────────────────────├to
//! segments           ├─ preempted ─┼──on-CPU──┼─blocked┤
//! ```

use super::blocker::{self, Blocker};

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The thread was running.
    OnCpu,
    /// The thread was runnable but had lost its CPU to another task.
    Preempted,
    /// The thread had been woken and waited for a CPU.
    Runnable,
    /// The thread was runnable, but its control group had used up its CPU quota.
    Throttled,
    /// The thread was blocked, sleeping or uninterruptible; the field is what it waited for.
    Blocked(Blocker),
    /// The thread was stopped by a signal. While a command is recorded, the recorder itself stops threads.
    Stopped,
    /// The thread was off CPU, and the source does not record why.
    Unknown,
}

/// Time blocked in nanoseconds, one entry per class in the order of `Blocker::ALL`.
pub type BlockedNs = [i64; blocker::COUNT];

/// The number that stands for "none" where a CPU or a task is stored.
pub(super) const NONE: u32 = u32::MAX;

/// One off-CPU thread state over `[ts, end)`. It takes 32 bytes because all of them stay in memory: a chain
/// can lead to any thread at any time. One off-CPU interval has two states at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Start in nanoseconds.
    pub ts: i64,
    /// End in nanoseconds; `i64::MAX` if the thread was not seen again.
    pub end: i64,
    /// The CPU waited for or left, or `NONE`.
    pub(super) cpu: u32,
    /// The number of the task that woke the thread, or `NONE`.
    pub(super) waker: u32,
    /// The system call number; negative if there was none.
    pub(super) syscall: i32,
    /// What the thread did.
    pub state: State,
    /// The thread first waited in the run queue of another CPU, and it is not known until when.
    pub has_moved: bool,
}

const _: () = assert!(size_of::<ThreadState>() == 32);

impl ThreadState {
    /// Returns the CPU that the thread waited for or had left, if it is known.
    pub fn cpu(&self) -> Option<u32> {
        (self.cpu != NONE).then_some(self.cpu)
    }

    /// Makes a state without a CPU and without a waker.
    #[cfg(test)]
    pub fn of(ts: i64, end: i64, state: State, syscall: i32) -> Self {
        Self { ts, end, cpu: NONE, waker: NONE, syscall, state, has_moved: false }
    }

    /// Returns the number of the system call that the thread slept in, if there was one.
    pub fn syscall(&self) -> Option<i64> {
        (self.syscall >= 0).then_some(self.syscall.into())
    }
}

/// The search hint for the end of a list. It is the usual one, because most queries are about recent times.
pub const LATEST: usize = usize::MAX;
/// Returns the index of the first of some sorted values that is not `before`. The search begins at `near`,
/// and is fast if the answer is close to it.
pub(super) fn first_after<T>(values: &[T], near: usize, before: impl Fn(&T) -> bool) -> usize {
    let mut low = near.min(values.len());
    let (mut high, mut step) = (low, 1);
    while low > 0 && !before(&values[low - 1]) {
        high = low - 1;
        low = low.saturating_sub(step);
        step *= 2;
    }
    while high < values.len() && before(&values[high]) {
        low = high + 1;
        high = high.saturating_add(step).min(values.len());
        step *= 2;
    }
    low + values[low..high].partition_point(before)
}

/// Cuts `[from, to)` of a thread, in nanoseconds, into segments by its off-CPU states, and calls `segment` with
/// start, end and state of each, in order. The segments cover the whole interval; time outside of
/// `thread_states` is [`State::OnCpu`] and has no [`ThreadState`]. `near` is a hint: the approximate index of
/// the first state that matters.
pub fn cut(
    thread_states: &[ThreadState],
    near: usize,
    from: i64,
    to: i64,
    mut segment: impl FnMut(i64, i64, State, Option<&ThreadState>),
) {
    let first = first_after(thread_states, near, |thread_state| thread_state.end <= from);
    let mut at = from;
    for thread_state in thread_states[first..].iter().take_while(|thread_state| thread_state.ts < to) {
        if thread_state.ts > at {
            segment(at, thread_state.ts, State::OnCpu, None);
        }
        let (start, end) = (thread_state.ts.max(at), thread_state.end.min(to));
        segment(start, end, thread_state.state, Some(thread_state));
        at = end;
    }
    if at < to {
        segment(at, to, State::OnCpu, None);
    }
}

#[cfg(test)]
/// Thread states of any lengths, which other modules' tests use, too.
pub(crate) mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    const STATES: [State; 7] = [
        State::Preempted,
        State::Runnable,
        State::Throttled,
        State::Blocked(Blocker::Disk),
        State::Blocked(Blocker::Ioctl),
        State::Stopped,
        State::Unknown,
    ];

    /// Thread states that may touch, with different system calls.
    pub(crate) fn thread_states() -> impl Strategy<Value = Vec<ThreadState>> {
        vec((0..9_i64, 1..9_i64, select(STATES.to_vec())), 0..12).prop_map(|states| {
            let mut at = 0;
            let state = |(syscall, (gap, length, state)): (i32, (i64, i64, State))| {
                at += gap + length;
                ThreadState::of(at - length, at, state, syscall)
            };
            (0..).zip(states).map(state).collect()
        })
    }

    proptest! {
        #[test]
        fn segments_cover_the_time_and_have_the_state_of_each_nanosecond(
            states in thread_states(), near in 0..14_usize, from in -5..100_i64, length in 1..60_i64
        ) {
            let mut at = from;
            let mut segments = Vec::new();
            cut(&states, near, from, from + length, |start, end, state, of| segments.push((start, end, state, of.copied())));
            for (start, end, state, of) in segments {
                prop_assert!(start == at && start < end, "{} {} {}", at, start, end);
                at = end;
                for time in start..end {
                    let there = states.iter().find(|state| (state.ts..state.end).contains(&time)).copied();
                    prop_assert_eq!((of, state), (there, there.map_or(State::OnCpu, |there| there.state)));
                }
            }
            prop_assert_eq!(at, from + length);
        }
    }

    #[test]
    fn searching_from_anywhere_finds_the_same() {
        let values: Vec<i64> = (0..100).map(|value| value / 3).collect();
        for limit in -1..40 {
            let expected = values.partition_point(|value| *value <= limit);
            for near in (0..=100).chain([LATEST]) {
                assert_eq!(first_after(&values, near, |value| *value <= limit), expected, "{limit} {near}");
            }
        }
    }
}
