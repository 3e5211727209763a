//! Fields of the kernel's `task_struct`, at offsets that the loader reads from the running kernel's BTF.

use aya_ebpf::{cty::c_void, helpers::{bpf_get_current_pid_tgid, bpf_probe_read_kernel}};
use capture_wire::COMM_BYTES;

/// A kernel task pointer, as tracepoints pass it.
pub type Task = *const c_void;

#[unsafe(no_mangle)]
static TASK_PID: u32 = 0;
#[unsafe(no_mangle)]
static TASK_TGID: u32 = 0;
#[unsafe(no_mangle)]
static TASK_COMM: u32 = 0;
#[unsafe(no_mangle)]
static TASK_CPU: u32 = 0;

#[unsafe(no_mangle)]
static TASK_STACK: u32 = 0;
#[unsafe(no_mangle)]
static TASK_FLAGS: u32 = 0;
#[unsafe(no_mangle)]
static TASK_EXIT_CODE: u32 = 0;
/// Whether its control group's lack of CPU time took it off its queue; [`ABSENT`] before Linux 6.18.
#[unsafe(no_mangle)]
static TASK_THROTTLED: u32 = 0;
/// Its queue in its control group; [`ABSENT`] in a kernel without CPU quotas.
#[unsafe(no_mangle)]
static TASK_QUEUE: u32 = 0;
/// By how many groups above it a queue is throttled.
#[unsafe(no_mangle)]
static QUEUE_THROTTLES: u32 = 0;
/// The running kernel has no such field.
const ABSENT: u32 = u32::MAX;

#[inline(always)]
fn read<T: Default>(task: Task, offset: *const u32) -> T {
    // SAFETY: the offset is a constant of the loaded program; the helper checks the address.
    unsafe {
        let offset = core::ptr::read_volatile(offset) as usize;
        bpf_probe_read_kernel(task.cast::<u8>().add(offset).cast::<T>()).unwrap_or_default()
    }
}

/// Thread id.
#[inline(always)]
pub fn tid(task: Task) -> u32 {
    read(task, &raw const TASK_PID)
}

/// Process id.
#[inline(always)]
pub fn pid(task: Task) -> u32 {
    read(task, &raw const TASK_TGID)
}

/// The CPU it runs on or is queued for.
#[inline(always)]
pub fn cpu(task: Task) -> u32 {
    read(task, &raw const TASK_CPU)
}

/// Thread name, NUL-padded.
#[inline(always)]
pub fn comm(task: Task) -> [u8; COMM_BYTES] {
    read(task, &raw const TASK_COMM)
}

/// Its kernel stack, from the lowest address.
#[inline(always)]
pub fn stack(task: Task) -> u64 {
    read(task, &raw const TASK_STACK)
}

/// The code that it ends with: bits 0..7 are the signal that killed it, bits 8..16 its exit status. All threads that
/// end because their process ends have the code of the process.
#[inline(always)]
pub fn exit_code(task: Task) -> u32 {
    read(task, &raw const TASK_EXIT_CODE)
}

/// Whether it lives in the kernel only.
#[inline(always)]
pub fn is_kernel_thread(task: Task) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    read::<u32>(task, &raw const TASK_FLAGS) & PF_KTHREAD != 0
}

/// Whether its control group has used up its CPU time.
#[inline(always)]
pub fn throttled(task: Task) -> bool {
    // SAFETY: constants of the loaded program.
    let (flag, queue) = unsafe {
        (core::ptr::read_volatile(&raw const TASK_THROTTLED), core::ptr::read_volatile(&raw const TASK_QUEUE))
    };
    if flag != ABSENT {
        return read::<u8>(task, &raw const TASK_THROTTLED) != 0;
    }
    if queue == ABSENT {
        return false;
    }
    let queue = read::<u64>(task, &raw const TASK_QUEUE) as Task;
    read::<u32>(queue, &raw const QUEUE_THROTTLES) != 0
}

/// Process and thread id of the running task.
#[inline(always)]
pub fn current() -> (u32, u32) {
    let both = bpf_get_current_pid_tgid();
    ((both >> 32) as u32, both as u32)
}
