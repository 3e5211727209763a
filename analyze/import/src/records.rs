//! Feeds a text of rows, CSV or JSON lines, to Arrow's decoders record by record.
//!
//! The decoders keep a record whole in memory, however long it is, and a batch of as many rows as they are asked for. So the
//! ends of records are found here: a record that is too long or nested too deeply is refused before a decoder has it, and a
//! batch ends when it has enough rows or enough bytes.

use std::io::{ErrorKind, Read};

use arrow::{array::RecordBatch, csv, error::ArrowError, json};

use super::{
    compressed::is_damage,
    limits::{NESTING_COUNT, RECORD_BYTES},
};

/// Size of one read from the source, in bytes.
const READ_BYTES: usize = 1 << 18;
/// Size of the text of a batch, in bytes, after which the batch ends with its current record.
const BATCH_BYTES: u64 = 16 << 20;

/// The reason why the records could not be read further.
pub(super) enum RecordError {
    /// The operating system reported an I/O error.
    Io(std::io::Error),
    /// Arrow could not parse the rows, or the compressed data is damaged.
    Arrow(ArrowError),
    /// The record that begins at line `line` exceeds a limit.
    At { line: u64, reason: String },
}

impl From<ArrowError> for RecordError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}

/// The grammar by which records end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grammar {
    /// CSV with this byte between cells. A quoted cell may hold line ends.
    Csv {
        /// The byte that separates two cells.
        delimiter: u8,
    },
    /// JSON values, one after the other.
    Json,
}

/// A decoder of records.
pub(super) trait Decode {
    /// Takes bytes and returns their number; it takes none if it has as many rows as a batch may have.
    fn decode(&mut self, bytes: &[u8]) -> Result<usize, ArrowError>;

    /// Takes the end of the text.
    fn end(&mut self) -> Result<(), ArrowError>;

    /// Returns the rows that were taken, `None` if there are none.
    fn flush(&mut self) -> Result<Option<RecordBatch>, ArrowError>;
}

impl Decode for csv::reader::Decoder {
    fn decode(&mut self, bytes: &[u8]) -> Result<usize, ArrowError> {
        csv::reader::Decoder::decode(self, bytes)
    }

    fn end(&mut self) -> Result<(), ArrowError> {
        // No bytes end a record that has no line end.
        csv::reader::Decoder::decode(self, &[]).map(drop)
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        csv::reader::Decoder::flush(self)
    }
}

impl Decode for json::reader::Decoder {
    fn decode(&mut self, bytes: &[u8]) -> Result<usize, ArrowError> {
        json::reader::Decoder::decode(self, bytes)
    }

    fn end(&mut self) -> Result<(), ArrowError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        json::reader::Decoder::flush(self)
    }
}

/// Where a byte stands in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the begin of a cell, or between JSON's strings.
    Start,
    /// In a cell that is not quoted, in which a quote stands for itself.
    Plain,
    /// In a quoted cell or a string.
    Quoted,
    /// After a quote in a quoted cell, or after a backslash in a string.
    Escape,
}

/// Finds the ends of records.
struct Scanner {
    grammar: Grammar,
    state: State,
    /// Number of JSON's objects and lists that are open.
    depth: u64,
    /// Number of bytes of the current record so far.
    length: u64,
    /// Number of the current line, and of that at which the current record begins, counted from 1.
    line: u64,
    first_line: u64,
}

impl Scanner {
    fn new(grammar: Grammar) -> Self {
        Self { grammar, state: State::Start, depth: 0, length: 0, line: 1, first_line: 1 }
    }

    fn over(&self, reason: String) -> RecordError {
        RecordError::At { line: self.first_line, reason }
    }

    /// Takes a byte and returns whether a record ends with it.
    #[inline]
    fn ends(&mut self, byte: u8) -> Result<bool, RecordError> {
        self.length += 1;
        if self.length > RECORD_BYTES.value {
            return Err(self.over(RECORD_BYTES.over("the row that begins here is longer")));
        }
        self.line += u64::from(byte == b'\n');
        let is_end = match self.grammar {
            Grammar::Csv { delimiter } => self.ends_row(byte, delimiter),
            Grammar::Json => self.ends_value(byte)?,
        };
        if is_end {
            (self.length, self.first_line) = (0, self.line);
        }
        Ok(is_end)
    }

    fn ends_row(&mut self, byte: u8, delimiter: u8) -> bool {
        self.state = match (self.state, byte) {
            (State::Quoted, b'"') => State::Escape,
            (State::Quoted, _) | (State::Start | State::Escape, b'"') => State::Quoted,
            (_, b'\n' | b'\r') => {
                self.state = State::Start;
                return true;
            }
            (_, byte) if byte == delimiter => State::Start,
            _ => State::Plain,
        };
        false
    }

    fn ends_value(&mut self, byte: u8) -> Result<bool, RecordError> {
        match (self.state, byte) {
            (State::Quoted, b'\\') => self.state = State::Escape,
            (State::Quoted, b'"') => self.state = State::Start,
            (State::Quoted, _) => {}
            (State::Escape, _) | (_, b'"') => self.state = State::Quoted,
            (_, b'{' | b'[') => {
                self.depth += 1;
                if self.depth > NESTING_COUNT.value {
                    let what = "objects and lists within each other in the row that begins here are more";
                    return Err(self.over(NESTING_COUNT.over(what)));
                }
            }
            (_, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                return Ok(self.depth == 0);
            }
            (_, b'\n') => return Ok(self.depth == 0),
            _ => {}
        }
        Ok(false)
    }
}

/// The rows of a text, in batches.
pub(super) struct Records<R, D> {
    source: R,
    decoder: D,
    scanner: Scanner,
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that the decoder has, that the scanner has, and that there are.
    fed: usize,
    scanned: usize,
    end: usize,
    /// Number of bytes that the scanner has taken since the last batch.
    batch_bytes: u64,
    is_due: bool,
    is_over: bool,
}

impl<R: Read, D: Decode> Records<R, D> {
    /// Creates a reader of the records in `source`.
    pub(super) fn new(source: R, grammar: Grammar, decoder: D) -> Self {
        Self {
            source,
            decoder,
            scanner: Scanner::new(grammar),
            buffer: vec![0; READ_BYTES],
            fed: 0,
            scanned: 0,
            end: 0,
            batch_bytes: 0,
            is_due: false,
            is_over: false,
        }
    }

    /// Scans bytes up to the end of the buffer, or up to the end of the record that fills the batch.
    fn scan(&mut self) -> Result<(), RecordError> {
        while self.scanned < self.end {
            let is_end = self.scanner.ends(self.buffer[self.scanned])?;
            self.scanned += 1;
            self.batch_bytes += 1;
            if is_end && self.batch_bytes >= BATCH_BYTES {
                self.is_due = true;
                break;
            }
        }
        Ok(())
    }

    fn read_batch(&mut self) -> Result<Option<RecordBatch>, RecordError> {
        loop {
            while self.fed < self.scanned {
                let count = self.decoder.decode(&self.buffer[self.fed..self.scanned])?;
                if count == 0 {
                    return match self.decoder.flush()? {
                        Some(batch) => Ok(Some(batch)),
                        None => {
                            Err(ArrowError::ParseError("rows are taken and not returned".to_owned()).into())
                        }
                    };
                }
                self.fed += count;
            }
            if std::mem::take(&mut self.is_due) {
                self.batch_bytes = 0;
                if let Some(batch) = self.decoder.flush()? {
                    return Ok(Some(batch));
                }
            }
            if self.scanned < self.end {
                self.scan()?;
                continue;
            }
            if self.is_over {
                return Ok(None);
            }
            (self.fed, self.scanned, self.end) = (0, 0, read(&mut self.source, &mut self.buffer)?);
            if self.end == 0 {
                self.is_over = true;
                self.decoder.end()?;
                return Ok(self.decoder.flush()?);
            }
        }
    }
}

impl<R: Read, D: Decode> Iterator for Records<R, D> {
    type Item = Result<RecordBatch, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_batch().transpose()
    }
}

/// Reads bytes into the buffer and returns their number, 0 at the end.
fn read(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize, RecordError> {
    loop {
        match source.read(buffer) {
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_damage(&error) => {
                let reason = format!("the compressed data is damaged or cut off: {error}");
                return Err(ArrowError::ParseError(reason).into());
            }
            Err(error) => return Err(RecordError::Io(error)),
        }
    }
}

/// Reads the first record of a text that is not empty, with its line end.
pub(super) fn first(source: &mut impl Read, grammar: Grammar) -> Result<Vec<u8>, RecordError> {
    let (mut scanner, mut buffer, mut found) = (Scanner::new(grammar), vec![0; READ_BYTES], Vec::new());
    loop {
        let count = read(source, &mut buffer)?;
        if count == 0 {
            return Ok(found);
        }
        for byte in &buffer[..count] {
            found.push(*byte);
            if scanner.ends(*byte)? && !found.trim_ascii().is_empty() {
                return Ok(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(grammar: Grammar, text: &str) -> Vec<usize> {
        let mut scanner = Scanner::new(grammar);
        let ends = |byte: &u8| scanner.ends(*byte).is_ok_and(|is_end| is_end);
        let found: Vec<bool> = text.as_bytes().iter().map(ends).collect();
        (0..found.len()).filter(|at| found[*at]).collect()
    }

    #[test]
    fn records_end_where_the_grammar_says() {
        let csv = Grammar::Csv { delimiter: b',' };
        assert_eq!(ends(csv, "a,b\n1,2\n"), [3, 7]);
        assert_eq!(ends(csv, "\"a\n\"\"b\",c\n"), [9]);
        assert_eq!(ends(csv, "a\"b\n"), [3], "a quote within a cell stands for itself");
        assert_eq!(ends(csv, "\"a\"b\"\n"), [5], "and after a quoted part");
        assert_eq!(ends(Grammar::Json, "{\"a\":\"}\\\"\"}\n{}"), [10, 11, 13]);
        assert_eq!(ends(Grammar::Json, "{\"a\":[{\n}]}"), [10]);
    }

    #[test]
    fn a_long_or_deep_record_is_refused_with_its_line() {
        let refused = |grammar, text: &str| {
            let mut scanner = Scanner::new(grammar);
            match text.as_bytes().iter().find_map(|byte| scanner.ends(*byte).err()) {
                Some(RecordError::At { line, reason }) => (line, reason),
                _ => panic!("it is taken"),
            }
        };
        let (line, reason) = refused(Grammar::Json, &format!("{{}}\n{{\"ts\":{}", "[".repeat(200)));
        assert!(line == 2 && reason.contains("nesting_count of 128"), "{line}: {reason}");
        let long = format!("a\n{}", "x".repeat((16 << 20) + 1));
        let (line, reason) = refused(Grammar::Csv { delimiter: b',' }, &long);
        assert!(line == 2 && reason.contains("record_bytes of 16777216"), "{line}: {reason}");
    }
}
