//! SQLite exports of Nsight Systems.
//!
//! What has to be known to read one rightly: times are nanoseconds since the session's start, whose Unix time
//! `TARGET_INFO_SESSION_START_TIME` has; `globalTid` is machine, process and thread in one number (24 bits each of
//! the last two); texts are numbers into `StringIds`; a table that recorded nothing is absent, and columns come and
//! go with versions; runtime and driver calls are in one table.

mod switches;
mod tables;

use std::path::Path;

use trace_schema::{Clock, Gpu, ProcessInfo, Run, Thread};
use trace_writer::{Finished, Recorder};

use self::tables::{TABLES, Table};
use super::sqlite::Database;
use crate::error::AnalyzeError;

/// Process and thread in a `globalTid`.
fn thread_of(global: i64) -> (u32, u32) {
    (((global >> 24) & 0xff_ffff) as u32, (global & 0xff_ffff) as u32)
}

/// Rows on their way into the run.
struct Import {
    database: Database,
    recorder: Recorder,
    /// Unix time of the session's start.
    base_ns: i64,
    first_ns: Option<i64>,
    last_ns: i64,
    run: Run,
}

/// Converts an export.
///
/// # Errors
/// If it is none, a row does not fit, or the run cannot be written.
pub(super) fn import(path: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let foreign = |reason: String| AnalyzeError::NotNsys { path: path.to_owned(), reason };
    let database = Database::open(path).map_err(foreign)?;
    if database.columns("StringIds").map_err(foreign)?.is_empty() {
        return Err(foreign("it has no table StringIds".to_owned()));
    }
    let found: Vec<&Table> = TABLES
        .iter()
        .filter_map(|table| match database.columns(table.name) {
            Ok(columns) if columns.is_empty() => None,
            Ok(columns) => Some(match table.required.iter().find(|c| !columns.iter().any(|f| f == *c)) {
                Some(missing) => Err(foreign(format!("its table {} has no column {missing}", table.name))),
                None => Ok(table),
            }),
            Err(reason) => Some(Err(foreign(reason))),
        })
        .collect::<Result<_, _>>()?;
    let recorder = Recorder::create(out, force, &Run::default())?;
    let mut import = Import {
        database,
        recorder,
        base_ns: 0,
        first_ns: None,
        last_ns: 0,
        run: Run {
            producer: "imported from Nsight Systems".to_owned(),
            joined_running: true,
            not_captured: vec![
                "bytes, directions and streams of calls; those of the work on the GPU are in the `device` row of \
                 the same process and `correlation`"
                    .to_owned(),
                "allocator events of PyTorch".to_owned(),
            ],
            ..Run::default()
        },
    };
    match import.all(&found) {
        Ok(()) => {
            import.run.clock = Clock {
                start_ns: import.first_ns.unwrap_or(import.base_ns),
                end_ns: import.last_ns,
                ..Clock::default()
            };
            Ok(import.recorder.finish_sorted(&import.run)?)
        }
        Err(error) => {
            import.recorder.discard();
            Err(error)
        }
    }
}

impl Import {
    fn all(&mut self, found: &[&Table]) -> Result<(), AnalyzeError> {
        self.facts()?;
        for table in found {
            self.table(table)?;
        }
        self.switches()?;
        for table in TABLES.iter().filter(|table| !found.iter().any(|there| there.name == table.name)) {
            self.run.not_captured.push(format!("{}: there is no table {}", table.what, table.name));
        }
        self.other_tables(found)
    }

    /// Whether a table has these columns.
    fn has(&self, table: &str, columns: &[&str]) -> bool {
        let found = self.database.columns(table).unwrap_or_default();
        columns.iter().all(|column| found.iter().any(|name| name == column))
    }

    /// What is known of the session, the machine and the names of threads.
    fn facts(&mut self) -> Result<(), AnalyzeError> {
        if self.has("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"]) {
            let failed = self.database.failed("TARGET_INFO_SESSION_START_TIME");
            let query = "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1";
            self.base_ns = self.database.connection.query_row(query, [], |row| row.get(0)).map_err(failed)?;
        } else {
            self.run.not_captured.push("the time of day: times count from the session's start".to_owned());
        }
        if self.has("TARGET_INFO_GPU", &["name"]) {
            let names: Vec<String> =
                self.list("TARGET_INFO_GPU", "SELECT name FROM TARGET_INFO_GPU", |row| row.get(0))?;
            self.run.gpus =
                names.into_iter().map(|name| Gpu { name, driver: "unknown".to_owned() }).collect();
        }
        if self.has("PROCESSES", &["pid", "name"]) {
            let processes: Vec<(u32, String)> =
                self.list("PROCESSES", "SELECT pid, name FROM PROCESSES WHERE name IS NOT NULL", |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
            self.run.processes = processes
                .iter()
                .map(|(pid, _)| ProcessInfo { pid: *pid, ..ProcessInfo::default() })
                .collect();
        }
        if self.has("ThreadNames", &["nameId", "globalTid"]) {
            let query = "SELECT t.globalTid, s.value FROM ThreadNames t JOIN StringIds s ON s.id = t.nameId";
            let threads: Vec<(i64, String)> =
                self.list("ThreadNames", query, |row| Ok((row.get(0)?, row.get(1)?)))?;
            self.run.threads = threads
                .into_iter()
                .map(|(global, comm)| {
                    let (pid, tid) = thread_of(global);
                    Thread { pid, tid, comm }
                })
                .collect();
        }
        Ok(())
    }

    fn list<T>(
        &self,
        table: &'static str,
        query: &str,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, AnalyzeError> {
        let failed = self.database.failed(table);
        let mut statement = self.database.connection.prepare(query).map_err(&failed)?;
        statement.query_map([], read).and_then(Iterator::collect).map_err(&failed)
    }

    /// A time of the trace as Unix time; `None`: out of range.
    fn time(base_ns: i64, ns: i64) -> Option<i64> {
        base_ns.checked_add(ns).filter(|ts| *ts >= 0)
    }

    fn saw(&mut self, ts: i64, end: i64) {
        self.first_ns = Some(self.first_ns.map_or(ts, |first| first.min(ts)));
        self.last_ns = self.last_ns.max(end);
    }

    /// Says which tables were not read.
    fn other_tables(&mut self, found: &[&Table]) -> Result<(), AnalyzeError> {
        let names: Vec<String> = self.list(
            "sqlite_master",
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
            |row| row.get(0),
        )?;
        let is_fact = |name: &str| {
            ["ENUM_", "META_DATA_", "TARGET_INFO_", "sqlite_"].iter().any(|start| name.starts_with(start))
                || matches!(
                    name,
                    "StringIds" | "ThreadNames" | "PROCESSES" | "EXPORT_SCHEMA_VERSION" | switches::TABLE
                )
        };
        let others: Vec<String> = names
            .into_iter()
            .filter(|name| !is_fact(name) && !found.iter().any(|table| table.name == name))
            .collect();
        if !others.is_empty() {
            self.run.not_captured.push(format!("tables that are not understood: {}", others.join(", ")));
        }
        Ok(())
    }
}
