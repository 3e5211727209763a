//! Opens SQLite databases of other tools as immutable, so that SQLite writes no file beside them either.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, OpenFlags};

use super::importer::Head;
use analyze_run::{
    error::{AnalyzeError, Place},
    progress,
};

/// The first bytes of an SQLite database.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// A SQLite database that is opened for reading only.
pub(super) struct Database {
    /// Path of the file.
    pub(super) path: PathBuf,
    /// The open connection.
    pub(super) connection: Connection,
}

impl Database {
    /// Opens the database at `path`.
    ///
    /// # Errors
    /// Returns the message of SQLite or of the operating system if the file cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let absolute = path.canonicalize().map_err(|error| error.to_string())?;
        let escaped = absolute.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(format!("file:{escaped}?mode=ro&immutable=1"), flags)
            .map_err(|error| error.to_string())?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Returns the names of a table's columns, none if there is no such table.
    ///
    /// # Errors
    /// Returns SQLite's message if the query fails.
    pub(super) fn columns(&self, table: &str) -> Result<Vec<String>, String> {
        let read = || {
            let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            statement.query_map([table], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        read().map_err(|error: rusqlite::Error| error.to_string())
    }

    /// Creates a counter for the progress line, to which the caller adds the rows of a table as they are
    /// read. The total is an estimate: the largest rowid.
    pub(super) fn progress(&self, table: &str) -> Arc<progress::Counter> {
        let quoted = table.replace('"', "\"\"");
        let query = format!("SELECT max(rowid) FROM \"{quoted}\"");
        let last = self.connection.query_row(&query, [], |row| row.get::<_, Option<i64>>(0));
        // The query fails if a table has no rowids; the total is then unknown.
        let last = last.ok().flatten().unwrap_or_default();
        progress::rows(u64::try_from(last).unwrap_or_default())
    }

    /// Returns a function that converts an SQLite error to one that names the file and `table`.
    pub(super) fn failed(&self, table: &'static str) -> impl Fn(rusqlite::Error) -> AnalyzeError + use<> {
        let path = self.path.clone();
        move |source| AnalyzeError::unreadable(&path, Place::Table(table), source.to_string())
    }
}

/// Returns whether a file is an SQLite database that has all of these tables.
pub(super) fn has_tables(head: &Head<'_>, tables: &[&str]) -> bool {
    head.bytes.starts_with(MAGIC)
        && Database::open(head.path).is_ok_and(|database| {
            tables.iter().all(|table| database.columns(table).is_ok_and(|columns| !columns.is_empty()))
        })
}
