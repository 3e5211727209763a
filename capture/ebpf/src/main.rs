//! Inquest's eBPF programs: one file per probe family, no policy beyond "is this process traced".
//!
//! What the kernel side promises: every event is whole or counted in [`maps::LOST`]; nothing blocks;
//! the reader is woken only when enough waits ([`maps::emit`]).
#![no_std]
#![no_main]
// The target has no compare-and-swap, so `core::sync::atomic` offers no add; the instruction exists.
#![feature(core_intrinsics)]
#![expect(internal_features, reason = "the only way to an atomic add on this target")]

mod calls;
mod maps;
mod process;
mod sched;
mod task;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual BSD/GPL\0";
