//! `libnccl.so`: a few operations with their real names and signatures, without a network.
#![expect(unsafe_code, reason = "C interface")]
#![expect(missing_docs, reason = "documented by NVIDIA")]

use std::ffi::{c_int, c_void};

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    send: *const c_void,
    _receive: *mut c_void,
    _count: usize,
    _data_type: c_int,
    _reduction: c_int,
    _communicator: *mut c_void,
    _stream: *mut c_void,
) -> c_int {
    std::hint::black_box(send);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclReduce(
    send: *const c_void,
    _receive: *mut c_void,
    _count: usize,
    _data_type: c_int,
    _reduction: c_int,
    _root: c_int,
    _communicator: *mut c_void,
    _stream: *mut c_void,
) -> c_int {
    std::hint::black_box(send);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    send: *const c_void,
    _count: usize,
    _data_type: c_int,
    _peer: c_int,
    _communicator: *mut c_void,
    _stream: *mut c_void,
) -> c_int {
    std::hint::black_box(send);
    0
}
