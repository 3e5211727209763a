//! Fuzz targets: one function of bytes for every reader of what others wrote, seeds for it, and a mutator that knows its format.
//!
//! ```text
//! seeds ─► mutate ─► target ─► a reader of capture or analyze ─► read, or refused
//!    campaign: in the tests, seeded and bounded        fuzz/libfuzzer: guided by coverage, for hours
//! ```
//! A target fails by a panic: of the reader, or of an assertion about what it returned. Panics of dependencies that a reader
//! turns into an error of the file are none ([`findings`]).

#![expect(clippy::expect_used, reason = "a target whose own preparation fails has to end the program")]

pub mod campaign;
pub mod findings;
pub mod mutate;
mod scratch;
pub mod seeds;
pub mod target;
pub mod targets;
