//! What a row can be.

/// The vocabulary of the `kind` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A call of a CUDA function; `op` is the function.
    Call,
    /// An event of PyTorch's caching allocator; `op` is its action.
    Alloc,
    /// A traced thread was not running; `op` is its state at switch-out.
    OffCpu,
    /// A stint of some task on a CPU that a traced thread waited for; `op` is `run`.
    Run,
    /// Life of a traced process; `op` is `fork`, `exec`, `exit` or `library`.
    Process,
    /// Any other event of the host, known from imported traces; `op` is the source's own name.
    Host,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] = [Self::Call, Self::Alloc, Self::OffCpu, Self::Run, Self::Process, Self::Host];

    /// The value in the `kind` column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Alloc => "alloc",
            Self::OffCpu => "off_cpu",
            Self::Run => "run",
            Self::Process => "process",
            Self::Host => "host",
        }
    }

    /// One sentence on it.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Call => {
                "A call of a CUDA function, entry to return. `op` is the function without version suffixes."
            }
            Self::Alloc => {
                "An event of PyTorch's caching allocator (a point). `op`: alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, snapshot, oom, annotate, or usage (reported totals)."
            }
            Self::OffCpu => {
                "An interval in which a traced thread did not run. `op` is its state at switch-out: preempted, sleeping, uninterruptible, stopped, idle, or unknown where the source does not tell."
            }
            Self::Run => {
                "A stint of any task on a CPU while a traced thread waited in that CPU's queue. `op` is run."
            }
            Self::Process => {
                "Life of a traced process (a point). `op`: fork, exec, exit (of a thread), library (loaded)."
            }
            Self::Host => "Any other host event, from imported traces. `op` is the source's own name for it.",
        }
    }
}
