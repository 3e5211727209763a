//! The memory of a whole GPU: what each library of each process allocated from the driver, and what the
//! driver reports as used.
//!
//! - [`driver`]: the allocations of a process, from its driver calls;
//! - [`ledger`]: every reading of the device's counters, split by owner;
//! - [`pauses`]: memory that was unmapped while its address was kept, and mapped again;
//! - [`input`]: the rows of `events` that these consume.

pub mod driver;
pub mod input;
pub mod ledger;
pub mod pauses;
