//! Values of a dict's fields, with what they must be.

use crate::pickle::{PickleError, Shape, Store, TextId, Value};

use super::keys;

/// The value of a key; the last one counts, as in Python.
pub(super) fn field(pairs: &[Value], key: TextId) -> Option<Value> {
    pairs.chunks_exact(2).rev().find(|pair| pair[0] == Value::Text(key)).map(|pair| pair[1])
}

fn wrong(value: Value, name: &str, expected: &str, offset: u64) -> PickleError {
    let found = value.name();
    PickleError::at(offset, format!("`{name}` of what begins here is {found}, not {expected}"))
}

/// An address or a size.
#[inline]
pub(super) fn unsigned(value: Value, name: &str, offset: u64) -> Result<u64, PickleError> {
    match value {
        Value::Int(number) if number >= 0 => Ok(number as u64),
        Value::Unsigned(number) => Ok(number),
        Value::Int(number) => {
            Err(PickleError::at(offset, format!("`{name}` of what begins here is {number}, below zero")))
        }
        other => Err(wrong(other, name, "an integer of 64 bits", offset)),
    }
}

/// A size in bytes, or a time.
#[inline]
pub(super) fn signed(value: Value, name: &str, offset: u64) -> Result<i64, PickleError> {
    match value {
        Value::Int(number) if number >= 0 => Ok(number),
        other => {
            let number = unsigned(other, name, offset)?;
            Err(PickleError::at(
                offset,
                format!("`{name}` of what begins here is {number}, which is too large"),
            ))
        }
    }
}

/// A stream handle: PyTorch writes it with a sign. `None`: the default stream.
#[inline]
pub(super) fn stream(value: Value, offset: u64) -> Result<Option<u64>, PickleError> {
    let handle = match value {
        Value::Int(number) => number as u64,
        other => unsigned(other, "stream", offset)?,
    };
    Ok((handle != 0).then_some(handle))
}

/// A string.
pub(super) fn text(value: Value, name: &str, offset: u64) -> Result<TextId, PickleError> {
    match value {
        Value::Text(text) => Ok(text),
        other => Err(wrong(other, name, "a string", offset)),
    }
}

/// The two halves of a pool's id; null for the default pool, as the halves of its id are 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Pool {
    pub(super) owner: Option<u64>,
    pub(super) id: Option<u64>,
}

/// A pool's id.
pub(super) fn pool(value: Value, store: &Store, offset: u64) -> Result<Pool, PickleError> {
    if value == Value::None {
        return Ok(Pool::default());
    }
    let what = "the id of a pool";
    let (_, halves) = store
        .values(value, Shape::Tuple, what, offset)
        .or_else(|error| store.values(value, Shape::List, what, offset).map_err(|_| error))?;
    let [owner, id] = halves else {
        return Err(PickleError::at(offset, format!("{what} has {} parts, not two", halves.len())));
    };
    let half = |value| {
        let half = unsigned(value, "segment_pool_id", offset);
        half.map(|half| (half != 0).then_some(half))
    };
    Ok(Pool { owner: half(*owner)?, id: half(*id)? })
}

/// A field that must be there.
pub(super) fn required(pairs: &[Value], key: TextId, what: &str, offset: u64) -> Result<Value, PickleError> {
    field(pairs, key).ok_or_else(|| {
        let name = keys::KNOWN.get(key.0 as usize).unwrap_or(&"?");
        PickleError::at(offset, format!("{what} that begins here has no `{name}`"))
    })
}
