//! One event of the allocator.

/// What it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// It was given back; other streams may still use it.
    FreeRequested,
    /// Nothing uses it any more.
    FreeCompleted,
    /// A segment came from the driver.
    SegmentAlloc,
    SegmentFree,
    /// Pages were added to an expandable segment.
    SegmentMap,
    SegmentUnmap,
    /// A request failed; its address is what the device had free.
    Oom,
    /// A block was handed out, its size known: as reports to the profiler tell it.
    UsageAlloc,
    UsageFree,
}

impl Action {
    /// What users read: the allocator's own word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Oom => "oom",
            Self::UsageAlloc | Self::UsageFree => "usage",
        }
    }

    /// The action of an `op` of kind `alloc`; `None`: one that moves no memory.
    pub fn from_op(op: &str) -> Option<Self> {
        Some(match op {
            "alloc" => Self::Alloc,
            "free_requested" => Self::FreeRequested,
            "free_completed" => Self::FreeCompleted,
            "segment_alloc" => Self::SegmentAlloc,
            "segment_free" => Self::SegmentFree,
            "segment_map" => Self::SegmentMap,
            "segment_unmap" => Self::SegmentUnmap,
            "oom" => Self::Oom,
            _ => return None,
        })
    }
}

/// Id of a private pool; zeros: the default pool.
pub type PoolId = (u64, u64);

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub ts: i64,
    pub action: Action,
    pub addr: u64,
    /// Alloc, FreeRequested, FreeCompleted, Oom: as requested; else as it is.
    pub size_bytes: u64,
    /// 0: the default stream.
    pub stream: u64,
    pub pool: PoolId,
    pub tid: u32,
    pub stack: Option<u32>,
}

/// More memory, and addresses beyond these, no device has; sums of what is smaller fit.
const TOO_MANY_BYTES: u64 = 1 << 46;
const FIRST_BAD_ADDR: u64 = 1 << 57;

impl Event {
    /// Whether there can be such memory.
    pub fn is_possible(&self) -> bool {
        self.size_bytes < TOO_MANY_BYTES && self.addr < FIRST_BAD_ADDR
    }
}
