//! Recordings that the program carries with it, each of a known problem, for `analyze demo`.
//!
//! They are files of `testdata/`, whose page says how each was made. What a scenario says of its recording was read off the
//! answers about that recording, and the tests ask again.

mod scenarios;

pub use scenarios::{SCENARIOS, Scenario};
