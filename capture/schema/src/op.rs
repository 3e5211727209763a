//! The CUDA and NCCL functions that Inquest knows, each with its library and its purpose.

/// Which library a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// libcudart.
    Runtime,
    /// libcuda.
    Driver,
    /// libnccl.
    Nccl,
}

impl Layer {
    /// The name users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Driver => "driver",
            Self::Nccl => "nccl",
        }
    }
}

/// The purpose of a function. It decides which causes can explain a slow call: waiting is what `Sync` is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Allocates device or pinned memory.
    Alloc,
    /// Frees device or pinned memory.
    Free,
    /// Reserves, maps or unmaps address ranges (virtual memory management).
    Map,
    /// Copies memory.
    Copy,
    /// Fills memory with a value.
    Set,
    /// Launches a kernel or a graph.
    Launch,
    /// Waits for the GPU: time asleep inside it is its purpose.
    Sync,
    /// Records, queries or chains events and streams; never waits.
    Event,
    /// Captures, builds, updates or frees CUDA graphs.
    Graph,
    /// Creates and destroys contexts, loads and unloads code.
    Module,
    /// Shares memory between processes.
    Ipc,
    /// Moves data between GPUs, all ranks of a communicator together.
    Collective,
    /// Moves data between two ranks.
    PointToPoint,
    /// Sets communicators up, groups their calls, tears them down.
    Communicator,
    /// Queries a value and changes nothing.
    Query,
}

impl Class {
    /// The name users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::Map => "map",
            Self::Copy => "copy",
            Self::Set => "set",
            Self::Launch => "launch",
            Self::Sync => "sync",
            Self::Event => "event",
            Self::Graph => "graph",
            Self::Module => "module",
            Self::Ipc => "ipc",
            Self::Collective => "collective",
            Self::PointToPoint => "p2p",
            Self::Communicator => "communicator",
            Self::Query => "query",
        }
    }
}

macro_rules! ops {
    ($($layer:ident $class:ident: $($op:ident = $name:literal),+;)*) => {
        /// A CUDA or NCCL function, without the version suffix of its symbol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[doc = concat!("`", $name, "`.")] $op,)+)*
        }

        impl Op {
            /// Every function.
            pub const ALL: &[Self] = &[$($(Self::$op),+),*];

            /// The value in the `op` column of a `call` row.
            #[inline]
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$op => $name,)+)* }
            }

            /// The library that the function belongs to.
            pub const fn layer(self) -> Layer {
                match self { $($(Self::$op => Layer::$layer,)+)* }
            }

            /// The purpose of the function.
            pub const fn class(self) -> Class {
                match self { $($(Self::$op => Class::$class,)+)* }
            }
        }
    };
}

ops! {
    Runtime Alloc: CudaMalloc = "cudaMalloc", CudaMallocAsync = "cudaMallocAsync", CudaMallocFromPoolAsync =
        "cudaMallocFromPoolAsync", CudaMallocManaged = "cudaMallocManaged", CudaMallocHost = "cudaMallocHost",
        CudaHostAlloc = "cudaHostAlloc", CudaMallocPitch = "cudaMallocPitch", CudaHostRegister =
        "cudaHostRegister";
    Runtime Free: CudaFree = "cudaFree", CudaFreeAsync = "cudaFreeAsync", CudaFreeHost = "cudaFreeHost",
        CudaHostUnregister = "cudaHostUnregister", CudaMemPoolTrimTo = "cudaMemPoolTrimTo";
    Runtime Copy: CudaMemcpy = "cudaMemcpy", CudaMemcpyAsync = "cudaMemcpyAsync", CudaMemcpy2D =
        "cudaMemcpy2D", CudaMemcpy2DAsync = "cudaMemcpy2DAsync", CudaMemcpy2DToArray = "cudaMemcpy2DToArray",
        CudaMemcpy2DToArrayAsync = "cudaMemcpy2DToArrayAsync", CudaMemcpy2DFromArray = "cudaMemcpy2DFromArray",
        CudaMemcpy2DFromArrayAsync = "cudaMemcpy2DFromArrayAsync", CudaMemcpy3D = "cudaMemcpy3D",
        CudaMemcpy3DAsync = "cudaMemcpy3DAsync", CudaMemcpyPeer = "cudaMemcpyPeer", CudaMemcpyPeerAsync =
        "cudaMemcpyPeerAsync", CudaMemcpy3DPeer = "cudaMemcpy3DPeer", CudaMemcpy3DPeerAsync =
        "cudaMemcpy3DPeerAsync", CudaMemcpyToSymbol = "cudaMemcpyToSymbol", CudaMemcpyToSymbolAsync =
        "cudaMemcpyToSymbolAsync", CudaMemcpyFromSymbol = "cudaMemcpyFromSymbol", CudaMemcpyFromSymbolAsync =
        "cudaMemcpyFromSymbolAsync", CudaMemcpyBatchAsync = "cudaMemcpyBatchAsync";
    Runtime Set: CudaMemset = "cudaMemset", CudaMemsetAsync = "cudaMemsetAsync", CudaMemset2D =
        "cudaMemset2D", CudaMemset2DAsync = "cudaMemset2DAsync", CudaMemset3D = "cudaMemset3D",
        CudaMemset3DAsync = "cudaMemset3DAsync";
    Runtime Launch: CudaLaunchKernel = "cudaLaunchKernel", CudaLaunchKernelExC = "cudaLaunchKernelExC",
        CudaLaunchCooperativeKernel = "cudaLaunchCooperativeKernel", CudaGraphLaunch = "cudaGraphLaunch";
    Runtime Sync: CudaStreamSynchronize = "cudaStreamSynchronize", CudaDeviceSynchronize =
        "cudaDeviceSynchronize", CudaEventSynchronize = "cudaEventSynchronize";
    Runtime Event: CudaEventRecord = "cudaEventRecord", CudaEventRecordWithFlags =
        "cudaEventRecordWithFlags", CudaEventQuery = "cudaEventQuery", CudaStreamQuery = "cudaStreamQuery",
        CudaStreamWaitEvent = "cudaStreamWaitEvent";
    Runtime Graph: CudaStreamBeginCapture = "cudaStreamBeginCapture", CudaStreamEndCapture =
        "cudaStreamEndCapture", CudaGraphInstantiate = "cudaGraphInstantiate", CudaGraphInstantiateWithFlags =
        "cudaGraphInstantiateWithFlags", CudaGraphInstantiateWithParams = "cudaGraphInstantiateWithParams",
        CudaGraphExecUpdate = "cudaGraphExecUpdate", CudaGraphUpload = "cudaGraphUpload", CudaGraphDestroy =
        "cudaGraphDestroy", CudaGraphExecDestroy = "cudaGraphExecDestroy";
    Runtime Ipc: CudaIpcGetMemHandle = "cudaIpcGetMemHandle", CudaIpcOpenMemHandle = "cudaIpcOpenMemHandle",
        CudaIpcCloseMemHandle = "cudaIpcCloseMemHandle";
    Runtime Module: CudaDeviceReset = "cudaDeviceReset";
    Runtime Query: CudaMemGetInfo = "cudaMemGetInfo";
    Driver Alloc: CuMemAlloc = "cuMemAlloc", CuMemAllocAsync = "cuMemAllocAsync", CuMemAllocFromPoolAsync =
        "cuMemAllocFromPoolAsync", CuMemAllocPitch = "cuMemAllocPitch", CuMemAllocManaged = "cuMemAllocManaged",
        CuMemAllocHost = "cuMemAllocHost", CuMemHostAlloc = "cuMemHostAlloc", CuMemHostRegister =
        "cuMemHostRegister", CuMemCreate = "cuMemCreate";
    Driver Free: CuMemFree = "cuMemFree", CuMemFreeAsync = "cuMemFreeAsync", CuMemFreeHost =
        "cuMemFreeHost", CuMemHostUnregister = "cuMemHostUnregister", CuMemRelease = "cuMemRelease",
        CuMemPoolTrimTo = "cuMemPoolTrimTo";
    Driver Map: CuMemAddressReserve = "cuMemAddressReserve", CuMemAddressFree = "cuMemAddressFree", CuMemMap
        = "cuMemMap", CuMemUnmap = "cuMemUnmap", CuMemSetAccess = "cuMemSetAccess";
    Driver Copy: CuMemcpy = "cuMemcpy", CuMemcpyAsync = "cuMemcpyAsync", CuMemcpyHtoD = "cuMemcpyHtoD",
        CuMemcpyHtoDAsync = "cuMemcpyHtoDAsync", CuMemcpyDtoH = "cuMemcpyDtoH", CuMemcpyDtoHAsync =
        "cuMemcpyDtoHAsync", CuMemcpyDtoD = "cuMemcpyDtoD", CuMemcpyDtoDAsync = "cuMemcpyDtoDAsync",
        CuMemcpyPeer = "cuMemcpyPeer", CuMemcpyPeerAsync = "cuMemcpyPeerAsync", CuMemcpy2D = "cuMemcpy2D",
        CuMemcpy2DUnaligned = "cuMemcpy2DUnaligned", CuMemcpy2DAsync = "cuMemcpy2DAsync", CuMemcpy3D =
        "cuMemcpy3D", CuMemcpy3DAsync = "cuMemcpy3DAsync", CuMemcpy3DPeer = "cuMemcpy3DPeer",
        CuMemcpy3DPeerAsync = "cuMemcpy3DPeerAsync", CuMemcpyBatchAsync = "cuMemcpyBatchAsync";
    Driver Set: CuMemsetD8 = "cuMemsetD8", CuMemsetD16 = "cuMemsetD16", CuMemsetD32 = "cuMemsetD32",
        CuMemsetD8Async = "cuMemsetD8Async", CuMemsetD16Async = "cuMemsetD16Async", CuMemsetD32Async =
        "cuMemsetD32Async", CuMemsetD2D8 = "cuMemsetD2D8", CuMemsetD2D16 = "cuMemsetD2D16", CuMemsetD2D32 =
        "cuMemsetD2D32", CuMemsetD2D8Async = "cuMemsetD2D8Async", CuMemsetD2D16Async = "cuMemsetD2D16Async",
        CuMemsetD2D32Async = "cuMemsetD2D32Async";
    Driver Launch: CuLaunchKernel = "cuLaunchKernel", CuLaunchKernelEx = "cuLaunchKernelEx",
        CuLaunchCooperativeKernel = "cuLaunchCooperativeKernel", CuGraphLaunch = "cuGraphLaunch";
    Driver Sync: CuStreamSynchronize = "cuStreamSynchronize", CuCtxSynchronize = "cuCtxSynchronize",
        CuEventSynchronize = "cuEventSynchronize";
    Driver Event: CuEventRecord = "cuEventRecord", CuEventRecordWithFlags = "cuEventRecordWithFlags",
        CuEventQuery = "cuEventQuery", CuStreamQuery = "cuStreamQuery", CuStreamWaitEvent = "cuStreamWaitEvent";
    Driver Graph: CuStreamBeginCapture = "cuStreamBeginCapture", CuStreamEndCapture = "cuStreamEndCapture",
        CuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags", CuGraphInstantiateWithParams =
        "cuGraphInstantiateWithParams", CuGraphExecUpdate = "cuGraphExecUpdate", CuGraphUpload =
        "cuGraphUpload", CuGraphDestroy = "cuGraphDestroy", CuGraphExecDestroy = "cuGraphExecDestroy";
    Driver Ipc: CuIpcGetMemHandle = "cuIpcGetMemHandle", CuIpcOpenMemHandle = "cuIpcOpenMemHandle",
        CuIpcCloseMemHandle = "cuIpcCloseMemHandle", CuMemExportToShareableHandle =
        "cuMemExportToShareableHandle", CuMemImportFromShareableHandle = "cuMemImportFromShareableHandle";
    Driver Module: CuInit = "cuInit", CuCtxCreate = "cuCtxCreate", CuCtxDestroy = "cuCtxDestroy",
        CuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain", CuDevicePrimaryCtxRelease =
        "cuDevicePrimaryCtxRelease", CuDevicePrimaryCtxReset = "cuDevicePrimaryCtxReset", CuModuleLoad =
        "cuModuleLoad", CuModuleLoadData = "cuModuleLoadData", CuModuleLoadDataEx = "cuModuleLoadDataEx",
        CuModuleLoadFatBinary = "cuModuleLoadFatBinary", CuModuleUnload = "cuModuleUnload", CuModuleGetFunction
        = "cuModuleGetFunction", CuLibraryLoadData = "cuLibraryLoadData", CuLibraryUnload = "cuLibraryUnload",
        CuLibraryGetKernel = "cuLibraryGetKernel";
    Driver Query: CuMemGetInfo = "cuMemGetInfo";
    Nccl Collective: NcclAllReduce = "ncclAllReduce", NcclReduce = "ncclReduce", NcclBroadcast =
        "ncclBroadcast", NcclBcast = "ncclBcast", NcclAllGather = "ncclAllGather", NcclReduceScatter =
        "ncclReduceScatter", NcclAlltoAll = "ncclAlltoAll", NcclGather = "ncclGather", NcclScatter =
        "ncclScatter";
    Nccl PointToPoint: NcclSend = "ncclSend", NcclRecv = "ncclRecv";
    Nccl Communicator: NcclGroupStart = "ncclGroupStart", NcclGroupEnd = "ncclGroupEnd", NcclCommInitRank =
        "ncclCommInitRank", NcclCommInitRankConfig = "ncclCommInitRankConfig", NcclCommInitAll =
        "ncclCommInitAll", NcclCommSplit = "ncclCommSplit", NcclCommFinalize = "ncclCommFinalize",
        NcclCommDestroy = "ncclCommDestroy", NcclCommAbort = "ncclCommAbort";
    Nccl Alloc: NcclMemAlloc = "ncclMemAlloc";
    Nccl Free: NcclMemFree = "ncclMemFree";
}

impl Op {
    /// The function with the given name in the `op` column; `None` if Inquest does not know it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.name() == name)
    }
}
