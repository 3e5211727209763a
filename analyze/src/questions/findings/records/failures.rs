//! What a run has of failures: how processes ended, what calls returned, and what was still open at its end.

use crate::{questions::info::Present, trace::Trace};
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};
use trace_schema::{ErrorCode, Kind, Layer, Op};

/// Finished and open calls of one function by one thread that have the same return code.
#[derive(Clone, Copy, Debug)]
pub struct CallSum {
    /// Process ID.
    pub pid: i64,
    /// Thread ID.
    pub tid: i64,
    /// The function.
    pub op: Op,
    /// Return code; `None` if it is not recorded, or if the calls were open at the end.
    pub ret: Option<i32>,
    /// Number of calls.
    pub calls_count: i64,
    /// Number of those that were open at the end of the recording.
    pub open_count: i64,
    /// Entry of the first call, in nanoseconds.
    pub first_ts: i64,
    /// Entry of the last call, in nanoseconds.
    pub last_ts: i64,
    /// Latest return, in nanoseconds; `None` if none returned.
    pub last_end: Option<i64>,
    /// Longest duration, in nanoseconds; `None` if none returned.
    pub longest_ns: Option<i64>,
}

impl CallSum {
    /// Returns the return code with its library if it is one of an error.
    pub fn error(&self) -> Option<ErrorCode> {
        let code = ErrorCode { layer: self.op.layer(), code: self.ret? };
        (!code.is_harmless()).then_some(code)
    }
}

/// The outermost call that a thread was in at the end of the recording.
#[derive(Clone, Copy, Debug)]
pub struct OpenCall {
    /// Process ID.
    pub pid: i64,
    /// Thread ID.
    pub tid: i64,
    /// The function.
    pub op: Op,
    /// Entry, in nanoseconds.
    pub ts: i64,
}

/// A thread that was off CPU at the end of the recording.
#[derive(Clone, Debug)]
pub struct OpenSleep {
    /// Process ID.
    pub pid: i64,
    /// Thread ID.
    pub tid: i64,
    /// State at the switch-out, such as `sleeping`.
    pub state: String,
    /// Number of the system call that the thread was in; `None` if it was in none.
    pub syscall: Option<i64>,
    /// Time of the switch-out, in nanoseconds.
    pub ts: i64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Process ID.
    pub pid: i64,
    /// Time of the exit of its last thread, in nanoseconds; `None` if the main thread's is not on record.
    pub exit_ts: Option<i64>,
    /// Exit status, or the negated number of the signal that killed it; `None` if it is not recorded.
    pub status: Option<i64>,
    /// When the kernel chose the process to free memory, in nanoseconds.
    pub oom_kill_ts: Option<i64>,
}

/// Collective and point-to-point calls of a process that move the same number of bytes.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveSum {
    /// Process ID.
    pub pid: i64,
    /// The function.
    pub op: Op,
    /// Size of a call in bytes; `None` if it is not recorded.
    pub size_bytes: Option<i64>,
    /// Number of calls.
    pub calls_count: i64,
}

/// What a run has of failures.
#[derive(Debug, Default)]
pub struct Failures {
    /// All calls of known functions, summed.
    pub calls: Vec<CallSum>,
    /// Calls that were open at the end, one a thread.
    pub open_calls: Vec<OpenCall>,
    /// Threads that were off CPU at the end; read only if a call was open.
    pub sleeps: Vec<OpenSleep>,
    /// How processes ended.
    pub ends: Vec<End>,
    /// Process ID and last time in nanoseconds of failed requests to PyTorch's allocator.
    pub out_of_memory: Vec<(i64, i64)>,
    /// NCCL calls; read only if a call was open.
    pub collectives: Vec<CollectiveSum>,
}

const SLEEPS: &str = "SELECT pid, tid, last_value(CAST(op AS VARCHAR) ORDER BY ts) AS state, \
     last_value(syscall ORDER BY ts) AS syscall, max(ts) AS ts \
     FROM events WHERE kind = 'off_cpu' AND dur IS NULL GROUP BY pid, tid ORDER BY pid, tid";

const ENDS: &str = "SELECT pid, max(CASE WHEN op = 'exit' AND tid = pid THEN ts END) AS main_ts, \
     max(CASE WHEN op = 'exit' THEN ts END) AS exit_ts, \
     last_value(CASE WHEN op = 'exit' THEN ret END ORDER BY op = 'exit', ts) AS status, \
     max(CASE WHEN op = 'oom_kill' THEN ts END) AS oom_kill_ts \
     FROM events WHERE kind = 'process' AND op IN ('exit', 'oom_kill') GROUP BY pid ORDER BY pid";

const OUT_OF_MEMORY: &str =
    "SELECT pid, max(ts) AS ts FROM events WHERE kind = 'alloc' AND op = 'oom' GROUP BY pid ORDER BY pid";

const COLLECTIVES: &str = "SELECT pid, op, size_bytes, count(*) AS calls_count \
     FROM events WHERE kind = 'call' AND op LIKE 'nccl%' GROUP BY pid, op, size_bytes";

impl Failures {
    /// Reads what there is besides these sums of calls and these open calls: one pass over each other kind of row.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub async fn read(
        trace: &Trace,
        present: &Present,
        calls: Vec<CallSum>,
        open_calls: Vec<OpenCall>,
    ) -> Result<Self, AnalyzeError> {
        let mut found = Self { calls, open_calls, ..Self::default() };
        if found.calls.iter().any(|calls| calls.open_count > 0) {
            found.read_open(trace).await?;
        }
        if present.has(Kind::Process, "exit") || present.has(Kind::Process, "oom_kill") {
            found.read_ends(trace).await?;
        }
        if present.has(Kind::Alloc, "oom") {
            for batch in &trace.batches(OUT_OF_MEMORY).await? {
                let (pids, times) = (integers(batch, "pid")?, integers(batch, "ts")?);
                let rows = 0..batch.num_rows();
                found.out_of_memory.extend(rows.map(|row| (pids.value(row), times.value(row))));
            }
        }
        Ok(found)
    }

    async fn read_open(&mut self, trace: &Trace) -> Result<(), AnalyzeError> {
        for batch in &trace.batches(SLEEPS).await? {
            let (pids, tids) = (integers(batch, "pid")?, integers(batch, "tid")?);
            let (states, times) = (strings(batch, "state")?, integers(batch, "ts")?);
            let syscalls = integers(batch, "syscall")?;
            self.sleeps.extend((0..batch.num_rows()).map(|row| OpenSleep {
                pid: pids.value(row),
                tid: tids.value(row),
                state: states.value(row).to_owned(),
                syscall: syscalls.at(row),
                ts: times.value(row),
            }));
        }
        if !self.calls.iter().any(|calls| calls.op.layer() == Layer::Nccl) {
            return Ok(());
        }
        for batch in &trace.batches(COLLECTIVES).await? {
            let (pids, ops) = (integers(batch, "pid")?, strings(batch, "op")?);
            let (sizes, counts) = (integers(batch, "size_bytes")?, integers(batch, "calls_count")?);
            for row in 0..batch.num_rows() {
                let Some(op) = Op::from_name(ops.value(row)) else { continue };
                let (pid, size_bytes) = (pids.value(row), sizes.at(row));
                self.collectives.push(CollectiveSum { pid, op, size_bytes, calls_count: counts.value(row) });
            }
        }
        self.collectives.sort_by_key(|calls| (calls.op.name(), calls.size_bytes, calls.pid));
        Ok(())
    }

    async fn read_ends(&mut self, trace: &Trace) -> Result<(), AnalyzeError> {
        for batch in &trace.batches(ENDS).await? {
            let whole = |name| integers(batch, name);
            let (pids, mains, exits) = (whole("pid")?, whole("main_ts")?, whole("exit_ts")?);
            let (statuses, kills) = (whole("status")?, whole("oom_kill_ts")?);
            self.ends.extend((0..batch.num_rows()).map(|row| End {
                pid: pids.value(row),
                exit_ts: mains.at(row).and(exits.at(row)),
                // A thread's status is that of the process only if the process ended.
                status: mains.at(row).and(statuses.at(row)),
                oom_kill_ts: kills.at(row),
            }));
        }
        Ok(())
    }

    /// Returns how a process ended; `None` if that is not on record.
    pub fn end(&self, pid: i64) -> Option<&End> {
        self.ends.iter().find(|end| end.pid == pid)
    }
}
