//! The columns that are read. `examples/chains_scan.rs` has DataFusion scan the same columns.

/// The columns that every reading of calls includes: those that describe calls, and the off-CPU time of their threads.
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
/// The columns that say which task had a CPU, and which thread woke which.
pub const TASK_COLUMNS: &[&str] = &["comm", "cpu", "waker_pid", "waker_tid", "waker_comm", "next_tid"];
