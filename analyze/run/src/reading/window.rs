//! Reads the bytes of one row group of a file ahead, column by column: a system call and a copy for each page
//! cost more than holding a window of every column.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileExt,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::{
    errors::Result,
    file::reader::{ChunkReader, Length},
};

/// The number of bytes of a column that are read at once; a larger page is read as a whole.
const WINDOW_BYTES: u64 = 1 << 19;
/// The number of bytes read for the header of a page; most headers are smaller.
const HEADER_BYTES: usize = 1 << 10;

/// Some bytes of a column, and their offset in the file.
struct Window {
    of: Range<u64>,
    start: u64,
    bytes: Bytes,
}

/// A file whose columns are read ahead.
pub(super) struct Windows {
    file: Arc<File>,
    file_bytes: u64,
    columns: Vec<Mutex<Window>>,
}

impl Windows {
    /// Creates the windows. `columns` are the byte ranges of the columns in the file.
    pub(super) fn new(file: File, columns: impl Iterator<Item = Range<u64>>) -> io::Result<Self> {
        let columns = columns.map(|of| Mutex::new(Window { start: of.start, of, bytes: Bytes::new() }));
        Ok(Self { file_bytes: file.metadata()?.len(), file: Arc::new(file), columns: columns.collect() })
    }

    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        // A damaged file may declare any length, so the length is checked before memory is allocated.
        if start.saturating_add(length as u64) > self.file_bytes {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{length} bytes at {start} are more than the file has"),
            ));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }

    /// Returns at least `length` bytes from `start` on.
    fn at(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let column = self.columns.iter().map(Mutex::lock).find(|window| window.of.contains(&start));
        let Some(mut window) = column else { return self.read(start, length) };
        let covers = |window: &Window| {
            let skipped = usize::try_from(start.checked_sub(window.start)?).ok()?;
            (skipped.checked_add(length)? <= window.bytes.len()).then(|| window.bytes.slice(skipped..))
        };
        if let Some(bytes) = covers(&window) {
            return Ok(bytes);
        }
        let ahead = WINDOW_BYTES.min(window.of.end.min(self.file_bytes).saturating_sub(start)) as usize;
        window.bytes = self.read(start, length.max(ahead))?;
        window.start = start;
        Ok(window.bytes.clone())
    }
}

impl Length for Windows {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for Windows {
    type T = Reader;

    fn get_read(&self, start: u64) -> Result<Reader> {
        let left = self.file_bytes.saturating_sub(start).min(HEADER_BYTES as u64) as usize;
        let bytes = self.at(start, left)?;
        Ok(Reader { next: start + bytes.len() as u64, bytes, file: Arc::clone(&self.file) })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        Ok(self.at(start, length)?.slice(..length))
    }
}

/// Reads from an offset on: first from the window, then from the file.
pub(super) struct Reader {
    bytes: Bytes,
    file: Arc<File>,
    next: u64,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            let count = self.file.read_at(into, self.next)?;
            self.next += count as u64;
            return Ok(count);
        }
        let count = into.len().min(self.bytes.len());
        into[..count].copy_from_slice(&self.bytes.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn windows_show_what_the_file_has() -> io::Result<()> {
        let content: Vec<u8> = (0..3_000_000_u32).map(|place| (place / 7 % 251) as u8).collect();
        let mut file = tempfile::tempfile()?;
        file.write_all(&content)?;
        let windows = Windows::new(file, [10..1_000_000, 1_000_000..1_000_100].into_iter())?;
        let places = [10_u64, 11, 524_200, 524_290, 999_990, 1_000_000, 1_000_099, 2_000_000, 2_999_000, 12];
        for start in places {
            for length in [0, 1, 1000, 700_000] {
                let place = start as usize;
                let found = windows.get_bytes(start, length);
                match content.get(place..place + length) {
                    Some(expected) => assert_eq!(found.expect("bytes"), expected, "{start} {length}"),
                    None => assert!(found.is_err(), "{start} {length}"),
                }
            }
            let mut rest = Vec::new();
            windows.get_read(start).expect("a reader").read_to_end(&mut rest)?;
            assert_eq!(rest, content[start as usize..], "{start}");
        }
        assert!(windows.get_bytes(u64::MAX, usize::MAX).is_err());
        Ok(())
    }
}
