//! The questions this program answers, one a file: parameters in, data out, nothing printed.
//!
//! ```text
//! events ─► sweep (schedule, time_split) ─► measure (strata, multiset, walk) ─► judge (causes) ─► chains (culprits, alibis)
//!                                      └─► call_rows, launch_gaps, critical_path          └─► slow_rows
//! ```

pub(crate) mod alerts;
pub(crate) mod alibis;
pub(crate) mod align;
pub(crate) mod blocker;
pub(crate) mod call;
pub(crate) mod call_rows;
pub(crate) mod causes;
pub(crate) mod chains;
pub(crate) mod copy_cost;
pub(crate) mod critical_path;
pub(crate) mod culprits;
pub(crate) mod devices;
pub(crate) mod doubt;
pub(crate) mod driver_memory;
pub(crate) mod fault;
pub(crate) mod head;
pub(crate) mod host_gaps;
pub(crate) mod info;
pub(crate) mod judge;
pub(crate) mod launch_gaps;
pub(crate) mod leaks;
pub(crate) mod measure;
pub(crate) mod measuring;
pub(crate) mod memory;
pub(crate) mod memory_advice;
pub(crate) mod memory_exports;
pub(crate) mod memory_history;
pub(crate) mod memory_map;
pub(crate) mod memory_overview;
pub(crate) mod memory_state;
pub(crate) mod multiset;
pub(crate) mod nccl;
pub(crate) mod phases;
pub(crate) mod piece;
pub(crate) mod quality;
pub(crate) mod schedule;
pub(crate) mod slow_rows;
pub(crate) mod strata;
pub(crate) mod summary;
pub(crate) mod sweep;
pub(crate) mod threshold;
pub(crate) mod time_split;
pub(crate) mod timeline;
pub(crate) mod verify;
pub(crate) mod walk;
pub(crate) mod what_if;
