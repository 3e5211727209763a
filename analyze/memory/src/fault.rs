//! The ways in which an event can contradict the replayed state.

use std::collections::BTreeMap;

/// A kind of contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A block was allocated where another one was active.
    FreeMissed,
    /// A block was allocated in the middle of a free block.
    AllocMissed,
    /// A block was allocated a little after the end of the block before it, as other rounding settings would
    /// do.
    OtherRounding,
    /// A block was freed that was not allocated.
    UnknownFree,
    /// A block was freed with a size other than the requested one.
    OtherSize,
    /// A block was allocated that is larger than the free memory there.
    TooSmall,
    /// A segment was reserved where another one existed.
    SegmentFreeMissed,
    /// A segment was released that had not been reserved.
    UnknownSegment,
    /// A segment or some of its pages were released while blocks in it were active.
    SegmentInUse,
    /// A block was allocated outside of all known segments.
    NoSegment,
    /// An event has an impossible size or address, and was ignored.
    NoSize,
    /// The events and the final state of a snapshot contradict each other.
    Contradiction,
    /// A segment of the recorded final state differs from the replayed one.
    EndSegment,
    /// A block of the recorded final state differs from the replayed one.
    EndBlock,
}

impl Fault {
    /// Returns the description shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::FreeMissed => {
                "a block was allocated where one was in use: the free of the earlier one is missing"
            }
            Self::AllocMissed => {
                "a block was allocated in the middle of free memory: what came before it is missing"
            }
            Self::OtherRounding => {
                "a block begins later than the one before it ends by the allocator's settings: they are others, or an allocation is missing"
            }
            Self::UnknownFree => "a block was freed that was not in use: its allocation is missing",
            Self::OtherSize => "a block was freed with another size than it was asked for",
            Self::TooSmall => {
                "a block was allocated that does not fit the free memory there: the allocator's settings are others"
            }
            Self::SegmentFreeMissed => {
                "a segment came where one was: the release of the earlier one is missing"
            }
            Self::UnknownSegment => "a segment was released that had not come: its allocation is missing",
            Self::SegmentInUse => {
                "memory was released while blocks in it were in use: their frees are missing"
            }
            Self::NoSegment => "a block was allocated where no segment is known: its allocation is missing",
            Self::NoSize => "an event has a size or an address that no device has: it was left out",
            Self::Contradiction => "the events of a snapshot and its state contradict each other",
            Self::EndSegment => "a segment of the snapshot's state is not as its events make it",
            Self::EndBlock => "a block of the snapshot's state is not as its events make it",
        }
    }
}

/// The number of occurrences of each kind of contradiction.
pub type Faults = BTreeMap<Fault, u64>;
