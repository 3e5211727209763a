//! PyTorch's caching allocator: one function that it calls for every event of its own
//! (`DeviceCachingAllocator::record_trace`, c10/cuda/CUDACachingAllocator.cpp), whether or not memory
//! history is on, and for builds without that symbol the exported report to the profiler
//! (`c10::reportMemoryUsageToProfiler`, c10/core/Allocator.h). Calls of `torch.cuda.empty_cache()` and of
//! `torch.cuda.ipc_collect()` (`torch::CudaIPCCollect`, torch/csrc/CudaIPCTypes.cpp).

use capture_wire::Call;
use trace_schema::{Kind, Row, Text};
use trace_writer::Rows;

use super::spec::{Event, Fields, FunctionProbe, Library, Profile};
use crate::caller::Callers;

const fn probe(library: Library, symbol: &'static str, profile: Profile, event: Event) -> FunctionProbe {
    let prefix = matches!(library, Library::C10Cuda);
    FunctionProbe { library, symbol, prefix, profile, event, out: None, reads: None, fields: Fields::NONE }
}

pub(super) const PROBES: &[FunctionProbe] = &[
    // (this, action, address, size, stream, device | mempool id, ...)
    probe(
        Library::C10Cuda,
        "_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_trace",
        Profile::Default,
        Event::Allocator,
    ),
    probe(
        Library::C10Cuda,
        "_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator10emptyCache",
        Profile::Light,
        Event::EmptyCache,
    ),
    // (pointer, signed bytes, allocated, reserved, device)
    probe(
        Library::C10,
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        Profile::Default,
        Event::AllocatorUsage,
    ),
    // ()
    probe(Library::Torch, "_ZN5torch14CudaIPCCollectEv", Profile::Light, Event::IpcCollect),
];

/// `TraceEntry::Action`, in the order of its declaration.
const ACTIONS: [&str; 10] = [
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "annotate",
];

/// `c10::DeviceType::CUDA`.
const DEVICE_TYPE_CUDA: u64 = 1;

fn row(call: &Call, op: Text) -> Row {
    Row::new(call.ts as i64, Kind::Alloc, op, call.pid, call.tid)
}

fn non_zero(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

/// Writes one allocator event.
pub(super) fn write_event(call: &Call, stack: Option<u32>, rows: &mut Rows) {
    let [_, action, addr, size, stream, device] = call.args;
    // An action of a later version is kept under its number rather than lost or misnamed.
    let op = match ACTIONS.get(action as u32 as usize) {
        Some(name) => Text::Static(name),
        None => format!("action_{}", action as u32).into(),
    };
    rows.start(call.ts as i64, Kind::Alloc, op, call.pid, call.tid)
        .addr(addr)
        .size_bytes(size as i64)
        .stream(non_zero(stream))
        .device(i32::from(device as i8))
        .pool_owner(non_zero(call.more[0]))
        .pool_id(non_zero(call.more[1]))
        .stack(stack);
}

/// The row of a request to empty the cache.
pub(super) fn empty_cache_row(call: &Call) -> Row {
    row(call, "empty_cache".into())
}

/// Writes a call of `ipc_collect()`. The library that made the call tells whether the program or the allocator did.
pub(super) fn write_ipc_collect(
    call: &Call,
    censored: bool,
    stack: Option<u32>,
    callers: &mut Callers,
    rows: &mut Rows,
) {
    rows.start(call.ts as i64, Kind::Alloc, Text::Static("ipc_collect"), call.pid, call.tid)
        .dur((!censored).then_some(call.dur_ns as i64))
        .caller(callers.name(call.pid, call.caller))
        .stack(stack);
}

/// The row of a usage report; `None` for memory that is not on a CUDA device.
pub(super) fn usage_row(call: &Call) -> Option<Row> {
    let [addr, bytes, allocated, reserved, device, _] = call.args;
    (device & 0xff == DEVICE_TYPE_CUDA).then(|| Row {
        addr: Some(addr),
        size_bytes: Some(bytes as i64),
        device: Some(i32::from((device >> 8) as i8)),
        allocated_bytes: Some(allocated as i64),
        reserved_bytes: Some(reserved as i64),
        ..row(call, "usage".into())
    })
}
