//! A call that was open for long at the end, while its process got nothing else done.
//!
//! ```text
//! hanging thread  ─ launch ─┤├─ launch ─┤├────────── cudaStreamSynchronize, open ──────────▶│
//! other threads   ── copy ─────────┤   queries only (they ask, nothing gets done)           │
//! hangs                                   ├────────────────── waited ─────────────────────┤
//!                                         since: the later of its entry and the last return  end of process or recording
//! ```

use std::collections::BTreeMap;

use trace_schema::{Class, Op};

use crate::questions::{
    findings::records::{Failures, OpenCall},
    info::Info,
};

/// Least time without progress that is a hang, in nanoseconds: what the watchdog of a GPU with a display grants a kernel.
/// Watchdogs of collectives allow minutes, but no collective of a healthy job takes seconds.
pub(super) const LEAST_NS: i64 = 2_000_000_000;

/// How many times the longest finished call of the function in the process the open call must be: a program whose
/// synchronizing calls take 4 s may have one that takes 6 s.
const LONGEST_FACTOR: i64 = 10;

/// A process that hangs, or hung until it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hang {
    /// The open call that the process made no progress after.
    pub(super) call: OpenCall,
    /// Since when, in nanoseconds.
    pub(super) since: i64,
    /// End of the process, or of the recording, in nanoseconds.
    pub(super) end: i64,
    /// Whether the process ended before the recording.
    pub(super) has_ended: bool,
}

impl Hang {
    pub(super) fn waited_ns(&self) -> i64 {
        self.end.saturating_sub(self.since)
    }
}

/// Whether a call of a class gets something done. A watchdog asks for the state of events as long as a process hangs.
fn is_progress(class: Class) -> bool {
    !matches!(class, Class::Query | Class::Event)
}

/// Whether a call of a class may be open for long because the host works in it: compiling or loading code.
fn is_host_work(class: Class) -> bool {
    matches!(class, Class::Module | Class::Graph)
}

/// Returns the processes that hang, the one that waited longest first, and one call of each.
pub(super) fn hangs(info: &Info, failures: &Failures) -> Vec<Hang> {
    let clock_end = info.provenance.clock.end_ns;
    let last_event = failures.calls.iter().map(|calls| calls.last_end.unwrap_or(calls.last_ts)).max();
    let run_end = if clock_end > 0 { clock_end } else { last_event.unwrap_or(0) };
    let mut longest: BTreeMap<i64, Hang> = BTreeMap::new();
    for hang in failures.open_calls.iter().filter_map(|call| hang(failures, *call, run_end)) {
        let known = longest.entry(hang.call.pid).or_insert(hang);
        if hang.waited_ns() > known.waited_ns() {
            *known = hang;
        }
    }
    let mut hangs: Vec<Hang> = longest.into_values().collect();
    hangs.sort_by_key(|hang| (std::cmp::Reverse(hang.waited_ns()), hang.call.pid));
    hangs
}

fn hang(failures: &Failures, call: OpenCall, run_end: i64) -> Option<Hang> {
    let own = || failures.calls.iter().filter(|calls| calls.pid == call.pid);
    let process_end = failures.end(call.pid);
    let ended_well = process_end.is_some_and(|end| end.status == Some(0));
    let is_stopped = failures
        .sleeps
        .iter()
        .any(|sleep| (sleep.pid, sleep.tid) == (call.pid, call.tid) && sleep.state == "stopped");
    if ended_well || is_stopped || is_host_work(call.op.class()) {
        return None;
    }
    let exit_ts = process_end.and_then(|end| end.exit_ts);
    let end = exit_ts.unwrap_or(run_end);
    let progress =
        own().filter(|calls| is_progress(calls.op.class())).filter_map(|calls| calls.last_end).max();
    let since = progress.map_or(call.ts, |progress| progress.max(call.ts));
    let longest_ns = own().filter(|calls| calls.op == call.op).filter_map(|calls| calls.longest_ns).max();
    let least_ns = LEAST_NS.max(longest_ns.unwrap_or(0).saturating_mul(LONGEST_FACTOR));
    let hang = Hang { call, since, end, has_ended: exit_ts.is_some() };
    (hang.waited_ns() >= least_ns).then_some(hang)
}

/// Calls of one kind that the processes of a job did not make equally often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Uneven {
    pub(super) op: Op,
    /// Size of the calls in bytes, if all processes made equally many calls of the function, and the sizes differ.
    pub(super) size_bytes: Option<i64>,
    /// Process with the fewest calls, and their number.
    pub(super) fewest: (i64, i64),
    /// Process with the most calls, and their number.
    pub(super) most: (i64, i64),
}

/// Returns the collective of which the numbers of calls differ most between the processes that made collectives; `None` if
/// fewer than two did, or all made equally many of each function and size.
pub(super) fn uneven(failures: &Failures) -> Option<Uneven> {
    /// Numbers of calls by process.
    type Counts = BTreeMap<i64, i64>;
    // A broadcast in place is recorded as both functions.
    let calls = || {
        let all = failures.collectives.iter();
        all.filter(|calls| calls.op.class() == Class::Collective && calls.op != Op::NcclBcast)
    };
    let mut pids: Vec<i64> = calls().map(|calls| calls.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    if pids.len() < 2 {
        return None;
    }
    let largest = |by_size: bool| {
        let mut sums: BTreeMap<(&str, Option<i64>), (Op, Counts)> = BTreeMap::new();
        for calls in calls() {
            let size_bytes = calls.size_bytes.filter(|_| by_size);
            let zeros = || pids.iter().map(|pid| (*pid, 0)).collect();
            let (_, counts) =
                sums.entry((calls.op.name(), size_bytes)).or_insert_with(|| (calls.op, zeros()));
            *counts.entry(calls.pid).or_default() += calls.calls_count;
        }
        // Of equal differences the smallest size counts: the last one is the maximum.
        let uneven = sums.into_iter().rev().filter_map(|((_, size_bytes), (op, counts))| {
            let (pid, count) = counts.iter().min_by_key(|(pid, count)| (**count, **pid))?;
            let (most_pid, most_count) = counts.iter().max_by_key(|(pid, count)| (**count, -**pid))?;
            (count < most_count).then_some(Uneven {
                op,
                size_bytes,
                fewest: (*pid, *count),
                most: (*most_pid, *most_count),
            })
        });
        uneven.max_by_key(|uneven| uneven.most.1 - uneven.fewest.1)
    };
    largest(false).or_else(|| largest(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::findings::records::{CallSum, CollectiveSum, End, OpenSleep};

    const S: i64 = 1_000_000_000;

    fn finished(op: Op, last_ts: i64, longest_ns: i64) -> CallSum {
        CallSum {
            pid: 1,
            tid: 2,
            op,
            ret: Some(0),
            calls_count: 9,
            open_count: 0,
            first_ts: 0,
            last_ts,
            last_end: Some(last_ts + longest_ns),
            longest_ns: Some(longest_ns),
        }
    }

    fn of(calls: Vec<CallSum>, ends: Vec<End>, op: Op) -> Option<(i64, i64)> {
        let failures = Failures { calls, ends, ..Failures::default() };
        let call = OpenCall { pid: 1, tid: 1, op, ts: 10 * S };
        hang(&failures, call, 20 * S).map(|hang| (hang.since, hang.waited_ns()))
    }

    #[test]
    fn a_call_that_nothing_follows_hangs() {
        let sync = Op::CudaStreamSynchronize;
        let before = finished(Op::CudaLaunchKernel, 9 * S, 10);
        let query = finished(Op::CudaEventQuery, 19 * S, 10);
        assert_eq!(of(vec![before, query], Vec::new(), sync), Some((10 * S, 10 * S)));
        // Another thread got work done for 2 s more.
        let beside = finished(Op::CudaMemcpyAsync, 12 * S, 10);
        assert_eq!(of(vec![before, beside], Vec::new(), sync), Some((12 * S + 10, 8 * S - 10)));
        let end = |status| vec![End { pid: 1, exit_ts: Some(16 * S), status, oom_kill_ts: None }];
        assert_eq!(of(vec![before], end(Some(-9)), sync), Some((10 * S, 6 * S)));
        assert_eq!(of(vec![before], end(None), sync), Some((10 * S, 6 * S)));
    }

    #[test]
    fn long_calls_are_no_hangs() {
        let sync = Op::CudaStreamSynchronize;
        // The process got work done until 1 s before the end.
        assert_eq!(of(vec![finished(Op::CudaLaunchKernel, 19 * S, 10)], Vec::new(), sync), None);
        // Earlier calls of the function took nearly as long.
        assert_eq!(of(vec![finished(sync, 5 * S, 2 * S)], Vec::new(), sync), None);
        assert_eq!(of(vec![finished(sync, 5 * S, S / 2)], Vec::new(), sync), Some((10 * S, 10 * S)));
        // The process ended with the call open, and well; code is compiled on the host.
        let end = End { pid: 1, exit_ts: Some(19 * S), status: Some(0), oom_kill_ts: None };
        assert_eq!(of(Vec::new(), vec![end], sync), None);
        assert_eq!(of(Vec::new(), Vec::new(), Op::CuModuleLoadData), None);
        let stopped = OpenSleep { pid: 1, tid: 1, state: "stopped".to_owned(), syscall: None, ts: 11 * S };
        let failures = Failures { sleeps: vec![stopped], ..Failures::default() };
        assert!(hang(&failures, OpenCall { pid: 1, tid: 1, op: sync, ts: 10 * S }, 20 * S).is_none());
    }

    #[test]
    fn uneven_collectives_are_found_by_number_and_by_size() {
        let calls = |pid, op, size_bytes, calls_count| CollectiveSum { pid, op, size_bytes, calls_count };
        let of = |collectives| uneven(&Failures { collectives, ..Failures::default() });
        let all_reduce = Op::NcclAllReduce;
        let counted = vec![calls(1, all_reduce, Some(8), 272), calls(2, all_reduce, Some(8), 247)];
        let expected = Uneven { op: all_reduce, size_bytes: None, fewest: (2, 247), most: (1, 272) };
        assert_eq!(of(counted), Some(expected));
        let sized = vec![
            calls(1, all_reduce, Some(8), 3),
            calls(2, all_reduce, Some(8), 2),
            calls(2, all_reduce, Some(16), 1),
        ];
        assert_eq!(of(sized).and_then(|uneven| uneven.size_bytes), Some(8));
        assert_eq!(of(vec![calls(1, all_reduce, Some(8), 3), calls(2, all_reduce, Some(8), 3)]), None);
        assert_eq!(of(vec![calls(1, all_reduce, Some(8), 3)]), None);
    }
}
