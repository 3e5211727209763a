//! A scripted CUDA workload over the stub libraries. It writes down every call it made, with its own
//! clock readings around it, for a test to compare with the trace.
//!
//! `cuda-stub LIBRARY_DIR LOG.json SCENARIO [LAUNCHES]`, where SCENARIO is `mixed`, `preempt`, `open`, `steady`,
//! `sleep` or `api`.
#![expect(unsafe_code, reason = "C interfaces of the real libraries")]
#![expect(clippy::expect_used, clippy::panic, reason = "a test program: it fails loudly")]

mod api;

use std::{
    ffi::{c_int, c_void},
    path::Path,
    sync::{Arc, Barrier},
};

use cuda_stub::{Dim3, function, load, now_ns, sleep_ns, spin_ns};
use serde::Serialize;

/// One call as the workload made it.
#[derive(Default, Serialize)]
struct Call {
    op: &'static str,
    tid: i32,
    before_ns: u64,
    after_ns: u64,
    ret: c_int,
    addr: u64,
    size_bytes: u64,
    func: u64,
    stream: u64,
    direction: &'static str,
    /// Nanoseconds that the call was told to compute and to sleep.
    delay_ns: u64,
}

/// The log of a workload.
#[derive(Default, Serialize)]
struct Log {
    pid: u32,
    calls: Vec<Call>,
    /// Allocator events as action, address, bytes.
    events: Vec<(i32, u64, u64)>,
    /// Start and end of the time in which the hog held the CPU, in nanoseconds.
    hog: Option<(u64, u64)>,
    hog_tid: i32,
    tid: i32,
}

fn tid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid; the calls read it only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}

/// Times one call.
fn timed(op: &'static str, delay: (u64, u64), call: impl FnOnce() -> c_int) -> Call {
    let set_delay: extern "C" fn(u64, u64) = function("stub_delay");
    set_delay(delay.0, delay.1);
    let before_ns = now_ns();
    let ret = call();
    let after_ns = now_ns();
    Call { op, tid: tid(), before_ns, after_ns, ret, delay_ns: delay.0 + delay.1, ..Call::default() }
}

fn malloc(bytes: usize) -> Call {
    let malloc: extern "C" fn(*mut u64, usize) -> c_int = function("cudaMalloc");
    let mut addr = 0;
    let call = timed("cudaMalloc", (20_000, 0), || malloc(&raw mut addr, bytes));
    Call { addr, size_bytes: bytes as u64, ..call }
}

fn free(addr: u64) -> Call {
    let free: extern "C" fn(u64) -> c_int = function("cudaFree");
    Call { addr, ..timed("cudaFree", (30_000, 0), || free(addr)) }
}

fn copy(addr: u64, bytes: usize) -> Call {
    let copy: extern "C" fn(u64, *const c_void, usize, c_int, *mut c_void) -> c_int =
        function("cudaMemcpyAsync");
    let compute = 2_000 + bytes as u64 / 10;
    let call = timed("cudaMemcpyAsync", (compute, 0), || {
        copy(addr, std::ptr::null(), bytes, 1, 0x51 as *mut c_void)
    });
    Call { addr, size_bytes: bytes as u64, direction: "h2d", stream: 0x51, ..call }
}

fn copy_2d(addr: u64, width: usize, height: usize) -> Call {
    let copy: extern "C" fn(u64, usize, *const c_void, usize, usize, usize, c_int, *mut c_void) -> c_int =
        function("cudaMemcpy2DAsync");
    let call = timed("cudaMemcpy2DAsync", (5_000, 0), || {
        copy(addr, 4096, std::ptr::null(), 4096, width, height, 3, 0x52 as *mut c_void)
    });
    Call { addr, size_bytes: (width * height) as u64, direction: "d2d", stream: 0x52, ..call }
}

fn memset(addr: u64, bytes: usize) -> Call {
    let memset: extern "C" fn(u64, c_int, usize) -> c_int = function("cudaMemset");
    Call { addr, size_bytes: bytes as u64, ..timed("cudaMemset", (1_000, 0), || memset(addr, 7, bytes)) }
}

fn launch(func: u64, compute_ns: u64) -> Call {
    let launch: extern "C" fn(u64, Dim3, Dim3, *mut *mut c_void, usize, *mut c_void) -> c_int =
        function("cudaLaunchKernel");
    let grid = Dim3 { x: 64, y: 2, z: 1 };
    let block = Dim3 { x: 256, y: 1, z: 1 };
    let call = timed("cudaLaunchKernel", (compute_ns, 0), || {
        launch(func, grid, block, std::ptr::null_mut(), 0, 0x53 as *mut c_void)
    });
    Call { func, stream: 0x53, ..call }
}

fn synchronize(rest_ns: u64) -> Call {
    let synchronize: extern "C" fn(*mut c_void) -> c_int = function("cudaStreamSynchronize");
    let call = timed("cudaStreamSynchronize", (0, rest_ns), || synchronize(0x53 as *mut c_void));
    Call { stream: 0x53, ..call }
}

fn allocator_event(log: &mut Log, action: i32, addr: u64, bytes: u64) {
    type RecordTrace = extern "C" fn(*mut c_void, i32, u64, u64, *mut c_void, i8, u64, u64);
    let record: RecordTrace =
        function("_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_traceEstub");
    record(std::ptr::null_mut(), action, addr, bytes, 0x53 as *mut c_void, 1, 0, 9);
    log.events.push((action, addr, bytes));
}

/// Reports to the profiler as PyTorch does: bytes allocated (or freed, if negative) and the totals.
fn allocator_usage(addr: u64, bytes: i64, allocated: usize) {
    let report: extern "C" fn(u64, i64, usize, usize, u16) =
        function("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
    // CUDA device 1.
    report(addr, bytes, allocated, allocated, 0x101);
}

/// First launches are slow, as when the driver loads the code.
fn launches(count: usize) -> Vec<Call> {
    (0..count)
        .map(|i| {
            let func = 0x4000 + (i % 5) as u64;
            launch(func, if i < 5 { 2_000_000 } else { 0 })
        })
        .collect()
}

fn mixed(log: &mut Log, count: usize) {
    let addresses: Vec<u64> = (1..=20)
        .map(|i| {
            let call = malloc(i << 20);
            let addr = call.addr;
            log.calls.push(call);
            allocator_event(log, 3, addr, (i << 20) as u64);
            allocator_event(log, 0, addr, (i << 20) as u64 - 100);
            allocator_usage(addr, (i << 20) as i64, i << 20);
            addr
        })
        .collect();
    log.calls.push(malloc(1 << 50));
    for (i, addr) in addresses.iter().enumerate() {
        log.calls.push(copy(*addr, 1 << i));
        log.calls.push(memset(*addr, 4096 * (i + 1)));
    }
    log.calls.push(copy_2d(addresses[0], 1024, 16));
    let others: Vec<_> = (0..2).map(|_| std::thread::spawn(move || launches(count))).collect();
    log.calls.extend(launches(count));
    for other in others {
        log.calls.extend(other.join().expect("thread"));
    }
    for _ in 0..10 {
        log.calls.push(synchronize(2_000_000));
    }
    for (i, addr) in addresses.into_iter().enumerate() {
        allocator_event(log, 1, addr, 0);
        allocator_event(log, 2, addr, 0);
        allocator_usage(addr, -(((i + 1) << 20) as i64), 0);
        log.calls.push(free(addr));
    }
}

/// A thread in the middle of a launch loses its CPU to a real-time hog for a known time.
fn preempt(log: &mut Log) {
    pin(0);
    let ready = Arc::new(Barrier::new(2));
    let hog_ready = Arc::clone(&ready);
    let hog = std::thread::Builder::new().name("hog".to_owned()).spawn(move || {
        pin(0);
        let priority = libc::sched_param { sched_priority: 10 };
        // SAFETY: a valid parameter.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
        assert_eq!(set, 0, "real-time priority");
        hog_ready.wait();
        sleep_ns(20_000_000);
        let start = now_ns();
        spin_ns(50_000_000);
        (tid(), start, now_ns())
    });
    let hog = hog.expect("thread");
    for _ in 0..200 {
        log.calls.push(launch(0x4001, 10_000));
    }
    ready.wait();
    log.calls.push(launch(0x4001, 100_000_000));
    let (tid, start, end) = hog.join().expect("hog");
    log.hog = Some((start, end));
    log.hog_tid = tid;
}

/// A program shares memory with another process, and makes room as vLLM does when it sleeps: garbage collection,
/// `empty_cache()`, `ipc_collect()`. Then a request finds no free block.
fn sleep(directory: &Path) {
    type RecordTrace = extern "C" fn(*mut c_void, i32, u64, u64, *mut c_void, i8, u64, u64);
    // Builds of PyTorch differ in the library that has `ipc_collect()`.
    for name in ["libtorch_cuda.so", "libtorch_python.so"] {
        if directory.join(name).exists() {
            load(directory, name);
        }
    }
    let record: RecordTrace =
        function("_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_traceEstub");
    let event = |action: i32, addr: u64, bytes: u64| {
        record(std::ptr::null_mut(), action, addr, bytes, std::ptr::null_mut(), 0, 0, 0);
    };
    let empty_cache: extern "C" fn(*mut c_void) =
        function("_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator10emptyCacheEstub");
    let given_up: extern "C" fn(u64, u64) = function("stub_given_up");
    let collect: extern "C" fn() -> bool = function("_ZN5torch14CudaIPCCollectEv");
    let request: extern "C" fn() -> bool = function("stub_request");
    let (garbage, lent) = (0x4000_0000, 0x8000_0000);
    for (addr, bytes) in [(garbage, 20 << 20), (lent, 30 << 20)] {
        event(3, addr, bytes);
        event(0, addr, bytes);
    }
    event(1, garbage, 20 << 20);
    event(2, garbage, 20 << 20);
    empty_cache(std::ptr::null_mut());
    event(4, garbage, 20 << 20);
    given_up(lent, 30 << 20);
    assert!(collect(), "the block that was given up");
    assert!(!request(), "nothing is left to collect");
    event(3, garbage, 40 << 20);
    event(0, garbage, 40 << 20);
}

/// Launches for a while; once a millisecond, the time goes to standard output instead of a log.
fn steady(count: usize) {
    let mut said_ns = 0;
    for _ in 0..count {
        let call = launch(0x4001, 20_000);
        if call.after_ns > said_ns + 1_000_000 {
            said_ns = call.after_ns;
            println!("{said_ns}");
        }
    }
}

/// The process ends while one of its threads is inside a call.
fn open(log: &mut Log) {
    log.calls.push(launch(0x4001, 10_000));
    std::thread::spawn(|| {
        let synchronize: extern "C" fn() -> c_int = function("cudaDeviceSynchronize");
        timed("cudaDeviceSynchronize", (0, 60_000_000_000), || synchronize())
    });
    sleep_ns(100_000_000);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [directory, log_path, scenario, rest @ ..] = args.as_slice() else {
        panic!("usage: cuda-stub LIBRARY_DIR LOG.json mixed|preempt|open|steady|sleep|api [LAUNCHES]");
    };
    for name in
        ["libcuda.so", "libcudart.so", "libc10.so", "libc10_cuda.so", "libnccl.so", "libnvToolsExt.so"]
    {
        load(Path::new(directory), name);
    }
    let mut log = Log { pid: std::process::id(), tid: tid(), ..Log::default() };
    let count = rest.first().map_or(1000, |text| text.parse().expect("LAUNCHES"));
    match scenario.as_str() {
        "mixed" => mixed(&mut log, count),
        "preempt" => preempt(&mut log),
        "open" => open(&mut log),
        "steady" => steady(count),
        "sleep" => sleep(Path::new(directory)),
        "api" => api::calls(),
        other => panic!("no scenario {other}"),
    }
    let json = serde_json::to_vec(&log).expect("JSON");
    std::fs::write(log_path, json).expect("write the log");
}
