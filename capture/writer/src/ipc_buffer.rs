//! The number of bytes that a buffer of an Arrow IPC message stands for.
//!
//! Arrow's readers take as much memory as a message states before they look at its bytes. Whoever reads messages from a file
//! therefore asks here first.

use arrow::ipc::Buffer;

/// Size in bytes of the length that precedes a compressed buffer.
const PREFIX_BYTES: usize = 8;
/// The length that precedes a buffer that is stored as it is.
const NOT_COMPRESSED: i64 = -1;

/// Returns the number of bytes of a buffer after decompression, as its message states it. `body` is the body of the message.
///
/// # Errors
/// Returns the reason if the buffer does not lie within the body, or states a length that it cannot have.
pub fn buffer_bytes(buffer: &Buffer, body: &[u8], is_compressed: bool) -> Result<u64, String> {
    let (offset, length) = (buffer.offset(), buffer.length());
    let place =
        || format!("a buffer of {length} bytes at {offset} is not within its block of {}", body.len());
    let (Ok(start), Ok(length)) = (usize::try_from(offset), usize::try_from(length)) else {
        return Err(place());
    };
    let bytes = start.checked_add(length).and_then(|end| body.get(start..end)).ok_or_else(place)?;
    if !is_compressed || bytes.is_empty() {
        return Ok(length as u64);
    }
    let Some((prefix, stored)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(format!("a compressed buffer has {length} bytes: it is cut off"));
    };
    match i64::from_le_bytes(*prefix) {
        NOT_COMPRESSED => Ok(stored.len() as u64),
        size => u64::try_from(size).map_err(|_| format!("a buffer has {size} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_bytes_that_it_states() {
        let compressed = |size: i64| [&size.to_le_bytes()[..], &[7; 24]].concat();
        let whole = Buffer::new(0, 32);
        assert_eq!(buffer_bytes(&whole, &compressed(1000), true), Ok(1000));
        assert_eq!(buffer_bytes(&whole, &compressed(1000), false), Ok(32));
        assert_eq!(buffer_bytes(&whole, &compressed(-1), true), Ok(24));
        assert_eq!(buffer_bytes(&Buffer::new(32, 0), &compressed(1000), true), Ok(0));
        for (buffer, size) in [
            (whole, -2),
            (whole, i64::MIN),
            (Buffer::new(0, 7), 1000),
            (Buffer::new(1, 32), 1000),
            (Buffer::new(-1, 8), 1000),
            (Buffer::new(8, -8), 1000),
            (Buffer::new(i64::MAX, i64::MAX), 1000),
        ] {
            assert!(buffer_bytes(&buffer, &compressed(size), true).is_err(), "{buffer:?} {size}");
        }
    }
}
