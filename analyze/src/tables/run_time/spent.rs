//! What time was spent on, and how much.

use analyze_verdict::blocker::Blocker;

use super::{part::Part, stage::Stage};

/// What time was spent on. Names are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) stage: Option<Stage>,
    pub(super) part: Part,
    pub(super) state: &'static str,
    pub(super) op: Option<u32>,
    /// Process and thread whose time it is.
    pub(super) thread: (u32, u32),
    /// Process and name of the task that had the CPU or ended the sleep.
    pub(super) task: Option<(u32, u32)>,
    /// Number of wakeups between the driving thread and this one, as far as it is told apart.
    pub(super) depth: usize,
    /// What the driving thread slept in while it waited for this thread.
    pub(super) waited_in: Option<Blocker>,
    /// The system call that the thread slept in.
    pub(super) syscall: Option<&'static str>,
}

/// How much time was spent, in nanoseconds, and in how many intervals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub(super) time_ns: i64,
    pub(super) intervals_count: i64,
    pub(super) gpu_busy_ns: i64,
    pub(super) gpu_idle_ns: i64,
    /// Number of sleeps of the driving thread that the time is of.
    pub(super) waits_count: i64,
    /// Largest part of the time that is of one sleep, or of one interval outside of sleeps.
    pub(super) longest_ns: i64,
    /// Start of the last sleep, and the part of the time that is of it.
    last_wait: Option<(i64, i64)>,
}

impl Spent {
    /// Adds an interval, which is of the sleep of the driving thread that began at `slept_from`, if it slept.
    pub(super) fn add(&mut self, time_ns: i64, (busy_ns, idle_ns): (i64, i64), slept_from: Option<i64>) {
        self.time_ns += time_ns;
        self.intervals_count += 1;
        self.gpu_busy_ns += busy_ns;
        self.gpu_idle_ns += idle_ns;
        let same = self.last_wait.filter(|(from, _)| slept_from == Some(*from));
        let of_wait_ns = time_ns + same.map_or(0, |(_, ns)| ns);
        self.waits_count += i64::from(slept_from.is_some() && same.is_none());
        self.longest_ns = self.longest_ns.max(of_wait_ns);
        self.last_wait = slept_from.map(|from| (from, of_wait_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_one_sleep_are_one_wait() {
        let mut spent = Spent::default();
        for (ns, slept_from) in [(10, Some(5)), (20, Some(5)), (25, Some(90)), (7, None), (5, Some(90))] {
            spent.add(ns, (1, 2), slept_from);
        }
        assert_eq!((spent.time_ns, spent.intervals_count, spent.gpu_idle_ns), (67, 5, 10));
        assert_eq!((spent.waits_count, spent.longest_ns), (3, 30));
    }
}
