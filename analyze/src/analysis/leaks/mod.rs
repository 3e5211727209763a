//! Does the memory of PyTorch's allocator leak, and where from?
//!
//! ```text
//! marks, allocations ─► epochs ─┐
//! allocator's events ─► replay ─┴► survivors (blocks that outlive the end of an epoch, by site)
//!                                      └─► site (old blocks, trend) ─► account ─► verdict ─► growth, rows (views)
//! ```

pub(crate) mod account;
pub(crate) mod epochs;
pub(crate) mod growth;
pub(crate) mod rows;
pub(crate) mod site;
pub(crate) mod stacks;
pub(crate) mod survivors;
pub(crate) mod trend;
pub(crate) mod verdict;
