//! The columns that are read. `examples/chains_scan.rs` has DataFusion scan the same.

/// Columns that every reading has: what calls are, and how their threads were off CPU.
pub const KEY_COLUMNS: &[&str] = &[
    "ts",
    "dur",
    "kind",
    "op",
    "pid",
    "tid",
    "size_bytes",
    "direction",
    "func",
    "runnable_ns",
    "syscall",
    "detail",
];
/// Who had the CPU, and who woke whom.
pub const TASK_COLUMNS: &[&str] = &["comm", "cpu", "waker_pid", "waker_tid", "waker_comm", "next_tid"];
