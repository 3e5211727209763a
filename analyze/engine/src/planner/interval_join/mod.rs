//! Interval joins in plain SQL: the rule that recognises them, and the operator that runs them.

mod exec;
mod interval;
mod ordinal;
mod plan;
mod stream;
mod sweep;
#[cfg(test)]
mod tests;

pub use plan::rules;
