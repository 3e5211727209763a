//! Opens files for reading, and decompresses those that are compressed with gzip.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek},
    path::Path,
    sync::Arc,
};

use flate2::read::MultiGzDecoder;

use analyze_run::progress;

/// The first two bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Size of one read from the file, in bytes.
const READ_BYTES: usize = 1 << 18;

/// A file that reports the number of bytes read to the progress line.
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

/// Returns whether an error of reading says that the compressed data is damaged or cut off, and not that reading failed.
pub(super) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidInput | InvalidData | UnexpectedEof)
}

/// Opens a file and returns its decompressed bytes, and their number if it is known: for a gzip file it is
/// `None`.
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
