//! The CUDA driver (libcuda): signatures from the CUDA driver API reference. Libraries such as cuBLAS
//! and NCCL call it directly, and the runtime calls it for every device operation.

use trace_schema::{Direction, Op};

use super::spec::{
    DirectionSource::Fixed,
    Event, Fields, FunctionProbe, Library,
    Source::{Area, Arg, Out, Scaled, Stack},
};

const fn call(symbol: &'static str, op: Op, out: Option<u32>, fields: Fields) -> FunctionProbe {
    FunctionProbe { library: Library::Cuda, symbol, prefix: false, event: Event::Call(op), out, fields }
}

const NONE: Fields = Fields::NONE;
const ALLOC: Fields = Fields { addr: Out, size: Arg(1), ..NONE };
const ADDRESS: Fields = Fields { addr: Arg(0), ..NONE };
const RANGE: Fields = Fields { addr: Arg(0), size: Arg(1), ..NONE };

const fn copy(direction: Direction) -> Fields {
    Fields { addr: Arg(0), src: Arg(1), size: Arg(2), direction: Fixed(direction), ..NONE }
}

const fn on_stream(fields: Fields, index: usize) -> Fields {
    Fields { stream: Arg(index), ..fields }
}

const fn set(element_bytes: u64) -> Fields {
    Fields { addr: Arg(0), size: Scaled(2, element_bytes), ..NONE }
}

/// (dst, dst context, src, src context, bytes, stream)
const PEER: Fields =
    Fields { addr: Arg(0), src: Arg(2), size: Arg(4), direction: Fixed(Direction::PeerToPeer), ..NONE };
/// (func, grid x y z, block x y | z, shared bytes, stream, ...)
const LAUNCH: Fields = Fields { func: Arg(0), stream: Stack(2), ..NONE };

pub(super) const PROBES: &[FunctionProbe] = &[
    call("cuMemAlloc_v2", Op::CuMemAlloc, Some(0), ALLOC),
    call("cuMemAllocAsync", Op::CuMemAllocAsync, Some(0), on_stream(ALLOC, 2)),
    call("cuMemAllocFromPoolAsync", Op::CuMemAllocFromPoolAsync, Some(0), on_stream(ALLOC, 3)),
    // (&ptr, &pitch, width, height, element size)
    call("cuMemAllocPitch_v2", Op::CuMemAllocPitch, Some(0), Fields { addr: Out, size: Area(2, 3), ..NONE }),
    call("cuMemAllocManaged", Op::CuMemAllocManaged, Some(0), ALLOC),
    call("cuMemAllocHost_v2", Op::CuMemAllocHost, Some(0), ALLOC),
    call("cuMemHostAlloc", Op::CuMemHostAlloc, Some(0), ALLOC),
    // The address of a physical allocation is its handle.
    call("cuMemCreate", Op::CuMemCreate, Some(0), ALLOC),
    call("cuMemFree_v2", Op::CuMemFree, None, ADDRESS),
    call("cuMemFreeAsync", Op::CuMemFreeAsync, None, on_stream(ADDRESS, 1)),
    call("cuMemFreeHost", Op::CuMemFreeHost, None, ADDRESS),
    call("cuMemRelease", Op::CuMemRelease, None, ADDRESS),
    call("cuMemAddressReserve", Op::CuMemAddressReserve, Some(0), ALLOC),
    call("cuMemAddressFree", Op::CuMemAddressFree, None, RANGE),
    // (address, size, offset, handle, flags)
    call("cuMemMap", Op::CuMemMap, None, Fields { src: Arg(3), ..RANGE }),
    call("cuMemUnmap", Op::CuMemUnmap, None, RANGE),
    call("cuMemSetAccess", Op::CuMemSetAccess, None, RANGE),
    call("cuMemcpy", Op::CuMemcpy, None, copy(Direction::Default)),
    call("cuMemcpyAsync", Op::CuMemcpyAsync, None, on_stream(copy(Direction::Default), 3)),
    call("cuMemcpyHtoD_v2", Op::CuMemcpyHtoD, None, copy(Direction::HostToDevice)),
    call("cuMemcpyHtoDAsync_v2", Op::CuMemcpyHtoDAsync, None, on_stream(copy(Direction::HostToDevice), 3)),
    call("cuMemcpyDtoH_v2", Op::CuMemcpyDtoH, None, copy(Direction::DeviceToHost)),
    call("cuMemcpyDtoHAsync_v2", Op::CuMemcpyDtoHAsync, None, on_stream(copy(Direction::DeviceToHost), 3)),
    call("cuMemcpyDtoD_v2", Op::CuMemcpyDtoD, None, copy(Direction::DeviceToDevice)),
    call("cuMemcpyDtoDAsync_v2", Op::CuMemcpyDtoDAsync, None, on_stream(copy(Direction::DeviceToDevice), 3)),
    call("cuMemcpyPeer", Op::CuMemcpyPeer, None, PEER),
    call("cuMemcpyPeerAsync", Op::CuMemcpyPeerAsync, None, on_stream(PEER, 5)),
    call("cuMemsetD8_v2", Op::CuMemsetD8, None, set(1)),
    call("cuMemsetD16_v2", Op::CuMemsetD16, None, set(2)),
    call("cuMemsetD32_v2", Op::CuMemsetD32, None, set(4)),
    call("cuMemsetD8Async", Op::CuMemsetD8Async, None, on_stream(set(1), 3)),
    call("cuMemsetD16Async", Op::CuMemsetD16Async, None, on_stream(set(2), 3)),
    call("cuMemsetD32Async", Op::CuMemsetD32Async, None, on_stream(set(4), 3)),
    call("cuLaunchKernel", Op::CuLaunchKernel, None, LAUNCH),
    call("cuLaunchKernel_ptsz", Op::CuLaunchKernel, None, LAUNCH),
    // (config*, func, args, extra): the stream is inside the config.
    call("cuLaunchKernelEx", Op::CuLaunchKernelEx, None, Fields { func: Arg(1), ..NONE }),
    call("cuLaunchKernelEx_ptsz", Op::CuLaunchKernelEx, None, Fields { func: Arg(1), ..NONE }),
    call("cuLaunchCooperativeKernel", Op::CuLaunchCooperativeKernel, None, LAUNCH),
    call("cuGraphLaunch", Op::CuGraphLaunch, None, Fields { func: Arg(0), stream: Arg(1), ..NONE }),
    call("cuStreamSynchronize", Op::CuStreamSynchronize, None, Fields { stream: Arg(0), ..NONE }),
    call("cuCtxSynchronize", Op::CuCtxSynchronize, None, NONE),
    call("cuEventSynchronize", Op::CuEventSynchronize, None, NONE),
];
