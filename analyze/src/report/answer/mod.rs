//! Answers to single questions as documents, one file a verb of the command line. Each turns the result of a
//! question into blocks, and none runs a query.

pub mod advice;
pub mod alerts;
pub mod align;
pub mod baseline;
pub mod chains;
pub mod demo;
pub mod findings;
pub mod info;
pub mod leaks;
pub mod memory;
pub mod oom;
pub mod power;
pub mod queries;
pub mod releases;
pub mod summary;
pub mod trend;
pub mod verify;
pub mod what_if;
