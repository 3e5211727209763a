//! Which threads ended the sleeps of which, and how often: an edge for each pair of threads.

use crate::{questions::info::Present, trace::Trace};
use analyze_run::{
    columns::{booleans, integers},
    error::AnalyzeError,
};
use trace_schema::Kind;

/// 202, 449 and 455 are the system calls of futexes on x86-64.
const QUERY: &str = "SELECT pid, tid, waker_pid, waker_tid, \
     coalesce(syscall IN (202, 449, 455), false) AS is_futex, count(*) AS n FROM events \
     WHERE kind = 'off_cpu' AND op IN ('sleeping', 'uninterruptible') AND waker_tid > 0 \
     GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5";

/// How often one thread ended sleeps of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// Process and thread that slept.
    pub sleeper: (i64, i64),
    /// Process and thread that ended the sleep.
    pub waker: (i64, i64),
    /// Whether the sleeper slept in a futex.
    pub is_futex: bool,
    /// Number of sleeps.
    pub count: i64,
}

/// Reads them; nothing if no sleep is on record.
pub(super) async fn read(trace: &Trace, present: &Present) -> Result<Vec<Handoff>, AnalyzeError> {
    let mut handoffs = Vec::new();
    if !["sleeping", "uninterruptible"].iter().any(|op| present.has(Kind::OffCpu, op)) {
        return Ok(handoffs);
    }
    for batch in &trace.batches(QUERY).await? {
        let whole = |name| integers(batch, name);
        let (pids, tids) = (whole("pid")?, whole("tid")?);
        let (waker_pids, waker_tids) = (whole("waker_pid")?, whole("waker_tid")?);
        let (futexes, counts) = (booleans(batch, "is_futex")?, whole("n")?);
        handoffs.extend((0..batch.num_rows()).map(|row| Handoff {
            sleeper: (pids.value(row), tids.value(row)),
            waker: (waker_pids.value(row), waker_tids.value(row)),
            is_futex: futexes.value(row),
            count: counts.value(row),
        }));
    }
    Ok(handoffs)
}
