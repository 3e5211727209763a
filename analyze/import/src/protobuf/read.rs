//! Reads a stream of messages from a file, and the fields of a message in memory. Every error carries its
//! byte offset.

use std::io::{BufRead, BufReader, Read};

use super::{BYTES, FIXED32, FIXED64, VARINT};
use crate::{compressed::is_damage, limits::MESSAGE_BYTES};

/// Size of one read from the source, in bytes.
const READ_BYTES: usize = 1 << 18;

/// The reason why a file could not be read further.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The operating system reported an I/O error.
    Io(std::io::Error),
    /// The data at byte `offset` is wrong, for `reason`.
    At { offset: u64, reason: String },
    /// What begins at byte `offset` does not end before the data does.
    CutOff { offset: u64, reason: String },
}

impl ReadError {
    /// Returns an error with `reason` at byte `offset`.
    pub(crate) fn at<T>(offset: u64, reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::At { offset, reason: reason.into() })
    }

    fn cut_off<T>(offset: u64, reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::CutOff { offset, reason: reason.into() })
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A number of variable length. A negative one is stored in two's complement of 64 bits.
    Varint(u64),
    /// A number of 64 bits, which may be the bits of a double.
    Fixed64(u64),
    /// A number of 32 bits, which may be the bits of a float.
    Fixed32(u32),
    /// A text, bytes, a message or packed numbers.
    Bytes(Fields<'a>),
}

impl<'a> Value<'a> {
    /// Returns the value as a number. Errs at byte `offset` if it is bytes.
    pub(crate) fn number(self, offset: u64) -> Result<u64, ReadError> {
        match self {
            Self::Varint(number) | Self::Fixed64(number) => Ok(number),
            Self::Fixed32(number) => Ok(number.into()),
            Self::Bytes(_) => ReadError::at(offset, "bytes where a number belongs"),
        }
    }

    /// Returns the value as bytes, which may be a message. Errs at byte `offset` if it is a number.
    pub(crate) fn fields(self, offset: u64) -> Result<Fields<'a>, ReadError> {
        match self {
            Self::Bytes(fields) => Ok(fields),
            _ => ReadError::at(offset, "a number where bytes belong"),
        }
    }
}

/// The fields of a message in memory that have not been read yet, and where they stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> Fields<'a> {
    /// Creates a reader of the fields in `bytes`, which stand at byte `offset` of the file.
    pub(crate) fn new(bytes: &'a [u8], offset: u64) -> Self {
        Self { bytes, offset }
    }

    /// Returns the bytes that have not been read yet.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the offset in the file of the first byte that has not been read yet.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], ReadError> {
        let Some((taken, rest)) =
            usize::try_from(count).ok().and_then(|count| self.bytes.split_at_checked(count))
        else {
            return ReadError::cut_off(
                self.offset,
                format!("{count} bytes where the message has {} left", self.bytes.len()),
            );
        };
        self.bytes = rest;
        self.offset += count;
        Ok(taken)
    }

    /// Reads the next of several packed numbers. Returns `None` if there is none left, and errs if it is cut
    /// off or too long.
    pub(crate) fn packed(&mut self) -> Result<Option<u64>, ReadError> {
        if self.bytes.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, ReadError> {
        let start = self.offset;
        let mut value = 0_u64;
        for place in 0..10 {
            let byte = match self.take(1) {
                Ok(bytes) => bytes[0],
                Err(_) => return ReadError::cut_off(start, "a number is cut off"),
            };
            value |= u64::from(byte & 0x7f) << (place * 7);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        ReadError::at(start, "a number has more than ten bytes")
    }

    /// Reads the next field, and returns its number, its value, and the byte offset at which it begins.
    /// Returns `None` at the end of the message, and errs if the field is damaged.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Value<'a>, u64)>, ReadError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let start = self.offset;
        let tag = self.varint()?;
        if tag >> 3 == 0 {
            return ReadError::at(start, "a field has the number 0");
        }
        let value = match tag & 7 {
            VARINT => Value::Varint(self.varint()?),
            FIXED64 => {
                let bytes = self.take(8)?;
                Value::Fixed64(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            }
            FIXED32 => {
                let bytes = self.take(4)?;
                Value::Fixed32(bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
            }
            BYTES => {
                let length = self.varint()?;
                let offset = self.offset;
                Value::Bytes(Fields { bytes: self.take(length)?, offset })
            }
            other => {
                return ReadError::at(start, format!("a field has the type {other}, which there is not"));
            }
        };
        Ok(Some((tag >> 3, value, start)))
    }
}

/// A file that is one message, whose fields are messages that are read one by one.
pub(crate) struct Stream<R: Read> {
    source: BufReader<R>,
    buffer: Vec<u8>,
    offset: u64,
}

impl<R: Read> Stream<R> {
    /// Creates a stream. `offset` is the byte of the file at which `source` begins.
    pub(crate) fn new(source: R, offset: u64) -> Self {
        Self { source: BufReader::with_capacity(READ_BYTES, source), buffer: Vec::new(), offset }
    }

    fn failed(&self, error: std::io::Error) -> ReadError {
        if is_damage(&error) {
            let reason = format!("the compressed data is damaged or cut off: {error}");
            return ReadError::At { offset: self.offset, reason };
        }
        ReadError::Io(error)
    }

    fn varint(&mut self) -> Result<u64, ReadError> {
        let (start, mut bytes) = (self.offset, Vec::new());
        loop {
            let found = self.source.fill_buf().map(|found| found.first().copied());
            let Some(byte) = found.map_err(|error| self.failed(error))? else {
                return ReadError::cut_off(start, "the file is cut off");
            };
            self.source.consume(1);
            self.offset += 1;
            bytes.push(byte);
            if byte & 0x80 == 0 || bytes.len() == 10 {
                return Fields::new(&bytes, start).varint();
            }
        }
    }

    /// Reads the next message, and returns the number of its field and its content. Returns `None` at the end
    /// of the file. Errs if the file cannot be read, is damaged, or has a message that exceeds the limit.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Fields<'_>)>, ReadError> {
        let is_end = self.source.fill_buf().map(<[u8]>::is_empty);
        if is_end.map_err(|error| self.failed(error))? {
            return Ok(None);
        }
        let start = self.offset;
        let tag = self.varint()?;
        if tag & 7 != BYTES || tag >> 3 == 0 {
            return ReadError::at(start, "no message begins here");
        }
        let length = self.varint()?;
        if length > MESSAGE_BYTES.value {
            return ReadError::at(
                start,
                MESSAGE_BYTES.over(format!("a message of {length} bytes is longer")),
            );
        }
        let offset = self.offset;
        self.buffer.clear();
        let read = (&mut self.source).take(length).read_to_end(&mut self.buffer);
        read.map_err(|error| self.failed(error))?;
        if (self.buffer.len() as u64) < length {
            return ReadError::cut_off(start, format!("the file is cut off in a message of {length} bytes"));
        }
        self.offset += length;
        Ok(Some((tag >> 3, Fields { bytes: &self.buffer, offset })))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[derive(Message)]
    struct Outer {
        #[prost(uint64, tag = "1")]
        number: u64,
        #[prost(fixed64, tag = "2")]
        fixed: u64,
        #[prost(message, optional, tag = "3")]
        inner: Option<Inner>,
        #[prost(uint64, repeated, tag = "4")]
        packed: Vec<u64>,
    }

    #[derive(Message)]
    struct Inner {
        #[prost(string, tag = "1")]
        text: String,
    }

    fn message() -> Vec<u8> {
        let inner = Some(Inner { text: "text".to_owned() });
        Outer { number: u64::MAX, fixed: 7, inner, packed: vec![1, 300] }.encode_to_vec()
    }

    #[test]
    fn what_was_written_is_read() {
        let message = message();
        let mut fields = Fields::new(&message, 100);
        let mut next = || fields.next().unwrap().unwrap();
        assert_eq!(next(), (1, Value::Varint(u64::MAX), 100));
        assert_eq!(next(), (2, Value::Fixed64(7), 111));
        let (number, value, start) = next();
        assert_eq!((number, start), (3, 120));
        let (_, inner, _) = value.fields(0).unwrap().next().unwrap().unwrap();
        assert_eq!(
            (inner.fields(0).unwrap().bytes(), inner.fields(0).unwrap().offset()),
            (&b"text"[..], 124)
        );
        let mut packed = next().1.fields(0).unwrap();
        let numbers: Vec<u64> = std::iter::from_fn(|| packed.packed().unwrap()).collect();
        assert_eq!(numbers, [1, 300]);
        assert_eq!(fields.next().unwrap(), None);
    }

    #[test]
    fn what_is_cut_off_or_wrong_says_where() {
        let whole = message();
        let ends = [0, 11, 20, 28, whole.len()];
        for end in 0..=whole.len() {
            let mut fields = Fields::new(&whole[..end], 0);
            let failed = loop {
                match fields.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break false,
                    Err(ReadError::At { offset, .. } | ReadError::CutOff { offset, .. }) => {
                        assert!(offset <= end as u64);
                        break true;
                    }
                    Err(ReadError::Io(error)) => panic!("{error}"),
                }
            };
            assert_eq!(failed, !ends.contains(&end), "{end}");
        }
        for bad in [&[0x00, 0x00][..], &[0x0b][..], &[0x0f, 0][..], &[0x80; 11][..]] {
            assert!(Fields::new(bad, 0).next().is_err(), "{bad:?}");
        }
        let mut stream = Stream::new(&b"\x0a\x02ab\x0a\xff\xff\xff\xff\x0f"[..], 0);
        assert!(
            matches!(stream.next(), Ok(Some((1, fields))) if fields.bytes() == b"ab" && fields.offset() == 2)
        );
        assert!(matches!(stream.next(), Err(ReadError::At { offset: 4, .. })));
    }
}
