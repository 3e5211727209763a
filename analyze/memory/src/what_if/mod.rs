//! Computes what the allocator would have reserved with other settings, by serving the requests of a run
//! again with the allocator's own rules.
//!
//! ```text
//! recorded requests ─┬─► policy with the run's settings ─► must reserve what was recorded: the control
//!                    └─► policy with other settings     ─► what these would have reserved, in every way that
//!                                                           the record leaves open
//! ```

pub mod changes;
pub mod ensemble;
pub mod limits;
#[cfg(test)]
mod oracle;
mod order;
pub mod policy;
mod private_pools;
pub mod record;
pub mod requests;
pub mod served;
