//! Code that the stub libraries share: clocks, delays that the workload asks for, and symbol addresses.
//!
//! The workload tells the next call of its thread how long to compute and how long to sleep, through
//! environment-free exported functions of `libcuda.so` (`stub_delay`), so that a test knows the true
//! length of every call. The courtroom's workload passes an [`order::Order`], with a fault whose cause is known.
#![expect(unsafe_code, reason = "C interfaces of the real libraries")]

pub mod order;
pub mod scenario;
pub mod truth;

use std::{
    ffi::{CString, c_uint},
    path::Path,
    time::Duration,
};

/// The current time on CLOCK_MONOTONIC, the clock of the trace, in nanoseconds.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps the CPU busy for `ns` nanoseconds.
pub fn spin_ns(ns: u64) {
    let end = now_ns() + ns;
    while now_ns() < end {
        std::hint::spin_loop();
    }
}

/// Sleeps for `ns` nanoseconds.
pub fn sleep_ns(ns: u64) {
    if ns > 0 {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}

/// Address of a symbol in any library loaded so far.
///
/// # Panics
/// If no library has the symbol: the stub would test nothing.
pub fn symbol(name: &str) -> usize {
    #[expect(clippy::expect_used, reason = "a constant without NUL")]
    let c_name = CString::new(name).expect("no NUL");
    // SAFETY: a valid C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c_name.as_ptr()) };
    assert!(!address.is_null(), "{name} is not loaded");
    address as usize
}

/// A function of a stub library, as the function pointer type `F`.
///
/// # Panics
/// If the library is not loaded, or `F` is not a function pointer.
pub fn function<F: Copy>(name: &str) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    let address = symbol(name);
    // SAFETY: every caller names the signature that the stub defines.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Loads a stub library so that its symbols are visible to all other libraries.
///
/// # Panics
/// If the file does not exist: the stub would test nothing.
pub fn load(directory: &Path, name: &str) {
    #[expect(clippy::expect_used, reason = "a path given by a test")]
    let path = CString::new(directory.join(name).to_string_lossy().into_owned()).expect("path");
    // SAFETY: a valid C string.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!handle.is_null(), "cannot load {path:?}");
}

/// CUDA's `dim3`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    /// Extent in x.
    pub x: c_uint,
    /// Extent in y.
    pub y: c_uint,
    /// Extent in z.
    pub z: c_uint,
}
