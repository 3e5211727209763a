//! The columns of `events`. Adding one means one entry here, at the end; renaming, retyping or
//! removing one breaks the format: bump [`crate::FORMAT_VERSION`].

use arrow_schema::{DataType, Field, Schema};

use crate::{Kind, Text};

/// Calls `$callback!` with every column: `name: Type, optional|required, "unit", "meaning";`.
///
/// Types: `Int64`, `Int32`, `UInt64`, `UInt32`, `Text` (dictionary-encoded UTF-8).
#[macro_export]
macro_rules! for_each_column {
    ($callback:ident) => {
        $callback! {
            ts: Int64, required, "ns", "Start of the span, or time of the point, on CLOCK_MONOTONIC of the recording host.";
            dur: Int64, optional, "ns", "Length of the span `[ts, ts + dur)`. Null for points, and for spans still open at the end (censored).";
            kind: Kind, required, "", "Kind of the row: one of the kinds below.";
            op: Text, required, "", "What happened, within the kind: the function called, the allocator's action, the scheduler state at switch-out, `run`, or the process event.";
            pid: UInt32, required, "", "Process id (thread-group id) in the host's namespace. 0: the imported trace does not have it.";
            tid: UInt32, required, "", "Thread id in the host's namespace.";
            comm: Text, optional, "", "Name of the thread at that time.";
            cpu: UInt32, optional, "", "off_cpu: the CPU in whose run queue the thread waited or, if it never waited, the CPU that it left. run: the CPU.";
            ret: Int32, optional, "", "call: return code; 0 is success. process `exit`: exit status of the thread, which is that of the process if the process ends; negative: the number of the signal that killed it. Null: not recorded.";
            addr: UInt64, optional, "", "Address that the call allocated, freed, mapped, filled, or copied to. Allocator `oom`: not an address, but the bytes that were free on the device.";
            src_addr: UInt64, optional, "", "Copies: the source address. cuMemMap: the handle of the physical memory.";
            size_bytes: Int64, optional, "bytes", "Bytes that the call allocated, mapped, copied, filled or exchanged. MemGetInfo: free bytes. Allocator `alloc` and `free_*`: the requested size, before rounding; `oom`: the requested size. state_segment: size of the segment. state_block: the requested size; for an inactive block, the requested size of its last allocation.";
            direction: Text, optional, "", "Copies: h2h, h2d, d2h, d2d, p2p, or default (the driver infers it from the addresses).";
            stream: UInt64, optional, "", "CUDA stream handle of copies, launches, graph capture, events and NCCL calls; null is the default stream. Imported `device` and `alloc` rows: the profiler's number of the stream.";
            device: Int32, optional, "", "CUDA device ordinal; null if the event has none.";
            func: UInt64, optional, "", "Launches: the kernel's handle (runtime: host function address; driver: CUfunction or CUkernel). Graphs: the graph or its executable form. Events: the event.";
            caller: Text, optional, "", "File name of the library or program that made the call.";
            pool_owner: UInt64, optional, "", "Allocator events of a private pool: first half of its id. Null: the default pool.";
            pool_id: UInt64, optional, "", "Allocator events of a private pool: second half of its id. Null: the default pool.";
            allocated_bytes: Int64, optional, "bytes", "Allocator: bytes allocated after the event, as the allocator itself reported.";
            reserved_bytes: Int64, optional, "bytes", "Allocator: bytes reserved after the event, as the allocator itself reported.";
            runnable_ns: Int64, optional, "ns", "off_cpu: length of the last part of the interval, in which the thread was runnable and waited for a CPU. Null: not recorded.";
            syscall: Int32, optional, "", "off_cpu: number of the system call the thread was in (x86-64). Null: none.";
            waker_pid: UInt32, optional, "", "off_cpu: process that woke the thread. 0: an interrupt did. Null: the thread never slept, or this was not recorded.";
            waker_tid: UInt32, optional, "", "off_cpu: thread that woke the thread.";
            waker_comm: Text, optional, "", "off_cpu: name of the waking thread.";
            next_pid: UInt32, optional, "", "off_cpu: process that got the CPU at switch-out.";
            next_tid: UInt32, optional, "", "off_cpu: thread that got the CPU at switch-out; 0 is idle.";
            next_comm: Text, optional, "", "off_cpu: name of the thread that got the CPU.";
            detail: Text, optional, "", "process: command line of an exec, or the library that was loaded. mark, name: the name. state_segment: `large` or `small` and, after a comma, `expandable`. state_block: active_allocated, active_pending_free (freed, but a stream may still use it) or inactive. device, host: the name.";
            grid_x: UInt32, optional, "", "Kernel launches and kernels: blocks of the grid in x.";
            grid_y: UInt32, optional, "", "Kernel launches and kernels: blocks of the grid in y.";
            grid_z: UInt32, optional, "", "Kernel launches and kernels: blocks of the grid in z.";
            block_x: UInt32, optional, "", "Kernel launches and kernels: threads of a block in x.";
            block_y: UInt32, optional, "", "Kernel launches and kernels: threads of a block in y.";
            block_z: UInt32, optional, "", "Kernel launches and kernels: threads of a block in z.";
            element_count: Int64, optional, "count", "NCCL: number of elements per rank, as passed; `size_bytes` is their size.";
            dtype: Text, optional, "", "NCCL: type of the elements, as int8, float16, bfloat16.";
            communicator: UInt64, optional, "", "NCCL: the communicator's handle.";
            peer: Int32, optional, "", "NCCL: the other rank, or the root. ncclCommInit…: the caller's rank.";
            in_cpu: UInt32, optional, "", "off_cpu: the CPU on which the thread ran again.";
            value: Int64, optional, "", "sample: the reading, in the unit that ends the row's `op`. state_block: size of the block in bytes.";
            stack: UInt32, optional, "", "Number of the call stack; the `name` row with `op` stack of the same process and number has its frames. Null: no stack was taken.";
            correlation: UInt64, optional, "", "Imported calls and device work, and captured calls that `analyze align` matched: a number that a call and the work that it caused have in common, within one process.";
        }
    };
}

/// The greatest absolute value of a time or a length of time in a run, in nanoseconds: about 73 years, or the year 2043 in
/// Unix time. Within it, the end of a span and the difference of two ends fit into 64 bits.
pub const TIME_LIMIT_NS: i64 = 1 << 61;

/// Physical type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Signed 64-bit.
    Int64,
    /// Signed 32-bit.
    Int32,
    /// Unsigned 64-bit.
    UInt64,
    /// Unsigned 32-bit.
    UInt32,
    /// Dictionary-encoded UTF-8.
    Text,
}

impl ColumnType {
    /// The Arrow type of the column in memory.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Int64 => DataType::Int64,
            Self::Int32 => DataType::Int32,
            Self::UInt64 => DataType::UInt64,
            Self::UInt32 => DataType::UInt32,
            Self::Text => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        }
    }

    /// The name of the type in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::UInt64 => "uint64",
            Self::UInt32 => "uint32",
            Self::Text => "string",
        }
    }
}

/// One column of `events`.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name of the column.
    pub name: &'static str,
    /// Physical type of the column.
    pub ty: ColumnType,
    /// Unit of the values: `ns`, `bytes`, `count`, or empty for ids and names.
    pub unit: &'static str,
    /// Whether the column may be null.
    pub nullable: bool,
    /// What the values mean, in sentences.
    pub doc: &'static str,
}

macro_rules! nullable {
    (optional) => {
        true
    };
    (required) => {
        false
    };
}

macro_rules! column_type {
    (Kind) => {
        ColumnType::Text
    };
    ($ty:ident) => {
        ColumnType::$ty
    };
}

macro_rules! row_type {
    (Int64, $n:ident) => { row_type!(@ i64, $n) };
    (Int32, $n:ident) => { row_type!(@ i32, $n) };
    (UInt64, $n:ident) => { row_type!(@ u64, $n) };
    (UInt32, $n:ident) => { row_type!(@ u32, $n) };
    (Text, $n:ident) => { row_type!(@ Text, $n) };
    (Kind, $n:ident) => { row_type!(@ Kind, $n) };
    (@ $ty:ty, optional) => { Option<$ty> };
    (@ $ty:ty, required) => { $ty };
}

macro_rules! empty {
    ($ty:ident, optional) => {
        None
    };
    (Kind, required) => {
        Kind::Host
    };
    (Text, required) => {
        Text::Static("")
    };
    ($ty:ident, required) => {
        0
    };
}

macro_rules! define {
    ($($name:ident: $ty:ident, $need:ident, $unit:literal, $doc:literal;)*) => {
        /// Every column, in file order.
        pub const COLUMNS: &[Column] = &[$(Column {
            name: stringify!($name),
            ty: column_type!($ty),
            unit: $unit,
            nullable: nullable!($need),
            doc: $doc,
        }),*];

        /// One row of `events`.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Row {
            $(#[doc = $doc] pub $name: row_type!($ty, $need),)*
        }

        impl Row {
            const EMPTY: Self = Self { $($name: empty!($ty, $need),)* };
        }
    };
}

for_each_column!(define);

impl Row {
    /// A row with its required values; every optional one is null.
    #[inline]
    pub fn new(ts: i64, kind: Kind, op: Text, pid: u32, tid: u32) -> Self {
        Self { ts, kind, op, pid, tid, ..Self::EMPTY }
    }
}

/// The Arrow schema of `events`.
pub fn arrow_schema() -> Schema {
    Schema::new(
        COLUMNS
            .iter()
            .map(|column| Field::new(column.name, column.ty.data_type(), column.nullable))
            .collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_their_units() {
        for column in COLUMNS {
            match column.unit {
                "" => assert!(!column.name.ends_with("_ns") && !column.name.ends_with("_bytes")),
                "ns" => assert!(
                    column.name.ends_with("_ns") || matches!(column.name, "ts" | "dur"),
                    "{}",
                    column.name
                ),
                unit => assert!(column.name.ends_with(&format!("_{unit}")), "{}", column.name),
            }
            assert!(column.doc.ends_with('.'), "{}", column.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
