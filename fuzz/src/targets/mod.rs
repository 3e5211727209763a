//! The fuzz targets. A target is a function, and one entry of the list.

pub mod capture;
mod check;
pub mod imports;
mod list;
pub mod rows;
pub mod runs;
pub mod texts;

pub use list::{TARGETS, find};
