//! `libc10.so`: the exported report of the allocator's totals.
#![expect(unsafe_code, reason = "C interface")]

use std::ffi::c_void;

/// `device`: type in the low byte (1 is CUDA), index in the next.
#[unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")]
#[inline(never)]
pub extern "C" fn report_memory_usage(
    ptr: *mut c_void,
    bytes: i64,
    _allocated: usize,
    _reserved: usize,
    _device: u16,
) {
    std::hint::black_box((ptr, bytes));
}
