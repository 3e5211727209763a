//! What a replay reports as it goes: each block with the time it spent in one state, and each segment with
//! the time it had one extent.

use super::event::PoolId;

/// The state of a block, with the names of PyTorch's snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Allocated: the program holds it.
    Active,
    /// Freed by the program, but other streams may still use it (pending free).
    PendingFree,
    /// Free: cached by the allocator.
    Inactive,
    /// Not known, because events are missing.
    Unknown,
}

impl State {
    /// Returns the name that PyTorch's snapshots use, which is the name in all output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active_allocated",
            Self::PendingFree => "active_pending_free",
            Self::Inactive => "inactive",
            Self::Unknown => "unknown",
        }
    }
}

/// A time stamp that stands for an unknown time before the recorded span.
pub const BEFORE: i64 = i64::MIN;

/// A block: a range of a segment in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The address of its first byte.
    pub addr: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The size that the program requested, in bytes; 0 for an inactive block, and `None` if it is not known,
    /// as usage reports do not tell.
    pub requested_bytes: Option<u64>,
    /// Its state.
    pub state: State,
    /// When it entered this state (ns, trace clock), or [`BEFORE`].
    pub ts: i64,
    /// When it was allocated (ns, trace clock), or [`BEFORE`].
    pub alloc_ts: i64,
    /// The thread that allocated it; 0 if not known.
    pub tid: u32,
    /// The number of the allocation's call stack, if one was taken.
    pub stack: Option<u32>,
    /// Its CUDA stream; 0 is the default stream.
    pub stream: u64,
    /// The slot of its segment; [`NO_SEGMENT`] if the segment is not known.
    pub segment: u32,
}

/// The value of [`Block::segment`] if the segment is not known.
pub const NO_SEGMENT: u32 = u32::MAX;

impl Block {
    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.addr.saturating_add(self.size_bytes)
    }

    /// Returns whether the block is active: allocated, or freed and possibly still used by other streams.
    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Active | State::PendingFree)
    }
}

/// Reserved memory: a segment, or a contiguous mapped range of an expandable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address of its first byte.
    pub addr: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its CUDA stream; 0 is the default stream.
    pub stream: u64,
    /// Its memory pool.
    pub pool: PoolId,
    /// Whether it is a range of an expandable segment.
    pub is_expandable: bool,
    /// Whether it belongs to the small pool, of blocks up to 1 MiB.
    pub is_small: bool,
    /// When it got its current extent (ns, trace clock), or [`BEFORE`].
    pub ts: i64,
    /// When its first byte was reserved (ns, trace clock), or [`BEFORE`].
    pub alloc_ts: i64,
    /// The thread that reserved it; 0 if not known.
    pub tid: u32,
    /// The number of the call stack that reserved it, if one was taken.
    pub stack: Option<u32>,
    /// The page size of an expandable segment in bytes: pages are mapped and unmapped as a whole. 0
    /// otherwise.
    pub page_bytes: u64,
    /// Events were lost after the segment was seen, so it may have been released or may be larger.
    pub is_stale: bool,
}

impl Segment {
    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.addr.saturating_add(self.size_bytes)
    }
}

/// Receives block states and segment extents as they end. The `end` time (ns) is `None` for what still
/// existed at the end of the run.
pub trait Observer {
    /// Called when a block leaves its state or ceases to exist.
    fn block(&mut self, _block: &Block, _segment: Option<&Segment>, _end: Option<i64>) {}
    /// Called when a segment changes its extent or is released.
    fn segment(&mut self, _segment: &Segment, _end: Option<i64>) {}
}

/// An observer that ignores everything.
impl Observer for () {}
