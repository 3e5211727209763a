//! Tables of the search for leaks in PyTorch's allocator.

pub(super) mod allocators;
pub(super) mod epochs;
mod of_growth;
pub(super) mod sites;
