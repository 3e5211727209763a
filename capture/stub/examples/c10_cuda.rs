//! `libc10_cuda.so`: the function that PyTorch's caching allocator calls for each of its events.
#![expect(unsafe_code, reason = "C interface")]

use std::ffi::c_void;

/// What follows the prefix differs from version to version; so does this.
#[unsafe(export_name = "_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_traceEstub")]
#[inline(never)]
pub extern "C" fn record_trace(
    this: *mut c_void,
    action: i32,
    _addr: usize,
    _bytes: usize,
    _stream: *mut c_void,
    _device: i8,
    _pool_owner: u64,
    _pool_id: u64,
) {
    std::hint::black_box((this, action));
}

/// The cold half that a compiler may split off; nobody calls it, and no probe may sit on it.
#[unsafe(export_name = "_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_traceEstub.cold")]
#[inline(never)]
pub extern "C" fn record_trace_cold() {
    std::hint::black_box(());
}
