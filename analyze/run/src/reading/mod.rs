//! Reads the rows of `events` in the order of time, with memory that does not grow with their number.
//!
//! ```text
//! row groups  ├──────── 1 ────────┤              each sorted by ts; they overlap by the longest call
//!                         ├──────── 2 ────────┤
//! decoders       one thread each, ahead of the reader: groups are opened in the order of their first ts
//! reader      one thread: the rows of the open groups, merged by ts
//! ```
//! A file that declares its row groups sorted by `ts`, as those of our writer do, is read like that. Any
//! other source of `events` is sorted by a query that may spill to disk.

pub mod columns;
mod consumer;
mod group;
mod merge;
mod ordered;
pub mod plain;
mod read;
mod rows;
#[cfg(test)]
mod tests;
mod window;

pub use columns::TASK_COLUMNS;
pub use consumer::{Consumer, Helper};
pub use read::{Origin, check_order, read, read_columns, schema};
pub use rows::{Kind, Names, Rows};
