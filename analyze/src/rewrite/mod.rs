//! Runs made of other runs: rows as they are or moved, metadata that says what was done to them.

pub(crate) mod align;
mod moved;
