//! Finds the importer of a file: by the format's name, or by the content of the file.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use trace_writer::Finished;

use super::{
    compressed,
    importer::{Head, Importer, Job, PARQUET},
    sqlite,
};
use analyze_run::{error::AnalyzeError, new_file};

/// Number of decompressed bytes that are examined.
const LOOK_BYTES: u64 = 1 << 16;

/// A list of importers. The first one that recognizes a file imports it, so that a format whose test is
/// strict stands before one whose test is lenient.
#[derive(Clone, Copy)]
pub struct Registry(pub &'static [&'static dyn Importer]);

impl Registry {
    /// Returns the importers in the order of detection.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Importer> {
        self.0.iter().copied()
    }

    /// Returns the importer of the format with this name.
    pub fn find(&self, name: &str) -> Option<&'static dyn Importer> {
        self.iter().find(|importer| importer.name() == name)
    }

    /// Returns the importer of a file or folder, or `None` if its format is not recognized or it is a Parquet
    /// file, which is a run.
    pub fn sniff(&self, path: &Path) -> io::Result<Option<&'static dyn Importer>> {
        if path.is_dir() {
            return Ok(self.recognize(&Head { path, bytes: &[] }));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(sqlite::MAGIC.len() as u64).read_to_end(&mut bytes)?;
        if bytes.starts_with(PARQUET) {
            return Ok(None);
        }
        if bytes != sqlite::MAGIC {
            bytes.clear();
            // A file that cannot be decompressed is not recognized.
            if let Err(error) = compressed::open(path)?.0.take(LOOK_BYTES).read_to_end(&mut bytes) {
                return if compressed::is_damage(&error) { Ok(None) } else { Err(error) };
            }
            if bytes.trim_ascii().is_empty() {
                return Ok(None);
            }
        }
        Ok(self.recognize(&Head { path, bytes: &bytes }))
    }

    fn recognize(&self, head: &Head<'_>) -> Option<&'static dyn Importer> {
        self.iter().find(|importer| importer.sniff(head))
    }

    /// Converts a file to a run. If `format` is `None`, it is detected from the content of the file.
    ///
    /// # Errors
    /// Returns an error if the format is unknown or does not take the layout, the file is not of that format
    /// or is damaged, or the run cannot be written.
    pub fn run(&self, format: Option<&dyn Importer>, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        if !job.layout.is_default() && !format.is_some_and(|format| format.takes_layout()) {
            let why = "--map and --delimiter are for the format csv: analyze import csv FILE --map …";
            return Err(AnalyzeError::Query(why.to_owned()));
        }
        let file = job.file;
        let format = match format {
            Some(format) => format,
            None => self
                .sniff(file)
                .map_err(|source| AnalyzeError::Io { path: file.to_owned(), source })?
                .ok_or_else(|| AnalyzeError::UnknownFormat { path: file.to_owned() })?,
        };
        new_file::check(job.out, job.force, [&file.to_owned()])?;
        format.convert(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FORMATS;

    #[test]
    fn formats_are_told_by_content() {
        let cases: [(&[u8], Option<&str>); 13] = [
            (b" {\n\"schemaVersion\": 1, \"traceEvents\": [", Some("kineto")),
            (b"[{\"ph\": \"X\"", Some("kineto")),
            (b"{\"a\": 1}", None),
            (b"{\"ts\":1,\"kind\":\"call\",\"op\":\"\",\"pid\":1,\"tid\":1}\n", Some("events")),
            (b"ts,dur,kind,op,pid,tid\n", Some("events")),
            (b"ARROW1\0\0", Some("events")),
            (b"ts,dur,op\nkind,pid,tid\n", None),
            (b"", None),
            (b"   ", None),
            (b"\x80\x04\x95}\x8c\x08segments", Some("torch-snapshot")),
            (b"(dp0\nVdevice_traces\n", Some("torch-snapshot")),
            (b"\x80\x04K\x01.", None),
            (b"segments of a text", None),
        ];
        for (bytes, expected) in cases {
            let head = Head { path: Path::new(""), bytes };
            let found = FORMATS.recognize(&head).map(Importer::name);
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for importer in FORMATS.iter() {
            assert_eq!(FORMATS.iter().filter(|other| other.name() == importer.name()).count(), 1);
            assert_eq!(FORMATS.find(importer.name()).map(Importer::about), Some(importer.about()));
        }
    }
}
