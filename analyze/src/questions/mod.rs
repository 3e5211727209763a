//! The questions this program answers, one a file: parameters in, data out, nothing printed.

pub mod alerts;
pub mod alerts_per;
pub mod chains;
pub mod devices;
pub mod driver_memory;
pub mod explain_empty;
pub mod findings;
pub mod head;
pub mod host_gaps;
pub mod info;
pub mod kernels;
mod marks;
pub mod memory;
pub mod nccl;
pub mod phases;
pub mod query;
pub mod rows;
pub mod ruled_out;
pub mod share;
pub mod steps;
pub mod summary;
pub mod thing;
pub mod threshold;
pub mod timeline;
pub mod verify;
pub mod what_if;
pub mod where_time_went;
