//! The events that the eBPF programs send to user space, and the constants that both sides share.
//!
//! Every struct is `repr(C)`, a multiple of 8 bytes, without implicit padding, in native byte order.
//! The first byte is its [`tag`]. Times are nanoseconds on CLOCK_MONOTONIC (`bpf_ktime_get_ns`).
//! A value that does not apply is 0 unless its field says otherwise.
#![no_std]

/// The first byte of every event.
pub mod tag {
    /// [`super::Call`] with its return seen.
    pub const CALL: u8 = 1;
    /// [`super::Call`] from a probe on entry only: `dur_ns`, `ret` and `out` mean nothing.
    pub const POINT: u8 = 2;
    /// [`super::OffCpu`].
    pub const OFF_CPU: u8 = 3;
    /// [`super::Run`].
    pub const RUN: u8 = 4;
    /// [`super::Process`].
    pub const PROCESS: u8 = 5;
    /// [`super::Name`].
    pub const NAME: u8 = 6;
    /// [`super::Fault`].
    pub const FAULT: u8 = 7;
}

/// Indices into the kernel's table of lost events, which also number the probes.
pub mod probe {
    /// The scheduler probes that make off-CPU intervals.
    pub const OFF_CPU: u32 = 0;
    /// Scheduling slices of other tasks on a CPU that a traced thread waits for.
    pub const RUN: u32 = 1;
    /// Notices of forks, execs, exits and library loads.
    pub const PROCESS: u32 = 2;
    /// Major page faults and out-of-memory kills.
    pub const FAULT: u32 = 3;
    /// Call stacks for which the table of stacks had no room; their calls are recorded without a stack.
    pub const STACK: u32 = 4;
    /// The first function probe; the n-th of them has number `FIRST_CALL + n`.
    pub const FIRST_CALL: u32 = 8;
    /// Size of the table: one more than the largest probe number.
    pub const COUNT: u32 = 512;
}

/// The bits of an attach cookie, which tells the generic program which function it is on.
pub mod cookie {
    /// Bits 0..16: the probe's number.
    pub const PROBE_MASK: u64 = 0xffff;
    /// Bits 16..20: 1 + index of the argument that points at a result to read on return; 0 if there is none.
    pub const OUT_SHIFT: u64 = 16;
    /// Bit 20: words are read from the struct that argument 0 points at; the table `READS` says which.
    pub const READ: u64 = 1 << 20;
    /// Bit 21: the call stack is taken at entry.
    pub const STACK: u64 = 1 << 21;
    /// Bit 22: argument 2 points at a string that names what the out-pointer received.
    pub const NAMES: u64 = 1 << 22;
    /// Bits 24..28: index of the argument that is, or leads to, a string.
    pub const TEXT_SHIFT: u64 = 24;
    /// Bit 28: that argument points at `nvtxEventAttributes_t`, whose message is the string.
    pub const TEXT_IN_ATTRIBUTES: u64 = 1 << 28;
    /// Bits 32..64 of the loader's cookie: signed distance in bytes from the probed instruction to
    /// the linker's `r_debug.r_state` word.
    pub const R_STATE_SHIFT: u64 = 32;

    /// Value at [`TEXT_SHIFT`] for a function without a string.
    pub const NO_TEXT: u64 = 0xf;

    /// Packs a function probe's cookie. `out_arg` is the index of the out-pointer argument, or of the
    /// argument that a name stands for.
    pub const fn pack(probe: u32, out_arg: Option<u32>, flags: u64) -> u64 {
        let out = match out_arg {
            Some(index) => index as u64 + 1,
            None => 0,
        };
        probe as u64 & PROBE_MASK | out << OUT_SHIFT | flags
    }
}

/// Flags of a target: the values of the kernel's map of traced processes.
pub mod target {
    /// Its calls and its threads are recorded.
    pub const RECORD: u32 = 1;
    /// Its children become targets with the flags `RECORD | FOLLOW`, and `STOP` if it has that flag.
    pub const FOLLOW: u32 = 2;
    /// It is stopped (SIGSTOP) at exec and whenever its loader has mapped a library, so that probes
    /// are in place before the first instruction of that library runs.
    pub const STOP: u32 = 4;
}

/// Length of a thread's name in the kernel in bytes, with the closing NUL.
pub const COMM_BYTES: usize = 16;

/// One call of a probed function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "pod", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct Call {
    /// [`tag::CALL`] or [`tag::POINT`].
    pub tag: u8,
    /// Padding, zero.
    pub pad: u8,
    /// The probe's number.
    pub probe: u16,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// CPU at the end of the call.
    pub cpu: u32,
    /// Time of the entry.
    pub ts: u64,
    /// Time from entry to return, in nanoseconds.
    pub dur_ns: u64,
    /// Value of the return register.
    pub ret: u64,
    /// The word at the out-pointer argument, read on return.
    pub out: u64,
    /// Return address at entry, which lies in the calling library.
    pub caller: u64,
    /// The six argument registers at entry.
    pub args: [u64; 6],
    /// Number of the call stack, or [`NO_STACK`].
    pub stack_id: i32,
    /// Padding, zero.
    pub pad2: u32,
    /// With [`cookie::READ`], words of the struct that argument 0 points at; else the first three words
    /// of the caller's argument area on the stack, and the event ends there ([`ShortCall`]).
    pub more: [u64; READ_WORDS],
}

/// The bytes of a [`Call`] up to its third word from memory: all there is for most functions.
pub type ShortCall = [u64; (size_of::<Call>() - 8 * (READ_WORDS - STACK_WORDS)) / 8];

/// [`Call::stack_id`] of a call without a stack.
pub const NO_STACK: i32 = -1;
/// Number of words of stack arguments in an event.
pub const STACK_WORDS: usize = 3;
/// Number of words that can be read from an argument struct.
pub const READ_WORDS: usize = 7;
/// Number of slots for calls in flight: a power of two.
pub const OPEN_SLOTS: u32 = 1 << 16;

/// A slot for a call in flight.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "pod", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct Open {
    /// Thread and probe that hold the slot; 0 if it is free.
    pub owner: u64,
    /// The call, as far as it is known at its entry.
    pub call: Call,
}

/// Longest name that is read in bytes, with the closing NUL.
pub const NAME_BYTES: usize = 480;

/// A string that a function was given, such as a mark or the name of a kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "pod", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct Name {
    /// [`tag::NAME`].
    pub tag: u8,
    /// Padding, zero.
    pub pad: u8,
    /// The probe's number.
    pub probe: u16,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Length of the text in bytes, with the closing NUL; 0 if it could not be read.
    pub length: u32,
    /// Time of the event.
    pub ts: u64,
    /// Handle that the name stands for; 0 if the function does not tell.
    pub handle: u64,
    /// NUL-terminated, cut at this size; what follows the NUL means nothing.
    pub text: [u8; NAME_BYTES],
}

/// A major page fault of a traced process, or its choice as the victim of an out-of-memory kill.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "pod", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct Fault {
    /// [`tag::FAULT`].
    pub tag: u8,
    /// 1 for an out-of-memory kill, 0 for a major page fault.
    pub oom_kill: u8,
    /// Padding, zero.
    pub pad: u16,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Padding, zero.
    pub pad2: u32,
    /// Time of the event.
    pub ts: u64,
    /// The address that was accessed; 0 for an out-of-memory kill.
    pub addr: u64,
}

/// Numbers that stand for kernel functions until the loader replaces them with the BTF ids of the
/// running kernel.
pub mod kfunc {
    /// `bpf_session_is_return`.
    pub const SESSION_IS_RETURN: u32 = 0x7e00_0001;
    /// `bpf_session_cookie`.
    pub const SESSION_COOKIE: u32 = 0x7e00_0002;
}

/// [`OffCpu::wait_cpu`] of a thread that is in no CPU's queue.
pub const NO_CPU: u32 = u32::MAX;

/// One interval in which a traced thread was not running, `[out_ts, in_ts)`.
///
/// ```text
///   on CPU │ blocked (prev_state != 0) │ runnable, waiting │ on CPU
///        out_ts                     wake_ts              in_ts
/// ```
/// A thread switched out while runnable was never woken: `wake_ts` is 0 and all of it is waiting.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "pod", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct OffCpu {
    /// [`tag::OFF_CPU`].
    pub tag: u8,
    /// 1 if the task was preempted inside kernel code.
    pub preempt: u8,
    /// 1 if the thread was runnable, but its control group had used up its CPU quota.
    pub throttled: u8,
    /// Padding, zero.
    pub pad: u8,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The scheduler's state bits at switch-out; 0 is runnable.
    pub prev_state: u32,
    /// Time of the switch-out.
    pub out_ts: u64,
    /// Time of the switch-in.
    pub in_ts: u64,
    /// Time of the wakeup; 0 if the thread was never asleep.
    pub wake_ts: u64,
    /// Number of the system call the thread was in; -1 for none.
    pub syscall: i32,
    /// CPU that the thread left.
    pub out_cpu: u32,
    /// CPU on which the thread ran again.
    pub in_cpu: u32,
    /// Process that woke the thread; 0 if an interrupt did.
    pub waker_pid: u32,
    /// Thread that woke the thread.
    pub waker_tid: u32,
    /// Process that got the CPU.
    pub next_pid: u32,
    /// Thread that got the CPU; 0 is idle.
    pub next_tid: u32,
    /// CPU in whose run queue the thread waited, or [`NO_CPU`].
    pub wait_cpu: u32,
    /// Name of the thread.
    pub comm: [u8; COMM_BYTES],
    /// The waker's name.
    pub waker_comm: [u8; COMM_BYTES],
    /// Name of the thread that got the CPU.
    pub next_comm: [u8; COMM_BYTES],
}

/// One scheduling slice `[start_ts, end_ts)` of any task on a CPU in whose run queue a traced thread waited.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "pod", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct Run {
    /// [`tag::RUN`].
    pub tag: u8,
    /// Padding, zero.
    pub pad: [u8; 3],
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// CPU on which the task ran.
    pub cpu: u32,
    /// Time of the switch-in.
    pub start_ts: u64,
    /// Time of the switch-out.
    pub end_ts: u64,
    /// Name of the task.
    pub comm: [u8; COMM_BYTES],
}

/// The kinds of notices about a traced process.
pub mod process {
    /// A child was forked: `pid` is the child, `other` its parent.
    pub const FORK: u8 = 1;
    /// A program was executed. With [`super::target::STOP`] the process is stopped now.
    pub const EXEC: u8 = 2;
    /// A thread ended.
    pub const EXIT: u8 = 3;
    /// The loader finished mapping libraries. With [`super::target::STOP`] the process is stopped now.
    pub const LIBRARY: u8 = 4;
}

/// A notice about a traced process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "pod", derive(bytemuck::Pod, bytemuck::Zeroable))]
pub struct Process {
    /// [`tag::PROCESS`].
    pub tag: u8,
    /// One of [`process`].
    pub what: u8,
    /// 1 if the process was sent SIGSTOP with this notice.
    pub stopped: u8,
    /// Padding, zero.
    pub pad: u8,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The parent at a fork; the exit code of the thread at an exit, as `wait(2)` encodes a status; else 0.
    pub other: u32,
    /// Time of the event.
    pub ts: u64,
    /// Name of the thread.
    pub comm: [u8; COMM_BYTES],
}
