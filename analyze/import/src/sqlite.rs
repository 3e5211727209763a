//! SQLite databases of other tools, opened immutable: nothing is written beside them either.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, OpenFlags};

use super::Format;
use analyze_run::{error::AnalyzeError, progress};

/// Tables that tell whose database it is.
const SIGNS: [(Format, &[&str]); 2] = [(Format::Ingero, &["events", "ops"]), (Format::Nsys, &["StringIds"])];

/// A database that is only read.
pub(super) struct Database {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
}

impl Database {
    /// Opens it.
    ///
    /// # Errors
    /// In SQLite's words.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let absolute = path.canonicalize().map_err(|error| error.to_string())?;
        let escaped = absolute.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(format!("file:{escaped}?mode=ro&immutable=1"), flags)
            .map_err(|error| error.to_string())?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Columns of a table; none: there is no such table.
    ///
    /// # Errors
    /// In SQLite's words.
    pub(super) fn columns(&self, table: &str) -> Result<Vec<String>, String> {
        let read = || {
            let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            statement.query_map([table], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        read().map_err(|error: rusqlite::Error| error.to_string())
    }

    /// Counts the rows of a table as they are read. How many there are is an estimate, by the number of the last.
    pub(super) fn progress(&self, table: &str) -> Arc<progress::Counter> {
        let quoted = table.replace('"', "\"\"");
        let query = format!("SELECT max(rowid) FROM \"{quoted}\"");
        let last = self.connection.query_row(&query, [], |row| row.get::<_, Option<i64>>(0));
        // A table without such numbers.
        let last = last.ok().flatten().unwrap_or_default();
        progress::rows(u64::try_from(last).unwrap_or_default())
    }

    /// What an error of SQLite means while a table is read.
    pub(super) fn failed(&self, table: &'static str) -> impl Fn(rusqlite::Error) -> AnalyzeError + use<> {
        let path = self.path.clone();
        move |source| AnalyzeError::Sqlite { path: path.clone(), table, source: Box::new(source) }
    }
}

/// Whose database it is, if that is known.
pub(super) fn sniff(path: &Path) -> Option<Format> {
    let database = Database::open(path).ok()?;
    let has = |table: &&str| database.columns(table).is_ok_and(|columns| !columns.is_empty());
    SIGNS.iter().find(|(_, tables)| tables.iter().all(has)).map(|(format, _)| *format)
}
