//! `libcudart.so` of `capture demo`: the runtime functions that its workload calls, with their real names and signatures. As the
//! real ones do, they call the driver, whose library the process has loaded before (`libcuda.rs`). Every status passes `black_box`,
//! which keeps a call of the driver from becoming a jump: the two functions would then return at once.
#![no_std]

use core::{
    ffi::{c_int, c_uint, c_void},
    hint::black_box,
    panic::PanicInfo,
};

/// `dim3`, by value.
#[repr(C)]
pub struct Dim3 {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

unsafe extern "C" {
    fn cuMemAlloc_v2(ptr: *mut u64, bytes: usize) -> c_int;
    fn cuMemFree_v2(ptr: u64) -> c_int;
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) -> c_int;
    fn cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: *mut c_void,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
    fn cuStreamSynchronize(stream: *mut c_void) -> c_int;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaMalloc(ptr: *mut u64, bytes: usize) -> c_int {
    // SAFETY: the caller's place for the address.
    black_box(unsafe { cuMemAlloc_v2(ptr, bytes) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaFree(ptr: u64) -> c_int {
    // SAFETY: the driver of the demo takes any address.
    black_box(unsafe { cuMemFree_v2(ptr) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpyAsync(
    to: u64,
    from: *const c_void,
    bytes: usize,
    _kind: c_int,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the driver of the demo reads nothing.
    black_box(unsafe { cuMemcpyHtoDAsync_v2(to, from, bytes, stream) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchKernel(
    function: *mut c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: *mut c_void,
) -> c_int {
    let shared_bytes = shared_bytes as c_uint;
    let extra = core::ptr::null_mut();
    // SAFETY: the driver of the demo reads nothing.
    let status = unsafe {
        cuLaunchKernel(
            function,
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            shared_bytes,
            stream,
            arguments,
            extra,
        )
    };
    black_box(status)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSynchronize(stream: *mut c_void) -> c_int {
    // SAFETY: the driver of the demo takes any stream.
    black_box(unsafe { cuStreamSynchronize(stream) })
}
