//! The CUDA runtime (libcudart): signatures from the CUDA runtime API reference, arguments in the
//! System V x86-64 order. A `dim3` takes two registers.

use trace_schema::{Direction, Op};

use super::spec::{
    DirectionSource::{Fixed, Kind},
    Event, Fields, FunctionProbe, Library,
    Profile::{Full, Light},
    ShapeSource::{Config, Dim3},
    Source::{Area, Arg, ArgByWord, Out, Word, Words},
};

const fn call(symbol: &'static str, op: Op, out: Option<u32>, fields: Fields) -> FunctionProbe {
    FunctionProbe {
        library: Library::Cudart,
        symbol,
        prefix: false,
        profile: Light,
        event: Event::Call(op),
        out,
        reads: None,
        fields,
    }
}

const NONE: Fields = Fields::NONE;
const ALLOC: Fields = Fields { addr: Out, size: Arg(1), ..NONE };
const FREE: Fields = Fields { addr: Arg(0), ..NONE };
const RANGE: Fields = Fields { addr: Arg(0), size: Arg(1), ..NONE };
const SUBJECT: Fields = Fields { func: Arg(0), ..NONE };
const MADE: Fields = Fields { func: Out, ..NONE };
const COPY: Fields = Fields { addr: Arg(0), src: Arg(1), size: Arg(2), direction: Kind(Arg(3)), ..NONE };
const COPY_2D: Fields =
    Fields { addr: Arg(0), src: Arg(2), size: Area(4, 5), direction: Kind(Word(0)), ..NONE };
/// (array, x, y, src, src pitch, width | height, kind, stream)
const TO_ARRAY: Fields =
    Fields { addr: Arg(0), src: Arg(3), size: ArgByWord(5, 0), direction: Kind(Word(1)), ..NONE };
/// (dst, dst pitch, array, x, y, width | height, kind, stream)
const FROM_ARRAY: Fields =
    Fields { addr: Arg(0), src: Arg(2), size: ArgByWord(5, 0), direction: Kind(Word(1)), ..NONE };
/// (dst or symbol, src, bytes, offset, kind, stream)
const SYMBOL: Fields = Fields { addr: Arg(0), src: Arg(1), size: Arg(2), direction: Kind(Arg(4)), ..NONE };
const PEER: Fields =
    Fields { addr: Arg(0), src: Arg(2), size: Arg(4), direction: Fixed(Direction::PeerToPeer), ..NONE };
/// `cudaMemcpy3DParms`: addresses from and to; width, height, depth; kind.
const COPY_3D: [u32; 7] = [32, 96, 128, 136, 144, 152, 0];
/// `cudaMemcpy3DPeerParms`: addresses from and to; width, height, depth.
const COPY_3D_PEER: [u32; 7] = [32, 104, 144, 152, 160, 0, 0];
const PARAMS: Fields =
    Fields { src: Word(0), addr: Word(1), size: Words(2, 3), direction: Kind(Word(5)), ..NONE };
const PEER_PARAMS: Fields = Fields { direction: Fixed(Direction::PeerToPeer), ..PARAMS };
const SET: Fields = Fields { addr: Arg(0), size: Arg(2), ..NONE };
/// (address, pitch, value, width, height, stream)
const SET_2D: Fields = Fields { addr: Arg(0), size: Area(3, 4), ..NONE };
/// (func, dim3 grid, dim3 block, args | shared bytes, stream)
const LAUNCH: Fields = Fields { func: Arg(0), stream: Word(1), shape: Dim3, ..NONE };
/// `cudaLaunchConfig_t`: grid and block, shared bytes, stream.
const LAUNCH_CONFIG: [u32; 7] = [0, 8, 16, 32, 0, 0, 0];

pub(super) const PROBES: &[FunctionProbe] = &[
    call("cudaMalloc", Op::CudaMalloc, Some(0), ALLOC),
    call("cudaMallocAsync", Op::CudaMallocAsync, Some(0), ALLOC.on(Arg(2))),
    call("cudaMallocFromPoolAsync", Op::CudaMallocFromPoolAsync, Some(0), ALLOC.on(Arg(3))),
    call("cudaMallocManaged", Op::CudaMallocManaged, Some(0), ALLOC),
    call("cudaMallocHost", Op::CudaMallocHost, Some(0), ALLOC),
    call("cudaHostAlloc", Op::CudaHostAlloc, Some(0), ALLOC),
    // (&ptr, &pitch, width, height)
    call("cudaMallocPitch", Op::CudaMallocPitch, Some(0), Fields { addr: Out, size: Area(2, 3), ..NONE }),
    call("cudaHostRegister", Op::CudaHostRegister, None, RANGE),
    call("cudaFree", Op::CudaFree, None, FREE),
    call("cudaFreeAsync", Op::CudaFreeAsync, None, FREE.on(Arg(1))),
    call("cudaFreeHost", Op::CudaFreeHost, None, FREE),
    call("cudaHostUnregister", Op::CudaHostUnregister, None, FREE),
    // (pool, bytes to keep)
    call("cudaMemPoolTrimTo", Op::CudaMemPoolTrimTo, None, RANGE),
    call("cudaMemGetInfo", Op::CudaMemGetInfo, Some(0), Fields { size: Out, ..NONE }),
    call("cudaDeviceReset", Op::CudaDeviceReset, None, NONE),
    call("cudaMemcpy", Op::CudaMemcpy, None, COPY),
    call("cudaMemcpyAsync", Op::CudaMemcpyAsync, None, COPY.on(Arg(4))),
    call("cudaMemcpy2D", Op::CudaMemcpy2D, None, COPY_2D),
    call("cudaMemcpy2DAsync", Op::CudaMemcpy2DAsync, None, COPY_2D.on(Word(1))),
    call("cudaMemcpy2DToArray", Op::CudaMemcpy2DToArray, None, TO_ARRAY),
    call("cudaMemcpy2DToArrayAsync", Op::CudaMemcpy2DToArrayAsync, None, TO_ARRAY.on(Word(2))),
    call("cudaMemcpy2DFromArray", Op::CudaMemcpy2DFromArray, None, FROM_ARRAY),
    call("cudaMemcpy2DFromArrayAsync", Op::CudaMemcpy2DFromArrayAsync, None, FROM_ARRAY.on(Word(2))),
    call("cudaMemcpy3D", Op::CudaMemcpy3D, None, PARAMS).reading(COPY_3D),
    call("cudaMemcpy3DAsync", Op::CudaMemcpy3DAsync, None, PARAMS.on(Arg(1))).reading(COPY_3D),
    call("cudaMemcpyPeer", Op::CudaMemcpyPeer, None, PEER),
    call("cudaMemcpyPeerAsync", Op::CudaMemcpyPeerAsync, None, PEER.on(Arg(5))),
    call("cudaMemcpy3DPeer", Op::CudaMemcpy3DPeer, None, PEER_PARAMS).reading(COPY_3D_PEER),
    call("cudaMemcpy3DPeerAsync", Op::CudaMemcpy3DPeerAsync, None, PEER_PARAMS.on(Arg(1)))
        .reading(COPY_3D_PEER),
    call("cudaMemcpyToSymbol", Op::CudaMemcpyToSymbol, None, SYMBOL),
    call("cudaMemcpyToSymbolAsync", Op::CudaMemcpyToSymbolAsync, None, SYMBOL.on(Arg(5))),
    call("cudaMemcpyFromSymbol", Op::CudaMemcpyFromSymbol, None, SYMBOL),
    call("cudaMemcpyFromSymbolAsync", Op::CudaMemcpyFromSymbolAsync, None, SYMBOL.on(Arg(5))),
    // Many copies in one: their sizes lie in an array and are not read.
    call("cudaMemcpyBatchAsync", Op::CudaMemcpyBatchAsync, None, NONE),
    call("cudaMemset", Op::CudaMemset, None, SET),
    call("cudaMemsetAsync", Op::CudaMemsetAsync, None, SET.on(Arg(3))),
    call("cudaMemset2D", Op::CudaMemset2D, None, SET_2D),
    call("cudaMemset2DAsync", Op::CudaMemset2DAsync, None, SET_2D.on(Arg(5))),
    // (value, stream | pitched pointer, extent): the extent lies beyond the words that are read.
    call("cudaMemset3D", Op::CudaMemset3D, None, Fields { addr: Word(0), ..NONE }),
    call("cudaMemset3DAsync", Op::CudaMemset3DAsync, None, Fields { addr: Word(0), ..NONE }.on(Arg(1))),
    call("cudaLaunchKernel", Op::CudaLaunchKernel, None, LAUNCH).from(Full),
    // (config*, func, args)
    call(
        "cudaLaunchKernelExC",
        Op::CudaLaunchKernelExC,
        None,
        Fields { func: Arg(1), stream: Word(3), shape: Config, ..NONE },
    )
    .reading(LAUNCH_CONFIG)
    .from(Full),
    call("cudaLaunchCooperativeKernel", Op::CudaLaunchCooperativeKernel, None, LAUNCH).from(Full),
    FunctionProbe {
        event: Event::KernelName,
        ..call("__cudaRegisterFunction", Op::CudaLaunchKernel, Some(1), NONE).from(Full)
    },
    call("cudaGraphLaunch", Op::CudaGraphLaunch, None, SUBJECT.on(Arg(1))),
    call("cudaStreamBeginCapture", Op::CudaStreamBeginCapture, None, NONE.on(Arg(0))),
    // (stream, &graph)
    call("cudaStreamEndCapture", Op::CudaStreamEndCapture, Some(1), MADE.on(Arg(0))),
    call("cudaGraphInstantiate", Op::CudaGraphInstantiate, Some(0), MADE),
    call("cudaGraphInstantiateWithFlags", Op::CudaGraphInstantiateWithFlags, Some(0), MADE),
    call("cudaGraphInstantiateWithParams", Op::CudaGraphInstantiateWithParams, Some(0), MADE),
    call("cudaGraphExecUpdate", Op::CudaGraphExecUpdate, None, SUBJECT),
    call("cudaGraphUpload", Op::CudaGraphUpload, None, SUBJECT.on(Arg(1))),
    call("cudaGraphDestroy", Op::CudaGraphDestroy, None, SUBJECT),
    call("cudaGraphExecDestroy", Op::CudaGraphExecDestroy, None, SUBJECT),
    // (&handle, address); (&address, handle by value, flags); (address)
    call("cudaIpcGetMemHandle", Op::CudaIpcGetMemHandle, None, Fields { addr: Arg(1), ..NONE }),
    call("cudaIpcOpenMemHandle", Op::CudaIpcOpenMemHandle, Some(0), Fields { addr: Out, ..NONE }),
    call("cudaIpcCloseMemHandle", Op::CudaIpcCloseMemHandle, None, FREE),
    call("cudaStreamSynchronize", Op::CudaStreamSynchronize, None, NONE.on(Arg(0))),
    call("cudaDeviceSynchronize", Op::CudaDeviceSynchronize, None, NONE),
    call("cudaEventSynchronize", Op::CudaEventSynchronize, None, SUBJECT),
    call("cudaEventRecord", Op::CudaEventRecord, None, SUBJECT.on(Arg(1))).from(Full),
    call("cudaEventRecordWithFlags", Op::CudaEventRecordWithFlags, None, SUBJECT.on(Arg(1))).from(Full),
    call("cudaEventQuery", Op::CudaEventQuery, None, SUBJECT).from(Full),
    call("cudaStreamQuery", Op::CudaStreamQuery, None, NONE.on(Arg(0))).from(Full),
    // (stream, event, flags)
    call(
        "cudaStreamWaitEvent",
        Op::CudaStreamWaitEvent,
        None,
        Fields { func: Arg(1), stream: Arg(0), ..NONE },
    )
    .from(Full),
];
