//! A file's bytes, decompressed if they are compressed with gzip.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek},
    path::Path,
};

use flate2::read::MultiGzDecoder;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes read from the file at once.
const READ_BYTES: usize = 1 << 18;

/// The bytes, and how many they are where that is known.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn open(path: &Path) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut first = Vec::new();
    file.by_ref().take(GZIP.len() as u64).read_to_end(&mut first)?;
    file.rewind()?;
    if first == GZIP {
        return Ok((Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, file))), None));
    }
    Ok((Box::new(file), Some(length)))
}
