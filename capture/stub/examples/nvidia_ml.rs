//! `libnvidia-ml.so`: one GPU with constant readings.
#![expect(unsafe_code, reason = "C interface")]
#![expect(missing_docs, reason = "documented by NVIDIA")]
#![expect(clippy::missing_safety_doc, reason = "documented by NVIDIA")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// version, total, reserved, free, used
pub type Memory = [u64; 5];

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    // SAFETY: the caller's out-pointer.
    unsafe { *count = 1 };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's out-pointer.
    unsafe { *device = (index as usize + 1) as *mut c_void };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(_device: *mut c_void, memory: *mut Memory) -> c_int {
    // SAFETY: the caller's out-pointer.
    unsafe { *memory = [(*memory)[0], 64 << 30, 0, 40 << 30, 24 << 30] };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(_device: *mut c_void, name: *mut c_char, length: c_uint) -> c_int {
    let text = c"NVIDIA Stub";
    assert!(length as usize >= text.to_bytes_with_nul().len());
    // SAFETY: the caller's buffer is long enough.
    unsafe { text.as_ptr().copy_to_nonoverlapping(name, text.to_bytes_with_nul().len()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(_device: *mut c_void, milliwatts: *mut c_uint) -> c_int {
    // SAFETY: the caller's out-pointer.
    unsafe { *milliwatts = 123_456 };
    0
}
