//! One event of the caching allocator.

/// The kind of an allocator event, with the names of `torch.cuda.memory._record_memory_history`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A block was allocated.
    Alloc,
    /// The program freed a block; other streams may still use it.
    FreeRequested,
    /// A freed block is no longer used by any stream.
    FreeCompleted,
    /// A segment was reserved with cudaMalloc.
    SegmentAlloc,
    /// A segment was released with cudaFree.
    SegmentFree,
    /// Pages were mapped into an expandable segment.
    SegmentMap,
    /// Pages of an expandable segment were unmapped.
    SegmentUnmap,
    /// A request failed; the event's address is the number of bytes that were free on the device.
    Oom,
    /// A block was allocated, as reported to the profiler: the event has the block's size, not the requested
    /// one.
    UsageAlloc,
    /// A block was freed, as reported to the profiler.
    UsageFree,
}

impl Action {
    /// Returns the allocator's own name of the action, which is the name in all output.
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

    /// Parses the `op` of an event of kind `alloc`; returns `None` for one that moves no memory.
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

/// The id of a private memory pool, as PyTorch's `MempoolId_t`; `(0, 0)` is the default pool.
pub type PoolId = (u64, u64);

/// One event of an allocator.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The time of the event in ns (trace clock).
    pub ts: i64,
    /// The kind of event.
    pub action: Action,
    /// The address of the block or segment; for [`Action::Oom`], the number of bytes free on the device.
    pub addr: u64,
    /// The size in bytes: the requested size for Alloc, FreeRequested, FreeCompleted and Oom, and the actual
    /// size for the others.
    pub size_bytes: u64,
    /// The CUDA stream; 0 is the default stream.
    pub stream: u64,
    /// The memory pool.
    pub pool: PoolId,
    /// The thread that caused the event.
    pub tid: u32,
    /// The number of the event's call stack, if one was taken.
    pub stack: Option<u32>,
    /// Whether the event releases a segment and a frame of `empty_cache()` is in its call stack.
    pub is_of_empty_cache: bool,
}

/// Sizes and addresses from these values on do not exist on any device; sums of smaller ones do not overflow.
const TOO_MANY_BYTES: u64 = 1 << 46;
const FIRST_BAD_ADDR: u64 = 1 << 57;

impl Event {
    /// Returns whether a device can have memory of this size and address.
    pub fn is_possible(&self) -> bool {
        self.size_bytes < TOO_MANY_BYTES && self.addr < FIRST_BAD_ADDR
    }
}
