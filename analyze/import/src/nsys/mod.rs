//! Imports exports of Nsight Systems: SQLite databases, and folders of Parquet files with the same tables.
//!
//! A reader has to know: times are nanoseconds since the start of the session, whose Unix time is in
//! `TARGET_INFO_SESSION_START_TIME`; `globalTid` holds machine, process and thread in one number (24 bits
//! each for the last two); texts are ids into `StringIds`; a table that recorded nothing is absent, and
//! columns vary between versions; calls of the runtime and of the driver are in one table.

mod parquet_dir;
mod source;
mod state;
mod switches;
mod tables;

use std::path::Path;

use trace_schema::{Clock, Gpu, ProcessInfo, Run, Thread};
use trace_writer::{Finished, Recorder};

use self::{
    parquet_dir::{ParquetDir, is_export},
    source::{Source, Sqlite, foreign},
    state::{Import, thread_of},
    tables::{TABLES, Table},
};
use super::{
    importer::{Head, Importer, Job},
    sqlite,
};
use analyze_run::error::AnalyzeError;

/// Exports of Nsight Systems.
pub(super) struct Nsys;

impl Importer for Nsys {
    fn name(&self) -> &'static str {
        "nsys"
    }

    fn about(&self) -> &'static str {
        "Export of Nsight Systems (`nsys export --type sqlite`, or `parquetdir`: a folder)"
    }

    fn sniff(&self, head: &Head<'_>) -> bool {
        is_export(head.path) || sqlite::has_tables(head, &["StringIds"])
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        import(job.file, job.out, job.force)
    }
}

/// Converts an export to a run at `out`. An existing run is replaced only if `force` is set.
///
/// # Errors
/// Returns an error if the path is not an export of Nsight Systems, a row does not fit, or the run cannot be
/// written.
fn import(path: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let foreign = |reason| foreign(path, reason);
    let source: Box<dyn Source> = if path.is_dir() {
        if !is_export(path) {
            return Err(foreign("it has no table StringIds".to_owned()));
        }
        Box::new(ParquetDir::open(path)?)
    } else {
        Box::new(Sqlite::open(path).map_err(foreign)?)
    };
    if source.columns("StringIds").map_err(foreign)?.is_empty() {
        return Err(foreign("it has no table StringIds".to_owned()));
    }
    let found: Vec<&Table> = TABLES
        .iter()
        .filter_map(|table| match source.columns(table.name) {
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
        source,
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
    import.run.not_captured.extend(import.source.unread());
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

    /// Reports the tables that were not read.
    fn other_tables(&mut self, found: &[&Table]) -> Result<(), AnalyzeError> {
        let names = self.source.tables()?;
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

    /// Reads the facts about the session and the machine, and the names of processes and threads.
    fn facts(&mut self) -> Result<(), AnalyzeError> {
        if self.has("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"]) {
            let starts = self.list("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |cells| {
                let start = cells.required("utcEpochNs")?;
                Self::time(0, start).ok_or_else(|| format!("utcEpochNs is {start}"))
            })?;
            self.base_ns = starts.first().copied().unwrap_or_default();
        } else {
            self.run.not_captured.push("the time of day: times count from the session's start".to_owned());
        }
        if self.has("TARGET_INFO_GPU", &["name"]) {
            self.run.gpus = self.list("TARGET_INFO_GPU", &["name"], |cells| {
                Ok(Gpu { name: cells.text("name")?, driver: "unknown".to_owned() })
            })?;
        }
        if self.has("PROCESSES", &["pid", "name"]) {
            let pids = self.list("PROCESSES", &["pid", "name"], |cells| {
                Ok(cells.text("name").is_ok().then_some(cells.extent("pid")?).flatten())
            })?;
            self.run.processes =
                pids.into_iter().flatten().map(|pid| ProcessInfo { pid, ..ProcessInfo::default() }).collect();
        }
        if self.has("ThreadNames", &["nameId", "globalTid"]) {
            // A thread without a name has nothing to show and is left out.
            let threads = self.list("ThreadNames", &["nameId", "globalTid"], |cells| {
                let (pid, tid) = thread_of(cells.required("globalTid")?);
                Ok(cells.text("nameId").ok().map(|comm| Thread { pid, tid, comm }))
            })?;
            self.run.threads = threads.into_iter().flatten().collect();
        }
        Ok(())
    }
}
