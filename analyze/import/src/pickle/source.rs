//! Reads the bytes of a pickle, and tracks their offset.
//!
//! A length that the pickle states is not trusted: the buffer grows with the bytes that have arrived.

use std::io::{self, Read};

use super::PickleError;
use crate::{compressed::is_damage, limits::PICKLE_LINE_BYTES};

/// Initial size of the buffer and largest step of a skip, in bytes.
const CHUNK_BYTES: usize = 1 << 18;

/// A stream of bytes.
pub(crate) struct Source<'a> {
    inner: Box<dyn Read + 'a>,
    buffer: Vec<u8>,
    position: usize,
    end: usize,
    /// Offset in the stream of the buffer's first byte.
    base: u64,
    /// Length of the whole stream in bytes, if it is known.
    length: Option<u64>,
}

impl<'a> Source<'a> {
    /// Creates a source that reads `inner`. `length` is the length of the stream in bytes, if it is known.
    pub(crate) fn new(inner: impl Read + 'a, length: Option<u64>) -> Self {
        Self { inner: Box::new(inner), buffer: vec![0; CHUNK_BYTES], position: 0, end: 0, base: 0, length }
    }

    /// Returns the offset of the next byte.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    fn cut(&self) -> PickleError {
        let end = self.base + self.end as u64;
        PickleError::at(end, "the pickle is cut off: it ends here, in the middle")
    }

    /// Reads more bytes into the buffer. Returns `false` at the end of the stream.
    fn read_more(&mut self) -> Result<bool, PickleError> {
        if self.end == self.buffer.len() {
            if self.position > 0 {
                self.buffer.copy_within(self.position..self.end, 0);
                self.base += self.position as u64;
                self.end -= self.position;
                self.position = 0;
            } else {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        loop {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.end += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_damage(&error) => {
                    let offset = self.base + self.end as u64;
                    return Err(PickleError::at(offset, format!("the compressed file is damaged: {error}")));
                }
                Err(error) => return Err(PickleError::Io(error)),
            }
        }
    }

    #[cold]
    fn fill(&mut self, count: usize) -> Result<(), PickleError> {
        if self.length.is_some_and(|length| count as u64 > length.saturating_sub(self.offset())) {
            let left = self.length.unwrap_or(0).saturating_sub(self.offset());
            let reason =
                format!("the pickle is cut off, or lies: {count} bytes are to follow here, {left} are left");
            return Err(PickleError::at(self.offset(), reason));
        }
        while self.end - self.position < count {
            if !self.read_more()? {
                return Err(self.cut());
            }
        }
        Ok(())
    }

    /// Reads the next `count` bytes. Errs if the stream ends before.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Result<&[u8], PickleError> {
        if self.end - self.position < count {
            self.fill(count)?;
        }
        let start = self.position;
        self.position += count;
        Ok(&self.buffer[start..start + count])
    }

    /// Reads the next byte. Errs at the end of the stream.
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, PickleError> {
        if self.position == self.end {
            self.fill(1)?;
        }
        let byte = self.buffer[self.position];
        self.position += 1;
        Ok(byte)
    }

    /// Reads the next `N` bytes. Errs if the stream ends before.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Reads a line, and returns it without its line feed. Errs if it is too long or has no end.
    pub(super) fn line(&mut self) -> Result<&[u8], PickleError> {
        let mut searched = 0;
        let length = loop {
            let waiting = &self.buffer[self.position + searched..self.end];
            if let Some(found) = waiting.iter().position(|byte| *byte == b'\n') {
                break searched + found;
            }
            searched += waiting.len();
            if PICKLE_LINE_BYTES.is_exceeded_by(searched) {
                let reason = PICKLE_LINE_BYTES.over("the line that begins here is longer");
                return Err(PickleError::at(self.offset(), reason));
            }
            if !self.read_more()? {
                return Err(self.cut());
            }
        };
        let start = self.position;
        self.position += length + 1;
        Ok(&self.buffer[start..start + length])
    }

    /// Skips `count` bytes. Errs if the stream ends before.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), PickleError> {
        let mut left = count;
        while left > 0 {
            let step = left.min(CHUNK_BYTES as u64);
            self.take(step as usize)?;
            left -= step;
        }
        Ok(())
    }

    /// Returns whether the stream has ended.
    pub(super) fn is_at_end(&mut self) -> Result<bool, PickleError> {
        Ok(self.position == self.end && !self.read_more()?)
    }

    /// Returns the length of the whole stream in bytes, if it is known.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }
}
