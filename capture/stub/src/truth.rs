//! The record that the workload keeps of each call, without any knowledge of the recording: the truth that verdicts
//! are compared with.
//!
//! ```text
//! accounting │ before_ns ├─ the call ─┤ after_ns │ accounting
//!            └────────── *_delta: the kernel's accounting of this thread ──────────┘
//! ```
//! Accounting is read outside the measured interval, so its deltas cover a few microseconds more than the call. The
//! thread's CPU clock (CLOCK_THREAD_CPUTIME_ID) is not read: its system call settles the scheduler's accounts, at which
//! a thread whose time slice is over is preempted. Read around each call, it moves nearly all preemptions out of them.

use serde::{Deserialize, Serialize};

use crate::scenario::label;

/// A call shorter than this times its function's median is not slow.
pub const SLOW_FACTOR: u64 = 3;
/// A call with less excess over its function's median, in nanoseconds, is not slow either.
pub const LEAST_EXCESS_NS: u64 = 20_000;
/// The books' clock and CLOCK_MONOTONIC differ by less over one call.
const CLOCK_SLACK_NS: u64 = 20_000;

/// The record of one call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    /// Name of the function, without version suffix.
    pub op: String,
    /// Thread id.
    pub tid: i32,
    /// CLOCK_MONOTONIC just before the call, in nanoseconds.
    pub before_ns: u64,
    /// CLOCK_MONOTONIC just after the call, in nanoseconds.
    pub after_ns: u64,
    /// Bytes copied or allocated.
    pub size_bytes: u64,
    /// Handle of the kernel launched, if any.
    pub func: u64,
    /// All computing that the call was told to do, in nanoseconds of an undisturbed CPU.
    pub work_ns: u64,
    /// Part of the computing that stands for the call's bytes.
    pub size_ns: u64,
    /// Part of the computing that stands for a first launch.
    pub first_ns: u64,
    /// Part of the computing in a nested call of another kind.
    pub nested_ns: u64,
    /// Label of the injected fault, if any.
    pub injected: Option<String>,
    /// Duration of the fault by the stub's own clock, in nanoseconds.
    pub fault_ns: u64,
    /// Time that the thread waited for a CPU (`/proc/thread-self/schedstat`, second field), in nanoseconds.
    pub run_delay_ns: u64,
    /// Time that its control group was throttled (`cpu.stat`), in nanoseconds.
    pub throttled_ns: u64,
    /// Number of voluntary context switches (getrusage, RUSAGE_THREAD).
    pub nvcsw_count: i64,
    /// Number of involuntary context switches.
    pub nivcsw_count: i64,
    /// Number of major page faults.
    pub majflt_count: i64,
    /// Lock waits: time that the holder waited for a CPU while it held the lock, in nanoseconds.
    pub holder_run_delay_ns: u64,
    /// Lock waits: time that the hog on the holder's CPU ran meanwhile, in nanoseconds.
    pub hog_ran_ns: u64,
}

/// A possible cause, and how much of the call it took.
pub type Part = (&'static str, u64);

impl Call {
    /// Time of the call that the cause took, in nanoseconds.
    pub fn dur_ns(&self) -> u64 {
        self.after_ns.saturating_sub(self.before_ns)
    }

    /// Whether the call is slow, compared with its function's median.
    pub fn is_slow(&self, median_ns: u64) -> bool {
        let dur_ns = self.dur_ns();
        dur_ns > SLOW_FACTOR * median_ns && dur_ns - median_ns >= LEAST_EXCESS_NS
    }

    /// Time of the call beyond its computing, in nanoseconds.
    fn beyond_ns(&self) -> u64 {
        self.dur_ns().saturating_sub(self.work_ns)
    }

    /// Time that the thread waited for a CPU by the kernel's accounting, in the call or just beside it.
    fn waited_ns(&self) -> u64 {
        self.run_delay_ns.max(self.throttled_ns)
    }

    /// Each cause's time, the largest first, if this much of the accounted waiting was within the call. What an
    /// injected fault waited for a CPU is the scheduler's; what no cause accounts for is unexplained.
    fn parts_with(&self, waited_ns: u64, median_ns: u64) -> [Part; 7] {
        let injected = [label::FUTEX, label::DISK, label::PAGE_FAULT, label::IOCTL, label::SLEEP, label::GPU]
            .into_iter()
            .find(|known| self.injected.as_deref() == Some(known));
        let throttled_ns = self.throttled_ns.min(waited_ns);
        let fault_ns = self.fault_ns.min(self.beyond_ns()).saturating_sub(waited_ns);
        let mut parts = [
            (label::SCHEDULER, waited_ns - throttled_ns),
            (label::THROTTLED, throttled_ns),
            (injected.unwrap_or(label::UNEXPLAINED), fault_ns),
            (label::SIZE, self.size_ns),
            (label::FIRST, self.first_ns),
            (label::NESTED, self.nested_ns),
            (label::UNEXPLAINED, 0),
        ];
        let known_ns: u64 = parts.iter().map(|part| part.1).sum();
        parts[6].1 = self.dur_ns().saturating_sub(median_ns).saturating_sub(known_ns);
        parts.sort_by_key(|part| std::cmp::Reverse(part.1));
        parts
    }

    /// Each cause's time, the largest first.
    pub fn parts(&self, median_ns: u64) -> [Part; 7] {
        self.parts_with(self.waited_ns().min(self.beyond_ns()), median_ns)
    }

    /// The cause of most of the excess; `None` where the call is contested: the runner-up has more than half of the
    /// first's time, or the accounting has more waiting than the call can hold, and how much of it was in the call matters.
    pub fn label(&self, median_ns: u64) -> Option<&'static str> {
        let clear =
            |[(first, most_ns), (_, next_ns), ..]: [Part; 7]| (next_ns * 2 <= most_ns).then_some(first);
        let label = clear(self.parts(median_ns));
        let room_ns = self.beyond_ns() + self.work_ns / 4 + CLOCK_SLACK_NS;
        let fits = self.waited_ns() <= room_ns;
        if fits || clear(self.parts_with(0, median_ns)) == label { label } else { None }
    }

    /// Whether the hog beside the lock's holder made this call wait: for most of its wait the holder waited for a CPU,
    /// and for most of that the hog ran.
    pub fn is_hog_s_convoy(&self) -> bool {
        self.holder_run_delay_ns * 2 > self.fault_ns && self.hog_ran_ns * 2 > self.holder_run_delay_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIAN_NS: u64 = 60_000;

    fn call(dur_ns: u64) -> Call {
        Call { before_ns: 1_000, after_ns: 1_000 + dur_ns, work_ns: MEDIAN_NS, ..Call::default() }
    }

    #[test]
    fn waiting_for_a_cpu_is_the_scheduler_s() {
        let preempted = Call { run_delay_ns: 4_000_000, ..call(4_070_000) };
        assert!(preempted.is_slow(MEDIAN_NS));
        assert_eq!(preempted.label(MEDIAN_NS), Some(label::SCHEDULER));
        let throttled = Call { throttled_ns: 3_900_000, ..preempted };
        assert_eq!(throttled.label(MEDIAN_NS), Some(label::THROTTLED));
    }

    #[test]
    fn waiting_outside_the_call_is_not() {
        let large =
            Call { run_delay_ns: 4_000_000, size_ns: 1_000_000, work_ns: 1_060_000, ..call(1_070_000) };
        assert_eq!(large.label(MEDIAN_NS), Some(label::SIZE));
        let fault = Call { injected: Some(label::DISK.to_owned()), fault_ns: 700_000, ..call(770_000) };
        assert_eq!(fault.label(MEDIAN_NS), Some(label::DISK));
        assert_eq!(
            Call { run_delay_ns: 4_000_000, ..fault }.label(MEDIAN_NS),
            None,
            "in or beside the call?"
        );
    }

    #[test]
    fn two_causes_of_about_the_same_size_are_contested() {
        let both =
            Call { run_delay_ns: 1_500_000, size_ns: 1_000_000, work_ns: 1_060_000, ..call(2_570_000) };
        assert_eq!(both.label(MEDIAN_NS), None);
        assert_eq!(call(500_000).label(MEDIAN_NS), Some(label::UNEXPLAINED));
    }

    #[test]
    fn a_lock_s_wait_is_followed_to_its_holder() {
        let wait = Call { injected: Some(label::FUTEX.to_owned()), fault_ns: 9_000_000, ..call(9_100_000) };
        assert_eq!(wait.label(MEDIAN_NS), Some(label::FUTEX));
        assert!(!wait.is_hog_s_convoy());
        let others = Call { holder_run_delay_ns: 8_000_000, ..wait };
        assert!(!others.is_hog_s_convoy());
        assert!(Call { hog_ran_ns: 7_900_000, ..others }.is_hog_s_convoy());
    }
}
