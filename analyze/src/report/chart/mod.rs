//! Charts with axes, drawn by plotters. Each file is one chart: it turns the result of an analysis into SVG
//! and runs no query.

mod axis;
mod backend;
pub(super) mod counters;
pub(super) mod forest;
pub(super) mod latency;
mod layout;
mod mark;
pub(super) mod memory;
pub(super) mod text_width;
pub(super) mod ticks;
pub(super) mod trend;
