//! How the clock of a profiler's trace relates to that of a captured run of the same process, and which calls
//! both of them recorded.
//!
//! ```text
//! vote    times between calls that both sides have ─► a few offsets that may be the right one
//! follow  calls near the place of the votes are paired and a line is fitted; the part is doubled until it
//!         reaches both ends
//! prove   is the line a clock, are its calls there, and is no other offset nearly as good? If not: no answer
//! ```
//! A pair is not found by correlation: top-level calls of one thread do not overlap, so two records of the
//! same function of which one encloses the other on one clock are of the same call.

mod alignment;
mod attempt;
mod calls;
mod coded;
mod distances;
mod line;
mod moved;
mod pair;
mod prove;
pub mod rewrite;
mod solve;
#[cfg(test)]
mod tests;
mod vote;

pub use alignment::{Aligned, Matched, Quality, REACH_NS, Recording, Threads};
pub use calls::{Call, Functions, Side};
pub use line::Line;
pub use solve::run;
