//! Tables that Rust makes for SQL, from `events` or from what the files say about themselves: one file a table, one list of
//! them ([`TABLES`], [`FACTS`]). A table declares its rows ([`analyze_engine::rows!`]) and says what makes them.

mod calls;
pub mod chain_links;
mod critical_path;
mod data_quality;
mod def;
mod facts;
mod launch_gaps;
mod leaks;
mod mark_samples;
mod memory;
mod per_slow_call;
mod registry;
mod run_time;
mod slow_calls;
mod steps;
mod sync_overlap;

pub use def::{FactDef, TableDef};
pub use registry::{FACTS, TABLES, class_of, kinds_of, register, shares_sweep};
