//! What a format of another tool consists of: a name, a test that recognizes it, and a conversion to a run.

use std::path::Path;

use trace_writer::Finished;

use super::map::Map;
use analyze_run::error::AnalyzeError;

/// The first four bytes of a Parquet file.
pub(super) const PARQUET: &[u8] = b"PAR1";

/// A format that `analyze import` reads.
///
/// Each importer is one file or folder of this crate, and one line of the list [`FORMATS`](super::FORMATS).
/// The command line, its help and the detection of formats read that list. `worked_example.rs` shows a whole
/// importer.
pub trait Importer: Send + Sync {
    /// Returns the name of the format on the command line: lower case, with hyphens.
    fn name(&self) -> &'static str;

    /// Returns the description of the format in the help: one sentence without a full stop.
    fn about(&self) -> &'static str;

    /// Returns whether a file or folder is of this format. A format that cannot be recognized by its content
    /// returns `false`; users then name it.
    fn sniff(&self, head: &Head<'_>) -> bool;

    /// Returns whether the format's columns are assigned by a [`Layout`].
    fn takes_layout(&self) -> bool {
        false
    }

    /// Converts a file to a run.
    ///
    /// # Errors
    /// Returns an error if the file is not of this format, is damaged, or cannot be read, or if the run
    /// cannot be written. Nothing is left at the path of the run.
    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError>;
}

/// What the format of a file or folder is detected from.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The file or folder.
    pub path: &'a Path,
    /// The first 64 KiB after decompression; 16 bytes of an SQLite database, and none of a folder.
    pub bytes: &'a [u8],
}

impl<'a> Head<'a> {
    /// Returns the bytes from the first one that is not white space.
    pub fn text(&self) -> &'a [u8] {
        self.bytes.trim_ascii_start()
    }

    /// Returns whether the bytes contain `word`.
    pub fn contains(&self, word: &str) -> bool {
        self.bytes.windows(word.len()).any(|window| window == word.as_bytes())
    }
}

/// One conversion.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The file or folder that is read.
    pub file: &'a Path,
    /// The run that is written.
    pub out: &'a Path,
    /// Whether an existing run at `out` is replaced.
    pub force: bool,
    /// How the columns of a table are separated and assigned; the default unless the format takes it.
    pub layout: &'a Layout,
}

/// How the columns of a CSV table are separated and assigned.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Assigns the table's columns to those of a run. `None` means that they are named as in the table
    /// `events`.
    pub map: Option<Map>,
    /// Byte that separates two cells.
    pub delimiter: u8,
}

impl Default for Layout {
    fn default() -> Self {
        Self { map: None, delimiter: b',' }
    }
}

impl Layout {
    /// Returns whether nothing was set.
    pub(super) fn is_default(&self) -> bool {
        self.map.is_none() && self.delimiter == b','
    }
}
