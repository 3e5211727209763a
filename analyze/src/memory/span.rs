//! What a replay tells as it goes: how long each block and each segment was what it was.

use super::event::PoolId;

/// What a block is. The names are those of PyTorch's snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
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
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active_allocated",
            Self::PendingFree => "active_pending_free",
            Self::Inactive => "inactive",
            Self::Unknown => "unknown",
        }
    }
}

/// A time before the recorded span: when it was is not known.
pub const BEFORE: i64 = i64::MIN;

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub addr: u64,
    pub size_bytes: u64,
    /// 0 of inactive ones; `None`: not known, as usage reports do not tell.
    pub requested_bytes: Option<u64>,
    pub state: State,
    /// Since when it has been in this state; or [`BEFORE`].
    pub ts: i64,
    /// When it was handed out; or [`BEFORE`].
    pub alloc_ts: i64,
    /// By whom.
    pub tid: u32,
    pub stack: Option<u32>,
    /// Its stream; 0: the default one.
    pub stream: u64,
    /// Place of its segment; [`NO_SEGMENT`]: not known.
    pub segment: u32,
}

/// The segment of a block whose segment is not known.
pub const NO_SEGMENT: u32 = u32::MAX;

impl Block {
    /// First byte after it.
    pub fn end(&self) -> u64 {
        self.addr.saturating_add(self.size_bytes)
    }

    /// Handed out, or given back and still in use.
    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Active | State::PendingFree)
    }
}

/// Memory that the allocator has from the driver: a segment, or a contiguous mapped range of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub addr: u64,
    pub size_bytes: u64,
    pub stream: u64,
    pub pool: PoolId,
    pub is_expandable: bool,
    /// Of the pool of blocks up to 1 MiB.
    pub is_small: bool,
    /// Since when it has had this extent; or [`BEFORE`].
    pub ts: i64,
    /// When its first byte came; or [`BEFORE`].
    pub alloc_ts: i64,
    pub tid: u32,
    pub stack: Option<u32>,
    /// An expandable one's: bytes that are mapped and unmapped together.
    pub page_bytes: u64,
    /// It may have gone, or be larger: events have been lost since it was seen to come.
    pub is_stale: bool,
}

impl Segment {
    /// First byte after it.
    pub fn end(&self) -> u64 {
        self.addr.saturating_add(self.size_bytes)
    }
}

/// Receives what ends. `end` is `None` for what was still there at the end of the run.
pub trait Observer {
    /// A block leaves its state, or ceases to be.
    fn block(&mut self, _block: &Block, _segment: Option<&Segment>, _end: Option<i64>) {}
    /// A segment changes its extent, or goes.
    fn segment(&mut self, _segment: &Segment, _end: Option<i64>) {}
}

/// Nobody listens.
impl Observer for () {}
