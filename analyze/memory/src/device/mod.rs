//! The memory of a whole GPU: what each library of each process had from the driver, and what the driver says is used.
//!
//! - [`driver`]: what a process asked of the driver, call by call;
//! - [`ledger`]: every reading of the device's counters, split among those who have it;
//! - [`pauses`]: memory whose address was kept while what lay behind it was given back;
//! - [`input`]: the rows of `events` that they are told.

pub mod driver;
pub mod input;
pub mod ledger;
pub mod pauses;
