//! How a function probe is described: which symbol, and which register holds what.

use trace_schema::{Direction, Op};

/// A file name prefix that libraries of a family share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Library {
    /// The CUDA runtime.
    Cudart,
    /// The CUDA driver.
    Cuda,
    /// PyTorch's CUDA allocator.
    C10Cuda,
    /// PyTorch's core: probed only in processes whose allocator has lost its own symbol.
    C10,
}

impl Library {
    /// Whether a mapped file of that name belongs to the family, as `libcudart.so.13` and the
    /// `libcudart-<hash>.so.12` of some wheels do.
    pub(crate) fn matches(self, file_name: &str) -> bool {
        let stem = match self {
            Self::Cudart => "libcudart",
            Self::Cuda => "libcuda",
            Self::C10Cuda => "libc10_cuda",
            Self::C10 => "libc10",
        };
        file_name
            .strip_prefix(stem)
            .is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-') && rest.contains(".so"))
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
    /// Word `n` of the arguments on the stack.
    Stack(usize),
    /// What the out-pointer points at on return.
    Out,
    /// Product of two argument registers (rows times width).
    Area(usize, usize),
    /// An argument register times a constant (elements times their size).
    Scaled(usize, u64),
}

/// Where a copy's direction comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DirectionSource {
    /// Not a copy.
    #[default]
    None,
    /// A `cudaMemcpyKind` in argument register `n`, or on the stack.
    Kind(Source),
    /// The function copies one way only.
    Fixed(Direction),
}

/// What the columns of a call row are filled from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) addr: Source,
    pub(crate) src: Source,
    pub(crate) size: Source,
    pub(crate) stream: Source,
    pub(crate) func: Source,
    pub(crate) direction: DirectionSource,
}

impl Fields {
    /// No column is filled.
    pub(crate) const NONE: Self = Self {
        addr: Source::None,
        src: Source::None,
        size: Source::None,
        stream: Source::None,
        func: Source::None,
        direction: DirectionSource::None,
    };
}

/// What a hit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A CUDA call, entry and return.
    Call(Op),
    /// An allocator event, entry only, decoded by the allocator's own table.
    Allocator,
    /// The allocator's report of its totals.
    AllocatorUsage,
}

/// One probed function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionProbe {
    /// Where it lives.
    pub(crate) library: Library,
    /// Its symbol, or the beginning of it if `prefix` is set.
    pub(crate) symbol: &'static str,
    /// The symbol's end differs between versions of the library.
    pub(crate) prefix: bool,
    /// What a hit means.
    pub(crate) event: Event,
    /// Index of an argument that points at a result.
    pub(crate) out: Option<u32>,
    /// Where the columns come from.
    pub(crate) fields: Fields,
}

impl FunctionProbe {
    /// Whether a symbol is this function. Compilers move cold halves of functions to `.cold` symbols,
    /// which nobody calls.
    pub(crate) fn matches(&self, symbol: &str) -> bool {
        if self.prefix {
            symbol.starts_with(self.symbol) && !symbol.ends_with(".cold")
        } else {
            symbol == self.symbol
        }
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
    }
}
