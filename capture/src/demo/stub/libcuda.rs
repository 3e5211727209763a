//! `libcuda.so` of `capture demo`: the driver functions that its workload reaches, with their real names and signatures, over a
//! device that only takes time. `capture/build.rs` builds it; it links to nothing and finds libc in the process that loads it.
//!
//! A call computes for a fixed time on the CPU, so that it lasts longer when its thread has to wait for the CPU; a kernel
//! occupies the device for a fixed time after the kernels before it, and a synchronization sleeps until the device is done.
#![no_std]

use core::{
    ffi::{c_int, c_uint, c_void},
    panic::PanicInfo,
    sync::atomic::{AtomicI64, Ordering},
};

const SUCCESS: c_int = 0;
/// CPU time of a launch, in nanoseconds.
const LAUNCH_NS: i64 = 30_000;
/// CPU time of every other call, in nanoseconds.
const CALL_NS: i64 = 20_000;
/// Time that a kernel occupies the device, in nanoseconds.
const KERNEL_NS: i64 = 100_000;
const CLOCK_MONOTONIC: c_int = 1;
const CLOCK_THREAD_CPUTIME_ID: c_int = 3;
const NS_PER_S: i64 = 1_000_000_000;

/// When the device is done with everything that it was given, in nanoseconds of CLOCK_MONOTONIC.
static DONE_NS: AtomicI64 = AtomicI64::new(0);
/// Where the next allocation lies.
static NEXT: AtomicI64 = AtomicI64::new(0x7f10_0000_0000);

/// `struct timespec` of 64-bit Linux.
#[repr(C)]
struct Time {
    s: i64,
    ns: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Time) -> c_int;
    fn nanosleep(time: *const Time, left: *mut Time) -> c_int;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}

fn read_ns(clock: c_int) -> i64 {
    let mut time = Time { s: 0, ns: 0 };
    // SAFETY: a valid place for the result.
    unsafe { clock_gettime(clock, &raw mut time) };
    time.s.wrapping_mul(NS_PER_S).wrapping_add(time.ns)
}

/// Computes for so much CPU time of this thread.
fn compute(ns: i64) -> c_int {
    let end_ns = read_ns(CLOCK_THREAD_CPUTIME_ID).wrapping_add(ns);
    while read_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns {}
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAlloc_v2(ptr: *mut u64, bytes: usize) -> c_int {
    // SAFETY: the caller's place for the address.
    unsafe { *ptr = NEXT.fetch_add(bytes as i64, Ordering::Relaxed) as u64 };
    compute(CALL_NS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(_ptr: u64) -> c_int {
    compute(CALL_NS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    _to: u64,
    _from: *const c_void,
    _bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    compute(CALL_NS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernel(
    _function: *mut c_void,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: *mut c_void,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    compute(LAUNCH_NS);
    let (now_ns, done_ns) = (read_ns(CLOCK_MONOTONIC), DONE_NS.load(Ordering::Relaxed));
    DONE_NS.store(now_ns.max(done_ns).wrapping_add(KERNEL_NS), Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(_stream: *mut c_void) -> c_int {
    let left_ns = DONE_NS.load(Ordering::Relaxed).wrapping_sub(read_ns(CLOCK_MONOTONIC));
    if left_ns > 0 {
        let time = Time { s: left_ns.wrapping_div(NS_PER_S), ns: left_ns.wrapping_rem(NS_PER_S) };
        // SAFETY: a valid time; what is left of an interrupted sleep is not asked for.
        unsafe { nanosleep(&raw const time, core::ptr::null_mut()) };
    }
    SUCCESS
}
