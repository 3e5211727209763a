//! `libcuda.so`: driver functions with their real names and signatures, without a device.
#![expect(unsafe_code, reason = "C interface")]
#![expect(missing_docs, reason = "documented by NVIDIA")]
#![expect(clippy::missing_safety_doc, reason = "documented by NVIDIA")]

use std::{
    cell::Cell,
    ffi::{c_int, c_uint, c_void},
    sync::atomic::{AtomicU64, Ordering},
};

use cuda_stub::{
    order::{self, Order, Slot},
    sleep_ns, spin_ns,
};

const SUCCESS: c_int = 0;
const OUT_OF_MEMORY: c_int = 2;
/// Larger requests fail.
const CAPACITY_BYTES: usize = 1 << 40;

static NEXT: AtomicU64 = AtomicU64::new(0x7f10_0000_0000);

thread_local! {
    static DELAY: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    static ORDER: Slot = const { Slot::empty() };
    static MODULE_ORDER: Slot = const { Slot::empty() };
}

/// The next driver call of this thread computes and then sleeps for these times.
#[unsafe(no_mangle)]
pub extern "C" fn stub_delay(compute_ns: u64, rest_ns: u64) {
    DELAY.set((compute_ns, rest_ns));
}

/// The next driver call of this thread does this; it must live as long.
#[unsafe(no_mangle)]
pub extern "C" fn stub_next(order: *mut Order) {
    ORDER.with(|slot| slot.put(order));
}

/// The next runtime launch of this thread loads a module first, which does this.
#[unsafe(no_mangle)]
pub extern "C" fn stub_next_module(order: *mut Order) {
    MODULE_ORDER.with(|slot| slot.put(order));
}

/// Whether a launch has to load a module.
#[unsafe(no_mangle)]
pub extern "C" fn stub_module_waits() -> c_int {
    MODULE_ORDER.with(Slot::is_full).into()
}

/// Rounds of work that a call of this library does in a millisecond of an undisturbed CPU.
#[unsafe(no_mangle)]
pub extern "C" fn stub_rounds_per_ms() -> u64 {
    order::rounds_per_ms()
}

fn work() -> c_int {
    ORDER.with(Slot::execute);
    let (compute, rest) = DELAY.take();
    if compute > 0 {
        spin_ns(compute);
    }
    sleep_ns(rest);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(ptr: *mut u64, bytes: usize) -> c_int {
    work();
    if bytes > CAPACITY_BYTES {
        return OUT_OF_MEMORY;
    }
    let size = (bytes as u64).next_multiple_of(2 << 20);
    // SAFETY: the caller's out-pointer.
    unsafe { *ptr = NEXT.fetch_add(size, Ordering::Relaxed) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(_ptr: u64) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    _prop: *const c_void,
    _flags: u64,
) -> c_int {
    // SAFETY: the caller's out-pointer.
    unsafe { cuMemAlloc_v2(handle, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(_handle: u64) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    ptr: *mut u64,
    bytes: usize,
    _align: usize,
    _addr: u64,
    _flags: u64,
) -> c_int {
    // SAFETY: the caller's out-pointer.
    unsafe { cuMemAlloc_v2(ptr, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(_ptr: u64, _bytes: usize) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(_ptr: u64, _bytes: usize, _offset: usize, _handle: u64, _flags: u64) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(_ptr: u64, _bytes: usize) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    _dst: u64,
    _src: *const c_void,
    _bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoD_v2(_dst: u64, _src: *const c_void, _bytes: usize) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadData(_module: *mut u64, _image: *const c_void) -> c_int {
    MODULE_ORDER.with(Slot::execute);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32_v2(_dst: u64, _value: c_uint, _count: usize) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernel(
    _func: *mut c_void,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: *mut c_void,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(_stream: *mut c_void) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernelEx(
    _config: *const c_void,
    _func: *mut c_void,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    work()
}

/// The variant for per-thread default streams.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch_ptsz(_graph: *mut c_void, _stream: *mut c_void) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy2D_v2(_copy: *const c_void) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy3DAsync_v2(_copy: *const c_void, _stream: *mut c_void) -> c_int {
    work()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetKernel(
    kernel: *mut u64,
    library: *mut c_void,
    _name: *const std::ffi::c_char,
) -> c_int {
    // SAFETY: the caller's out-pointer.
    unsafe { *kernel = library as u64 + 1 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_int {
    SUCCESS
}
