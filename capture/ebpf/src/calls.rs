//! Entry and return of every probed function; which function it is comes with the attach cookie.
//!
//! Between entry and return a call lies in a slot of [`OPEN`]. Where the kernel knows sessions
//! (`uprobe.session`, 6.13), one program serves both ends and the kernel hands the slot's number from one
//! to the other; elsewhere the return looks for the slot that its thread left. Neither hashes nor
//! allocates: a slot is claimed by one compare-and-swap.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};

use aya_ebpf::{
    EbpfContext,
    helpers::{
        bpf_get_smp_processor_id, bpf_probe_read_user,
        generated::{bpf_get_attach_cookie, bpf_get_stackid, bpf_ktime_get_ns, bpf_probe_read_user_str},
    },
    macros::{map, uprobe, uretprobe},
    maps::{Array, StackTrace},
    programs::{ProbeContext, RetProbeContext},
};
use capture_wire::{Call, NAME_BYTES, NO_STACK, Name, OPEN_SLOTS, Open, READ_WORDS, ShortCall, cookie, kfunc, probe, tag};

use crate::{
    maps::{EVENTS, emit_from, lose, recorded, submit},
    task,
};

/// Calls that have been entered and not returned. What is left at the end is a censored span.
#[map]
pub static OPEN: Array<Open> = Array::with_max_entries(OPEN_SLOTS, 0);

/// Byte offsets of the words to read from the struct that argument 0 points at, by probe number.
#[map]
static READS: Array<[u32; READ_WORDS]> = Array::with_max_entries(probe::COUNT, 0);

/// Call stacks, interned. The loader gives it room when stacks are asked for.
#[map]
pub static STACKS: StackTrace = StackTrace::with_max_entries(1, 0);

/// A call at least this long gets its stack. The loader sets it; the default is never.
#[unsafe(no_mangle)]
static SLOW_NS: u64 = u64::MAX;

/// Slots that a call may take, from the one its thread and function point to.
const TRIES: u32 = 4;
const USER_STACK: u64 = 1 << 8;
const EFAULT: i64 = -14;
/// Offset of the message in `nvtxEventAttributes_t`.
const NVTX_MESSAGE: u64 = 40;

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn cookie_of(ctx: &impl EbpfContext) -> u64 {
    // SAFETY: valid for this program type.
    unsafe { bpf_get_attach_cookie(ctx.as_ptr()) }
}

/// The user stack's number in [`STACKS`].
#[inline(always)]
fn stack_of(ctx: &impl EbpfContext) -> i32 {
    // SAFETY: the map is a stack map and the context is the program's own.
    let id = unsafe { bpf_get_stackid(ctx.as_ptr(), (&raw const STACKS).cast_mut().cast(), USER_STACK) };
    if id >= 0 {
        return id as i32;
    }
    // Two stacks of one hash, or no room; a stack that cannot be walked is none.
    if id != EFAULT {
        lose(probe::STACK);
    }
    NO_STACK
}

/// Writes everything known at entry to `call`, up to its third word from memory; with `STRUCT`, to its end.
///
/// # Safety
/// `call` can be written that far.
#[inline(always)]
unsafe fn enter<const STRUCT: bool>(call: *mut Call, ctx: &ProbeContext, tag: u8, cookie: u64, pid: u32, tid: u32) {
    let probe = (cookie & cookie::PROBE_MASK) as u32;
    // SAFETY: the caller's promise; the verifier knows the context; user memory is read through the checking helper.
    unsafe {
        let r = &*ctx.regs;
        (*call).tag = tag;
        (*call).pad = 0;
        (*call).probe = probe as u16;
        (*call).pid = pid;
        (*call).tid = tid;
        (*call).cpu = 0;
        (*call).dur_ns = 0;
        (*call).ret = 0;
        (*call).out = 0;
        (*call).args = [r.rdi, r.rsi, r.rdx, r.rcx, r.r8, r.r9];
        (*call).stack_id = if cookie & cookie::STACK != 0 { stack_of(ctx) } else { NO_STACK };
        (*call).pad2 = 0;
        // [return address, three words of stack arguments]
        let top: [u64; 4] = bpf_probe_read_user(r.rsp as *const [u64; 4]).unwrap_or_default();
        (*call).caller = top[0];
        (*call).more[0] = top[1];
        (*call).more[1] = top[2];
        (*call).more[2] = top[3];
        if STRUCT
            && cookie & cookie::READ != 0
            && let Some(offsets) = READS.get(probe)
        {
            for i in 0..READ_WORDS {
                let at = r.rdi.wrapping_add(offsets[i] as u64);
                (*call).more[i] = bpf_probe_read_user(at as *const u64).unwrap_or_default();
            }
        }
        // Last: what this probe itself took stands before the call, not in it.
        (*call).ts = now();
    }
}

/// The slot a call of this thread and function tries first.
#[inline(always)]
fn home(tid: u32, probe: u32) -> u32 {
    tid.wrapping_mul(0x9e37_79b1).wrapping_add(probe.wrapping_mul(0x85eb_ca6b)) >> 16
}

#[inline(always)]
fn owner(tid: u32, probe: u32) -> u64 {
    (probe as u64) << 32 | tid as u64
}

/// Claims a slot and fills it; its number plus one, or 0 if all that may be tried are taken.
#[inline(always)]
fn open(ctx: &ProbeContext, cookie: u64, pid: u32, tid: u32) -> u32 {
    let probe = (cookie & cookie::PROBE_MASK) as u32;
    let first = home(tid, probe);
    for i in 0..TRIES {
        let index = first.wrapping_add(i) & (OPEN_SLOTS - 1);
        let Some(slot) = OPEN.get_ptr_mut(index) else {
            return 0;
        };
        // SAFETY: the slot is this thread's own once the swap has succeeded.
        unsafe {
            let claim = atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
                &raw mut (*slot).owner,
                0,
                owner(tid, probe),
            );
            if claim.1 {
                enter::<true>(&raw mut (*slot).call, ctx, tag::CALL, cookie, pid, tid);
                return index + 1;
            }
        }
    }
    lose(probe);
    0
}

/// Sends the call in a slot on its way and frees the slot.
#[inline(always)]
fn close(ctx: &RetProbeContext, cookie: u64, slot: *mut Open) {
    let end = now();
    let probe = (cookie & cookie::PROBE_MASK) as u32;
    // SAFETY: the slot belongs to the returning thread.
    let call = unsafe { &mut (*slot).call };
    call.dur_ns = end.saturating_sub(call.ts);
    // SAFETY: no preconditions.
    call.cpu = unsafe { bpf_get_smp_processor_id() };
    call.ret = ctx.ret();
    let out = match (cookie >> cookie::OUT_SHIFT) & 0xf {
        1 => call.args[0],
        2 => call.args[1],
        3 => call.args[2],
        4 => call.args[3],
        _ => 0,
    };
    if out != 0 {
        // SAFETY: the helper checks the address.
        call.out = unsafe { bpf_probe_read_user(out as *const u64) }.unwrap_or_default();
    }
    // SAFETY: a constant of the loaded program.
    let slow_ns = unsafe { core::ptr::read_volatile(&raw const SLOW_NS) };
    if call.dur_ns >= slow_ns && call.stack_id == NO_STACK {
        call.stack_id = stack_of(ctx);
    }
    let call: *const Call = call;
    if cookie & cookie::READ == 0 {
        emit_from(probe, call.cast::<ShortCall>());
    } else {
        emit_from(probe, call);
    }
    // SAFETY: as above.
    let call = unsafe { &*call };
    // A call that failed has found nothing to name.
    if cookie & cookie::NAMES != 0 && call.ret as i32 == 0 {
        send_name(probe, call.pid, call.tid, call.out, call.args[2]);
    }
    // SAFETY: as above; the last access.
    unsafe { core::ptr::write_volatile(&raw mut (*slot).owner, 0) };
}

/// Sends the string at a user address with what it stands for.
#[inline(always)]
fn send_name(probe: u32, pid: u32, tid: u32, handle: u64, text: u64) {
    let Some(mut slot) = EVENTS.reserve::<Name>(0) else {
        lose(probe);
        return;
    };
    let name = slot.as_mut_ptr();
    // SAFETY: the slot is ours; the helper checks the user address and writes no more than it may.
    unsafe {
        (*name).tag = tag::NAME;
        (*name).pad = 0;
        (*name).probe = probe as u16;
        (*name).pid = pid;
        (*name).tid = tid;
        (*name).ts = now();
        (*name).handle = handle;
        let length = bpf_probe_read_user_str((&raw mut (*name).text).cast(), NAME_BYTES as u32, text as *const _);
        (*name).length = if length > 0 { length as u32 } else { 0 };
    }
    submit(slot, false);
}

/// A function that is given a name.
#[uprobe]
pub fn call_named(ctx: ProbeContext) -> u32 {
    let (pid, tid) = task::current();
    if !recorded(pid) {
        return 0;
    }
    let cookie = cookie_of(&ctx);
    // SAFETY: the verifier knows the context.
    let (a0, a1, a3) = unsafe { ((*ctx.regs).rdi, (*ctx.regs).rsi, (*ctx.regs).rcx) };
    let mut text = match (cookie >> cookie::TEXT_SHIFT) & 0xf {
        0 => a0,
        3 => a3,
        _ => 0,
    };
    if cookie & cookie::TEXT_IN_ATTRIBUTES != 0 {
        // SAFETY: the helper checks the address.
        text = unsafe { bpf_probe_read_user(text.wrapping_add(NVTX_MESSAGE) as *const u64) }.unwrap_or_default();
    }
    let handle = if (cookie >> cookie::OUT_SHIFT) & 0xf == 2 { a1 } else { 0 };
    send_name((cookie & cookie::PROBE_MASK) as u32, pid, tid, handle, text);
    0
}

/// A probed function begins (kernels without sessions).
#[uprobe]
pub fn call_entry(ctx: ProbeContext) -> u32 {
    let (pid, tid) = task::current();
    if recorded(pid) {
        open(&ctx, cookie_of(&ctx), pid, tid);
    }
    0
}

/// A probed function returns (kernels without sessions): the latest call that this thread left open.
#[uretprobe]
pub fn call_return(ctx: RetProbeContext) -> u32 {
    let (_, tid) = task::current();
    let cookie = cookie_of(&ctx);
    let probe = (cookie & cookie::PROBE_MASK) as u32;
    let (first, wanted) = (home(tid, probe), owner(tid, probe));
    let mut latest = OPEN_SLOTS;
    let mut latest_ts = 0;
    for i in 0..TRIES {
        let index = first.wrapping_add(i) & (OPEN_SLOTS - 1);
        if let Some(slot) = OPEN.get(index)
            && slot.owner == wanted
            && slot.call.ts > latest_ts
        {
            (latest, latest_ts) = (index, slot.call.ts);
        }
    }
    if latest_ts != 0
        && let Some(slot) = OPEN.get_ptr_mut(latest)
    {
        close(&ctx, cookie, slot);
    }
    0
}

/// Both ends of a probed function. At entry, 1 tells the kernel not to come back at the return.
#[uprobe]
pub fn call_session(ctx: ProbeContext) -> u32 {
    // SAFETY: the loader replaces these two calls by the kernel's functions of these signatures.
    let (is_return, slot_of_session): (extern "C" fn() -> u64, extern "C" fn() -> *mut u64) = unsafe {
        (core::mem::transmute(kfunc::SESSION_IS_RETURN as usize), core::mem::transmute(kfunc::SESSION_COOKIE as usize))
    };
    if is_return() & 0xff == 0 {
        let (pid, tid) = task::current();
        if !recorded(pid) {
            return 1;
        }
        let slot = open(&ctx, cookie_of(&ctx), pid, tid);
        if slot == 0 {
            return 1;
        }
        // SAFETY: the kernel's own word for this session.
        unsafe { *slot_of_session() = slot as u64 };
        return 0;
    }
    // SAFETY: as above.
    let index = unsafe { *slot_of_session() } as u32;
    // The entry was of no interest; some kernels come back all the same.
    if index == 0 {
        return 0;
    }
    if let Some(slot) = OPEN.get_ptr_mut(index.wrapping_sub(1) & (OPEN_SLOTS - 1)) {
        let ctx = RetProbeContext::new(ctx.as_ptr());
        close(&ctx, cookie_of(&ctx), slot);
    }
    0
}

/// A function whose call alone is the event.
#[uprobe]
pub fn call_point(ctx: ProbeContext) -> u32 {
    let (pid, tid) = task::current();
    if !recorded(pid) {
        return 0;
    }
    let cookie = cookie_of(&ctx);
    let Some(mut slot) = EVENTS.reserve::<ShortCall>(0) else {
        lose((cookie & cookie::PROBE_MASK) as u32);
        return 0;
    };
    // SAFETY: the slot is as long as a call without struct words.
    unsafe { enter::<false>(slot.as_mut_ptr().cast(), &ctx, tag::POINT, cookie, pid, tid) };
    submit(slot, false);
    0
}

/// What the cheapest possible probe costs: the floor that `capture bench` measures against.
#[uprobe]
pub fn floor_entry(_ctx: ProbeContext) -> u32 {
    0
}

/// Its return.
#[uretprobe]
pub fn floor_return(_ctx: RetProbeContext) -> u32 {
    0
}
