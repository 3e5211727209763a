//! The values that a pickle consists of.

use super::TextId;

/// A value, which is small and cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// Python's `None`.
    None,
    /// Python's `True` or `False`.
    Bool(bool),
    /// An integer that fits into 64 bits with a sign.
    Int(i64),
    /// An integer that fits into 64 bits only without a sign.
    Unsigned(u64),
    /// An integer that does not fit into 64 bits.
    Huge,
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(TextId),
    /// A bytes object, whose content is skipped: nothing that is imported consists of bytes.
    Bytes,
    /// A container.
    Object(ObjectId),
    /// A token that the consumer has put in place of a container.
    Token(Token),
}

/// Id of an object in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectId(pub(super) u32);

/// A number by which the consumer remembers a container that it has read: an index into one of two tables of
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An index into the first table.
    First(u32),
    /// An index into the second table.
    Second(u32),
}

/// The type of an object in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A list.
    List,
    /// A dict, in which keys and values alternate.
    Dict,
    /// A tuple.
    Tuple,
    /// A set or frozenset.
    Set,
    /// A scalar that the memo holds, such as a number.
    Scalar,
    /// An object that was read and is no longer kept.
    Gone,
    /// An object that was read and replaced by a token.
    Token(Token),
}

impl Shape {
    /// Returns the name of the type in errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::List => "a list",
            Self::Dict => "a dict",
            Self::Tuple => "a tuple",
            Self::Set => "a set",
            Self::Scalar => "a number",
            Self::Gone | Self::Token(_) => "something that was read before",
        }
    }
}

impl Value {
    /// Returns the name of the value's type in errors; a container is not named more precisely.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a bool",
            Self::Int(_) | Self::Unsigned(_) | Self::Huge => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a string",
            Self::Bytes => "bytes",
            Self::Object(_) => "a container",
            Self::Token(_) => "something that was read before",
        }
    }
}
