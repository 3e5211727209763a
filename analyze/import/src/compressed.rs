//! A file's bytes, decompressed if they are compressed with gzip.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek},
    path::Path,
    sync::Arc,
};

use flate2::read::MultiGzDecoder;

use analyze_run::progress;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes read from the file at once.
const READ_BYTES: usize = 1 << 18;

/// A file whose bytes are counted as they are read.
struct Counted {
    file: File,
    progress: Arc<progress::Counter>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.progress.add(count as u64);
        Ok(count)
    }
}

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
    let file = Counted { file, progress: progress::bytes(length) };
    if first == GZIP {
        return Ok((Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, file))), None));
    }
    Ok((Box::new(file), Some(length)))
}
