//! What the stub libraries share: time, delays asked for by the workload, and addresses.
//!
//! The workload tells the next call of its thread how long to compute and how long to sleep, through
//! environment-free exported functions of `libcuda.so` (`stub_delay`), so that a test knows the true
//! length of every call. The courtroom's workload says more: an [`order::Order`], with a fault of a known culprit.
#![expect(unsafe_code, reason = "C interfaces of the real libraries")]

pub mod order;
pub mod scenario;
pub mod truth;

use std::{
    ffi::{CString, c_uint},
    path::Path,
    time::Duration,
};

/// CLOCK_MONOTONIC in nanoseconds, the clock of the trace.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps the CPU busy.
pub fn spin_ns(ns: u64) {
    let end = now_ns() + ns;
    while now_ns() < end {
        std::hint::spin_loop();
    }
}

/// Gives the CPU up.
pub fn sleep_ns(ns: u64) {
    if ns > 0 {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}

/// Address of a symbol in any library loaded so far.
///
/// # Panics
/// If there is none: the stub would test nothing.
pub fn symbol(name: &str) -> usize {
    #[expect(clippy::expect_used, reason = "a constant without NUL")]
    let c_name = CString::new(name).expect("no NUL");
    // SAFETY: a valid C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c_name.as_ptr()) };
    assert!(!address.is_null(), "{name} is not loaded");
    address as usize
}

/// A function of a stub library.
///
/// # Panics
/// If it is not loaded, or `F` is no function pointer.
pub fn function<F: Copy>(name: &str) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    let address = symbol(name);
    // SAFETY: every caller names the signature that the stub defines.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Loads a stub library for everyone.
///
/// # Panics
/// If it is not there: the stub would test nothing.
pub fn load(directory: &Path, name: &str) {
    #[expect(clippy::expect_used, reason = "a path given by a test")]
    let path = CString::new(directory.join(name).to_string_lossy().into_owned()).expect("path");
    // SAFETY: a valid C string.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!handle.is_null(), "cannot load {path:?}");
}

/// `dim3`, by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    /// Along x.
    pub x: c_uint,
    /// Along y.
    pub y: c_uint,
    /// Along z.
    pub z: c_uint,
}
