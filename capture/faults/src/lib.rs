//! Finds out what the programs leave on the disk when a system call fails, is cut short, comes late or is the last.
//!
//! ```text
//! scenario ─► campaign ─► trial ─► listener          the program runs under a filter of its system calls
//!     ▲           │         └────► disk              and what has reached the disk is noted
//!     └── judge ──┘                                  is everything there, or nothing, or all that was flushed?
//! ```
//! [`trial::run`] runs one program under one [`fault::Plan`]. A [`campaign`] runs it under many, at every system call that it makes
//! on files of its folder, and counts. [`outputs`] and [`recordings`] are the scenarios, verbs of `analyze` and recorders, and
//! [`scenarios`] lists them.

mod call;
pub mod campaign;
mod disk;
mod error;
pub mod fault;
mod listener;
pub mod outputs;
pub mod recordings;
pub mod rows;
pub mod scenarios;
pub mod trial;

pub use call::{Call, Kind};
pub use error::FaultError;
