//! Lines of a text with their numbers, in memory that does not grow with the file.

use std::io::{BufRead, BufReader, ErrorKind, Read};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 18;
/// Bytes of a line.
const MAX_LINE_BYTES: u64 = 1 << 16;

/// Why a text could not be read on.
pub(crate) enum LineError {
    /// The operating system said no.
    Io(std::io::Error),
    /// What is in a line is wrong.
    At { line: u64, reason: String },
}

/// A reader of lines.
pub(crate) struct Lines<R: Read> {
    source: BufReader<R>,
    bytes: Vec<u8>,
    number: u64,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source: BufReader::with_capacity(READ_BYTES, source), bytes: Vec::new(), number: 0 }
    }

    /// What is wrong in the line that was read last.
    pub(crate) fn wrong<T>(&self, reason: impl Into<String>) -> Result<T, LineError> {
        Err(LineError::At { line: self.number, reason: reason.into() })
    }

    /// Reads the next line; `false`: there is none. Each has an end of its own, or something was cut off.
    pub(crate) fn read(&mut self) -> Result<bool, LineError> {
        self.bytes.clear();
        self.number += 1;
        let mut source = self.source.by_ref().take(MAX_LINE_BYTES);
        let count = match source.read_until(b'\n', &mut self.bytes) {
            Ok(count) => count,
            // What a decompressor finds wrong is the file's fault.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
                ) =>
            {
                return self.wrong(format!("the compressed data is damaged or cut off: {error}"));
            }
            Err(error) => return Err(LineError::Io(error)),
        };
        match self.bytes.pop() {
            None => return Ok(false),
            Some(b'\n') => {}
            Some(_) if count as u64 == MAX_LINE_BYTES => return self.wrong("it is longer than 64 KiB"),
            Some(_) => return self.wrong("the file is cut off in it: it has no end"),
        }
        if self.bytes.last() == Some(&b'\r') {
            self.bytes.pop();
        }
        Ok(true)
    }

    /// The line that was read last. Bytes that are no UTF-8 are replaced: names of threads may hold any.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}
