//! The kinds of contradiction that broken input can contain, and the counts of rows affected.

use std::collections::BTreeMap;

/// A contradiction in the input, and how the analysis treats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Off-CPU intervals of one thread overlap. The later one is cut.
    OverlappingOffCpu,
    /// A duration is negative. A call counts as open; any other row is left out.
    NegativeDuration,
    /// Calls of one thread overlap although neither contains the other. They count as siblings.
    CrossingCalls,
    /// Scheduling slices of two tasks overlap on one CPU. The earlier one is cut.
    OverlappingSlices,
    /// A timestamp is not one that a clock can have, or a duration is implausibly long. The row is left out.
    OutOfRange,
    /// A thread was seen again although its off-CPU interval has no end. It counts as off CPU until then.
    ReturnNotSeen,
    /// A call has no end, and its thread later made a call that cannot be nested in it.
    CallNotEnded,
}

impl Fault {
    /// Returns the description that users read.
    pub fn name(self) -> &'static str {
        match self {
            Self::OverlappingOffCpu => "off-CPU intervals of one thread overlap; the later one was cut",
            Self::NegativeDuration => {
                "a duration is below zero; the call counts as open, the interval not at all"
            }
            Self::CrossingCalls => {
                "calls of one thread overlap and none contains the other; they count as siblings"
            }
            Self::OverlappingSlices => "two tasks had one CPU at a time; the earlier one was cut",
            Self::OutOfRange => {
                "a time that no clock tells or a duration beyond 100 days; the row was left out"
            }
            Self::ReturnNotSeen => {
                "a thread goes on that never came back on CPU; it counts as away until then"
            }
            Self::CallNotEnded => {
                "a call never returned, and its thread made one that cannot be inside it; no later call counts as inside"
            }
        }
    }
}

/// The number of affected rows, by run (its number in `Names`) and kind of contradiction.
pub type Faults = BTreeMap<(u32, Fault), u64>;
