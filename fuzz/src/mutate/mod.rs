//! Mutators: each changes an input a little, and keeps what a reader checks first, so that the change reaches what is behind.

pub mod bytes;
pub mod elf;
pub mod frames;
pub mod gzip;
pub mod json;
pub mod parquet;
pub mod pickle;
pub mod protobuf;
pub mod recording;
pub mod sqlite;
pub mod text;
