//! Imports databases of ingero, an eBPF tracer (SQLite; `schema_info.version` 0.8, and later versions that
//! have the same tables).
//!
//! A reader has to know: times are Unix nanoseconds; the `timestamp` of a CUDA row is the call's entry, that
//! of a host or network row is the event's end; scheduler rows carry the kernel's thread id in both `pid` and
//! `tid`; the reason why a thread was off CPU is not recorded; events are stored selectively, and losses are
//! not counted.

mod aggregates;
mod codes;

use std::{collections::HashMap, path::Path};

use rusqlite::types::Value;
use trace_schema::{Clock, Direction, Gpu, Host, Kind, Row, Run, TIME_LIMIT_NS, Text, Thread};
use trace_writer::{Finished, Recorder};

use codes::{HOST_EXEC, HOST_EXIT, HOST_FORK, HOST_SWITCH, SOURCE_DRIVER, SOURCE_HOST, SOURCE_RUNTIME};

use super::{
    importer::{Head, Importer, Job},
    sqlite::{self, Database},
};
use analyze_run::error::{AnalyzeError, Place};

/// CUDA functions that ingero names differently: ingero's name, and CUDA's.
const RENAMED: [(&str, &str); 2] =
    [("cudaStreamSync", "cudaStreamSynchronize"), ("cudaDeviceSync", "cudaDeviceSynchronize")];

const EVENTS: &str = "SELECT id, timestamp, pid, tid, source, op, duration, gpu_id, arg0, arg1, ret_code FROM events ORDER BY timestamp";

/// Tables and columns that a database must have to be recognized as one of ingero's.
const SHAPE: [(&str, &[&str]); 2] = [
    (
        "events",
        &["id", "timestamp", "pid", "tid", "source", "op", "duration", "gpu_id", "arg0", "arg1", "ret_code"],
    ),
    ("ops", &["source_id", "op_id", "name"]),
];

/// Databases of ingero.
pub(super) struct Ingero;

impl Importer for Ingero {
    fn name(&self) -> &'static str {
        "ingero"
    }

    fn about(&self) -> &'static str {
        "SQLite database of the ingero eBPF tracer"
    }

    fn sniff(&self, head: &Head<'_>) -> bool {
        sqlite::has_tables(head, &SHAPE.map(|(table, _)| table))
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        import(job.file, job.out, job.force)
    }
}

fn foreign(path: &Path, reason: String) -> AnalyzeError {
    AnalyzeError::unreadable(path, Place::WholeFile, format!("it is not a database of ingero: {reason}"))
}

/// An open database, and its path for errors.
struct Source<'a> {
    path: &'a Path,
    inner: Database,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path) -> Result<Self, AnalyzeError> {
        let database = Self { path, inner: Database::open(path).map_err(|reason| foreign(path, reason))? };
        for (table, columns) in SHAPE {
            let found = database.columns(table)?;
            if found.is_empty() {
                return Err(database.foreign(format!("it has no table {table}")));
            }
            if let Some(missing) = columns.iter().find(|column| !found.iter().any(|name| name == *column)) {
                return Err(database.foreign(format!("its table {table} has no column {missing}")));
            }
        }
        Ok(database)
    }

    fn foreign(&self, reason: String) -> AnalyzeError {
        foreign(self.path, reason)
    }

    fn columns(&self, table: &str) -> Result<Vec<String>, AnalyzeError> {
        self.inner.columns(table).map_err(|reason| self.foreign(reason))
    }

    fn sqlite(&self, table: &'static str) -> impl Fn(rusqlite::Error) -> AnalyzeError + use<> {
        self.inner.failed(table)
    }

    fn op_names(&self) -> Result<HashMap<(i64, i64), Text>, AnalyzeError> {
        let error = self.sqlite("ops");
        let mut statement =
            self.inner.connection.prepare("SELECT source_id, op_id, name FROM ops").map_err(&error)?;
        let rows = statement
            .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get::<_, String>(2)?)))
            .map_err(&error)?;
        rows.map(|row| {
            let (key, name) = row.map_err(&error)?;
            let renamed = RENAMED.iter().find(|(theirs, _)| *theirs == name.as_str());
            Ok((key, renamed.map_or_else(|| Text::from(name), |(_, ours)| Text::Static(ours))))
        })
        .collect()
    }

    /// Reads the metadata of the latest session. A database without sessions is still readable; the fields
    /// are then empty.
    fn run(&self, names: &HashMap<(i64, i64), Text>) -> Result<Run, AnalyzeError> {
        let mut run = Run {
            producer: "imported from ingero".to_owned(),
            lost_is_counted: false,
            not_captured: vec![
                "why a thread was off CPU: preemption and sleep look the same in this source".to_owned(),
                "who had the CPU, and who woke a thread".to_owned(),
                "allocator events of PyTorch".to_owned(),
            ],
            ..Run::default()
        };
        run.not_captured.extend(self.inner.unread.clone());
        let counted = self.columns("event_aggregates")?;
        if aggregates::COLUMNS.iter().all(|column| counted.iter().any(|name| name == column)) {
            let error = self.sqlite("event_aggregates");
            run.stored = aggregates::read(&self.inner.connection, names).map_err(&error)?;
            run.not_captured.extend(aggregates::sentence(&run.stored));
        } else {
            run.stored = aggregates::not_counted(&self.inner.connection).map_err(self.sqlite("events"))?;
            run.not_captured.push(
                "how many events ingero did not store: the database has no table event_aggregates that counts them. Slow calls are stored first, so that percentiles are biased upward and sums are lower bounds; what needs every call (gaps between launches, rates, first launches) is left out".to_owned(),
            );
        }
        let known = self.columns("sessions")?;
        let text = |column: &str| -> String {
            if !known.iter().any(|name| name == column) {
                return String::new();
            }
            // A column that is missing, null or of an unexpected type leaves its field empty.
            let query = format!("SELECT {column} FROM sessions ORDER BY started_at DESC LIMIT 1");
            match self.inner.connection.query_row(&query, [], |row| row.get::<_, Value>(0)) {
                Ok(Value::Text(text)) => text,
                Ok(Value::Integer(number)) => number.to_string(),
                _ => String::new(),
            }
        };
        run.host = Host {
            kernel: text("kernel"),
            os: text("os_release"),
            cpu: text("cpu_model"),
            cpu_count: text("cpu_cores").parse().unwrap_or(0),
            ..Host::default()
        };
        let gpu = text("gpu_model");
        if !gpu.is_empty() {
            run.gpus.push(Gpu { name: gpu, driver: text("gpu_driver") });
        }
        run.joined_running = !text("pid_filter").is_empty();
        let version = text("ingero_ver");
        if !version.is_empty() {
            run.producer = format!("imported from ingero {version}");
        }
        run.command = Some(text("flags")).filter(|flags| !flags.is_empty()).into_iter().collect();
        let is_time = |ns: &i64| (0..=TIME_LIMIT_NS).contains(ns);
        let time = |column: &str| text(column).parse::<i64>().ok().filter(is_time);
        let start_ns = time("started_at").unwrap_or(0);
        let end_ns = time("stopped_at").filter(|end_ns| *end_ns >= start_ns).unwrap_or(0);
        run.clock = Clock { start_ns, end_ns, ..Clock::default() };
        let named = self.columns("process_names")?;
        if ["pid", "name"].iter().all(|column| named.iter().any(|name| name == column)) {
            let error = self.sqlite("process_names");
            let mut statement =
                self.inner.connection.prepare("SELECT pid, name FROM process_names").map_err(&error)?;
            let rows =
                statement.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get(1)?))).map_err(&error)?;
            run.threads = rows
                .map(|row| row.map(|(pid, comm)| Thread { pid, tid: pid, comm }).map_err(&error))
                .collect::<Result<_, _>>()?;
        }
        Ok(run)
    }
}

/// One row of `events`; its times are in ns.
struct Event {
    timestamp: i64,
    pid: u32,
    tid: u32,
    source: i64,
    op: i64,
    duration: i64,
    device: i64,
    args: [i64; 2],
    ret: i64,
}

impl Event {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            timestamp: row.get(1)?,
            pid: row.get(2)?,
            tid: row.get(3)?,
            source: row.get(4)?,
            op: row.get(5)?,
            duration: row.get(6)?,
            device: row.get(7)?,
            args: [row.get(8)?, row.get(9)?],
            ret: row.get(10)?,
        })
    }

    /// Converts the event to a row of a run. `owner` maps a thread id to its process id, as the rows of CUDA
    /// calls state it.
    fn row(&self, name: Text, owner: &HashMap<u32, u32>) -> Row {
        let pid = owner.get(&self.tid).copied().unwrap_or(self.pid);
        let start = self.timestamp - self.duration;
        match (self.source, self.op) {
            (SOURCE_RUNTIME | SOURCE_DRIVER, _) => self.call(name),
            (SOURCE_HOST, HOST_SWITCH) => Row {
                dur: Some(self.duration),
                ..Row::new(start, Kind::OffCpu, "unknown".into(), pid, self.tid)
            },
            (SOURCE_HOST, HOST_EXEC | HOST_EXIT | HOST_FORK) => {
                let op = match self.op {
                    HOST_EXEC => "exec",
                    HOST_EXIT => "exit",
                    _ => "fork",
                };
                Row::new(self.timestamp, Kind::Process, op.into(), pid, self.tid)
            }
            _ => Row {
                dur: (self.duration > 0).then_some(self.duration),
                size_bytes: (self.args[0] > 0).then_some(self.args[0]),
                ..Row::new(start, Kind::Host, name, pid, self.tid)
            },
        }
    }

    fn call(&self, name: Text) -> Row {
        let mut row = Row {
            dur: Some(self.duration),
            ret: i32::try_from(self.ret).ok(),
            device: i32::try_from(self.device).ok(),
            ..Row::new(self.timestamp, Kind::Call, name, self.pid, self.tid)
        };
        let first = self.args[0];
        if row.op.contains("Launch") {
            row.func = Some(first as u64);
        } else if row.op.contains("Free") {
            row.addr = Some(first as u64);
        } else if row.op.contains("emcpy") {
            row.size_bytes = Some(first);
            row.direction =
                Direction::from_cuda(self.args[1] as u64).map(|direction| direction.name().into());
        } else if row.op.contains("lloc") {
            row.size_bytes = Some(first);
            row.addr = (self.args[1] != 0).then_some(self.args[1] as u64);
        }
        row
    }
}

/// Converts a database to a run at `out`. An existing run is replaced only if `force` is set.
///
/// # Errors
/// Returns an error if the file is not a database of ingero, a row does not fit, or the run cannot be
/// written.
fn import(path: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let database = Source::open(path)?;
    let names = database.op_names()?;
    let error = database.sqlite("events");
    let mut owners = HashMap::new();
    {
        let mut statement = database
            .inner
            .connection
            .prepare("SELECT DISTINCT tid, pid FROM events WHERE source IN (?1, ?2)")
            .map_err(&error)?;
        let rows = statement
            .query_map([SOURCE_RUNTIME, SOURCE_DRIVER], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(&error)?;
        for row in rows {
            let (tid, pid): (u32, u32) = row.map_err(&error)?;
            owners.insert(tid, pid);
        }
    }
    let run = database.run(&names)?;
    let mut recorder = Recorder::create(out, force, &run)?;
    let written = write_events(&database, &names, &owners, &mut recorder);
    match written {
        Ok(()) => Ok(recorder.finish(&run)?),
        Err(error) => {
            recorder.discard();
            Err(error)
        }
    }
}

fn write_events(
    database: &Source<'_>,
    names: &HashMap<(i64, i64), Text>,
    owners: &HashMap<u32, u32>,
    recorder: &mut Recorder,
) -> Result<(), AnalyzeError> {
    let error = database.sqlite("events");
    let mut statement = database.inner.connection.prepare(EVENTS).map_err(&error)?;
    let mut rows = statement.query([]).map_err(&error)?;
    let progress = database.inner.progress("events");
    while let Some(row) = rows.next().map_err(&error)? {
        progress.add(1);
        // The id is an integer in some versions and text in later ones.
        let id = || match row.get::<_, Value>(0) {
            Ok(Value::Integer(id)) => id.to_string(),
            Ok(Value::Text(id)) => id,
            _ => "?".to_owned(),
        };
        let bad = |reason: String| {
            AnalyzeError::unreadable(database.path, Place::Row { table: "events", row: id() }, reason)
        };
        let event = Event::read(row).map_err(|error| bad(error.to_string()))?;
        if event.duration < 0 {
            return Err(bad(format!("duration is {} ns", event.duration)));
        }
        if event.timestamp.checked_sub(event.duration).is_none_or(|start| start < 0)
            || event.timestamp.checked_add(event.duration).is_none_or(|end| end > TIME_LIMIT_NS)
        {
            return Err(bad(format!(
                "timestamp {} with duration {} is out of range",
                event.timestamp, event.duration
            )));
        }
        let name = names
            .get(&(event.source, event.op))
            .cloned()
            .unwrap_or_else(|| format!("source {} op {}", event.source, event.op).into());
        recorder.push(&event.row(name, owners))?;
    }
    Ok(())
}
