//! Opens runs and hands out their rows in the order of time, without SQL.
//!
//! ```text
//! run.parquet ─► run_file (footer, metadata, row groups) ─► reading (rows of all row groups, merged by ts) ─► a Consumer
//! ```
//! Everything that reads rows itself (the allocator's replay, the account of calls) depends on this crate alone; what needs
//! SQL asks an [`events::Events`], which a session implements.

pub mod address_ranges;
pub mod columns;
pub mod coverage;
pub mod error;
pub mod events;
pub mod hash;
pub mod memory_budget;
pub mod multiset;
pub mod new_file;
pub mod panics;
pub mod parquet_footer;
pub mod parquet_pages;
pub mod progress;
pub mod quantiles;
pub mod random;
pub mod reading;
pub mod row_groups;
pub mod run_file;
pub mod spans;
pub mod stored_file;
pub mod suggest;
pub mod symbols;
pub mod text;
pub mod text_file;
pub mod times;
