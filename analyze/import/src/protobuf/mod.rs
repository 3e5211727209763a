//! The wire format of protocol buffers: a message is a sequence of fields, each with its number and the type
//! of its value.

mod read;

pub(crate) use read::{Fields, ReadError, Stream, Value};

/// Types of values on the wire.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;
