//! Reads the fields of a dict, and checks their types.

use crate::pickle::{PickleError, Shape, Store, TextId, Value};

use super::keys;

/// Returns the value of a key. If a key occurs more than once, the last value counts, as in Python.
pub(super) fn field(pairs: &[Value], key: TextId) -> Option<Value> {
    pairs.chunks_exact(2).rev().find(|pair| pair[0] == Value::Text(key)).map(|pair| pair[1])
}

fn wrong(value: Value, name: &str, expected: &str, offset: u64) -> PickleError {
    let found = value.name();
    PickleError::at(offset, format!("`{name}` of what begins here is {found}, not {expected}"))
}

/// Returns an address or a size in bytes. Errs if the value is not an integer from 0 to 2^64 - 1.
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

/// Returns a size in bytes or a time. Errs if the value is not an integer from 0 to 2^63 - 1.
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

/// Returns a stream handle, or `None` for the default stream. PyTorch writes the handle with a sign.
#[inline]
pub(super) fn stream(value: Value, offset: u64) -> Result<Option<u64>, PickleError> {
    let handle = match value {
        Value::Int(number) => number as u64,
        other => unsigned(other, "stream", offset)?,
    };
    Ok((handle != 0).then_some(handle))
}

/// Returns the id of a string. Errs if the value is not a string.
pub(super) fn text(value: Value, name: &str, offset: u64) -> Result<TextId, PickleError> {
    match value {
        Value::Text(text) => Ok(text),
        other => Err(wrong(other, name, "a string", offset)),
    }
}

/// The two halves of a memory pool's id. Both are null for the default pool, in whose id they are 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Pool {
    /// First half of the id.
    pub(super) owner: Option<u64>,
    /// Second half of the id.
    pub(super) id: Option<u64>,
}

/// Returns the id of a pool. Errs if the value is neither `None` nor a pair of integers.
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

/// Returns the value of a field. Errs if it is missing; `what` names the dict in the error.
pub(super) fn required(pairs: &[Value], key: TextId, what: &str, offset: u64) -> Result<Value, PickleError> {
    field(pairs, key).ok_or_else(|| {
        let name = keys::KNOWN.get(key.0 as usize).unwrap_or(&"?");
        PickleError::at(offset, format!("{what} that begins here has no `{name}`"))
    })
}
