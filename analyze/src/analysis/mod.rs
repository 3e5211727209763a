//! The questions this program answers, one per file. Each takes parameters and returns data; none prints.
//!
//! ```text
//! events ─► sweep (schedule, time_split) ─► measure (strata, multiset, walk) ─► judge (causes)
//!             │                                                                   ├─► chains (culprits,
//! alibis)
//!             └─► call_rows, launch_gaps, critical_path                           └─► slow_rows
//! ```

pub mod alerts;
pub mod alibis;
pub mod align;
pub mod blocker;
pub mod call;
pub mod call_rows;
pub mod causes;
pub mod chains;
pub mod copy_cost;
pub mod critical_path;
pub mod culprits;
pub mod devices;
pub mod doubt;
pub mod driver_memory;
pub mod fault;
pub mod head;
pub mod host_gaps;
pub mod info;
pub mod judge;
pub mod launch_gaps;
pub mod leaks;
pub mod measure;
pub mod measuring;
pub mod memory;
pub mod memory_advice;
pub mod memory_exports;
pub mod memory_history;
pub mod memory_map;
pub mod memory_overview;
pub mod memory_state;
pub mod multiset;
pub mod nccl;
pub mod phases;
pub mod piece;
pub mod quality;
pub mod schedule;
pub mod slow_rows;
pub mod strata;
pub mod summary;
pub mod sweep;
pub mod threshold;
pub mod time_split;
pub mod timeline;
pub mod verify;
pub mod walk;
pub mod what_if;
