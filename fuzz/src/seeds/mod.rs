//! Inputs that the readers read, from which others are made: parts of `testdata/`, and files made here.

pub mod databases;
pub mod elf;
pub mod events;
mod files;
pub mod runs;
pub mod texts;
pub mod traces;
