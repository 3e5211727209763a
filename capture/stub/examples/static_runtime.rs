//! A program that contains the CUDA runtime instead of loading it.
#![expect(unsafe_code, reason = "C interface")]

use std::ffi::{c_int, c_void};

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cudaMalloc(ptr: *mut u64, bytes: usize) -> c_int {
    std::hint::black_box((ptr, bytes));
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cudaLaunchKernel(func: *mut c_void) -> c_int {
    std::hint::black_box(func);
    0
}

fn main() {
    let mut ptr = 0;
    for i in 1..=7 {
        assert_eq!(cudaMalloc(&raw mut ptr, i * 1000), 0);
    }
    assert_eq!(cudaLaunchKernel(std::ptr::null_mut()), 0);
}
