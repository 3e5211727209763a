//! Does the memory of PyTorch's allocator leak, and where from?
//!
//! ```text
//! marks, allocations ─► epochs ─┐
//! allocator's events ─► replay ─┴► survivors (blocks that outlive the end of an epoch, by site)
//!                                      └─► site (old blocks, trend) ─► account ─► verdict ─► growth
//! ```

pub mod account;
pub mod epochs;
pub mod growth;
pub mod site;
pub mod stacks;
pub mod survivors;
pub mod trend;
pub mod verdict;
