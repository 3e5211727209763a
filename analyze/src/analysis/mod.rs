//! The questions this program answers, one a file: parameters in, data out, nothing printed.
//!
//! ```text
//! events ─► schedule ─► call_rows (nesting, time_split) ─► judge (strata, causes, walk) ─► chains (culprits, alibis)
//! ```

pub(crate) mod alibis;
pub(crate) mod blocker;
pub(crate) mod call_columns;
pub(crate) mod call_rows;
pub(crate) mod causes;
pub(crate) mod chains;
pub(crate) mod copy_cost;
pub(crate) mod critical_path;
pub(crate) mod culprits;
pub(crate) mod info;
pub(crate) mod judge;
pub(crate) mod launch_gaps;
pub(crate) mod memory;
pub(crate) mod nesting;
pub(crate) mod phases;
pub(crate) mod quantile;
pub(crate) mod schedule;
pub(crate) mod slow_rows;
pub(crate) mod strata;
pub(crate) mod summary;
pub(crate) mod time_split;
pub(crate) mod timeline;
pub(crate) mod walk;
