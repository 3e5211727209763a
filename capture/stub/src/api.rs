//! Calls whose arguments lie in structs, on the stack or in strings, with values that a test knows.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use cuda_stub::{Dim3, function};

/// A struct as an array of words that are set by byte offset.
struct Words<const N: usize>([u64; N]);

impl<const N: usize> Words<N> {
    fn with(fields: &[(usize, u64)]) -> Self {
        let mut words = [0; N];
        for (offset, value) in fields {
            words[offset / 8] = *value;
        }
        Self(words)
    }

    fn ptr(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }
}

/// A launch configuration: grid 9 8 7, block 6 5 4, stream 0x55.
fn config() -> Words<8> {
    Words::with(&[(0, 9 | 8 << 32), (8, 7 | 6 << 32), (16, 5 | 4 << 32), (24, 1024), (32, 0x55)])
}

type LaunchEx = extern "C" fn(*const c_void, u64, *mut c_void, *mut c_void) -> c_int;
type LaunchExC = extern "C" fn(*const c_void, u64, *mut c_void) -> c_int;
type Launch = extern "C" fn(u64, Dim3, Dim3, *mut c_void, usize, u64) -> c_int;
type Copy = extern "C" fn(*const c_void) -> c_int;
type CopyOn = extern "C" fn(*const c_void, u64) -> c_int;
type Register = extern "C" fn(*mut c_void, u64, *mut c_char, *const c_char);
type GetKernel = extern "C" fn(*mut u64, u64, *const c_char) -> c_int;

/// Makes each of the calls once.
pub(crate) fn calls() {
    let init: extern "C" fn(c_uint) -> c_int = function("cuInit");
    init(0);
    let (launch_ex, launch_exc): (LaunchEx, LaunchExC) =
        (function("cuLaunchKernelEx"), function("cudaLaunchKernelExC"));
    let null = std::ptr::null_mut();
    launch_ex(config().ptr(), 0x4001, null, null);
    launch_exc(config().ptr(), 0x4002, null);

    let register: Register = function("__cudaRegisterFunction");
    let name = |text: &str| CString::new(text).expect("no NUL");
    register(null, 0x4003, std::ptr::null_mut(), name("_Z6kernelPf").as_ptr());
    register(null, 0x4004, std::ptr::null_mut(), name("_Z8launchednever").as_ptr());
    let launch: Launch = function("cudaLaunchKernel");
    for _ in 0..2 {
        launch(0x4003, Dim3 { x: 3, y: 2, z: 1 }, Dim3 { x: 64, y: 4, z: 2 }, null, 0, 0x56);
    }
    let get_kernel: GetKernel = function("cuLibraryGetKernel");
    let mut kernel = 0;
    get_kernel(&raw mut kernel, 0x7000, name("_Z9in_driverv").as_ptr());

    // Host memory 0x100 to device memory 0x2000, 64 bytes by 10 rows by 3.
    let copy_2d: Copy = function("cuMemcpy2D_v2");
    let memory_type = |host: bool| if host { 1 } else { 2 };
    copy_2d(
        Words::<16>::with(&[
            (16, memory_type(true)),
            (24, 0x100),
            (72, memory_type(false)),
            (88, 0x2000),
            (112, 64),
            (120, 10),
        ])
        .ptr(),
    );
    let copy_3d: CopyOn = function("cuMemcpy3DAsync_v2");
    copy_3d(
        Words::<25>::with(&[
            (32, memory_type(false)),
            (48, 0x1000),
            (120, memory_type(false)),
            (136, 0x2000),
            (176, 64),
            (184, 10),
            (192, 3),
        ])
        .ptr(),
        0x57,
    );
    let copy_params: CopyOn = function("cudaMemcpy3DAsync");
    copy_params(
        Words::<20>::with(&[(32, 0x1000), (96, 0x2000), (128, 64), (136, 10), (144, 3), (152, 2)]).ptr(),
        0x58,
    );
    let graph: extern "C" fn(u64, u64) -> c_int = function("cuGraphLaunch_ptsz");
    graph(0x9000, 0x59);
    nccl();
    marks();
}

fn nccl() {
    type AllReduce = extern "C" fn(u64, u64, usize, c_int, c_int, u64, u64) -> c_int;
    type Reduce = extern "C" fn(u64, u64, usize, c_int, c_int, c_int, u64, u64) -> c_int;
    type Send = extern "C" fn(u64, usize, c_int, c_int, u64, u64) -> c_int;
    let (all, reduce, send): (AllReduce, Reduce, Send) =
        (function("ncclAllReduce"), function("ncclReduce"), function("ncclSend"));
    // 1000 of bfloat16, 100 of float32, 10 of int64.
    all(0x10, 0x20, 1000, 9, 0, 0xc0, 0x61);
    reduce(0x10, 0x20, 100, 7, 0, 3, 0xc0, 0x62);
    send(0x10, 10, 4, 2, 0xc0, 0x63);
}

fn marks() {
    let push: extern "C" fn(*const c_char) -> c_int = function("nvtxRangePushA");
    let push_ex: extern "C" fn(*const c_void) -> c_int = function("nvtxRangePushEx");
    let pop: extern "C" fn() -> c_int = function("nvtxRangePop");
    let mark: extern "C" fn(*const c_char) = function("nvtxMarkA");
    let name = |text: &str| CString::new(text).expect("no NUL");
    let inner = name("inner");
    push(name("outer").as_ptr());
    push_ex(Words::<6>::with(&[(0, 3), (32, 1), (40, inner.as_ptr() as u64)]).ptr());
    mark(name("moment").as_ptr());
    pop();
    pop();
    pop();
    push(name("never popped").as_ptr());
    if let Ok(path) = std::env::var("INQUEST_MARKS") {
        let socket = std::os::unix::net::UnixDatagram::unbound().expect("socket");
        for text in ["begin epoch", "step 7", "end epoch"] {
            socket.send_to(text.as_bytes(), &path).expect("mark");
            cuda_stub::sleep_ns(2_000_000);
        }
    }
}
