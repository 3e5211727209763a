//! Tables of the search for leaks in PyTorch's allocator.

pub(super) mod allocators;
pub(super) mod epochs;
pub(super) mod sites;
