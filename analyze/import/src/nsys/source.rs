//! Sources of an export's tables: an SQLite database, or one Parquet file for each table.

use std::path::Path;

use rusqlite::types::ValueRef;
use trace_writer::WriteError;

use crate::sqlite::Database;
use analyze_run::error::{AnalyzeError, Place};

/// The value of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    /// The cell is null, or its column does not exist.
    Null,
    /// An integer of 64 bits.
    Integer(i64),
    /// A text, as bytes that need not be UTF-8.
    Text(&'a [u8]),
    /// A value of another type, given by that type's name.
    Other(&'static str),
}

impl Cell<'_> {
    fn type_name(self) -> &'static str {
        match self {
            Self::Null => "Null",
            Self::Integer(_) => "Integer",
            Self::Text(_) => "Text",
            Self::Other(name) => name,
        }
    }
}

/// One row: its number, and the cells that were requested.
pub(super) struct Cells<'a> {
    /// Number of the row: the rowid in SQLite, and a count from 1 in Parquet.
    pub(super) number: i64,
    /// Names of the requested columns.
    pub(super) names: &'a [&'static str],
    /// Values of the cells, in the order of `names`.
    pub(super) cells: &'a [Cell<'a>],
}

impl Cells<'_> {
    fn cell(&self, name: &str) -> Result<Cell<'_>, String> {
        let index = self.names.iter().position(|known| *known == name).ok_or("it is not read")?;
        self.cells.get(index).copied().ok_or_else(|| "it is not read".to_owned())
    }

    /// Returns an integer, or `None` if the cell is null. Errs if it is of another type.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, String> {
        match self.cell(name)? {
            Cell::Null => Ok(None),
            Cell::Integer(value) => Ok(Some(value)),
            other => Err(format!("{name} is of type {}, not an integer", other.type_name())),
        }
    }

    /// Returns an integer. Errs if the cell is null or of another type.
    pub(super) fn required(&self, name: &str) -> Result<i64, String> {
        self.integer(name)?.ok_or_else(|| format!("{name} is null"))
    }

    /// Returns an integer, or `None` if the cell is null or negative. Errs if it is of another type.
    pub(super) fn unsigned(&self, name: &str) -> Result<Option<u64>, String> {
        Ok(self.integer(name)?.and_then(|value| u64::try_from(value).ok()))
    }

    /// Returns an integer of 32 bits without a sign, or `None` if the cell is null. Errs if it does not fit.
    pub(super) fn extent(&self, name: &str) -> Result<Option<u32>, String> {
        self.integer(name)?
            .map(|value| u32::try_from(value).map_err(|_| format!("{name} is {value}")))
            .transpose()
    }

    /// Returns a text. Errs if the cell is null, of another type or not UTF-8.
    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        match self.cell(name)? {
            Cell::Text(text) => String::from_utf8(text.to_vec()).map_err(|error| format!("{name}: {error}")),
            Cell::Null => Err(format!("{name} names no text of StringIds")),
            other => Err(format!("{name} is of type {}, not a text", other.type_name())),
        }
    }
}

/// Says which part of a table is to be read.
pub(super) struct Wanted<'a> {
    /// Name of the table.
    pub(super) table: &'static str,
    /// Names of the columns. A column that does not exist is read as null.
    pub(super) columns: &'a [&'static str],
    /// Names of those columns that hold ids of texts; the texts are read in place of the ids.
    pub(super) texts: &'a [&'static str],
    /// Column by which the rows should be sorted. A source may not be able to sort them.
    pub(super) by: Option<&'static str>,
}

/// A callback that takes a row. It errs if the row is wrong or the run cannot be written.
pub(super) type Take<'a> = &'a mut dyn FnMut(&Cells<'_>) -> Result<(), Refused>;

/// The reason why a row was not taken.
pub(super) enum Refused {
    /// The row is wrong, for this reason.
    Bad(String),
    /// The run cannot be written.
    Failed(AnalyzeError),
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self::Bad(reason)
    }
}

impl From<WriteError> for Refused {
    fn from(error: WriteError) -> Self {
        Self::Failed(error.into())
    }
}

/// An export of Nsight Systems, whose tables can be read.
pub(super) trait Source {
    /// Returns the path of the export.
    fn path(&self) -> &Path;

    /// Says what is missing because it lies in a file beside the export, as a sentence without a full stop.
    fn unread(&self) -> Option<String> {
        None
    }

    /// Returns the names of all tables.
    fn tables(&self) -> Result<Vec<String>, AnalyzeError>;

    /// Returns the names of a table's columns, none if there is no such table.
    ///
    /// # Errors
    /// Returns the message of the underlying reader if the columns cannot be listed.
    fn columns(&self, table: &str) -> Result<Vec<String>, String>;

    /// Passes each row of an existing table to `take`.
    ///
    /// # Errors
    /// Returns an error if the table cannot be read, or `take` does not take a row.
    fn rows(&self, wanted: &Wanted<'_>, take: Take<'_>) -> Result<(), AnalyzeError>;

    /// Converts the refusal of row `number` to the error that the user sees.
    fn refused(&self, table: &'static str, number: i64, refused: Refused) -> AnalyzeError {
        match refused {
            Refused::Failed(error) => error,
            Refused::Bad(reason) => {
                AnalyzeError::unreadable(self.path(), Place::Row { table, row: number.to_string() }, reason)
            }
        }
    }
}

/// Returns the error of a file that is no export of Nsight Systems.
pub(super) fn foreign(path: &Path, reason: String) -> AnalyzeError {
    let reason = format!("it is not an SQLite export of Nsight Systems: {reason}");
    AnalyzeError::unreadable(path, Place::WholeFile, reason)
}

/// An export that is an SQLite database (`nsys export --type sqlite`).
pub(super) struct Sqlite(pub(super) Database);

impl Sqlite {
    /// Opens the database at `path`. Errs with the message of SQLite or of the operating system.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        Database::open(path).map(Self)
    }
}

impl Source for Sqlite {
    fn path(&self) -> &Path {
        &self.0.path
    }

    fn tables(&self) -> Result<Vec<String>, AnalyzeError> {
        self.0.tables().map_err(|reason| foreign(self.path(), reason))
    }

    fn unread(&self) -> Option<String> {
        self.0.unread.clone()
    }

    fn columns(&self, table: &str) -> Result<Vec<String>, String> {
        self.0.columns(table)
    }

    fn rows(&self, wanted: &Wanted<'_>, take: Take<'_>) -> Result<(), AnalyzeError> {
        let table = wanted.table;
        let failed = self.0.failed(table);
        let there = self.columns(table).map_err(|reason| foreign(self.path(), reason))?;
        let columns: Vec<String> = wanted
            .columns
            .iter()
            .map(|name| match () {
                () if !there.iter().any(|found| found == name) => "NULL".to_owned(),
                () if wanted.texts.contains(name) => {
                    format!("(SELECT value FROM StringIds WHERE id = t.\"{name}\")")
                }
                () => format!("t.\"{name}\""),
            })
            .collect();
        let order = wanted.by.map_or_else(String::new, |column| format!(" ORDER BY t.{column}, t.rowid"));
        let query = format!("SELECT t.rowid, {} FROM {table} t{order}", columns.join(", "));
        let mut statement = self.0.connection.prepare(&query).map_err(&failed)?;
        let mut rows = statement.query([]).map_err(&failed)?;
        let progress = self.0.progress(table);
        while let Some(row) = rows.next().map_err(&failed)? {
            progress.add(1);
            let number = row.get::<_, i64>(0).map_err(&failed)?;
            let cell = |index| {
                Ok(match row.get_ref(index + 1)? {
                    ValueRef::Null => Cell::Null,
                    ValueRef::Integer(value) => Cell::Integer(value),
                    ValueRef::Text(text) => Cell::Text(text),
                    ValueRef::Real(_) => Cell::Other("Real"),
                    ValueRef::Blob(_) => Cell::Other("Blob"),
                })
            };
            let cells =
                (0..columns.len()).map(cell).collect::<rusqlite::Result<Vec<_>>>().map_err(&failed)?;
            take(&Cells { number, names: wanted.columns, cells: &cells })
                .map_err(|refused| self.refused(table, number, refused))?;
        }
        Ok(())
    }
}
