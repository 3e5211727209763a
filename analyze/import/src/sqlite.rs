//! Opens SQLite databases of other tools, of which nothing is trusted: this is the only place that opens one.
//!
//! Only stored values of real tables are read. A view, a trigger, a virtual table and a generated column are programs of
//! whoever wrote the file, and none of them runs. SQLite's own limits bound what a value may take, and a handler ends what takes
//! more steps than a database of that size can need. The file is opened as immutable, so that SQLite writes no file beside it
//! either; data that lies in a file beside it is told.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, config::DbConfig, limits};

use super::{
    importer::Head,
    limits::{
        COLUMNS_COUNT, Limit, SQLITE_OBJECTS_COUNT, SQLITE_SCHEMA_BYTES, SQLITE_VALUE_BYTES,
        sqlite_steps_count,
    },
};
use analyze_run::{
    error::{AnalyzeError, Place},
    progress,
};

/// The first bytes of an SQLite database.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";
/// Number of steps of SQLite's machine between two checks of their limit.
const CHECK_STEPS: i32 = 1 << 16;
/// Memory for pages, in KiB. A database can ask for another size in its first page.
const CACHE_KIB: i32 = 16 << 10;
/// Bytes of a write-ahead log before its first change.
const WAL_HEAD_BYTES: u64 = 32;
/// The first byte of a rollback journal that is in use; one that is not begins with zeros.
const JOURNAL: u8 = 0xd9;
/// What SQLite writes before the name of a real table, and not before that of a virtual table or a view.
const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(sql, 1, 13) = 'CREATE TABLE ' ORDER BY name";

/// A SQLite database that is opened for reading only.
pub(super) struct Database {
    /// Path of the file.
    pub(super) path: PathBuf,
    /// The open connection.
    pub(super) connection: Connection,
    /// What is missing because it lies in a file beside the database, as a sentence without a full stop.
    pub(super) unread: Option<String>,
    steps: Limit,
}

/// Returns the path of the file beside a database whose name has this ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Says which changes lie beside a database and are not read.
fn unread(path: &Path) -> Option<String> {
    let wal = beside(path, "-wal");
    if fs::metadata(&wal).is_ok_and(|found| found.len() > WAL_HEAD_BYTES) {
        return Some(format!(
            "what is in {} and not yet in the database: end the program that writes it, or run `sqlite3 FILE 'PRAGMA \
             wal_checkpoint'`, and import again",
            wal.display()
        ));
    }
    let journal = beside(path, "-journal");
    let mut first = [0];
    let is_used = File::open(&journal).and_then(|mut file| file.read_exact(&mut first)).is_ok();
    (is_used && first[0] == JOURNAL).then(|| {
        format!(
            "whether the last change of the database is whole: {} is left of it; open it with `sqlite3` to undo the \
             change, and import again",
            journal.display()
        )
    })
}

/// Returns the reason of an error of SQLite.
fn reason(error: &rusqlite::Error, steps: Limit) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::TooBig) => SQLITE_VALUE_BYTES.over("a text, a blob or a row has more bytes"),
        Some(ErrorCode::OperationInterrupted) => {
            steps.over("to read a database of this size takes more steps")
        }
        _ => error.to_string(),
    }
}

/// Switches off what the file could make SQLite do, and sets its limits.
fn restrict(connection: &mut Connection, steps: Limit) -> Result<(), rusqlite::Error> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    for config in [
        DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
        DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
        DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
    ] {
        connection.set_db_config(config, false)?;
    }
    for (limit, value) in [
        (limits::Limit::SQLITE_LIMIT_LENGTH, SQLITE_VALUE_BYTES.value),
        (limits::Limit::SQLITE_LIMIT_SQL_LENGTH, SQLITE_SCHEMA_BYTES.value),
        (limits::Limit::SQLITE_LIMIT_COLUMN, COLUMNS_COUNT.value),
        (limits::Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (limits::Limit::SQLITE_LIMIT_SCHEMA, SQLITE_OBJECTS_COUNT.value),
        (limits::Limit::SQLITE_LIMIT_ATTACHED, 0),
    ] {
        connection.set_limit(limit, i32::try_from(value).unwrap_or(i32::MAX))?;
    }
    let mut done = 0_u64;
    connection.progress_handler(
        CHECK_STEPS,
        Some(move || {
            done = done.saturating_add(CHECK_STEPS as u64);
            done > steps.value
        }),
    )?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)
}

impl Database {
    /// Opens the database at `path`.
    ///
    /// # Errors
    /// Returns the message of SQLite or of the operating system if the file cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let absolute = path.canonicalize().map_err(|error| error.to_string())?;
        let size_bytes = fs::metadata(&absolute).map_err(|error| error.to_string())?.len();
        let escaped = absolute.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let steps = sqlite_steps_count(size_bytes);
        let mut connection =
            Connection::open_with_flags(format!("file:{escaped}?mode=ro&immutable=1"), flags)
                .map_err(|error| error.to_string())?;
        restrict(&mut connection, steps).map_err(|error| reason(&error, steps))?;
        Ok(Self { path: path.to_owned(), connection, unread: unread(&absolute), steps })
    }

    /// Returns the names of all real tables.
    ///
    /// # Errors
    /// Returns SQLite's message if the query fails.
    pub(super) fn tables(&self) -> Result<Vec<String>, String> {
        let read = || {
            let mut statement = self.connection.prepare(TABLES)?;
            statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
        };
        read().map_err(|error: rusqlite::Error| reason(&error, self.steps))
    }

    /// Returns the names of a table's columns, none if there is no such table.
    ///
    /// # Errors
    /// Returns the reason if it is a view, a virtual table or a table with generated columns, and SQLite's message if the
    /// query fails.
    pub(super) fn columns(&self, table: &str) -> Result<Vec<String>, String> {
        let told = |error: rusqlite::Error| reason(&error, self.steps);
        let query = "SELECT type, substr(sql, 1, 13) = 'CREATE TABLE ' FROM sqlite_schema \
             WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')";
        let found = self
            .connection
            .query_row(query, [table], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<bool>>(1)?)))
            .optional()
            .map_err(told)?;
        match found {
            None => return Ok(Vec::new()),
            Some((kind, Some(true))) if kind == "table" => {}
            Some((kind, _)) => {
                let kind = if kind == "table" { "virtual table" } else { "view" };
                return Err(format!("its {table} is a {kind}: only the rows of tables are read"));
            }
        }
        let read = || {
            let mut statement = self.connection.prepare("SELECT name, hidden FROM pragma_table_xinfo(?1)")?;
            statement
                .query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<Vec<(String, i64)>, _>>()
        };
        let columns = read().map_err(told)?;
        if let Some((name, _)) = columns.iter().find(|(_, hidden)| *hidden != 0) {
            return Err(format!(
                "its table {table} has the generated column {name}: only values that are stored are read"
            ));
        }
        Ok(columns.into_iter().map(|(name, _)| name).collect())
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
        let (path, steps) = (self.path.clone(), self.steps);
        move |error| AnalyzeError::unreadable(&path, Place::Table(table), reason(&error, steps))
    }
}

/// Returns whether a file is an SQLite database that has all of these tables.
pub(super) fn has_tables(head: &Head<'_>, tables: &[&str]) -> bool {
    head.bytes.starts_with(MAGIC)
        && Database::open(head.path).is_ok_and(|database| {
            tables.iter().all(|table| database.columns(table).is_ok_and(|columns| !columns.is_empty()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.db");
        Connection::open(&file).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        let database = Database::open(&file).unwrap();
        assert_eq!(
            (database.tables(), database.columns("T")),
            (Ok(vec!["t".to_owned()]), Ok(vec!["x".to_owned()]))
        );
        let endless =
            "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
        let found = database.connection.query_row(endless, [], |row| row.get::<_, i64>(0));
        let why = found.map_err(database.failed("t")).unwrap_err().to_string();
        assert!(why.contains("table t: ") && why.contains("the limit sqlite_steps_count of "), "{why}");
    }

    #[test]
    fn what_lies_beside_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.db");
        assert_eq!(unread(&file), None);
        fs::write(beside(&file, "-journal"), [0; 512]).unwrap();
        assert_eq!(unread(&file), None, "a journal that is not in use");
        fs::write(beside(&file, "-journal"), [0xd9, 0xd5, 0x05]).unwrap();
        assert!(unread(&file).unwrap().contains("a.db-journal"));
        fs::write(beside(&file, "-wal"), [0; 33]).unwrap();
        assert!(unread(&file).unwrap().contains("a.db-wal"));
    }
}
