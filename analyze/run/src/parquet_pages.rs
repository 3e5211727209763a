//! Checks the headers of a Parquet file's pages before Parquet's own reader decodes them.
//!
//! That reader takes as much memory for a page as its header states, and passes over a list in a field that it does not know
//! as often as the list says. So a small file could exhaust the memory, which ends the program, or keep it busy for years.
//!
//! ```text
//! column chunk   │ header │ dictionary page │ header │ data page │ header │ data page │ …
//! header         PageHeader { type, size uncompressed, size compressed, checksum, what the type needs }   (Thrift, compact)
//! ```

use std::io::{self, Cursor, Read};

use bytes::Bytes;
use parquet::{
    errors::Result,
    file::reader::{ChunkReader, Length},
};

use crate::parquet_footer::{
    STATISTICS,
    Ty::{self, Bool, Kept, Number, Struct},
    Walk,
};

/// The longest header that is read, in bytes: it may have the least and the greatest value of the page in it.
const HEADER_BYTES: usize = 1 << 20;
/// The bytes of a header that are read at first.
const FIRST_BYTES: usize = 1 << 8;
/// The largest page, uncompressed, in bytes. Most writers make pages of 1 MiB, and DuckDB some of 100 MB.
const PAGE_BYTES: i64 = 128 << 20;

/// The places of the numbers that are kept.
const UNCOMPRESSED: usize = 0;
const COMPRESSED: usize = 1;
const DICTIONARY_VALUES: usize = 2;

const DATA_PAGE: Ty = Struct(&[(1, Number), (2, Number), (3, Number), (4, Number), (5, STATISTICS)]);
const DICTIONARY_PAGE: Ty = Struct(&[(1, Kept(DICTIONARY_VALUES)), (2, Number), (3, Bool)]);
const DATA_PAGE_V2: Ty = Struct(&[
    (1, Number),
    (2, Number),
    (3, Number),
    (4, Number),
    (5, Number),
    (6, Number),
    (7, Bool),
    (8, STATISTICS),
]);
const PAGE: &[(i16, Ty)] = &[
    (1, Number),
    (2, Kept(UNCOMPRESSED)),
    (3, Kept(COMPRESSED)),
    (4, Number),
    (5, DATA_PAGE),
    (6, Struct(&[])),
    (7, DICTIONARY_PAGE),
    (8, DATA_PAGE_V2),
];

/// Checks the header that begins with the first of some bytes, and returns the sizes in bytes of the header and of the page
/// that follows it.
fn header(bytes: &[u8]) -> std::result::Result<(usize, usize), String> {
    let mut walk = Walk::new(bytes);
    let read = walk.fields(PAGE, 0);
    let length = bytes.len() - walk.rest.len();
    read.map_err(|why| format!("byte {length}: {why}"))?;
    let [uncompressed, compressed, values, _] = walk.kept;
    if !(0..=PAGE_BYTES).contains(&uncompressed) {
        return Err(format!("a page of {uncompressed} bytes: the limit page_bytes is {PAGE_BYTES}"));
    }
    // Each value of a dictionary takes at least a byte.
    if !(0..=uncompressed).contains(&values) {
        return Err(format!("a dictionary of {values} values in {uncompressed} bytes"));
    }
    // Parquet's reader keeps the low bits of a longer number, and would see another page.
    match usize::try_from(compressed).ok().filter(|_| i32::try_from(compressed).is_ok()) {
        Some(compressed) => Ok((length, compressed)),
        None => Err(format!("a page of {compressed} bytes")),
    }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the header of a page: {why}"))
}

/// Checks the headers of all pages in some bytes, of which the first is that of a header.
///
/// # Errors
/// Returns what is wrong with the first header that is.
pub fn check(bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (header, page) = header(rest.get(..HEADER_BYTES).unwrap_or(rest)).map_err(wrong)?;
        let next = header.checked_add(page).and_then(|end| rest.get(end..));
        // A page that is cut off is refused by the reader.
        let Some(next) = next else { return Ok(()) };
        rest = next;
    }
    Ok(())
}

/// A file whose headers of pages are checked as they are read. Parquet's reader asks for the header of a page with
/// [`ChunkReader::get_read`], and for the page itself with [`ChunkReader::get_bytes`]. The footer is read from the file itself.
pub struct CheckedPages<R>(pub R);

impl<R: Length> Length for CheckedPages<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for CheckedPages<R> {
    type T = CheckedHeader<R::T>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(CheckedHeader { rest: self.0.get_read(start)?, header: None })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.0.get_bytes(start, length)
    }
}

/// Reads the header of a page, and what follows it.
pub struct CheckedHeader<R> {
    rest: R,
    /// The bytes at the beginning, once anything has been read.
    header: Option<Cursor<Vec<u8>>>,
}

/// Reads the header with which `from` begins, and perhaps more, and checks it.
fn checked(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut wanted = FIRST_BYTES;
    loop {
        let missing = wanted - bytes.len();
        let found = from.by_ref().take(missing as u64).read_to_end(&mut bytes)?;
        match header(&bytes) {
            Ok(_) => return Ok(bytes),
            // It may go on beyond the bytes that were read.
            Err(_) if found == missing && wanted < HEADER_BYTES => wanted *= 4,
            Err(why) => return Err(wrong(why)),
        }
    }
}

impl<R: Read> Read for CheckedHeader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let header = match &mut self.header {
            Some(header) => header,
            empty => empty.insert(Cursor::new(checked(&mut self.rest)?)),
        };
        match header.read(into)? {
            0 => self.rest.read(into),
            count => Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use trace_schema::{Kind, Row, Run};
    use trace_writer::Recorder;

    use super::*;
    use crate::{reading::plain, stored_file::StoredFile};

    /// The start of a header: a page of a type with these sizes, uncompressed and compressed.
    fn begin(ty: u8, uncompressed: u32, compressed: u32) -> Vec<u8> {
        let mut bytes = vec![0x15, ty << 1, 0x15];
        for (size, after) in [(uncompressed, Some(0x15_u8)), (compressed, None)] {
            let mut left = u64::from(size) << 1;
            while left >= 0x80 {
                bytes.push(left as u8 | 0x80);
                left >>= 7;
            }
            bytes.push(left as u8);
            bytes.extend(after);
        }
        bytes
    }

    #[test]
    fn sizes_beyond_the_limits_are_refused() {
        let page = |uncompressed| [begin(0, uncompressed, 5), vec![0]].concat();
        assert_eq!(header(&page(PAGE_BYTES as u32)), Ok((page(PAGE_BYTES as u32).len(), 5)));
        let why = header(&page(PAGE_BYTES as u32 + 1)).expect_err("a large page");
        assert!(why.contains("limit page_bytes"), "{why}");
        // Field 7, a dictionary whose field 1 says how many values it has.
        let dictionary = |values: u8| [begin(2, 20, 5), vec![0x4c, 0x15, values << 1, 0, 0]].concat();
        assert!(header(&dictionary(20)).is_ok());
        let why = header(&dictionary(21)).expect_err("a large dictionary");
        assert!(why.contains("21 values in 20 bytes"), "{why}");
    }

    /// Parquet's reader does nothing for each truth value of a list that it does not know, as often as the list says.
    #[test]
    fn lists_without_end_are_refused() {
        // Field 9, which no header has: 2^31 - 1 elements.
        for element in [1, 2, 3, 12] {
            let list = vec![0x69, 0xf0 | element, 0xff, 0xff, 0xff, 0xff, 0x07, 0];
            let why = header(&[begin(0, 9, 5), list].concat()).expect_err("a list");
            assert!(why.contains("a list of 2147483647 elements"), "{why}");
        }
    }

    #[test]
    fn a_long_header_is_read_as_a_whole() {
        // Field 5, a data page whose field 5, its statistics, has a long greatest value.
        let length = 100_000_u32;
        let varint = [length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8];
        let statistics = [&[0x5c, 0x18][..], &varint, &vec![7; length as usize], &[0]].concat();
        let whole = [begin(0, 9, 3), vec![0x2c], statistics, vec![0, 0], vec![1, 2, 3]].concat();
        let mut read = Vec::new();
        let mut reader = CheckedHeader { rest: Cursor::new(whole.clone()), header: None };
        reader.read_to_end(&mut read).expect("a header and its page");
        assert_eq!(read, whole);
        assert!(check(&whole.repeat(3)).is_ok());
        let twice = [whole, begin(0, u32::MAX >> 1, 3), vec![0]].concat();
        let why = check(&twice).expect_err("a large second page").to_string();
        assert!(why.contains("limit page_bytes"), "{why}");
    }

    /// A run whose first page says that it has 2 GiB, as it lies on the disk.
    #[test]
    fn a_run_with_a_forged_page_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.parquet");
        let mut recorder = Recorder::create(&path, false, &Run::default()).expect("a recorder");
        for ts in 0..1000 {
            recorder.push(&Row::new(ts * 7 % 1000, Kind::Call, "cudaMalloc".into(), 1, 1)).expect("a row");
        }
        recorder.finish(&Run::default()).expect("a run");
        let bytes = fs::read(&path).expect("the run");
        let stored = StoredFile::open(&path).expect("the run");
        for column in stored.metadata().row_group(0).columns() {
            let (start, length) = column.byte_range();
            let chunk = &bytes[start as usize..(start + length) as usize];
            assert!(check(chunk).is_ok(), "{}", column.column_path());
        }
        assert!(plain::batches(vec![path.clone()], None).all(|batch| batch.is_ok()));
        let (start, _) = stored.metadata().row_group(0).column(0).byte_range();
        let forged = [begin(0, u32::MAX >> 1, 3), vec![0]].concat();
        let start = start as usize;
        let bytes = [&bytes[..start], &forged, &bytes[start + forged.len()..]].concat();
        fs::write(&path, bytes).expect("the forged run");
        let failed = plain::batches(vec![path], None).find_map(std::result::Result::err).expect("an error");
        assert!(failed.to_string().contains("limit page_bytes"), "{failed}");
    }
}
