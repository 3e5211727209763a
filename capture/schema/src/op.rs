//! The CUDA functions Inquest knows, each with its layer and what it is for.

/// Which library a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// libcudart.
    Runtime,
    /// libcuda.
    Driver,
}

impl Layer {
    /// The name users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Driver => "driver",
        }
    }
}

/// What a function is for: it decides what may count against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Takes device or pinned memory.
    Alloc,
    /// Gives it back.
    Free,
    /// Reserves, maps or unmaps address ranges (virtual memory management).
    Map,
    /// Copies.
    Copy,
    /// Fills.
    Set,
    /// Hands work to the GPU.
    Launch,
    /// Waits for the GPU: time asleep inside it is its purpose.
    Sync,
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
        }
    }
}

macro_rules! ops {
    ($($layer:ident $class:ident: $($op:ident = $name:literal),+;)*) => {
        /// A CUDA function, whatever the version suffix of its symbol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[doc = concat!("`", $name, "`.")] $op,)+)*
        }

        impl Op {
            /// Every function.
            pub const ALL: &[Self] = &[$($(Self::$op),+),*];

            /// The value in the `op` column of a `call` row.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$op => $name,)+)* }
            }

            /// The library it belongs to.
            pub const fn layer(self) -> Layer {
                match self { $($(Self::$op => Layer::$layer,)+)* }
            }

            /// What it is for.
            pub const fn class(self) -> Class {
                match self { $($(Self::$op => Class::$class,)+)* }
            }
        }
    };
}

ops! {
    Runtime Alloc: CudaMalloc = "cudaMalloc", CudaMallocAsync = "cudaMallocAsync",
        CudaMallocFromPoolAsync = "cudaMallocFromPoolAsync", CudaMallocManaged = "cudaMallocManaged",
        CudaMallocHost = "cudaMallocHost", CudaHostAlloc = "cudaHostAlloc";
    Runtime Free: CudaFree = "cudaFree", CudaFreeAsync = "cudaFreeAsync", CudaFreeHost = "cudaFreeHost";
    Runtime Copy: CudaMemcpy = "cudaMemcpy", CudaMemcpyAsync = "cudaMemcpyAsync",
        CudaMemcpy2D = "cudaMemcpy2D", CudaMemcpy2DAsync = "cudaMemcpy2DAsync",
        CudaMemcpyPeer = "cudaMemcpyPeer", CudaMemcpyPeerAsync = "cudaMemcpyPeerAsync";
    Runtime Set: CudaMemset = "cudaMemset", CudaMemsetAsync = "cudaMemsetAsync";
    Runtime Launch: CudaLaunchKernel = "cudaLaunchKernel", CudaLaunchKernelExC = "cudaLaunchKernelExC",
        CudaLaunchCooperativeKernel = "cudaLaunchCooperativeKernel", CudaGraphLaunch = "cudaGraphLaunch";
    Runtime Sync: CudaStreamSynchronize = "cudaStreamSynchronize",
        CudaDeviceSynchronize = "cudaDeviceSynchronize", CudaEventSynchronize = "cudaEventSynchronize";
    Driver Alloc: CuMemAlloc = "cuMemAlloc", CuMemAllocAsync = "cuMemAllocAsync",
        CuMemAllocFromPoolAsync = "cuMemAllocFromPoolAsync", CuMemAllocPitch = "cuMemAllocPitch",
        CuMemAllocManaged = "cuMemAllocManaged", CuMemAllocHost = "cuMemAllocHost",
        CuMemHostAlloc = "cuMemHostAlloc", CuMemCreate = "cuMemCreate";
    Driver Free: CuMemFree = "cuMemFree", CuMemFreeAsync = "cuMemFreeAsync",
        CuMemFreeHost = "cuMemFreeHost", CuMemRelease = "cuMemRelease";
    Driver Map: CuMemAddressReserve = "cuMemAddressReserve", CuMemAddressFree = "cuMemAddressFree",
        CuMemMap = "cuMemMap", CuMemUnmap = "cuMemUnmap", CuMemSetAccess = "cuMemSetAccess";
    Driver Copy: CuMemcpy = "cuMemcpy", CuMemcpyAsync = "cuMemcpyAsync",
        CuMemcpyHtoD = "cuMemcpyHtoD", CuMemcpyHtoDAsync = "cuMemcpyHtoDAsync",
        CuMemcpyDtoH = "cuMemcpyDtoH", CuMemcpyDtoHAsync = "cuMemcpyDtoHAsync",
        CuMemcpyDtoD = "cuMemcpyDtoD", CuMemcpyDtoDAsync = "cuMemcpyDtoDAsync",
        CuMemcpyPeer = "cuMemcpyPeer", CuMemcpyPeerAsync = "cuMemcpyPeerAsync";
    Driver Set: CuMemsetD8 = "cuMemsetD8", CuMemsetD16 = "cuMemsetD16", CuMemsetD32 = "cuMemsetD32",
        CuMemsetD8Async = "cuMemsetD8Async", CuMemsetD16Async = "cuMemsetD16Async",
        CuMemsetD32Async = "cuMemsetD32Async";
    Driver Launch: CuLaunchKernel = "cuLaunchKernel", CuLaunchKernelEx = "cuLaunchKernelEx",
        CuLaunchCooperativeKernel = "cuLaunchCooperativeKernel", CuGraphLaunch = "cuGraphLaunch";
    Driver Sync: CuStreamSynchronize = "cuStreamSynchronize", CuCtxSynchronize = "cuCtxSynchronize",
        CuEventSynchronize = "cuEventSynchronize";
}

impl Op {
    /// The function of that name, if it is a known one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.name() == name)
    }
}
