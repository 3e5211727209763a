//! Questions about memory: what PyTorch's allocators and the GPU held, when, and what would free it.

pub mod advice;
pub mod curve;
pub mod expandable;
pub mod exports;
pub mod history;
pub mod history_report;
pub mod map;
pub mod occupancy;
pub mod overview;
pub mod state;
