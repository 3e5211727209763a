//! What a thread did for a while, piece by piece: `[ts, end)`, in order, not overlapping; between them it was on CPU.
//!
//! ```text
//! thread   ──on-CPU──┤─ preempted ─├──on-CPU──┤──── blocked ────┼─ runnable ─├──on-CPU──
//! asked          from├─────────────────────────────────├to
//! segments           ├─ preempted ─┼──on-CPU──┼─blocked┤
//! ```

use super::blocker::{self, Blocker};

/// What a thread did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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

/// Nanoseconds blocked, by class.
pub type BlockedNs = [i64; blocker::COUNT];

/// No number: of a CPU, a task.
pub(super) const NONE: u32 = u32::MAX;

/// Off-CPU time of one thread in one state: `[ts, end)`. 32 bytes, because all of them stay in memory: chains lead
/// to any thread at any time. An interval of off-CPU time has at most two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub ts: i64,
    pub end: i64,
    pub(super) cpu: u32,
    /// Number of a task.
    pub(super) waker: u32,
    /// Below zero: none.
    pub(super) syscall: i32,
    pub state: State,
    /// It waited in the queue of another CPU first, and it is not known until when.
    pub has_moved: bool,
}

const _: () = assert!(size_of::<Piece>() == 32);

impl Piece {
    /// The CPU that was waited for, or left.
    pub fn cpu(&self) -> Option<u32> {
        (self.cpu != NONE).then_some(self.cpu)
    }

    /// A piece on no CPU, ended by nobody.
    #[cfg(test)]
    pub fn of(ts: i64, end: i64, state: State, syscall: i32) -> Self {
        Self { ts, end, cpu: NONE, waker: NONE, syscall, state, has_moved: false }
    }

    /// System call that it slept in.
    pub fn syscall(&self) -> Option<i64> {
        (self.syscall >= 0).then_some(self.syscall.into())
    }
}

/// A place near which to search: the end, because what is asked about is mostly recent.
pub const LATEST: usize = usize::MAX;
/// The first of sorted values that is not `before`, searched from a place that it may be near.
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

/// Cuts `[from, to)` of a thread with these pieces into segments, in order; together they are all of it. `near`:
/// about where the first of the pieces is.
pub fn cut(
    pieces: &[Piece],
    near: usize,
    from: i64,
    to: i64,
    mut segment: impl FnMut(i64, i64, State, Option<&Piece>),
) {
    let first = first_after(pieces, near, |piece| piece.end <= from);
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

#[cfg(test)]
mod tests {
    use super::*;

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
