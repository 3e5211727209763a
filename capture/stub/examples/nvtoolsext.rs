//! `libnvToolsExt.so`: marks for tools that are not there.
#![expect(unsafe_code, reason = "C interface")]
#![expect(non_snake_case, reason = "the library is called so")]
#![expect(missing_docs, reason = "documented by NVIDIA")]

use std::ffi::{c_char, c_int, c_void};

#[unsafe(no_mangle)]
pub extern "C" fn nvtxMarkA(message: *const c_char) {
    std::hint::black_box(message);
}

#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePushA(message: *const c_char) -> c_int {
    std::hint::black_box(message);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePushEx(attributes: *const c_void) -> c_int {
    std::hint::black_box(attributes);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePop() -> c_int {
    std::hint::black_box(0)
}
