//! Processes that ended badly, and the call that failed before.

use trace_schema::{Class, ErrorCode, Layer, Op};

use crate::questions::{
    findings::records::{CallSum, End, Failures},
    info::Info,
};

/// Signals by number on Linux: name, and what it says; no text: another process or the kernel sent it.
const SIGNALS: [(i64, &str, &str); 15] = [
    (1, "SIGHUP", ""),
    (3, "SIGQUIT", ""),
    (4, "SIGILL", "an instruction that the processor does not know"),
    (5, "SIGTRAP", "a breakpoint, or a check that failed"),
    (6, "SIGABRT", "abort(), as a failed assertion or an exception in C++ that nothing caught calls it"),
    (7, "SIGBUS", "memory that could not be provided, such as /dev/shm that is full"),
    (8, "SIGFPE", "a division by zero"),
    (9, "SIGKILL", ""),
    (10, "SIGUSR1", ""),
    (11, "SIGSEGV", "an access to memory that it does not have"),
    (12, "SIGUSR2", ""),
    (14, "SIGALRM", ""),
    (15, "SIGTERM", ""),
    (24, "SIGXCPU", ""),
    (31, "SIGSYS", "a system call that it may not make"),
];

/// Signals that end a process as its user wishes: an interrupt from the keyboard, and a pipe whose reader is done.
const BY_WISH: [i64; 2] = [2, 13];

/// What is known of the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// A signal killed it that its own code caused: name, and what the signal says.
    Crash(&'static str, &'static str),
    /// Another signal ended it, by number.
    Killed(i64),
    /// The kernel killed it to free memory.
    KilledForMemory,
    /// It ended with a status other than 0.
    Status(i64),
    /// It ended well, or by its user's wish.
    Well,
    /// It ran at the end of the recording, or how it ended is not on record.
    Unknown,
}

impl How {
    fn of(end: Option<&End>) -> Self {
        let Some(end) = end else { return Self::Unknown };
        match end.status {
            Some(-9) | None if end.oom_kill_ts.is_some() => Self::KilledForMemory,
            None => Self::Unknown,
            Some(0) => Self::Well,
            Some(status) if BY_WISH.contains(&-status) => Self::Well,
            Some(status) if status > 0 => Self::Status(status),
            Some(status) => match SIGNALS.iter().find(|(number, ..)| *number == -status) {
                Some(&(_, name, why)) if !why.is_empty() => Self::Crash(name, why),
                _ => Self::Killed(-status),
            },
        }
    }

    /// Whether the process did not end as it should.
    pub(super) fn is_bad(self) -> bool {
        !matches!(self, Self::Well | Self::Unknown)
    }
}

/// The name of a signal; its number if it has no name here.
pub(super) fn signal_name(number: i64) -> String {
    let known = SIGNALS.iter().find(|(signal, ..)| *signal == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name, _)| (*name).to_owned())
}

/// The failed call that comes first of those that matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedCall {
    pub(super) tid: i64,
    pub(super) op: Op,
    pub(super) code: ErrorCode,
    pub(super) ts: i64,
    /// Number of calls of the library, this one included, that returned the code.
    pub(super) calls_count: i64,
}

/// A process that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) pid: i64,
    /// When it failed: the time of the failed call, or else of its end, in nanoseconds.
    pub(super) ts: i64,
    /// When it ended, in nanoseconds; `None` if that is not on record.
    pub(super) exit_ts: Option<i64>,
    pub(super) how: How,
    pub(super) call: Option<FailedCall>,
    /// Whether memory was what it lacked: the failed call or a request to PyTorch's allocator was for memory.
    pub(super) is_out_of_memory: bool,
}

/// Classes of calls that do the work of a program. One that succeeds shows that an earlier error was dealt with.
fn is_work(class: Class) -> bool {
    matches!(class, Class::Launch | Class::Copy | Class::Set | Class::Collective | Class::PointToPoint)
}

/// Whether an error of a function can be what a process ended as it did by. Others are answers to programs that try what the
/// machine can do: whether memory can be shared over a fabric, whether a library has a kernel for this GPU.
fn can_end(op: Op, code: ErrorCode, how: How) -> bool {
    let class = op.class();
    let is_lost = is_work(class) || op.layer() == Layer::Nccl || (class == Class::Alloc && is_memory(code));
    match how {
        // A program that ignores what its launches return ends well, but did not do its work.
        How::Well => class == Class::Launch,
        // A process that tears down in another order, or that tries whether there is a GPU, may well go on.
        How::Unknown => is_lost,
        _ => {
            let begins = matches!(op, Op::CuInit | Op::CuCtxCreate | Op::CuDevicePrimaryCtxRetain);
            is_lost || begins || class == Class::Sync
        }
    }
}

/// Whether a function takes a communicator down, in which errors are of no consequence.
fn is_teardown(op: Op) -> bool {
    matches!(op, Op::NcclCommFinalize | Op::NcclCommDestroy | Op::NcclCommAbort)
}

/// Whether an error is that of memory that is not there.
fn is_memory(code: ErrorCode) -> bool {
    code.layer != Layer::Nccl && code.code == 2
}

/// Returns the first call of a process that failed and after which the process did no more work. A sticky error counts
/// whatever follows; any other only if the process need not have gone on after it.
fn failed_call(failures: &Failures, pid: i64, how: How) -> Option<FailedCall> {
    let own = || failures.calls.iter().filter(|calls| calls.pid == pid && !is_teardown(calls.op));
    let errors = || own().filter_map(|calls| Some((calls, calls.error()?)));
    let sticky =
        errors().filter(|(_, code)| code.is_sticky()).map(|(calls, code)| (calls, code, calls.first_ts));
    let last_end = |of: &dyn Fn(Class) -> bool| {
        let fine = own().filter(|calls| matches!(calls.ret, None | Some(0)) && of(calls.op.class()));
        fine.filter_map(|calls| calls.last_end).max().unwrap_or(i64::MIN)
    };
    let worked = last_end(&is_work);
    let allocated = last_end(&|class| class == Class::Alloc);
    let others = errors().filter(|(calls, code)| {
        let after = if calls.op.class() == Class::Alloc { worked.max(allocated) } else { worked };
        !code.is_sticky() && calls.last_ts >= after && can_end(calls.op, *code, how)
    });
    let since = |calls: &CallSum| if calls.first_ts >= worked { calls.first_ts } else { calls.last_ts };
    let first = sticky.min_by_key(|(.., ts)| *ts);
    let other = || others.map(|(calls, code)| (calls, code, since(calls))).min_by_key(|(.., ts)| *ts);
    let (calls, code, ts) = first.or_else(other)?;
    let alike = failures.calls.iter().filter(|calls| calls.pid == pid && calls.error() == Some(code));
    let calls_count = alike.fold(0_i64, |sum, calls| sum.saturating_add(calls.calls_count));
    Some(FailedCall { tid: calls.tid, op: calls.op, code, ts, calls_count })
}

/// Returns the processes that failed, in the order of time.
///
/// A process counts if it made calls or is one that the recording began with; others, such as the short programs that a job
/// starts to learn about the machine, may end as they like, unless a fault or a lack of memory ended them. What ends during a
/// job that itself ended well, such as workers that are killed when they are not needed any more, is no failure.
pub(super) fn failed(info: &Info, failures: &Failures) -> Vec<Failed> {
    let mut pids: Vec<i64> = failures.calls.iter().map(|calls| calls.pid).collect();
    pids.extend(failures.ends.iter().map(|end| end.pid));
    pids.sort_unstable();
    pids.dedup();
    let mut found: Vec<Failed> = pids.into_iter().filter_map(|pid| of_process(info, failures, pid)).collect();
    found.sort_by_key(|failed| (failed.ts, failed.pid));
    found
}

fn of_process(info: &Info, failures: &Failures, pid: i64) -> Option<Failed> {
    let makes_calls = failures.calls.iter().any(|calls| calls.pid == pid);
    let is_root = is_root(info, pid);
    let end = failures.end(pid);
    let exit_ts = end.and_then(|end| end.exit_ts);
    let counts = match How::of(end) {
        How::KilledForMemory => true,
        _ if is_root => true,
        How::Crash(..) if makes_calls => true,
        How::Crash(..) => !job_ended_well(info, failures, exit_ts),
        How::Killed(_) | How::Status(_) => makes_calls && !job_ended_well(info, failures, exit_ts),
        How::Well | How::Unknown => true,
    };
    let how = if counts { How::of(end) } else { How::Well };
    let call = if makes_calls { failed_call(failures, pid, how) } else { None };
    if !how.is_bad() && call.is_none() {
        return None;
    }
    let works_after = |ts: i64| {
        let own = failures.calls.iter().filter(|calls| calls.pid == pid && is_work(calls.op.class()));
        own.filter_map(|calls| calls.last_end).any(|last| last > ts)
    };
    let asked = failures.out_of_memory.iter().any(|(of, ts)| *of == pid && !works_after(*ts));
    let kill_ts = end.and_then(|end| end.oom_kill_ts);
    let ts = call.map(|call| call.ts).or(kill_ts).or(exit_ts)?;
    let is_out_of_memory = call.map_or(asked, |call| is_memory(call.code));
    Some(Failed { pid, ts, exit_ts, how, call, is_out_of_memory })
}

/// Whether a process is the command, or one that the recording was asked to follow: none of the others is its parent.
fn is_root(info: &Info, pid: i64) -> bool {
    let processes = &info.provenance.processes;
    let is_known = |pid: u32| processes.iter().any(|process| process.pid == pid);
    let own = processes.iter().find(|process| i64::from(process.pid) == pid);
    own.is_some_and(|own| !is_known(own.parent_pid))
}

/// Whether a process that the recording began with ended with status 0 at a time in nanoseconds or later.
fn job_ended_well(info: &Info, failures: &Failures, ts: Option<i64>) -> bool {
    let ends = failures.ends.iter();
    let mut well = ends.filter(|end| end.status == Some(0) && is_root(info, end.pid));
    well.any(|end| end.exit_ts >= ts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(op: Op, ret: i32, first_ts: i64, last_ts: i64) -> CallSum {
        CallSum {
            pid: 1,
            tid: 1,
            op,
            ret: Some(ret),
            calls_count: 2,
            open_count: 0,
            first_ts,
            last_ts,
            last_end: Some(last_ts + 1),
            longest_ns: Some(1),
        }
    }

    fn found(calls: Vec<CallSum>, how: How) -> Option<(Op, i32, i64, i64)> {
        let failures = Failures { calls, ..Failures::default() };
        failed_call(&failures, 1, how).map(|call| (call.op, call.code.code, call.ts, call.calls_count))
    }

    #[test]
    fn of_a_sticky_error_the_first_call_counts() {
        let launches = calls(Op::CudaLaunchKernel, 0, 0, 100);
        let sync = calls(Op::CudaStreamSynchronize, 710, 110, 130);
        let free = calls(Op::CuMemFree, 710, 140, 150);
        let first = Some((Op::CudaStreamSynchronize, 710, 110, 2));
        for how in [How::Status(1), How::Unknown, How::Well] {
            assert_eq!(found(vec![free, launches, sync], how), first, "{how:?}");
        }
    }

    #[test]
    fn answers_and_errors_that_were_dealt_with_are_no_failures() {
        let launches = calls(Op::CudaLaunchKernel, 0, 0, 100);
        for (op, ret, ts) in [
            (Op::CudaEventQuery, 600, 200),
            (Op::CuLibraryUnload, 4, 200),
            (Op::CuMemCreate, 800, 200),
            (Op::CuLibraryGetKernel, 209, 200),
            // PyTorch asks once more after it has released what it reserves.
            (Op::CudaMalloc, 2, 50),
            (Op::CudaMemcpy, 1, 50),
            (Op::NcclCommAbort, 1, 200),
        ] {
            let error = calls(op, ret, ts, ts);
            for how in [How::Status(1), How::Unknown, How::Well] {
                assert_eq!(found(vec![launches, error], how), None, "{op:?} {ret} {how:?}");
            }
        }
    }

    #[test]
    fn an_error_that_ends_the_work_counts_if_the_process_did_not_end_well() {
        let launches = calls(Op::CudaLaunchKernel, 0, 0, 100);
        let copy = calls(Op::CudaMemcpy, 1, 150, 150);
        assert_eq!(found(vec![launches, copy], How::Status(1)), Some((Op::CudaMemcpy, 1, 150, 2)));
        assert_eq!(found(vec![launches, copy], How::Well), None);
        // A request that failed and was answered later is no failure; the one that followed is.
        let (malloc, failed) = (calls(Op::CudaMalloc, 0, 20, 120), calls(Op::CudaMalloc, 2, 110, 160));
        assert_eq!(found(vec![launches, malloc, failed], How::Unknown).map(|it| it.1), Some(2));
        let failed = calls(Op::CudaMalloc, 2, 110, 110);
        assert_eq!(found(vec![launches, malloc, failed], How::Unknown), None);
        // A stream may be gone at the end of a process; one that ends with an error may end by that.
        let sync = calls(Op::CuStreamSynchronize, 400, 150, 150);
        assert_eq!(found(vec![launches, sync], How::Unknown), None);
        assert_eq!(found(vec![launches, sync], How::Status(1)).map(|it| it.1), Some(400));
        // No kernel ran, and the program did not notice.
        let launch = calls(Op::CudaLaunchKernel, 209, 10, 90);
        assert_eq!(found(vec![launch], How::Well).map(|it| it.1), Some(209));
    }

    #[test]
    fn a_status_is_a_number_or_a_signal() {
        let how = |status, oom_kill_ts| How::of(Some(&End { pid: 1, exit_ts: Some(5), status, oom_kill_ts }));
        assert_eq!(how(Some(3), None), How::Status(3));
        assert!(matches!(how(Some(-11), None), How::Crash("SIGSEGV", _)));
        assert_eq!(how(Some(-15), None), How::Killed(15));
        assert_eq!(how(Some(-9), Some(4)), How::KilledForMemory);
        assert_eq!(how(Some(-9), None), How::Killed(9));
        assert_eq!((how(Some(-2), None), how(Some(0), None)), (How::Well, How::Well));
        assert_eq!((how(None, None), How::of(None)), (How::Unknown, How::Unknown));
        assert_eq!((signal_name(9), signal_name(34)), ("SIGKILL".to_owned(), "signal 34".to_owned()));
    }
}
