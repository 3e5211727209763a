//! The description of a function probe: its symbol, and the register that holds each value.

use capture_wire::READ_WORDS;
use clap::ValueEnum;
use trace_schema::{Direction, Op};

/// How much is probed. Each profile has all probes of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Profile {
    /// Memory, copies, synchronization, graphs, NCCL; no kernel launches and no allocator events, which are the most frequent calls
    Light,
    /// Kernel launches at the driver API, which every library's launches pass through, and allocator events
    Default,
    /// Kernel launches at the runtime API as well, with their kernels' names; CUDA event records and queries
    Full,
}

impl Profile {
    /// The value of `--profile`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Default => "default",
            Self::Full => "full",
        }
    }
}

/// A family of libraries, recognised by the prefix of their file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Library {
    /// The CUDA runtime, or a program or library that contains it.
    Cudart,
    /// The CUDA driver.
    Cuda,
    /// NCCL.
    Nccl,
    /// NVTX, NVIDIA's library for marks.
    Nvtx,
    /// PyTorch's CUDA allocator.
    C10Cuda,
    /// PyTorch's core library, probed only in processes whose allocator library lacks the symbol of its events.
    C10,
    /// The libraries that may have PyTorch's own CUDA code, of which builds differ in the one that has it.
    Torch,
}

impl Library {
    /// The families whose libraries are nothing else. The allocator's library comes first: it decides whether libc10's
    /// fallback is needed. A library of [`Self::Torch`] may contain the CUDA runtime, too.
    pub(crate) const ALL: [Self; 6] =
        [Self::C10Cuda, Self::C10, Self::Cudart, Self::Cuda, Self::Nccl, Self::Nvtx];

    /// The name of the family in documentation.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Cudart => "CUDA runtime",
            Self::Cuda => "CUDA driver",
            Self::Nccl => "NCCL",
            Self::Nvtx => "NVTX",
            Self::C10Cuda | Self::C10 | Self::Torch => "PyTorch",
        }
    }

    /// Whether a mapped file of that name belongs to the family, as `libcudart.so.13` and the
    /// `libcudart-<hash>.so.12` of some wheels do.
    pub(crate) fn matches(self, file_name: &str) -> bool {
        let stems: &[&str] = match self {
            Self::Cudart => &["libcudart"],
            Self::Cuda => &["libcuda"],
            Self::Nccl => &["libnccl"],
            Self::Nvtx => &["libnvToolsExt"],
            Self::C10Cuda => &["libc10_cuda"],
            Self::C10 => &["libc10"],
            Self::Torch => &["libtorch_cuda", "libtorch_python", "libtorch"],
        };
        let hash = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_suffix = |rest: &str| {
            rest.starts_with(".so")
                || rest
                    .strip_prefix('-')
                    .and_then(|rest| rest.split_once(".so"))
                    .is_some_and(|(text, _)| hash(text))
        };
        stems.iter().any(|stem| file_name.strip_prefix(stem).is_some_and(is_suffix))
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// The function has no such value.
    #[default]
    None,
    /// Integer argument register `n`.
    Arg(usize),
    /// Word `n` from memory: of the arguments on the stack or, if the probe reads a struct, of that struct.
    Word(usize),
    /// The word at the out-pointer on return.
    Out,
    /// Product of two argument registers (rows times width).
    Area(usize, usize),
    /// Product of two argument registers and a constant (rows times width times element size).
    ScaledArea(usize, usize, u64),
    /// Product of argument register and word.
    ArgByWord(usize, usize),
    /// Product of two or three words from `n` on.
    Words(usize, usize),
    /// An argument register times a constant (elements times their size).
    Scaled(usize, u64),
}

/// Where a copy's direction comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DirectionSource {
    /// The function is not a copy.
    #[default]
    None,
    /// A `cudaMemcpyKind` in a register or in memory.
    Kind(Source),
    /// Two values of `CUmemorytype`, of source and destination.
    MemoryTypes(Source, Source),
    /// The function copies one way only.
    Fixed(Direction),
}

/// Where a launch's grid and block come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ShapeSource {
    /// The function is not a kernel launch.
    #[default]
    None,
    /// Six integers from argument 1 on, the last of them on the stack (driver).
    Integers,
    /// Two `dim3` from argument 1 on (runtime).
    Dim3,
    /// A launch configuration that argument 0 points at; grid and block are its first 24 bytes.
    Config,
}

/// The sources of the columns of a call row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) addr: Source,
    pub(crate) src: Source,
    pub(crate) size: Source,
    pub(crate) stream: Source,
    pub(crate) func: Source,
    pub(crate) direction: DirectionSource,
    pub(crate) shape: ShapeSource,
    /// Number of elements of an NCCL call; their type, the communicator, and the peer or root follow.
    pub(crate) count: Source,
    pub(crate) dtype: Source,
    pub(crate) communicator: Source,
    pub(crate) peer: Source,
}

impl Fields {
    /// Fields of a function that fills no column.
    pub(crate) const NONE: Self = Self {
        addr: Source::None,
        src: Source::None,
        size: Source::None,
        stream: Source::None,
        func: Source::None,
        direction: DirectionSource::None,
        shape: ShapeSource::None,
        count: Source::None,
        dtype: Source::None,
        communicator: Source::None,
        peer: Source::None,
    };

    /// These fields, with a stream.
    pub(crate) const fn on(self, stream: Source) -> Self {
        Self { stream, ..self }
    }
}

/// The meaning of a probe's hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A call, with entry and return.
    Call(Op),
    /// A call whose argument 2 points at the name of what the out-pointer received.
    NamingCall(Op),
    /// An event of PyTorch's caching allocator, entry only, decoded in `torch.rs`.
    Allocator,
    /// A request to release reclaimable memory (`empty_cache`). Entry only: C++ exceptions pass through the function
    /// and could not unwind through a probe on its return.
    EmptyCache,
    /// A call of `ipc_collect()`, which frees blocks: the events of these lie between its entry and its return. No C++
    /// exception passes through the function, because only destructors run in it.
    IpcCollect,
    /// The allocator's report of its totals.
    AllocatorUsage,
    /// A mark of the workload.
    Mark(MarkKind),
    /// `__cudaRegisterFunction`, which gives the name of a kernel's host address.
    KernelName,
}

/// The kind of an NVTX call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// A point in time.
    Point,
    /// A range of the calling thread begins.
    Push,
    /// The latest range of the calling thread ends.
    Pop,
}

/// One probed function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionProbe {
    /// Family of the library that has the function.
    pub(crate) library: Library,
    /// Symbol of the function; its variants for per-thread default streams match, too.
    pub(crate) symbol: &'static str,
    /// Whether `symbol` is a prefix, because the symbol's end differs between versions of the library.
    pub(crate) prefix: bool,
    /// The smallest profile that has it.
    pub(crate) profile: Profile,
    /// Meaning of a hit.
    pub(crate) event: Event,
    /// Index of an argument that points at a result.
    pub(crate) out: Option<u32>,
    /// Byte offsets of the words to read from the struct that argument 0 points at.
    pub(crate) reads: Option<[u32; READ_WORDS]>,
    /// Sources of the row's columns.
    pub(crate) fields: Fields,
}

impl FunctionProbe {
    /// Whether a symbol names this function. Compilers move cold parts of functions to `.cold` symbols,
    /// which are never called.
    pub(crate) fn matches(&self, symbol: &str) -> bool {
        match symbol.strip_prefix(self.symbol) {
            Some(rest) if self.prefix => !rest.ends_with(".cold"),
            Some(rest) => matches!(rest, "" | "_ptsz" | "_ptds"),
            None => false,
        }
    }

    /// This probe, in a larger profile only.
    pub(super) const fn from(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// This probe, with words read from the struct that argument 0 points at.
    pub(super) const fn reading(self, reads: [u32; READ_WORDS]) -> Self {
        Self { reads: Some(reads), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_apart() {
        assert!(Library::Cudart.matches("libcudart.so.13"));
        assert!(Library::Cudart.matches("libcudart-9335f6a2.so.12"));
        assert!(Library::Cuda.matches("libcuda.so.580.159.04"));
        assert!(!Library::Cuda.matches("libcudart.so.13"));
        assert!(!Library::Cuda.matches("libcudadebugger.so.1"));
        assert!(Library::C10Cuda.matches("libc10_cuda.so"));
        assert!(!Library::C10Cuda.matches("libc10.so"));
        assert!(!Library::C10.matches("libc10_cuda.so"));
        for name in ["libtorch_cuda.so", "libtorch_python.so", "libtorch.so"] {
            assert!(Library::Torch.matches(name), "{name}");
        }
        assert!(
            !Library::Torch.matches("libtorch_cpu.so") && !Library::Torch.matches("libtorch_cuda_linalg.so")
        );
        assert!(Library::Nccl.matches("libnccl.so.2"));
        assert!(!Library::Nccl.matches("libnccl-net.so"), "a plug-in is not NCCL");
    }

    #[test]
    fn variants_are_the_same_function() {
        let probe = crate::probes::numbered().find(|(_, probe)| probe.symbol == "cuMemcpyHtoDAsync_v2");
        let (_, probe) = probe.expect("known");
        assert!(probe.matches("cuMemcpyHtoDAsync_v2") && probe.matches("cuMemcpyHtoDAsync_v2_ptsz"));
        assert!(!probe.matches("cuMemcpyHtoDAsync") && !probe.matches("cuMemcpyHtoDAsync_v2_other"));
    }
}
