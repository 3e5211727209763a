//! Turns runs into answers: where a run's time went and why, where its memory is, what changed between runs.
//!
//! The rooms and the arrows between them are in ARCHITECTURE.md; a test holds them.

pub mod align;
pub mod cli;
pub mod compare;
pub mod demo;
pub mod export;
pub mod library;
pub mod mcp;
pub mod output;
pub mod questions;
pub mod report;
pub mod rewrite;
pub mod tables;
pub mod trace;
