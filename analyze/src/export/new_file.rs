//! Output file of an export. It has its name only when it is finished, because a truncated export looks like a
//! complete one.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use trace_writer::Access;

use crate::trace::Trace;
use analyze_run::error::AnalyzeError;
use analyze_run::new_file;

enum Encoder {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

/// An output file that is being written.
pub struct NewFile {
    path: PathBuf,
    encoder: Encoder,
    file: trace_writer::NewFile,
}

/// Returns whether a file name requests gzip, by the extension `.gz`.
pub fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

impl NewFile {
    /// Creates the file.
    ///
    /// # Errors
    /// Returns an error if `path` is a file of the run, if it exists and `force` is not set, or if it cannot
    /// be created.
    pub fn create(trace: &Trace, path: &Path, force: bool, with_gzip: bool) -> Result<Self, AnalyzeError> {
        new_file::check(path, force, trace.files().iter().flat_map(|file| &file.paths))?;
        let file = trace_writer::NewFile::create(path, force, Access::Owner)?;
        let buffer = BufWriter::new(file.writer()?);
        let encoder = match with_gzip {
            true => Encoder::Gzip(Box::new(GzEncoder::new(buffer, Compression::fast()))),
            false => Encoder::Plain(buffer),
        };
        Ok(Self { path: path.to_owned(), encoder, file })
    }

    /// Writes what is buffered, and keeps the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn finish(mut self) -> Result<(), AnalyzeError> {
        let written = match &mut self.encoder {
            Encoder::Plain(file) => file.flush(),
            Encoder::Gzip(gzip) => finish(gzip).and_then(|()| gzip.get_mut().flush()),
        };
        written.map_err(|source| AnalyzeError::Io { path: self.path, source })?;
        self.file.finish()?;
        Ok(())
    }
}

/// Ends a compressed stream; unlike other writers, it does not write again by itself what a signal has interrupted.
fn finish(gzip: &mut GzEncoder<BufWriter<File>>) -> io::Result<()> {
    loop {
        match gzip.try_finish() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            finished => return finished,
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Encoder::Plain(file) => file.write(bytes),
            Encoder::Gzip(gzip) => gzip.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::Plain(file) => file.flush(),
            Encoder::Gzip(gzip) => gzip.flush(),
        }
    }
}
