//! What does not fit in a replay, and what was done about it.

use std::collections::BTreeMap;

/// Kinds of contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A block was handed out where one was in use.
    FreeMissed,
    /// A block was handed out in the middle of a free one.
    AllocMissed,
    /// A block was handed out a little after the end of the one before it.
    OtherRounding,
    /// A block was given back that was not in use.
    UnknownFree,
    /// A block was given back with another size than it was asked for.
    OtherSize,
    /// A block was handed out that is larger than the space that was free.
    TooSmall,
    /// A segment came where one was.
    SegmentFreeMissed,
    /// A segment went that had not come.
    UnknownSegment,
    /// A segment went, or pages did, while blocks in it were in use.
    SegmentInUse,
    /// A block was handed out where no segment is.
    NoSegment,
    /// A size or an address that cannot be.
    NoSize,
    /// A snapshot's events and its state cannot both be.
    Contradiction,
    /// A segment of the state at the end is not as replayed.
    EndSegment,
    /// A block of the state at the end is not as replayed.
    EndBlock,
}

impl Fault {
    /// What users read.
    pub fn name(self) -> &'static str {
        match self {
            Self::FreeMissed => {
                "a block was handed out where one was in use: the free of the earlier one is missing"
            }
            Self::AllocMissed => {
                "a block was handed out in the middle of free memory: what came before it is missing"
            }
            Self::OtherRounding => {
                "a block begins later than the one before it ends by the allocator's settings: they are others, or an allocation is missing"
            }
            Self::UnknownFree => "a block was given back that was not in use: its allocation is missing",
            Self::OtherSize => "a block was given back with another size than it was asked for",
            Self::TooSmall => {
                "a block was handed out that does not fit the free memory there: the allocator's settings are others"
            }
            Self::SegmentFreeMissed => {
                "a segment came where one was: the release of the earlier one is missing"
            }
            Self::UnknownSegment => "a segment was released that had not come: its allocation is missing",
            Self::SegmentInUse => {
                "memory was released while blocks in it were in use: their frees are missing"
            }
            Self::NoSegment => "a block was handed out where no segment is known: its allocation is missing",
            Self::NoSize => "an event has a size or an address that no device has: it was left out",
            Self::Contradiction => "the events of a snapshot and its state contradict each other",
            Self::EndSegment => "a segment of the snapshot's state is not as its events make it",
            Self::EndBlock => "a block of the snapshot's state is not as its events make it",
        }
    }
}

/// How often each was met.
pub type Faults = BTreeMap<Fault, u64>;
