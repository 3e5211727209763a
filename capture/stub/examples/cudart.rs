//! `libcudart.so`: runtime functions with their real names and signatures; like the real ones, they
//! call the driver, whose functions they look up at run time.
#![expect(unsafe_code, reason = "C interface")]
#![expect(missing_docs, reason = "documented by NVIDIA")]

use std::{
    ffi::{c_int, c_uint, c_void},
    sync::OnceLock,
};

use cuda_stub::symbol;

/// Calls a driver function by name.
macro_rules! driver {
    ($name:literal as fn($($ty:ty),*) => $($arg:expr),*) => {{
        static ADDRESS: OnceLock<usize> = OnceLock::new();
        let address = *ADDRESS.get_or_init(|| symbol($name));
        // SAFETY: the signature is the stub driver's own.
        let function: extern "C" fn($($ty),*) -> c_int = unsafe { std::mem::transmute(address) };
        function($($arg),*)
    }};
}

/// `dim3`, by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaMalloc(ptr: *mut u64, bytes: usize) -> c_int {
    driver!("cuMemAlloc_v2" as fn(*mut u64, usize) => ptr, bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaFree(ptr: u64) -> c_int {
    driver!("cuMemFree_v2" as fn(u64) => ptr)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpy(dst: u64, src: *const c_void, bytes: usize, _kind: c_int) -> c_int {
    driver!("cuMemcpyHtoD_v2" as fn(u64, *const c_void, usize) => dst, src, bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpyAsync(
    dst: u64,
    src: *const c_void,
    bytes: usize,
    _kind: c_int,
    stream: *mut c_void,
) -> c_int {
    driver!("cuMemcpyHtoDAsync_v2" as fn(u64, *const c_void, usize, *mut c_void) => dst, src, bytes, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpy2DAsync(
    dst: u64,
    _dst_pitch: usize,
    src: *const c_void,
    _src_pitch: usize,
    width: usize,
    height: usize,
    _kind: c_int,
    stream: *mut c_void,
) -> c_int {
    driver!("cuMemcpyHtoDAsync_v2" as fn(u64, *const c_void, usize, *mut c_void) => dst, src, width * height, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaMemset(ptr: u64, value: c_int, bytes: usize) -> c_int {
    driver!("cuMemsetD32_v2" as fn(u64, c_uint, usize) => ptr, value as c_uint, bytes / 4)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchKernel(
    func: *mut c_void,
    grid: Dim3,
    block: Dim3,
    args: *mut *mut c_void,
    shared_bytes: usize,
    stream: *mut c_void,
) -> c_int {
    if driver!("stub_module_waits" as fn() =>) != 0 {
        driver!("cuModuleLoadData" as fn(*mut u64, *const c_void) => std::ptr::null_mut(), std::ptr::null());
    }
    driver!(
        "cuLaunchKernel" as fn(*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void)
        => func, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes as c_uint, stream, args, std::ptr::null_mut()
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSynchronize(stream: *mut c_void) -> c_int {
    driver!("cuStreamSynchronize" as fn(*mut c_void) => stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceSynchronize() -> c_int {
    driver!("cuCtxSynchronize" as fn() =>)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchKernelExC(
    _config: *const c_void,
    _func: *const c_void,
    _args: *mut *mut c_void,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpy3DAsync(_params: *const c_void, _stream: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFunction(
    fat_binary: *mut *mut c_void,
    host: *const c_void,
    _device: *mut std::ffi::c_char,
    _name: *const std::ffi::c_char,
) {
    std::hint::black_box((fat_binary, host));
}
