//! Reads the lines of a text with their numbers, in memory that does not grow with the file.

use std::io::{BufRead, BufReader, Read};

use crate::{compressed::is_damage, limits::LINE_BYTES};

/// Size of one read from the source, in bytes.
const READ_BYTES: usize = 1 << 18;

/// The reason why a text could not be read further.
pub(crate) enum LineError {
    /// The operating system reported an I/O error.
    Io(std::io::Error),
    /// A line is wrong: its number, counted from 1, and the reason.
    At { line: u64, reason: String },
}

/// A reader of the lines of `R`.
pub(crate) struct Lines<R: Read> {
    source: BufReader<R>,
    bytes: Vec<u8>,
    number: u64,
}

impl<R: Read> Lines<R> {
    /// Creates a reader at the start of `source`.
    pub(crate) fn new(source: R) -> Self {
        Self { source: BufReader::with_capacity(READ_BYTES, source), bytes: Vec::new(), number: 0 }
    }

    /// Returns an error with `reason` at the line that was read last.
    pub(crate) fn wrong<T>(&self, reason: impl Into<String>) -> Result<T, LineError> {
        Err(LineError::At { line: self.number, reason: reason.into() })
    }

    /// Reads the next line. Returns `false` if there is none. Errs if the line is too long or has no end:
    /// something was then cut off.
    pub(crate) fn read(&mut self) -> Result<bool, LineError> {
        self.bytes.clear();
        self.number += 1;
        let mut source = self.source.by_ref().take(LINE_BYTES.value);
        let count = match source.read_until(b'\n', &mut self.bytes) {
            Ok(count) => count,
            Err(error) if is_damage(&error) => {
                return self.wrong(format!("the compressed data is damaged or cut off: {error}"));
            }
            Err(error) => return Err(LineError::Io(error)),
        };
        match self.bytes.pop() {
            None => return Ok(false),
            Some(b'\n') => {}
            Some(_) if count as u64 == LINE_BYTES.value => {
                return self.wrong(LINE_BYTES.over("it is longer"));
            }
            Some(_) => return self.wrong("the file is cut off in it: it has no end"),
        }
        if self.bytes.last() == Some(&b'\r') {
            self.bytes.pop();
        }
        Ok(true)
    }

    /// Returns the line that was read last. Bytes that are not UTF-8 are replaced: names of threads may hold
    /// any.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}
