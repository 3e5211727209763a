//! The messages of pprof's format, with the fields that this program writes. Names, numbers and types are
//! those of `profile.proto`. A field that is zero is left out, which means the same.

use prost::Message;

/// A profile. Encoded profiles that follow each other are one profile: their lists are joined.
#[derive(Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(super) duration_nanos: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(super) comment: Vec<i64>,
}

/// A quantity and its unit, each as an index of the string table.
#[derive(Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) ty: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

/// A stack, innermost location first, and a value of each quantity.
#[derive(Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
}

/// A place in the program.
#[derive(Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

/// The function at a location.
#[derive(Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
}

/// A function; its names are indices of the string table.
#[derive(Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
    #[prost(int64, tag = "3")]
    pub(super) system_name: i64,
}
