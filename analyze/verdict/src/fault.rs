//! What broken input was found to have, and how such rows are counted.

use std::collections::BTreeMap;

/// What broken input was found to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Off-CPU intervals of one thread that overlap: the later one was cut.
    OverlappingOffCpu,
    /// Durations below zero: the row was left out, or taken as open.
    NegativeDuration,
    /// Calls of one thread that overlap without one containing the other: taken as siblings.
    CrossingCalls,
    /// Two tasks on one CPU at a time: the earlier one was cut.
    OverlappingStints,
    /// Times or durations that no clock tells.
    OutOfRange,
    /// A thread that was seen again although it never came back: off CPU until then.
    ReturnNotSeen,
    /// A call without an end on a thread that then made one that cannot be inside it.
    CallNotEnded,
}

impl Fault {
    /// What users read.
    pub fn name(self) -> &'static str {
        match self {
            Self::OverlappingOffCpu => "off-CPU intervals of one thread overlap; the later one was cut",
            Self::NegativeDuration => {
                "a duration is below zero; the call counts as open, the interval not at all"
            }
            Self::CrossingCalls => {
                "calls of one thread overlap and none contains the other; they count as siblings"
            }
            Self::OverlappingStints => "two tasks had one CPU at a time; the earlier one was cut",
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

/// Faults by run and kind.
pub type Faults = BTreeMap<(u32, Fault), u64>;
