//! Determines whether the memory of PyTorch's allocator leaks, and which call sites leak it.
//!
//! ```text
//! marks, allocations ──► epochs ─┐
//! allocator events ────► replay ─┴► survivors (blocks that outlive the end of an epoch, by site)
//!                                  ├► site (old blocks, trend) ─► account ─► verdict ─► growth, rows (views)
//!                                  └► live (what is live at the end, if there is no verdict) ──┘
//!
//! allocations from the driver ► driver: the rule of sites for what is no memory of PyTorch
//! ```

pub mod account;
pub mod driver;
pub mod epochs;
pub mod growth;
mod live;
pub mod measured;
pub mod site;
pub mod stacks;
pub mod survivors;
pub mod trend;
pub mod verdict;
