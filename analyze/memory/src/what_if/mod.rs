//! What the allocator would have had from the driver with other settings: the requests of a run, served anew by the
//! allocator's own rules.
//!
//! ```text
//! requests on record ─┬─► policy, settings as they were ─► must reserve what the record says: the control
//!                     └─► policy, other settings        ─► what these would reserve
//! ```

#[cfg(test)]
mod oracle;
pub mod policy;
pub mod record;
pub mod requests;
