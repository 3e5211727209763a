//! Shared state: who is traced, what is in flight, what was lost, and the way out.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    macros::map,
    maps::{HashMap, PerCpuArray, RingBuf, ring_buf::RingBufEntry},
};
use capture_wire::probe;

/// Traced processes by id; the value is a set of [`capture_wire::target`] flags.
#[map]
pub static TARGETS: HashMap<u32, u32> = HashMap::with_max_entries(8192, 0);

/// Events on their way to user space. The loader sets the size.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(64 << 20, 0);

/// Events that could not be handed over, by probe number.
#[map]
pub static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(probe::COUNT, 0);

/// The reader is woken once for every so many bytes that wait; below, its timer is soon enough. A wake-up
/// per event would cost ten times the probe itself, and most of all when the reader is behind anyway.
const WAKE_BYTES: u64 = 256 << 10;

/// What the ring buffer puts before a record.
const RECORD_HEAD: usize = 8;

/// The flags of a process, or `None` if it is not traced.
#[inline(always)]
pub fn target(pid: u32) -> Option<u32> {
    // SAFETY: the value is a plain word that only user space and the fork probe write.
    unsafe { TARGETS.get(&pid) }.copied()
}

/// Whether calls and threads of a process are recorded.
#[inline(always)]
pub fn recorded(pid: u32) -> bool {
    matches!(target(pid), Some(flags) if flags & capture_wire::target::RECORD != 0)
}

/// Counts one lost event of a probe.
#[inline(always)]
pub fn lose(probe: u32) {
    if let Some(count) = LOST.get_ptr_mut(probe) {
        // SAFETY: the slot belongs to this CPU; a nested probe can at worst race on a count that
        // is then one short, which needs an interrupt-context probe that does not exist here.
        unsafe { *count += 1 };
    }
}

/// Hands a call to user space from where it lies, or counts it as lost. `T` is as much of a `Call` as
/// there is to say.
#[inline(always)]
pub fn emit_from<T: 'static>(probe: u32, call: *const T) {
    let Some(mut slot) = EVENTS.reserve::<T>(0) else {
        lose(probe);
        return;
    };
    // SAFETY: the caller's call is at least that long, and the reserved bytes are ours.
    unsafe { core::ptr::copy_nonoverlapping(call, slot.as_mut_ptr(), 1) };
    submit(slot, false);
}

/// Sends a filled slot on its way, and wakes the reader if enough waits.
#[inline(always)]
pub fn submit<T>(slot: RingBufEntry<T>, urgent: bool) {
    let waiting = EVENTS.query(BPF_RB_AVAIL_DATA as u64);
    let crossed = waiting >= WAKE_BYTES && waiting & (WAKE_BYTES - 1) < (size_of::<T>() + RECORD_HEAD) as u64;
    let wake = urgent || crossed;
    slot.submit(if wake { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP } as u64);
}

/// Hands an event to user space whole, or counts it as lost.
#[inline(always)]
pub fn emit<T: 'static>(probe: u32, urgent: bool, event: T) {
    let Some(mut slot) = EVENTS.reserve::<T>(0) else {
        lose(probe);
        return;
    };
    slot.write(event);
    submit(slot, urgent);
}
