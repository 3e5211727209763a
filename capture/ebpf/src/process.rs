//! Life of the traced processes: children, programs, libraries, ends.

use aya_ebpf::{
    EbpfContext,
    helpers::{
        bpf_get_current_comm, bpf_probe_read_user,
        generated::{bpf_get_attach_cookie, bpf_ktime_get_ns, bpf_send_signal},
    },
    macros::{btf_tracepoint, uprobe},
    programs::{BtfTracePointContext, ProbeContext},
};
use capture_wire::{Process, cookie, probe, process, tag, target};

use crate::{
    maps::{self, TARGETS, emit, lose},
    task::{self, Task},
};

const SIGSTOP: u32 = 19;
/// `r_debug.r_state`: the list of libraries is whole.
const RT_CONSISTENT: u32 = 0;

#[inline(always)]
fn notice(what: u8, stopped: bool, pid: u32, tid: u32, other: u32) {
    let event = Process {
        tag: tag::PROCESS,
        what,
        stopped: stopped as u8,
        pad: 0,
        pid,
        tid,
        other,
        // SAFETY: no preconditions.
        ts: unsafe { bpf_ktime_get_ns() },
        comm: bpf_get_current_comm().unwrap_or_default(),
    };
    emit(probe::PROCESS, true, event);
}

/// Stops the current process if it is to be stopped at such a point, and says so.
#[inline(always)]
fn stop_and_tell(what: u8) {
    let (pid, tid) = task::current();
    let Some(flags) = maps::target(pid) else {
        return;
    };
    if flags & target::RECORD != 0 {
        // SAFETY: no preconditions.
        let stopped = flags & target::STOP != 0 && unsafe { bpf_send_signal(SIGSTOP) } == 0;
        notice(what, stopped, pid, tid, 0);
    }
}

/// A child of a followed process is traced from its first instruction.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    let child: Task = ctx.arg(1);
    let (pid, _) = task::current();
    let child_pid = task::pid(child);
    let Some(flags) = maps::target(pid) else {
        return 0;
    };
    if child_pid != pid && flags & target::FOLLOW != 0 {
        let inherited = target::RECORD | target::FOLLOW | (flags & target::STOP);
        if TARGETS.insert(&child_pid, &inherited, 0).is_err() {
            lose(probe::PROCESS);
        }
        notice(process::FORK, false, child_pid, task::tid(child), pid);
    }
    0
}

/// A traced process begins another program.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(_ctx: BtfTracePointContext) -> i32 {
    stop_and_tell(process::EXEC);
    0
}

/// A traced thread ends.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(_ctx: BtfTracePointContext) -> i32 {
    let (pid, tid) = task::current();
    if maps::recorded(pid) {
        notice(process::EXIT, false, pid, tid, 0);
    }
    0
}

/// The dynamic loader's notification point (`_dl_debug_state`): libraries were added or removed.
#[uprobe]
pub fn library_loaded(ctx: ProbeContext) -> u32 {
    // SAFETY: valid for this program type.
    let distance = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } >> cookie::R_STATE_SHIFT;
    // SAFETY: the context is readable; user memory is read through the checking helper.
    let state: u32 = unsafe {
        let at = (*ctx.regs).rip.wrapping_add(distance as i32 as i64 as u64);
        bpf_probe_read_user(at as *const u32).unwrap_or(RT_CONSISTENT)
    };
    if state == RT_CONSISTENT {
        stop_and_tell(process::LIBRARY);
    }
    0
}
