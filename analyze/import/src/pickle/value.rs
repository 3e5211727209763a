//! What a pickle is made of.

use super::TextId;

/// A value; small, and cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// `None`
    None,
    /// `True` and `False`
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// An integer of 64 bits that only fits without a sign.
    Unsigned(u64),
    /// An integer that does not fit into 64 bits.
    Huge,
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(TextId),
    /// Bytes, which are read over: nothing of what is imported is made of them.
    Bytes,
    /// A container.
    Object(ObjectId),
    /// What the consumer has put in place of a container.
    Token(Token),
}

/// Number of an object in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectId(pub(super) u32);

/// What a consumer remembers of a container that it has read: a number in one of two of its books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// In the first one.
    First(u32),
    /// In the second one.
    Second(u32),
}

/// What a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A list.
    List,
    /// A dict: keys and values alternate.
    Dict,
    /// A tuple.
    Tuple,
    /// A set or frozenset.
    Set,
    /// A number or the like that the memo holds.
    Scalar,
    /// Read and forgotten.
    Gone,
    /// Read and replaced.
    Token(Token),
}

impl Shape {
    /// What errors call it.
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
    /// What errors call a value that is no container.
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
