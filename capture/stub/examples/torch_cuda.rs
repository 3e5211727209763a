//! `libtorch_cuda.so`: `torch::CudaIPCCollect`, which frees the blocks that other processes no longer use.
#![expect(unsafe_code, reason = "C interface")]

use std::{
    ffi::c_void,
    sync::{Mutex, PoisonError},
};

use cuda_stub::function;

type RecordTrace = extern "C" fn(*mut c_void, i32, u64, u64, *mut c_void, i8, u64, u64);

/// Blocks that were sent to another process and are no longer used there: address and size in bytes.
static UNUSED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Another process has given up a block.
#[unsafe(no_mangle)]
pub extern "C" fn stub_given_up(addr: u64, bytes: u64) {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner).push((addr, bytes));
}

/// Frees what was given up, and tells whether it was anything.
#[unsafe(export_name = "_ZN5torch14CudaIPCCollectEv")]
#[inline(never)]
pub extern "C" fn ipc_collect() -> bool {
    let record: RecordTrace =
        function("_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_traceEstub");
    let blocks = std::mem::take(&mut *UNUSED.lock().unwrap_or_else(PoisonError::into_inner));
    for (addr, bytes) in &blocks {
        for action in [1, 2] {
            record(std::ptr::null_mut(), action, *addr, *bytes, std::ptr::null_mut(), 0, 0, 0);
        }
    }
    !blocks.is_empty()
}
