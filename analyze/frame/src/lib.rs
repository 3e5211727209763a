//! Frames held by polars: figures of runs, and readings of counters. They have the operations that SQL here lacks: a pivot
//! with a column per figure, windows of runs with their medians, and as-of joins.
//!
//! Runs, figures and counters are numbers here; who asks knows what they stand for.

mod error;
mod figures;
mod readings;
mod windows;

pub use figures::{Entry, Frame};
pub use readings::{Moment, Reading, latest};
pub use windows::medians_before;
