//! The causes a slow call can have, and how its excess latency is divided among them.
//!
//! ```text
//! 0 ├── baseline ──┤├──────────────────────────── excess ─────────────────────────────┤ dur
//!                   stopped │ scheduler │ throttled │ blocked │ size │ first │ nested │ rest
//! ```
//! Measured times come first: the off-CPU time of the call's own thread inside this very call. Only what is
//! left is attributed to a property of the call (its size, being the first launch of its kernel), then to a
//! nested call of another class; for the rest, the cause is unknown. No part exceeds what is left, so the
//! parts of a call sum to its excess.
//!
//! Where rows are missing, each cause takes no more than it would take by a whole record: what is usual is only known
//! to lie within bounds, and unseen time off CPU may be of a cause that comes earlier. The difference is inconclusive.

use serde::{Serialize, Serializer};

use crate::{
    blocker::{self, Blocker},
    thread_state::BlockedNs,
};

/// A cause of excess latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The call's thread was runnable and another task had the CPU; or it was off CPU inside a call that has
    /// no reason to sleep, and the source does not record why.
    Scheduler,
    /// The call's thread was runnable, but its control group had used up its CPU quota.
    Throttled,
    /// The call's thread slept inside a call whose purpose is not to wait.
    Blocked(Blocker),
    /// The call waited for the GPU, which is expected of a synchronizing call.
    GpuWait,
    /// The call moved more bytes than the usual call of its kind.
    Size,
    /// The call was the first launch of its kernel, for which the driver loads code.
    FirstCall,
    /// A nested call of another class took longer than usual.
    Nested,
    /// The call's thread was stopped by a signal. The recorder does that while it places probes; other
    /// programs do it, too.
    Stopped,
    /// The recording does not contain what is needed to tell.
    Inconclusive,
    /// The cause is unknown: none of the others applies.
    Unexplained,
}

/// Number of causes.
pub const COUNT: usize = 9 + blocker::COUNT;

/// The division of a time in nanoseconds among the causes, in the order of [`Cause::ALL`].
pub type Division = [f64; COUNT];

impl Cause {
    /// Every cause, in the order in which they are shown.
    pub const ALL: [Self; COUNT] = [
        Self::Scheduler,
        Self::Throttled,
        Self::Blocked(Blocker::Ioctl),
        Self::Blocked(Blocker::Futex),
        Self::Blocked(Blocker::PageFault),
        Self::Blocked(Blocker::Disk),
        Self::Blocked(Blocker::Sleep),
        Self::Blocked(Blocker::Poll),
        Self::Blocked(Blocker::Other),
        Self::GpuWait,
        Self::Size,
        Self::FirstCall,
        Self::Nested,
        Self::Stopped,
        Self::Inconclusive,
        Self::Unexplained,
    ];

    /// Returns the index of the cause in a [`Division`].
    pub fn index(self) -> usize {
        match self {
            Self::Scheduler => 0,
            Self::Throttled => 1,
            Self::Blocked(blocker) => 2 + blocker as usize,
            Self::GpuWait => 2 + blocker::COUNT,
            Self::Size => 3 + blocker::COUNT,
            Self::FirstCall => 4 + blocker::COUNT,
            Self::Nested => 5 + blocker::COUNT,
            Self::Stopped => 6 + blocker::COUNT,
            Self::Inconclusive => 7 + blocker::COUNT,
            Self::Unexplained => 8 + blocker::COUNT,
        }
    }

    /// Returns the name that users read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Throttled => "throttled",
            Self::Blocked(Blocker::Ioctl) => "blocked:ioctl",
            Self::Blocked(Blocker::Futex) => "blocked:futex",
            Self::Blocked(Blocker::PageFault) => "blocked:page-fault",
            Self::Blocked(Blocker::Disk) => "blocked:disk",
            Self::Blocked(Blocker::Sleep) => "blocked:sleep",
            Self::Blocked(Blocker::Poll) => "blocked:poll",
            Self::Blocked(Blocker::Other) => "blocked:other",
            Self::GpuWait => "gpu-wait",
            Self::Size => "size",
            Self::FirstCall => "first-call",
            Self::Nested => "nested",
            Self::Stopped => "stopped",
            Self::Inconclusive => "inconclusive",
            Self::Unexplained => "unexplained",
        }
    }

    /// Returns the name for sentences and tables: [`Self::name`], but for an unknown cause, which SQL and JSON name
    /// `unexplained`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unexplained => "cause unknown",
            named => named.name(),
        }
    }

    /// Returns the meaning of the cause, as a phrase.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Scheduler => "runnable, while another task had the CPU",
            Self::Throttled => "runnable, while its control group had used up its CPU time",
            Self::Blocked(Blocker::Ioctl) => "asleep in the driver (ioctl)",
            Self::Blocked(Blocker::Futex) => "asleep for a lock or condition of another thread",
            Self::Blocked(Blocker::PageFault) => "a page had to be brought in",
            Self::Blocked(Blocker::Disk) => "asleep for a file",
            Self::Blocked(Blocker::Sleep) => "it asked to sleep",
            Self::Blocked(Blocker::Poll) => "asleep for an event (poll)",
            Self::Blocked(Blocker::Other) => "asleep in another system call",
            Self::GpuWait => "inside a call whose purpose is to wait for the GPU",
            Self::Size => "more bytes than the usual call",
            Self::FirstCall => "first launch of its kernel: the driver loads code",
            Self::Nested => "a nested call of another kind",
            Self::Stopped => {
                "stopped by a signal, as recorders and debuggers do; who let it go on is in its chain"
            }
            Self::Inconclusive => "the trace does not record what is needed to tell",
            Self::Unexplained => "none of these",
        }
    }

    /// Returns the cause that time off CPU has in a call if the source does not record why the thread was off CPU. A call that
    /// has no reason to sleep was kept from running; one that synchronises may have done its job.
    pub fn unrecorded(synchronises: bool) -> Self {
        if synchronises { Self::Inconclusive } else { Self::Scheduler }
    }

    /// Returns whether the cause is measured as off-CPU time of the call's thread, so that a chain can lead
    /// further.
    pub fn is_off_cpu(self) -> bool {
        matches!(self, Self::Scheduler | Self::Throttled | Self::Blocked(_))
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The measurements of one slow call. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
    /// Excess latency: the time above the baseline.
    pub excess: f64,
    /// True if the call's purpose is to wait for the GPU.
    pub synchronises: bool,
    /// Time runnable or preempted, while another task had the CPU.
    pub waiting: f64,
    /// Time throttled by the CPU quota of the control group.
    pub throttled: f64,
    /// Time blocked above what is usual for the kind of call, by class: the least that it may be.
    pub blocked: [f64; blocker::COUNT],
    /// How much more than that it may be, by class, for all that is known of the usual.
    pub blocked_open: [f64; blocker::COUNT],
    /// Time stopped by a signal.
    pub stopped: f64,
    /// Time off CPU for a reason that the source does not record.
    pub unknown: f64,
    /// Cost of the call's size above the baseline: the least that it may be; it may be negative.
    pub size: f64,
    /// How much more than that it may be, for all that is known of the baseline and of other copies.
    pub size_open: f64,
    /// True if this is the first launch of its kernel.
    pub first_call: bool,
    /// Time in nested calls of another class, above the usual: the least that it may be; it may be negative.
    pub nested: f64,
    /// How much more than that it may be, for all that is known of the usual.
    pub nested_open: f64,
    /// Time in which the thread may have been off CPU for any reason, because rows of the scheduler are missing.
    pub unseen: f64,
    /// True if events were lost while the call ran, or no scheduler events were recorded, so that the absence
    /// of a measurement proves nothing.
    pub is_uncovered: bool,
}

/// Returns the time blocked above the usual, by class, in nanoseconds.
pub fn above(blocked: &BlockedNs, usual: &[f64; blocker::COUNT]) -> [f64; blocker::COUNT] {
    std::array::from_fn(|class| (blocked[class] as f64 - usual[class]).max(0.0))
}

/// Divides a call's excess latency among the causes. The parts sum to the excess.
pub fn divide(call: &Evidence) -> Division {
    let mut division = [0.0; COUNT];
    let mut left = call.excess.max(0.0);
    let mut give = |cause: Cause, wanted: f64, unseen: f64| {
        let taken = wanted.clamp(0.0, (left - unseen).max(0.0));
        left -= taken;
        division[cause.index()] += taken;
    };
    give(Cause::Stopped, call.stopped, 0.0);
    // From here on, time off CPU that is not on record may be of a cause that comes earlier.
    give(Cause::Scheduler, call.waiting, call.unseen);
    give(Cause::unrecorded(call.synchronises), call.unknown, call.unseen);
    give(Cause::Throttled, call.throttled, call.unseen);
    for blocker in Blocker::ALL {
        let purpose = call.synchronises && !matches!(blocker, Blocker::PageFault | Blocker::Disk);
        let cause = if purpose { Cause::GpuWait } else { Cause::Blocked(blocker) };
        give(cause, call.blocked[blocker as usize], call.unseen);
        give(Cause::Inconclusive, call.blocked_open[blocker as usize], 0.0);
    }
    give(Cause::Size, call.size, call.unseen);
    give(Cause::Inconclusive, call.size_open, 0.0);
    // Where coverage is missing, the absence of a measurement proves nothing.
    give(Cause::Inconclusive, if call.is_uncovered { f64::INFINITY } else { 0.0 }, 0.0);
    give(Cause::FirstCall, if call.first_call { f64::INFINITY } else { 0.0 }, 0.0);
    give(Cause::Nested, call.nested, 0.0);
    give(Cause::Inconclusive, call.nested_open, 0.0);
    give(Cause::GpuWait, if call.synchronises { f64::INFINITY } else { 0.0 }, 0.0);
    give(Cause::Unexplained, f64::INFINITY, 0.0);
    division
}

/// Returns the cause with the largest part.
pub fn largest(division: &Division) -> Cause {
    let parts = Cause::ALL.iter().zip(division);
    // Reversed, because `max_by` returns the last of equal elements and the first is wanted.
    parts.rev().max_by(|a, b| a.1.total_cmp(b.1)).map_or(Cause::Unexplained, |(cause, _)| *cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use analyze_run::random::Random;

    #[test]
    fn every_cause_has_its_place() {
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause.index(), index, "{}", cause.name());
            if let Cause::Blocked(blocker) = cause {
                assert_eq!(cause.name(), format!("blocked:{}", blocker.name()));
            }
        }
    }

    #[test]
    fn parts_sum_to_the_excess() {
        let mut numbers = Random(7);
        let mut random = || numbers.below(1 << 24) as f64 / 1000.0;
        for round in 0..1000 {
            let call = Evidence {
                excess: random() * 3.0,
                synchronises: round % 3 == 0,
                waiting: random() / 4.0,
                throttled: random() / 5.0,
                blocked: std::array::from_fn(|_| random() / 6.0),
                blocked_open: std::array::from_fn(
                    |class| if class == round % 11 { random() / 9.0 } else { 0.0 },
                ),
                stopped: random() / 9.0,
                unknown: random() / 5.0,
                size: random() - 5.0,
                size_open: if round % 13 == 0 { random() / 9.0 } else { 0.0 },
                first_call: round % 5 == 0,
                nested: random(),
                nested_open: if round % 17 == 0 { random() / 9.0 } else { 0.0 },
                unseen: if round % 7 == 0 { random() / 3.0 } else { 0.0 },
                is_uncovered: round % 7 == 0,
            };
            let parts = divide(&call);
            assert!(parts.iter().all(|part| *part >= 0.0));
            let sum: f64 = parts.iter().sum();
            assert!((sum - call.excess).abs() < 1e-6, "{call:?}");
        }
    }

    /// Evidence of every cause that is measured, 10 ns each.
    fn ten_of_each() -> Evidence {
        Evidence {
            waiting: 10.0,
            throttled: 10.0,
            blocked: [10.0; blocker::COUNT],
            stopped: 10.0,
            unknown: 10.0,
            size: 10.0,
            nested: 10.0,
            ..Evidence::default()
        }
    }

    /// The causes that take 10 ns each, one after the other.
    fn takers(of: impl Fn(f64) -> Evidence, count: usize) -> Vec<Cause> {
        let parts = |count: usize| divide(&of(10.0 * count as f64));
        let taker = |count: usize| {
            let (before, after) = (parts(count - 1), parts(count));
            let grown: Vec<Cause> = Cause::ALL
                .into_iter()
                .filter(|cause| before[cause.index()] != after[cause.index()])
                .collect();
            assert!(
                grown.len() == 1 && after[grown[0].index()] - before[grown[0].index()] == 10.0,
                "{grown:?}"
            );
            grown[0]
        };
        (1..=count).map(taker).collect()
    }

    #[test]
    fn measured_causes_come_first_in_their_order() {
        let blocked: Vec<Cause> = Blocker::ALL.into_iter().map(Cause::Blocked).collect();
        let first = [Cause::Stopped, Cause::Scheduler, Cause::Scheduler, Cause::Throttled];
        let last = [Cause::Size, Cause::Nested, Cause::Unexplained, Cause::Unexplained];
        let expected = [&first[..], &blocked, &last].concat();
        assert_eq!(takers(|excess| Evidence { excess, ..ten_of_each() }, expected.len()), expected);

        // In a call whose purpose is to wait, only a fault and a disk are no waits for the GPU.
        let waits = blocked.iter().map(|cause| match cause {
            Cause::Blocked(Blocker::PageFault | Blocker::Disk) => *cause,
            _ => Cause::GpuWait,
        });
        let first = [Cause::Stopped, Cause::Scheduler, Cause::Inconclusive, Cause::Throttled];
        let last = [Cause::Size, Cause::Nested, Cause::GpuWait, Cause::GpuWait];
        let expected = [&first[..], &waits.collect::<Vec<Cause>>(), &last].concat();
        let of = |excess| Evidence { excess, synchronises: true, ..ten_of_each() };
        assert_eq!(takers(of, expected.len()), expected);

        // What is left after the measured times, if nothing measures it.
        let rest = |evidence: Evidence| largest(&divide(&Evidence { excess: 10.0, ..evidence }));
        let none = Evidence::default();
        assert_eq!(rest(none), Cause::Unexplained);
        assert_eq!(rest(Evidence { first_call: true, nested: 10.0, ..none }), Cause::FirstCall);
        assert_eq!(rest(Evidence { is_uncovered: true, first_call: true, ..none }), Cause::Inconclusive);
        assert_eq!(rest(Evidence { size: 10.0, is_uncovered: true, ..none }), Cause::Size);
        assert_eq!(rest(Evidence { size_open: 10.0, first_call: true, ..none }), Cause::Inconclusive);
        assert_eq!(rest(Evidence { nested_open: 10.0, synchronises: true, ..none }), Cause::Inconclusive);
        assert_eq!(rest(Evidence { nested: 10.0, nested_open: 10.0, ..none }), Cause::Nested);
    }

    /// Time that may have been off CPU leaves less for every cause but a stop, whose place is before all others.
    #[test]
    fn unseen_time_is_kept_from_causes_that_come_later() {
        let division = |unseen| divide(&Evidence { excess: 30.0, unseen, ..ten_of_each() });
        let (seen, some, all) = (division(0.0), division(15.0), division(99.0));
        let of =
            |division: &Division| [Cause::Stopped, Cause::Scheduler].map(|cause| division[cause.index()]);
        assert_eq!([of(&seen), of(&some), of(&all)], [[10.0, 20.0], [10.0, 5.0], [10.0, 0.0]]);
        let nested = divide(&Evidence { excess: 30.0, unseen: 99.0, nested: 12.0, ..Evidence::default() });
        assert_eq!(
            nested[Cause::Nested.index()],
            12.0,
            "what is measured whole is no matter of the schedule"
        );
    }

    #[test]
    fn of_equal_parts_the_first_cause_is_the_largest() {
        let mut division = [0.0; COUNT];
        assert_eq!(largest(&division), Cause::Scheduler);
        (division[Cause::Size.index()], division[Cause::Throttled.index()]) = (5.0, 5.0);
        assert_eq!(largest(&division), Cause::Throttled);
        division[Cause::Size.index()] = 5.1;
        assert_eq!(largest(&division), Cause::Size);
    }

    #[test]
    fn only_time_above_the_usual_is_evidence() {
        let usual: [f64; blocker::COUNT] = std::array::from_fn(|class| 10.0 * class as f64);
        assert_eq!(above(&[15; blocker::COUNT], &usual), [15.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let off_cpu = Cause::ALL.into_iter().filter(|cause| cause.is_off_cpu()).count();
        assert_eq!(off_cpu, 2 + blocker::COUNT, "{:?}", Cause::ALL);
    }

    #[test]
    fn a_synchronising_call_that_sleeps_did_its_job() {
        let mut call = Evidence { excess: 100.0, synchronises: true, waiting: 5.0, ..Evidence::default() };
        call.blocked[Blocker::Ioctl as usize] = 60.0;
        call.blocked[Blocker::PageFault as usize] = 10.0;
        let parts = divide(&call);
        assert_eq!(parts[Cause::Scheduler.index()], 5.0);
        assert_eq!(parts[Cause::Blocked(Blocker::PageFault).index()], 10.0);
        assert_eq!(parts[Cause::GpuWait.index()], 85.0);
        let launch = divide(&Evidence { synchronises: false, ..call });
        assert_eq!(launch[Cause::Blocked(Blocker::Ioctl).index()], 60.0);
        assert_eq!(launch[Cause::Unexplained.index()], 25.0);
        assert_eq!(largest(&launch), Cause::Blocked(Blocker::Ioctl));
        let is_uncovered = divide(&Evidence { synchronises: false, is_uncovered: true, ..call });
        assert_eq!(is_uncovered[Cause::Inconclusive.index()], 25.0);
        let waits = divide(&Evidence { is_uncovered: true, first_call: true, ..call });
        assert_eq!((waits[Cause::Inconclusive.index()], waits[Cause::FirstCall.index()]), (25.0, 0.0));
    }

    /// Takes a part of a call's time off CPU out of the record, and makes what is usual uncertain.
    #[test]
    fn no_cause_takes_more_where_rows_are_missing() {
        let mut numbers = Random(23);
        for round in 0..5000 {
            let mut random = || numbers.below(1000) as f64;
            let usual: [f64; blocker::COUNT] = std::array::from_fn(|_| random() / 4.0);
            let slept: [f64; blocker::COUNT] = std::array::from_fn(|_| random() / 2.0);
            let (nested, size, on_cpu) = (random(), random() - 300.0, random());
            let above = |slept: f64, usual: f64| (slept - usual).max(0.0);
            let whole = Evidence {
                excess: random() * 5.0,
                synchronises: round % 3 == 0,
                waiting: random(),
                throttled: random() / 5.0,
                blocked: std::array::from_fn(|class| above(slept[class], usual[class])),
                stopped: random() / 3.0,
                unknown: random() / 5.0,
                size,
                first_call: round % 5 == 0,
                nested,
                ..Evidence::default()
            };
            let is_uncovered = round % 2 == 0;
            let mut gone = 0.0;
            let mut hide = |ns: f64, share: f64| {
                let hidden = if is_uncovered { ns * share } else { 0.0 };
                gone += hidden;
                ns - hidden
            };
            let (waiting, stopped) =
                (hide(whole.waiting, random() / 1e3), hide(whole.stopped, random() / 1e3));
            let (throttled, unknown) =
                (hide(whole.throttled, random() / 1e3), hide(whole.unknown, random() / 1e3));
            let seen: [f64; blocker::COUNT] = std::array::from_fn(|class| hide(slept[class], random() / 1e3));
            let most: [f64; blocker::COUNT] = std::array::from_fn(|class| usual[class] + random() / 8.0);
            let least: [f64; blocker::COUNT] = std::array::from_fn(|class| usual[class] * random() / 1e3);
            let blocked: [f64; blocker::COUNT] = std::array::from_fn(|class| above(seen[class], most[class]));
            let part = Evidence {
                // A baseline of a record with holes is too high, never too low.
                excess: whole.excess * random() / 1e3,
                waiting,
                throttled,
                blocked,
                blocked_open: std::array::from_fn(|class| above(seen[class], least[class]) - blocked[class]),
                stopped,
                unknown,
                size: size - random() / 5.0,
                size_open: 200.0 + size.max(0.0),
                nested: nested - random() / 5.0,
                nested_open: nested,
                unseen: if is_uncovered { gone + on_cpu } else { 0.0 },
                is_uncovered,
                ..whole
            };
            let (whole, part) = (divide(&whole), divide(&part));
            for cause in Cause::ALL.into_iter().filter(|cause| *cause != Cause::Inconclusive) {
                let (most, found) = (whole[cause.index()], part[cause.index()]);
                assert!(found <= most + 1e-6, "{round} {}: {found}, not {most}", cause.name());
            }
        }
    }
}
