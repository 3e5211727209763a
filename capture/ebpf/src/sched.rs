//! When a traced thread does not run: off-CPU intervals, their wakers, and who had the CPU meanwhile.
//!
//! ```text
//! traced  ████ switch-out ░░░░ asleep ░░░░ waking ▒▒▒ in a queue ▒▒▒ switch-in ████
//!                                                 │ stints of other tasks on that CPU │
//! ```
//! An interval leaves the kernel as one event at its end, so a full buffer loses it whole.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::{
    helpers::{
        bpf_get_current_comm, bpf_get_smp_processor_id,
        bpf_probe_read_kernel,
        generated::{bpf_get_current_task_btf, bpf_ktime_get_ns, bpf_task_pt_regs},
    },
    macros::{btf_tracepoint, map},
    maps::{Array, HashMap, PerCpuArray},
    programs::BtfTracePointContext,
};
use capture_wire::{probe, tag, OffCpu, Run, COMM_BYTES, NO_CPU};

use crate::{
    maps::{emit, lose, recorded},
    task::{self, Task},
};

/// Traced threads that are off CPU, by thread id. What is left at the end is a censored interval.
#[map]
pub static OFF: HashMap<u32, OffCpu> = HashMap::with_max_entries(65536, 0);

/// How many traced threads wait in each CPU's queue.
#[map]
static WAITING: Array<i64> = Array::with_max_entries(MAX_CPUS, 0);

/// When the task now on this CPU got it.
#[map]
static STINT: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// An address on its way from a pointer to a number.
#[map]
static ADDRESS: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Whether every stint on every CPU is recorded. The loader sets it.
#[unsafe(no_mangle)]
static ALL_CPUS: u32 = 0;

const MAX_CPUS: u32 = 4096;
/// The scheduler's final states: the thread never comes back.
const TASK_DEAD: u32 = 0x80 | 0x10 | 0x20;

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn queue(cpu: u32, change: i64) {
    if let Some(count) = WAITING.get_ptr_mut(cpu) {
        // SAFETY: atomic, because wake-ups come from other CPUs.
        unsafe { atomic_xadd::<i64, i64, { AtomicOrdering::Relaxed }>(count, change) };
    }
}

/// The system call the current thread is in, or -1.
#[inline(always)]
fn current_syscall() -> i32 {
    // SAFETY: the helpers return kernel addresses of the current task; reads are checked.
    unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const aya_ebpf::bindings::pt_regs;
        bpf_probe_read_kernel(&raw const (*regs).orig_rax).map_or(-1, |nr| nr as i32)
    }
}

/// Bytes of a task's kernel stack on x86-64 (16 KiB; 32 with KASAN, which only widens the check).
const STACK_BYTES: u64 = 16 << 10;

/// An address on the stack that the kernel runs on. A function of its own, because a program that needs 64 bytes of
/// stack or more gets a private one (Linux 6.13). Its name is not mangled: that would depend on where it is built.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn stack_address() -> u64 {
    let mut here = 0u64;
    let Some(slot) = ADDRESS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the slot belongs to this CPU. The verifier knows `here` as a pointer, whose distance to another
    // address means nothing to it; what is read back is a number.
    unsafe {
        core::ptr::write_volatile(slot, core::hint::black_box(&raw mut here) as u64);
        core::ptr::read_volatile(slot)
    }
}

/// Whether the current task itself acts, and not an interrupt that happened to come while it ran: such a
/// wake-up is no deed of the task. An interrupt of kernel code runs on a stack of its own. One of user code runs on
/// the task's, but then the task is in no system call. What wakes others out of a page fault is taken for an
/// interrupt, too.
#[inline(always)]
fn acts_itself() -> bool {
    // SAFETY: no preconditions.
    let current = unsafe { bpf_get_current_task_btf() } as Task;
    let on_own_stack = stack_address().wrapping_sub(task::stack(current)) < STACK_BYTES;
    on_own_stack && (task::is_kernel_thread(current) || current_syscall() >= 0)
}

#[inline(always)]
fn switched_out(ts: u64, cpu: u32, (pid, tid): (u32, u32), preempt: bool, state: u32, prev: Task, next: Task) {
    if state & TASK_DEAD != 0 && !preempt {
        return;
    }
    let runnable = preempt || state == 0;
    let next_tid = task::tid(next);
    let off = OffCpu {
        tag: tag::OFF_CPU,
        preempt: preempt as u8,
        throttled: (runnable && task::throttled(prev)) as u8,
        pad: 0,
        pid,
        tid,
        prev_state: if preempt { 0 } else { state },
        out_ts: ts,
        in_ts: 0,
        wake_ts: 0,
        syscall: current_syscall(),
        out_cpu: cpu,
        in_cpu: 0,
        waker_pid: 0,
        waker_tid: 0,
        next_pid: task::pid(next),
        next_tid,
        wait_cpu: if runnable { cpu } else { NO_CPU },
        comm: bpf_get_current_comm().unwrap_or_default(),
        waker_comm: [0; COMM_BYTES],
        next_comm: task::comm(next),
    };
    if OFF.insert(&tid, &off, 0).is_err() {
        lose(probe::OFF_CPU);
    } else if runnable {
        queue(cpu, 1);
    }
}

#[inline(always)]
fn switched_in(ts: u64, cpu: u32, tid: u32) {
    // SAFETY: a thread is switched in by one CPU at a time.
    let Some(off) = (unsafe { OFF.get(&tid) }) else {
        return;
    };
    let mut off = *off;
    off.in_ts = ts;
    off.in_cpu = cpu;
    if off.wait_cpu != NO_CPU {
        queue(off.wait_cpu, -1);
    }
    let _ = OFF.remove(&tid);
    emit(probe::OFF_CPU, false, off);
}

/// Every context switch of the machine; most are of no interest and leave after two lookups.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    let preempt = ctx.arg::<u8>(0) != 0;
    let (prev, next): (Task, Task) = (ctx.arg(1), ctx.arg(2));
    let state: u32 = ctx.arg(3);
    let ts = now();
    // SAFETY: no preconditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let (pid, tid) = task::current();

    let start = match STINT.get_ptr_mut(0) {
        // SAFETY: the slot belongs to this CPU, and switches do not nest.
        Some(slot) => unsafe { core::mem::replace(&mut *slot, ts) },
        None => 0,
    };
    // SAFETY: a constant of the loaded program.
    let all = unsafe { core::ptr::read_volatile(&raw const ALL_CPUS) } != 0;
    let waited_for = all || matches!(WAITING.get(cpu), Some(count) if *count > 0);
    if waited_for && tid != 0 && start != 0 {
        let comm = bpf_get_current_comm().unwrap_or_default();
        let run = Run { tag: tag::RUN, pad: [0; 3], pid, tid, cpu, start_ts: start, end_ts: ts, comm };
        emit(probe::RUN, false, run);
    }
    if tid != 0 && recorded(pid) {
        switched_out(ts, cpu, (pid, tid), preempt, state, prev, next);
    }
    switched_in(ts, cpu, task::tid(next));
    0
}

/// Runs in the waker's context: the only place where the waker is known.
#[btf_tracepoint(function = "sched_waking")]
pub fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    let tid = task::tid(ctx.arg(0));
    let Some(off) = OFF.get_ptr_mut(&tid) else {
        return 0;
    };
    // SAFETY: the kernel serialises wake-ups of one task.
    let off = unsafe { &mut *off };
    if off.wake_ts == 0 && off.wait_cpu == NO_CPU {
        off.wake_ts = now();
        if acts_itself() {
            (off.waker_pid, off.waker_tid) = task::current();
            off.waker_comm = bpf_get_current_comm().unwrap_or_default();
        }
    }
    0
}

/// The woken thread has a queue now.
#[btf_tracepoint(function = "sched_wakeup")]
pub fn sched_wakeup(ctx: BtfTracePointContext) -> i32 {
    let woken: Task = ctx.arg(0);
    let Some(off) = OFF.get_ptr_mut(&task::tid(woken)) else {
        return 0;
    };
    let cpu = task::cpu(woken);
    // SAFETY: the kernel serialises wake-ups of one task.
    let off = unsafe { &mut *off };
    if off.wait_cpu == NO_CPU {
        off.wait_cpu = cpu;
        queue(cpu, 1);
    }
    0
}

/// A waiting thread was moved to another CPU's queue.
#[btf_tracepoint(function = "sched_migrate_task")]
pub fn sched_migrate_task(ctx: BtfTracePointContext) -> i32 {
    let moved: Task = ctx.arg(0);
    let cpu: u32 = ctx.arg(1);
    let Some(off) = OFF.get_ptr_mut(&task::tid(moved)) else {
        return 0;
    };
    // SAFETY: the kernel holds the task's lock during a migration.
    let off = unsafe { &mut *off };
    if off.wait_cpu != NO_CPU && off.wait_cpu != cpu {
        queue(off.wait_cpu, -1);
        off.wait_cpu = cpu;
        queue(cpu, 1);
    }
    0
}
