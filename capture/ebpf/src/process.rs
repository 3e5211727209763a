//! Life of the traced processes: children, programs, libraries, ends.

use aya_ebpf::{
    EbpfContext,
    helpers::{
        bpf_get_current_comm, bpf_probe_read_user,
        generated::{bpf_get_attach_cookie, bpf_ktime_get_ns, bpf_send_signal},
    },
    bindings::bpf_perf_event_data,
    macros::{btf_tracepoint, perf_event, uprobe},
    programs::{BtfTracePointContext, PerfEventContext, ProbeContext},
};
use capture_wire::{COMM_BYTES, Fault, Process, cookie, probe, process, tag, target};

use crate::{
    maps::{self, EVENTS, TARGETS, emit, lose, submit},
    task::{self, Task},
};

/// Programs of this name are traced from their start. The loader sets it; empty: none.
#[unsafe(no_mangle)]
static WAIT_FOR: [u8; COMM_BYTES] = [0; COMM_BYTES];

const SIGSTOP: u32 = 19;
/// `r_debug.r_state`: the list of libraries is whole.
const RT_CONSISTENT: u32 = 0;

#[inline(always)]
fn notice(what: u8, stop: bool, pid: u32, tid: u32, other: u32) {
    // Room for the notice first: nobody would let a process run on that was stopped without one.
    let Some(mut slot) = EVENTS.reserve::<Process>(0) else {
        lose(probe::PROCESS);
        return;
    };
    // SAFETY: no preconditions.
    let stopped = stop && unsafe { bpf_send_signal(SIGSTOP) } == 0;
    slot.write(Process {
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
    });
    submit(slot, true);
}

/// Stops the current process if it is to be stopped at such a point, and says so.
#[inline(always)]
fn stop_and_tell(what: u8) {
    let (pid, tid) = task::current();
    let Some(flags) = maps::target(pid) else {
        return;
    };
    if flags & target::RECORD != 0 {
        notice(what, flags & target::STOP != 0, pid, tid, 0);
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

/// Whether the program that the current process has become is one that is waited for.
#[inline(always)]
fn waited_for() -> bool {
    // SAFETY: a constant of the loaded program.
    let name = unsafe { core::ptr::read_volatile(&raw const WAIT_FOR) };
    name[0] != 0 && matches!(bpf_get_current_comm(), Ok(comm) if comm == name)
}

/// A traced process begins another program, or one that was waited for begins.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(_ctx: BtfTracePointContext) -> i32 {
    let (pid, _) = task::current();
    if maps::target(pid).is_none() && waited_for() {
        let flags = target::RECORD | target::FOLLOW | target::STOP;
        if TARGETS.insert(&pid, &flags, 0).is_err() {
            lose(probe::PROCESS);
        }
    }
    stop_and_tell(process::EXEC);
    0
}

/// With `--all-cuda`: a process initialises CUDA, so it is one to trace.
#[uprobe]
pub fn cuda_starts(_ctx: ProbeContext) -> u32 {
    let (pid, tid) = task::current();
    if maps::target(pid).is_none() {
        if TARGETS.insert(&pid, &(target::RECORD | target::FOLLOW), 0).is_err() {
            lose(probe::PROCESS);
        }
        notice(process::LIBRARY, false, pid, tid, 0);
    }
    0
}

/// A page of the current process had to come from disk.
#[perf_event]
pub fn major_fault(ctx: PerfEventContext) -> u32 {
    let (pid, tid) = task::current();
    if maps::recorded(pid) {
        // SAFETY: the context of this program type.
        let addr = unsafe { (*ctx.as_ptr().cast::<bpf_perf_event_data>()).addr };
        fault(0, pid, tid, addr);
    }
    0
}

/// The kernel chose a process to free memory (the loader attaches it where the argument is the task).
#[btf_tracepoint(function = "mark_victim")]
pub fn mark_victim(ctx: BtfTracePointContext) -> i32 {
    let victim: Task = ctx.arg(0);
    let pid = task::pid(victim);
    if maps::recorded(pid) {
        fault(1, pid, task::tid(victim), 0);
    }
    0
}

#[inline(always)]
fn fault(oom_kill: u8, pid: u32, tid: u32, addr: u64) {
    // SAFETY: no preconditions.
    let ts = unsafe { bpf_ktime_get_ns() };
    let event = Fault { tag: tag::FAULT, oom_kill, pad: 0, pid, tid, pad2: 0, ts, addr };
    emit(probe::FAULT, false, event);
}

/// A traced thread ends.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
    let ending: Task = ctx.arg(0);
    let (pid, tid) = task::current();
    if maps::recorded(pid) {
        notice(process::EXIT, false, pid, tid, task::exit_code(ending));
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
