//! Where the tables of an export are: in an SQLite database, or each in a Parquet file of its own.

use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use trace_writer::WriteError;

use crate::sqlite::Database;
use analyze_run::error::AnalyzeError;

/// A cell as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    Null,
    Integer(i64),
    Text(&'a [u8]),
    /// Something of another type, by its name.
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

/// One row, its number, and the columns that were asked for.
pub(super) struct Cells<'a> {
    pub(super) number: i64,
    pub(super) names: &'a [&'static str],
    pub(super) cells: &'a [Cell<'a>],
}

impl Cells<'_> {
    fn cell(&self, name: &str) -> Result<Cell<'_>, String> {
        let index = self.names.iter().position(|known| *known == name).ok_or("it is not read")?;
        self.cells.get(index).copied().ok_or_else(|| "it is not read".to_owned())
    }

    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, String> {
        match self.cell(name)? {
            Cell::Null => Ok(None),
            Cell::Integer(value) => Ok(Some(value)),
            other => Err(format!("{name} is of type {}, not an integer", other.type_name())),
        }
    }

    /// An integer that must be there.
    pub(super) fn required(&self, name: &str) -> Result<i64, String> {
        self.integer(name)?.ok_or_else(|| format!("{name} is null"))
    }

    pub(super) fn unsigned(&self, name: &str) -> Result<Option<u64>, String> {
        Ok(self.integer(name)?.and_then(|value| u64::try_from(value).ok()))
    }

    pub(super) fn extent(&self, name: &str) -> Result<Option<u32>, String> {
        self.integer(name)?
            .map(|value| u32::try_from(value).map_err(|_| format!("{name} is {value}")))
            .transpose()
    }

    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        match self.cell(name)? {
            Cell::Text(text) => String::from_utf8(text.to_vec()).map_err(|error| format!("{name}: {error}")),
            Cell::Null => Err(format!("{name} names no text of StringIds")),
            other => Err(format!("{name} is of type {}, not a text", other.type_name())),
        }
    }
}

/// What is to be read of a table.
pub(super) struct Wanted<'a> {
    pub(super) table: &'static str,
    /// A column that is not there is null.
    pub(super) columns: &'a [&'static str],
    /// Those of them that are numbers of texts: their texts are read.
    pub(super) texts: &'a [&'static str],
    /// Rows should come by this column; a source may not be able to.
    pub(super) by: Option<&'static str>,
}

/// Takes a row; an error is what is wrong with it, or that the run cannot be written.
pub(super) type Take<'a> = &'a mut dyn FnMut(&Cells<'_>) -> Result<(), Refused>;

/// Why a row was not taken.
pub(super) enum Refused {
    Bad(String),
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

/// An export.
pub(super) trait Source {
    fn path(&self) -> &Path;

    /// Every table.
    ///
    /// # Errors
    /// If they cannot be listed.
    fn tables(&self) -> Result<Vec<String>, AnalyzeError>;

    /// Columns of a table; none: there is no such table.
    ///
    /// # Errors
    /// In the words of what reads it.
    fn columns(&self, table: &str) -> Result<Vec<String>, String>;

    /// Gives each row of a table that is there.
    ///
    /// # Errors
    /// If it cannot be read, or a row is not taken.
    fn rows(&self, wanted: &Wanted<'_>, take: Take<'_>) -> Result<(), AnalyzeError>;

    /// What a refused row is to the user.
    fn refused(&self, table: &'static str, number: i64, refused: Refused) -> AnalyzeError {
        match refused {
            Refused::Failed(error) => error,
            Refused::Bad(reason) => {
                AnalyzeError::BadRow { path: self.path().to_owned(), table, row: number.to_string(), reason }
            }
        }
    }
}

/// `nsys export --type sqlite`.
pub(super) struct Sqlite(pub(super) Database);

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        Database::open(path).map(Self)
    }
}

impl Source for Sqlite {
    fn path(&self) -> &Path {
        &self.0.path
    }

    fn tables(&self) -> Result<Vec<String>, AnalyzeError> {
        let failed = self.0.failed("sqlite_master");
        let query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
        let mut statement = self.0.connection.prepare(query).map_err(&failed)?;
        statement.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(&failed)
    }

    fn columns(&self, table: &str) -> Result<Vec<String>, String> {
        self.0.columns(table)
    }

    fn rows(&self, wanted: &Wanted<'_>, take: Take<'_>) -> Result<(), AnalyzeError> {
        let table = wanted.table;
        let failed = self.0.failed(table);
        let there = self
            .columns(table)
            .map_err(|reason| AnalyzeError::NotNsys { path: PathBuf::from(self.path()), reason })?;
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
