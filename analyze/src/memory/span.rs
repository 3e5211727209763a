//! What a replay tells as it goes: how long each block and each segment was what it was.

use super::event::PoolId;

/// What a block is. The names are those of PyTorch's snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    /// Handed out.
    Active,
    /// Given back, but other streams may still use it.
    PendingFree,
    /// Free.
    Inactive,
    /// Not known: events are missing.
    Unknown,
}

impl State {
    /// What users read.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Active => "active_allocated",
            Self::PendingFree => "active_pending_free",
            Self::Inactive => "inactive",
            Self::Unknown => "unknown",
        }
    }
}

/// A time before the recorded span: when it was is not known.
pub(crate) const BEFORE: i64 = i64::MIN;

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) addr: u64,
    pub(crate) size_bytes: u64,
    /// 0 of inactive ones; `None`: not known, as usage reports do not tell.
    pub(crate) requested_bytes: Option<u64>,
    pub(crate) state: State,
    /// Since when it has been in this state; or [`BEFORE`].
    pub(crate) ts: i64,
    /// When it was handed out; or [`BEFORE`].
    pub(crate) alloc_ts: i64,
    /// By whom.
    pub(crate) tid: u32,
    pub(crate) stack: Option<u32>,
    /// Its stream; 0: the default one.
    pub(crate) stream: u64,
    /// Place of its segment; [`NO_SEGMENT`]: not known.
    pub(crate) segment: u32,
}

/// The segment of a block whose segment is not known.
pub(crate) const NO_SEGMENT: u32 = u32::MAX;

impl Block {
    /// First byte after it.
    pub(crate) fn end(&self) -> u64 {
        self.addr.saturating_add(self.size_bytes)
    }

    /// Handed out, or given back and still in use.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Active | State::PendingFree)
    }
}

/// Memory that the allocator has from the driver: a segment, or a contiguous mapped range of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) addr: u64,
    pub(crate) size_bytes: u64,
    pub(crate) stream: u64,
    pub(crate) pool: PoolId,
    pub(crate) is_expandable: bool,
    /// Of the pool of blocks up to 1 MiB.
    pub(crate) is_small: bool,
    /// Since when it has had this extent; or [`BEFORE`].
    pub(crate) ts: i64,
    /// When its first byte came; or [`BEFORE`].
    pub(crate) alloc_ts: i64,
    pub(crate) tid: u32,
    pub(crate) stack: Option<u32>,
    /// An expandable one's: bytes that are mapped and unmapped together.
    pub(crate) page_bytes: u64,
    /// It may have gone, or be larger: events have been lost since it was seen to come.
    pub(crate) is_stale: bool,
}

impl Segment {
    /// First byte after it.
    pub(crate) fn end(&self) -> u64 {
        self.addr.saturating_add(self.size_bytes)
    }
}

/// Receives what ends. `end` is `None` for what was still there at the end of the run.
pub(crate) trait Observer {
    /// A block leaves its state, or ceases to be.
    fn block(&mut self, _block: &Block, _segment: Option<&Segment>, _end: Option<i64>) {}
    /// A segment changes its extent, or goes.
    fn segment(&mut self, _segment: &Segment, _end: Option<i64>) {}
}

/// Nobody listens.
impl Observer for () {}
