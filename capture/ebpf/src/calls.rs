//! One generic pair of probes for every function: which function it is comes with the attach cookie.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{
        bpf_get_smp_processor_id, bpf_probe_read_user,
        generated::{bpf_get_attach_cookie, bpf_ktime_get_ns},
    },
    macros::{map, uprobe, uretprobe},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
    EbpfContext,
};
use capture_wire::{cookie, tag, Call, OpenKey};

use crate::{
    maps::{emit, lose, recorded},
    task,
};

/// Calls that have been entered and not returned. What is left at the end is a censored span.
#[map]
pub static OPEN: HashMap<OpenKey, Call> = HashMap::with_max_entries(65536, 0);

/// Everything known at entry.
#[inline(always)]
fn entered(regs: *const pt_regs, tag: u8, probe: u32, pid: u32, tid: u32) -> Call {
    // SAFETY: the verifier knows the context; user memory is read through the checking helper.
    let (args, sp) = unsafe {
        let r = &*regs;
        ([r.rdi, r.rsi, r.rdx, r.rcx, r.r8, r.r9], r.rsp)
    };
    // SAFETY: as above. [return address, three words of stack arguments]
    let top: [u64; 4] = unsafe { bpf_probe_read_user(sp as *const [u64; 4]) }.unwrap_or_default();
    Call {
        tag,
        pad: 0,
        probe: probe as u16,
        pid,
        tid,
        cpu: 0,
        // SAFETY: no preconditions.
        ts: unsafe { bpf_ktime_get_ns() },
        dur_ns: 0,
        ret: 0,
        out: 0,
        caller: top[0],
        args,
        stack: [top[1], top[2], top[3]],
    }
}

/// A probed function begins.
#[uprobe]
pub fn call_entry(ctx: ProbeContext) -> u32 {
    let (pid, tid) = task::current();
    if !recorded(pid) {
        return 0;
    }
    // SAFETY: valid for this program type.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let probe = (cookie & cookie::PROBE_MASK) as u32;
    let key = OpenKey { tid, probe };
    // The earlier call of the same function never returned here (it recursed, unwound or its
    // thread died): one of the two cannot be told, and is counted.
    // SAFETY: only this thread touches its own keys.
    if unsafe { OPEN.get(&key) }.is_some() {
        lose(probe);
    }
    let call = entered(ctx.regs, tag::CALL, probe, pid, tid);
    if OPEN.insert(&key, &call, 0).is_err() {
        lose(probe);
    }
    0
}

/// A probed function returns.
#[uretprobe]
pub fn call_return(ctx: RetProbeContext) -> u32 {
    let (_, tid) = task::current();
    // SAFETY: valid for this program type.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let probe = (cookie & cookie::PROBE_MASK) as u32;
    let key = OpenKey { tid, probe };
    // SAFETY: only this thread touches its own keys.
    let Some(open) = (unsafe { OPEN.get(&key) }) else {
        return 0;
    };
    let mut call = *open;
    // SAFETY: no preconditions.
    call.dur_ns = unsafe { bpf_ktime_get_ns() }.saturating_sub(call.ts);
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
    let _ = OPEN.remove(&key);
    emit(probe, false, call);
    0
}

/// A function whose call alone is the event.
#[uprobe]
pub fn call_point(ctx: ProbeContext) -> u32 {
    let (pid, tid) = task::current();
    if !recorded(pid) {
        return 0;
    }
    // SAFETY: valid for this program type.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let probe = (cookie & cookie::PROBE_MASK) as u32;
    emit(probe, false, entered(ctx.regs, tag::POINT, probe, pid, tid));
    0
}
