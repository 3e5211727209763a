//! The kinds of rows, each with its meaning and what records it.

/// The vocabulary of the `kind` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A call of a CUDA or NCCL function; `op` is the function.
    Call,
    /// An event of PyTorch's caching allocator; `op` is its action.
    Alloc,
    /// A traced thread was not running; `op` is its state at switch-out.
    OffCpu,
    /// A scheduling slice of some task on a CPU that a traced thread waited for; `op` is `run`.
    Run,
    /// An event in the life of a traced process; `op` says which.
    Process,
    /// A phase that the workload named; `op` is `range` or `point`.
    Mark,
    /// A reading of a counter; `op` is what was read.
    Sample,
    /// The name of something that other rows know by a number; `op` is `kernel` or `stack`.
    Name,
    /// Work of a GPU, known from imported traces; `op` is what it is.
    Device,
    /// Any other event of the host, known from imported traces; `op` is the source's own name.
    Host,
}

impl Kind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::Call,
        Self::Alloc,
        Self::OffCpu,
        Self::Run,
        Self::Process,
        Self::Mark,
        Self::Sample,
        Self::Name,
        Self::Device,
        Self::Host,
    ];

    /// The value in the `kind` column.
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Alloc => "alloc",
            Self::OffCpu => "off_cpu",
            Self::Run => "run",
            Self::Process => "process",
            Self::Mark => "mark",
            Self::Sample => "sample",
            Self::Name => "name",
            Self::Device => "device",
            Self::Host => "host",
        }
    }

    /// What a row of this kind is, and which values its `op` has.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Call => {
                "A call of a CUDA or NCCL function, entry to return. `op` is the function without version suffixes."
            }
            Self::Alloc => {
                "An event of PyTorch's caching allocator (a point). `op`: alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, snapshot, oom, annotate, usage (reported totals), empty_cache (`torch.cuda.empty_cache()` asks for the release of reclaimable segments), or ipc_collect (`torch.cuda.ipc_collect()` frees blocks that other processes no longer use; it has a length, and `caller`: PyTorch's CUDA libraries call it for a request that finds no free block). An imported snapshot also has the allocator's final state: a state_segment row per segment, each followed by the state_block rows of its blocks."
            }
            Self::OffCpu => {
                "An interval in which a traced thread did not run. `op` is its state at switch-out: preempted, throttled (its control group had used up its CPU quota), sleeping, uninterruptible, stopped, idle, or unknown where the source does not tell."
            }
            Self::Run => {
                "A scheduling slice of any task on a CPU while a traced thread waited in that CPU's run queue; with `--sched all`, every slice on every CPU. `op` is run."
            }
            Self::Process => {
                "An event in the life of a traced process (a point). `op`: fork, exec, exit (of a thread; `ret` is its exit status), library (loaded), major_fault (a page was read from disk; `addr` is its address), oom_kill (the kernel chose the process to free memory)."
            }
            Self::Mark => {
                "A phase that the workload named; `detail` is the name. `op`: range (a span), or point. `dur` of a range is null if it was still open at the end."
            }
            Self::Sample => {
                "A reading of a counter (a point); `value` is the reading. `op` names counter and unit: memory_used_bytes, memory_reserved_bytes (reserved by the driver for itself, not part of memory_used_bytes), memory_total_bytes, process_memory_bytes (of `pid`), gpu_busy_percent, memory_busy_percent, sm_clock_mhz, memory_clock_mhz, temperature_celsius, power_milliwatts, throttle_reasons (NVML's bit mask), cgroup_throttled_ns and cgroup_throttled_count (of the control group of `pid`, since the last reading). `pid` and `tid` are 0 if the reading is of a device."
            }
            Self::Name => {
                "The name that a number in other rows stands for (a point); `detail` is the name. `op`: kernel (`func` of a launch), stack (`stack`: frames, outermost first, separated by `;`; the last row of a stack has the best names)."
            }
            Self::Device => {
                "Work of a GPU as a profiler timed it on the device; from imported traces. `op`: kernel, memcpy, memset, sync (a stream waits) or annotation (from the first to the last work within a range that the workload named). `detail` is the name of the work; `pid` and `tid` are 0 if the source does not tell which process submitted it."
            }
            Self::Host => {
                "Any other host event, from imported traces. `op` is the source's own name of the event, or of its category; `detail` is then the event's name."
            }
        }
    }

    /// What records rows of this kind, and which importers make them.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Call => {
                "`capture`, by its probes in CUDA and NCCL (kernel launches from `--profile default` on). `analyze import`: ingero, kineto, nsys."
            }
            Self::Alloc => {
                "`capture`, by its probes in PyTorch's allocator, from `--profile default` on. `analyze import`: kineto, torch-snapshot."
            }
            Self::OffCpu => {
                "`capture`, by its scheduler probes. `analyze import`: perf, ftrace, perfetto, ingero, and nsys if it recorded context switches."
            }
            Self::Run => {
                "`capture`, by its scheduler probes. `analyze import`: perf, ftrace, perfetto: every slice."
            }
            Self::Process => {
                "`capture`, by its process probes. `analyze import`: perf, ftrace, perfetto, ingero."
            }
            Self::Mark => {
                "`capture`, if the workload names its phases through the socket of `$INQUEST_MARKS` or NVTX. `analyze import`: kineto, nsys, torch-snapshot."
            }
            Self::Sample => "`capture`, from NVML (not with `--nvml off`) and control groups.",
            Self::Name => {
                "`capture`: kernels by its probes in the CUDA driver, stacks with `--stacks`. `analyze import`: torch-snapshot (stacks)."
            }
            Self::Device => "`analyze import`: kineto, nsys. `capture` does not look into the GPU.",
            Self::Host => "`analyze import`: ingero, kineto, nsys.",
        }
    }

    /// The kind with the given name in the `kind` column; `None` if there is no such kind.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
