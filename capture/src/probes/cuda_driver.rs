//! The CUDA driver (libcuda): signatures from the CUDA driver API reference. Libraries such as cuBLAS
//! and NCCL call it directly, and the runtime calls it for every device operation.

use trace_schema::{Direction, Op};

use super::spec::{
    DirectionSource::{Fixed, MemoryTypes},
    Event, Fields, FunctionProbe, Library,
    Profile::{Default, Full, Light},
    ShapeSource::{Config, Integers},
    Source::{Area, Arg, Out, Scaled, ScaledArea, Word, Words},
};

const fn call(symbol: &'static str, op: Op, out: Option<u32>, fields: Fields) -> FunctionProbe {
    FunctionProbe {
        library: Library::Cuda,
        symbol,
        prefix: false,
        profile: Light,
        event: Event::Call(op),
        out,
        reads: None,
        fields,
    }
}

/// A function that gives the handle of a kernel for its name: (&handle, module or library, name).
const fn naming(symbol: &'static str, op: Op) -> FunctionProbe {
    let fields = Fields { func: Out, ..NONE };
    FunctionProbe { event: Event::NamingCall(op), ..call(symbol, op, Some(0), fields) }
}

const NONE: Fields = Fields::NONE;
const ALLOC: Fields = Fields { addr: Out, size: Arg(1), ..NONE };
const ADDRESS: Fields = Fields { addr: Arg(0), ..NONE };
const RANGE: Fields = Fields { addr: Arg(0), size: Arg(1), ..NONE };
/// Functions whose first argument is their subject: an event, a graph, a module.
const SUBJECT: Fields = Fields { func: Arg(0), ..NONE };
const MADE: Fields = Fields { func: Out, ..NONE };

const fn copy(direction: Direction) -> Fields {
    Fields { addr: Arg(0), src: Arg(1), size: Arg(2), direction: Fixed(direction), ..NONE }
}

const fn set(element_bytes: u64) -> Fields {
    Fields { addr: Arg(0), size: Scaled(2, element_bytes), ..NONE }
}

/// (address, pitch, value, width, height, stream)
const fn set_2d(element_bytes: u64) -> Fields {
    Fields { addr: Arg(0), size: ScaledArea(3, 4, element_bytes), ..NONE }
}

/// (dst, dst context, src, src context, bytes, stream)
const PEER: Fields =
    Fields { addr: Arg(0), src: Arg(2), size: Arg(4), direction: Fixed(Direction::PeerToPeer), ..NONE };
/// (func, grid x y z, block x y | z, shared bytes, stream, ...)
const LAUNCH: Fields = Fields { func: Arg(0), stream: Word(2), shape: Integers, ..NONE };
/// `CUlaunchConfig`: grid and block, shared bytes, stream.
const LAUNCH_CONFIG: [u32; 7] = [0, 8, 16, 32, 0, 0, 0];
/// `CUDA_MEMCPY2D`: memory type, device address of both sides; width, height.
const COPY_2D: [u32; 7] = [16, 72, 32, 88, 112, 120, 0];
/// `CUDA_MEMCPY3D`: memory type, device address of both sides; width, height, depth. The peer form has them at the same places.
const COPY_3D: [u32; 7] = [32, 120, 48, 136, 176, 184, 192];

const fn copy_struct(dimensions: usize) -> Fields {
    Fields {
        src: Word(2),
        addr: Word(3),
        size: Words(4, dimensions),
        direction: MemoryTypes(Word(0), Word(1)),
        ..NONE
    }
}

const COPY_PEER_3D: Fields = Fields { direction: Fixed(Direction::PeerToPeer), ..copy_struct(3) };

pub(super) const PROBES: &[FunctionProbe] = &[
    call("cuInit", Op::CuInit, None, NONE),
    call("cuCtxCreate_v2", Op::CuCtxCreate, Some(0), MADE),
    call("cuCtxCreate_v3", Op::CuCtxCreate, Some(0), MADE),
    call("cuCtxCreate_v4", Op::CuCtxCreate, Some(0), MADE),
    call("cuCtxDestroy_v2", Op::CuCtxDestroy, None, SUBJECT),
    call("cuDevicePrimaryCtxRetain", Op::CuDevicePrimaryCtxRetain, Some(0), MADE),
    call("cuDevicePrimaryCtxRelease_v2", Op::CuDevicePrimaryCtxRelease, None, NONE),
    call("cuDevicePrimaryCtxReset_v2", Op::CuDevicePrimaryCtxReset, None, NONE),
    call("cuModuleLoad", Op::CuModuleLoad, Some(0), MADE),
    call("cuModuleLoadData", Op::CuModuleLoadData, Some(0), MADE),
    call("cuModuleLoadDataEx", Op::CuModuleLoadDataEx, Some(0), MADE),
    call("cuModuleLoadFatBinary", Op::CuModuleLoadFatBinary, Some(0), MADE),
    call("cuModuleUnload", Op::CuModuleUnload, None, SUBJECT),
    naming("cuModuleGetFunction", Op::CuModuleGetFunction),
    call("cuLibraryLoadData", Op::CuLibraryLoadData, Some(0), MADE),
    call("cuLibraryUnload", Op::CuLibraryUnload, None, SUBJECT),
    naming("cuLibraryGetKernel", Op::CuLibraryGetKernel),
    call("cuMemAlloc_v2", Op::CuMemAlloc, Some(0), ALLOC),
    call("cuMemAllocAsync", Op::CuMemAllocAsync, Some(0), ALLOC.on(Arg(2))),
    call("cuMemAllocFromPoolAsync", Op::CuMemAllocFromPoolAsync, Some(0), ALLOC.on(Arg(3))),
    // (&ptr, &pitch, width, height, element size)
    call("cuMemAllocPitch_v2", Op::CuMemAllocPitch, Some(0), Fields { addr: Out, size: Area(2, 3), ..NONE }),
    call("cuMemAllocManaged", Op::CuMemAllocManaged, Some(0), ALLOC),
    call("cuMemAllocHost_v2", Op::CuMemAllocHost, Some(0), ALLOC),
    call("cuMemHostAlloc", Op::CuMemHostAlloc, Some(0), ALLOC),
    call("cuMemHostRegister_v2", Op::CuMemHostRegister, None, RANGE),
    // The address of a physical allocation is its handle.
    call("cuMemCreate", Op::CuMemCreate, Some(0), ALLOC),
    call("cuMemFree_v2", Op::CuMemFree, None, ADDRESS),
    call("cuMemFreeAsync", Op::CuMemFreeAsync, None, ADDRESS.on(Arg(1))),
    call("cuMemFreeHost", Op::CuMemFreeHost, None, ADDRESS),
    call("cuMemHostUnregister", Op::CuMemHostUnregister, None, ADDRESS),
    call("cuMemRelease", Op::CuMemRelease, None, ADDRESS),
    // (pool, bytes to keep)
    call("cuMemPoolTrimTo", Op::CuMemPoolTrimTo, None, RANGE),
    call("cuMemGetInfo_v2", Op::CuMemGetInfo, Some(0), Fields { size: Out, ..NONE }),
    call("cuMemAddressReserve", Op::CuMemAddressReserve, Some(0), ALLOC),
    call("cuMemAddressFree", Op::CuMemAddressFree, None, RANGE),
    // (address, size, offset, handle, flags)
    call("cuMemMap", Op::CuMemMap, None, Fields { src: Arg(3), ..RANGE }),
    call("cuMemUnmap", Op::CuMemUnmap, None, RANGE),
    call("cuMemSetAccess", Op::CuMemSetAccess, None, RANGE),
    // (shareable handle, allocation handle, ...) and back
    call(
        "cuMemExportToShareableHandle",
        Op::CuMemExportToShareableHandle,
        None,
        Fields { addr: Arg(1), ..NONE },
    ),
    call(
        "cuMemImportFromShareableHandle",
        Op::CuMemImportFromShareableHandle,
        Some(0),
        Fields { addr: Out, ..NONE },
    ),
    // (&handle, address); (&address, handle by value, flags); (address)
    call("cuIpcGetMemHandle", Op::CuIpcGetMemHandle, None, Fields { addr: Arg(1), ..NONE }),
    call("cuIpcOpenMemHandle_v2", Op::CuIpcOpenMemHandle, Some(0), Fields { addr: Out, ..NONE }),
    call("cuIpcCloseMemHandle", Op::CuIpcCloseMemHandle, None, ADDRESS),
    call("cuMemcpy", Op::CuMemcpy, None, copy(Direction::Default)),
    call("cuMemcpyAsync", Op::CuMemcpyAsync, None, copy(Direction::Default).on(Arg(3))),
    call("cuMemcpyHtoD_v2", Op::CuMemcpyHtoD, None, copy(Direction::HostToDevice)),
    call("cuMemcpyHtoDAsync_v2", Op::CuMemcpyHtoDAsync, None, copy(Direction::HostToDevice).on(Arg(3))),
    call("cuMemcpyDtoH_v2", Op::CuMemcpyDtoH, None, copy(Direction::DeviceToHost)),
    call("cuMemcpyDtoHAsync_v2", Op::CuMemcpyDtoHAsync, None, copy(Direction::DeviceToHost).on(Arg(3))),
    call("cuMemcpyDtoD_v2", Op::CuMemcpyDtoD, None, copy(Direction::DeviceToDevice)),
    call("cuMemcpyDtoDAsync_v2", Op::CuMemcpyDtoDAsync, None, copy(Direction::DeviceToDevice).on(Arg(3))),
    call("cuMemcpyPeer", Op::CuMemcpyPeer, None, PEER),
    call("cuMemcpyPeerAsync", Op::CuMemcpyPeerAsync, None, PEER.on(Arg(5))),
    call("cuMemcpy2D_v2", Op::CuMemcpy2D, None, copy_struct(2)).reading(COPY_2D),
    call("cuMemcpy2DUnaligned_v2", Op::CuMemcpy2DUnaligned, None, copy_struct(2)).reading(COPY_2D),
    call("cuMemcpy2DAsync_v2", Op::CuMemcpy2DAsync, None, copy_struct(2).on(Arg(1))).reading(COPY_2D),
    call("cuMemcpy3D_v2", Op::CuMemcpy3D, None, copy_struct(3)).reading(COPY_3D),
    call("cuMemcpy3DAsync_v2", Op::CuMemcpy3DAsync, None, copy_struct(3).on(Arg(1))).reading(COPY_3D),
    call("cuMemcpy3DPeer", Op::CuMemcpy3DPeer, None, COPY_PEER_3D).reading(COPY_3D),
    call("cuMemcpy3DPeerAsync", Op::CuMemcpy3DPeerAsync, None, COPY_PEER_3D.on(Arg(1))).reading(COPY_3D),
    // Many copies in one: their sizes lie in an array and are not read.
    call("cuMemcpyBatchAsync", Op::CuMemcpyBatchAsync, None, NONE),
    call("cuMemcpyBatchAsync_v2", Op::CuMemcpyBatchAsync, None, NONE),
    call("cuMemsetD8_v2", Op::CuMemsetD8, None, set(1)),
    call("cuMemsetD16_v2", Op::CuMemsetD16, None, set(2)),
    call("cuMemsetD32_v2", Op::CuMemsetD32, None, set(4)),
    call("cuMemsetD8Async", Op::CuMemsetD8Async, None, set(1).on(Arg(3))),
    call("cuMemsetD16Async", Op::CuMemsetD16Async, None, set(2).on(Arg(3))),
    call("cuMemsetD32Async", Op::CuMemsetD32Async, None, set(4).on(Arg(3))),
    call("cuMemsetD2D8_v2", Op::CuMemsetD2D8, None, set_2d(1)),
    call("cuMemsetD2D16_v2", Op::CuMemsetD2D16, None, set_2d(2)),
    call("cuMemsetD2D32_v2", Op::CuMemsetD2D32, None, set_2d(4)),
    call("cuMemsetD2D8Async", Op::CuMemsetD2D8Async, None, set_2d(1).on(Arg(5))),
    call("cuMemsetD2D16Async", Op::CuMemsetD2D16Async, None, set_2d(2).on(Arg(5))),
    call("cuMemsetD2D32Async", Op::CuMemsetD2D32Async, None, set_2d(4).on(Arg(5))),
    call("cuLaunchKernel", Op::CuLaunchKernel, None, LAUNCH).from(Default),
    // (config*, func, args, extra)
    call(
        "cuLaunchKernelEx",
        Op::CuLaunchKernelEx,
        None,
        Fields { func: Arg(1), stream: Word(3), shape: Config, ..NONE },
    )
    .reading(LAUNCH_CONFIG)
    .from(Default),
    call("cuLaunchCooperativeKernel", Op::CuLaunchCooperativeKernel, None, LAUNCH).from(Default),
    call("cuGraphLaunch", Op::CuGraphLaunch, None, SUBJECT.on(Arg(1))),
    call("cuStreamBeginCapture_v2", Op::CuStreamBeginCapture, None, NONE.on(Arg(0))),
    // (stream, &graph)
    call("cuStreamEndCapture", Op::CuStreamEndCapture, Some(1), MADE.on(Arg(0))),
    call("cuGraphInstantiateWithFlags", Op::CuGraphInstantiateWithFlags, Some(0), MADE),
    call("cuGraphInstantiateWithParams", Op::CuGraphInstantiateWithParams, Some(0), MADE),
    call("cuGraphExecUpdate_v2", Op::CuGraphExecUpdate, None, SUBJECT),
    call("cuGraphUpload", Op::CuGraphUpload, None, SUBJECT.on(Arg(1))),
    call("cuGraphDestroy", Op::CuGraphDestroy, None, SUBJECT),
    call("cuGraphExecDestroy", Op::CuGraphExecDestroy, None, SUBJECT),
    call("cuStreamSynchronize", Op::CuStreamSynchronize, None, NONE.on(Arg(0))),
    call("cuCtxSynchronize", Op::CuCtxSynchronize, None, NONE),
    call("cuEventSynchronize", Op::CuEventSynchronize, None, SUBJECT),
    call("cuEventRecord", Op::CuEventRecord, None, SUBJECT.on(Arg(1))).from(Full),
    call("cuEventRecordWithFlags", Op::CuEventRecordWithFlags, None, SUBJECT.on(Arg(1))).from(Full),
    call("cuEventQuery", Op::CuEventQuery, None, SUBJECT).from(Full),
    call("cuStreamQuery", Op::CuStreamQuery, None, NONE.on(Arg(0))).from(Full),
    // (stream, event, flags)
    call("cuStreamWaitEvent", Op::CuStreamWaitEvent, None, Fields { func: Arg(1), stream: Arg(0), ..NONE })
        .from(Full),
];
