//! `libc10_cuda.so`: the function that PyTorch's caching allocator calls for each of its events, `emptyCache`, and a request
//! that finds no free block.
#![expect(unsafe_code, reason = "C interface")]

use std::ffi::c_void;

use cuda_stub::function;

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

/// `torch.cuda.empty_cache()`; the workload reports the events of the segments that it releases.
#[unsafe(export_name = "_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator10emptyCacheEstub")]
#[inline(never)]
pub extern "C" fn empty_cache(this: *mut c_void) {
    std::hint::black_box(this);
}

/// A request found no free block: the allocator has blocks freed that other processes no longer use.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn stub_request() -> bool {
    let collect: extern "C" fn() -> bool = function("_ZN5torch14CudaIPCCollectEv");
    // Not the last thing done here, so that the call returns to this library.
    std::hint::black_box(collect())
}
