//! The CUDA runtime (libcudart): signatures from the CUDA runtime API reference, arguments in the
//! System V x86-64 order. A `dim3` takes two registers.

use trace_schema::{Direction, Op};

use super::spec::{
    DirectionSource::{Fixed, Kind},
    Event, Fields, FunctionProbe, Library,
    Source::{Area, Arg, Out, Stack},
};

const fn call(symbol: &'static str, op: Op, out: Option<u32>, fields: Fields) -> FunctionProbe {
    FunctionProbe { library: Library::Cudart, symbol, prefix: false, event: Event::Call(op), out, fields }
}

const NONE: Fields = Fields::NONE;
const ALLOC: Fields = Fields { addr: Out, size: Arg(1), ..NONE };
const FREE: Fields = Fields { addr: Arg(0), ..NONE };
const COPY: Fields = Fields { addr: Arg(0), src: Arg(1), size: Arg(2), direction: Kind(Arg(3)), ..NONE };
const COPY_2D: Fields =
    Fields { addr: Arg(0), src: Arg(2), size: Area(4, 5), direction: Kind(Stack(0)), ..NONE };
const PEER: Fields =
    Fields { addr: Arg(0), src: Arg(2), size: Arg(4), direction: Fixed(Direction::PeerToPeer), ..NONE };
const SET: Fields = Fields { addr: Arg(0), size: Arg(2), ..NONE };
/// (func, dim3 grid, dim3 block, args | shared bytes, stream)
const LAUNCH: Fields = Fields { func: Arg(0), stream: Stack(1), ..NONE };

pub(super) const PROBES: &[FunctionProbe] = &[
    call("cudaMalloc", Op::CudaMalloc, Some(0), ALLOC),
    call("cudaMallocAsync", Op::CudaMallocAsync, Some(0), Fields { stream: Arg(2), ..ALLOC }),
    call("cudaMallocFromPoolAsync", Op::CudaMallocFromPoolAsync, Some(0), Fields { stream: Arg(3), ..ALLOC }),
    call("cudaMallocManaged", Op::CudaMallocManaged, Some(0), ALLOC),
    call("cudaMallocHost", Op::CudaMallocHost, Some(0), ALLOC),
    call("cudaHostAlloc", Op::CudaHostAlloc, Some(0), ALLOC),
    call("cudaFree", Op::CudaFree, None, FREE),
    call("cudaFreeAsync", Op::CudaFreeAsync, None, Fields { stream: Arg(1), ..FREE }),
    call("cudaFreeHost", Op::CudaFreeHost, None, FREE),
    call("cudaMemcpy", Op::CudaMemcpy, None, COPY),
    call("cudaMemcpyAsync", Op::CudaMemcpyAsync, None, Fields { stream: Arg(4), ..COPY }),
    call("cudaMemcpy2D", Op::CudaMemcpy2D, None, COPY_2D),
    call("cudaMemcpy2DAsync", Op::CudaMemcpy2DAsync, None, Fields { stream: Stack(1), ..COPY_2D }),
    call("cudaMemcpyPeer", Op::CudaMemcpyPeer, None, PEER),
    call("cudaMemcpyPeerAsync", Op::CudaMemcpyPeerAsync, None, Fields { stream: Arg(5), ..PEER }),
    call("cudaMemset", Op::CudaMemset, None, SET),
    call("cudaMemsetAsync", Op::CudaMemsetAsync, None, Fields { stream: Arg(3), ..SET }),
    call("cudaLaunchKernel", Op::CudaLaunchKernel, None, LAUNCH),
    call("cudaLaunchKernel_ptsz", Op::CudaLaunchKernel, None, LAUNCH),
    // (config*, func, args): the stream is inside the config.
    call("cudaLaunchKernelExC", Op::CudaLaunchKernelExC, None, Fields { func: Arg(1), ..NONE }),
    call("cudaLaunchCooperativeKernel", Op::CudaLaunchCooperativeKernel, None, LAUNCH),
    call("cudaGraphLaunch", Op::CudaGraphLaunch, None, Fields { func: Arg(0), stream: Arg(1), ..NONE }),
    call("cudaStreamSynchronize", Op::CudaStreamSynchronize, None, Fields { stream: Arg(0), ..NONE }),
    call("cudaDeviceSynchronize", Op::CudaDeviceSynchronize, None, NONE),
    call("cudaEventSynchronize", Op::CudaEventSynchronize, None, NONE),
];
