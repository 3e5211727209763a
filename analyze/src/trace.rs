//! Opens one or several runs, checks them and registers them for SQL.
//!
//! The view `events` holds the rows of all runs, with the name of the run as its first column. Queries also
//! see the views of `queries/` and the tables that Rust derives (`functions`). Nothing is computed before a
//! query needs it.

use std::{
    collections::HashSet,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array};
use datafusion::{
    execution::{context::SQLOptions, runtime_env::RuntimeEnvBuilder, session_state::SessionStateBuilder},
    prelude::{DataFrame, ParquetReadOptions, SessionConfig, SessionContext},
    scalar::ScalarValue,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use trace_schema::{Bytes, COLUMNS, FORMAT_VERSION, META_RUN, META_VERSION, Nanos, Op, Run, arrow_schema};

use crate::{
    analysis::judge::Params,
    catalog::{self, Query},
    error::AnalyzeError,
    functions::{
        self,
        derived::{Derived, Source},
    },
    import, planner, progress,
    run_table::{self, RowGroup, RunTable},
    sql_error,
};

/// One opened run.
#[derive(Clone, Debug)]
pub struct RunFile {
    /// The name in the `run` column: the file's name without its extension.
    pub name: String,
    /// The paths of the run: one file, or its parts in order.
    pub paths: Vec<PathBuf>,
    /// The run's own metadata.
    pub run: Run,
    /// The size of all files of the run in bytes.
    pub size_bytes: u64,
    /// The number of rows in all files of the run.
    pub rows_count: u64,
    /// The row groups of each path, or `None` if they are not in order.
    row_groups: Vec<Option<Vec<RowGroup>>>,
}

/// A set of opened runs in one SQL session.
pub struct Trace {
    context: SessionContext,
    files: Vec<RunFile>,
    derived: Arc<Source>,
    /// The queries of the library, and the user's own.
    queries: Vec<Query>,
    /// The folders of runs that were imported for this trace; they are removed with it.
    _imported: Vec<tempfile::TempDir>,
}

/// Reads the footer of a file and checks that the file is a run that this program understands.
fn open_file(path: &Path) -> Result<RunFile, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    let not_a_run = |reason: String| AnalyzeError::NotARun { path: path.to_owned(), reason };
    let file = File::open(path).map_err(io)?;
    let size_bytes = file.metadata().map_err(io)?.len();
    if file.metadata().map_err(io)?.is_dir() {
        return Err(AnalyzeError::NotParquet {
            path: path.to_owned(),
            reason: "it is a directory".to_owned(),
        });
    }
    let reader = SerializedFileReader::new(file)
        .map_err(|error| AnalyzeError::NotParquet { path: path.to_owned(), reason: error.to_string() })?;
    let metadata = reader.metadata();
    let pairs = metadata.file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    let value = |key: &str| pairs.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
    let version =
        value(META_VERSION).ok_or_else(|| not_a_run(format!("its metadata has no {META_VERSION}")))?;
    let version: u32 =
        version.parse().map_err(|_| not_a_run(format!("its {META_VERSION} is {version:?}, not a number")))?;
    if version > FORMAT_VERSION {
        return Err(AnalyzeError::NewerVersion {
            path: path.to_owned(),
            found: version,
            known: FORMAT_VERSION,
        });
    }
    let run: Run = serde_json::from_str(value(META_RUN).unwrap_or("{}"))
        .map_err(|error| not_a_run(format!("its {META_RUN} is not what it should be: {error}")))?;
    let found: HashSet<&str> =
        metadata.file_metadata().schema_descr().columns().iter().map(|column| column.name()).collect();
    // A run of an earlier version lacks the columns that were added later; they read as null.
    let mut required = COLUMNS.iter().filter(|column| !column.nullable);
    if let Some(missing) = required.find(|column| !found.contains(column.name)) {
        return Err(not_a_run(format!("it has no column {}", missing.name)));
    }
    Ok(RunFile {
        name: path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
        paths: vec![path.to_owned()],
        run,
        size_bytes,
        rows_count: metadata.file_metadata().num_rows().try_into().unwrap_or_default(),
        row_groups: vec![run_table::row_groups(metadata)],
    })
}

/// Imports another tool's trace into a run in a temporary folder. Returns `None` if the file is of no known
/// format.
fn import_foreign(path: &Path) -> Result<Option<(tempfile::TempDir, RunFile)>, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    if !path.exists() {
        return Ok(None);
    }
    let Some(format) = import::sniff(path).map_err(io)? else { return Ok(None) };
    progress::say(&format!(
        "analyze: {} is no run but a trace of the format {name}: imported for this command (`analyze import {name}` keeps it)",
        path.display(),
        name = format.name()
    ));
    let directory = tempfile::tempdir().map_err(io)?;
    let out = directory.path().join("run.parquet");
    import::run(Some(format), &import::Layout::default(), path, &out, false)?;
    let mut file = open_file(&out)?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    file.name = name.split('.').next().unwrap_or_default().to_owned();
    Ok(Some((directory, file)))
}

/// Opens a run, which is one file or the numbered parts that `capture --max-size` wrote in its place.
fn open_run(path: &Path) -> Result<RunFile, AnalyzeError> {
    let parts = if path.exists() { Vec::new() } else { trace_writer::parts_of(path) };
    let Some((last, earlier)) = parts.split_last() else {
        return open_file(path);
    };
    // The last part has the metadata at the end of the run; losses, and processes that ended earlier, are in
    // the other parts.
    let mut whole = open_file(last)?;
    for part in earlier.iter().rev() {
        let file = open_file(part)?;
        if file.run.clock.start_ns != whole.run.clock.start_ns || file.run.host.name != whole.run.host.name {
            return Err(AnalyzeError::NotARun {
                path: part.clone(),
                reason: format!("it is not a part of the run that {} ends", last.display()),
            });
        }
        whole.rows_count += file.rows_count;
        whole.size_bytes += file.size_bytes;
        whole.paths.insert(0, part.clone());
        whole.row_groups.splice(0..0, file.row_groups);
        add_earlier(&mut whole.run, file.run);
    }
    whole.name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    if !whole.run.part_is_last {
        whole.run.not_captured.push(format!(
            "the run goes on after {}: its last parts are missing, or wait for `analyze recover`",
            last.display()
        ));
        whole.run.lost_is_counted = false;
    }
    if parts.len() as u32 != whole.run.part_number {
        return Err(AnalyzeError::NotARun {
            path: last.clone(),
            reason: format!("it is part {} of its run, and {} are here", whole.run.part_number, parts.len()),
        });
    }
    Ok(whole)
}

/// Adds the metadata of an earlier part to those of the later ones.
fn add_earlier(run: &mut Run, mut earlier: Run) {
    run.lost_is_counted &= earlier.lost_is_counted;
    let known: HashSet<String> = run.not_captured.iter().cloned().collect();
    run.not_captured.extend(earlier.not_captured.drain(..).filter(|what| !known.contains(what)));
    earlier.lost.append(&mut run.lost);
    run.lost = earlier.lost;
    let threads: HashSet<_> = run.threads.iter().map(|thread| (thread.pid, thread.tid)).collect();
    run.threads.extend(earlier.threads.into_iter().filter(|t| !threads.contains(&(t.pid, t.tid))));
    let processes: HashSet<_> = run.processes.iter().map(|process| process.pid).collect();
    run.processes.extend(earlier.processes.into_iter().filter(|p| !processes.contains(&p.pid)));
}

/// Returns a string as an SQL literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Options for opening runs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directory with the user's own query files.
    pub queries: Option<PathBuf>,
    /// The memory limit of the session in bytes. A query that needs more spills to disk, or fails.
    pub memory_limit_bytes: Option<usize>,
}

/// Returns whether an argument is a glob pattern rather than a path.
fn is_pattern(path: &Path) -> bool {
    !path.exists() && path.to_string_lossy().contains(['*', '?', '['])
}

/// Returns the paths of the runs that an argument stands for, sorted: the `*.parquet` files of a directory,
/// the files that match a pattern, or the path itself. A directory that is another tool's trace is one path.
pub fn expand(path: &Path) -> Result<Vec<PathBuf>, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    let mut found: Vec<PathBuf> = if path.is_dir() && import::sniff(path).map_err(io)?.is_none() {
        let entries = std::fs::read_dir(path).map_err(io)?;
        let paths = entries
            .map(|entry| entry.map(|entry| entry.path()).map_err(io))
            .collect::<Result<Vec<_>, _>>()?;
        paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "parquet")).collect()
    } else if is_pattern(path) {
        let pattern = path.to_string_lossy();
        let paths =
            glob::glob(&pattern).map_err(|error| AnalyzeError::Query(format!("{pattern}: {error}")))?;
        paths.flatten().collect()
    } else {
        return Ok(vec![path.to_owned()]);
    };
    if found.is_empty() {
        let reason = "it holds no run (*.parquet)".to_owned();
        return Err(AnalyzeError::NotParquet { path: path.to_owned(), reason });
    }
    found.sort();
    Ok(found)
}

/// Makes names unique by appending `-2`, `-3` and so on to repeated ones.
pub fn tell_apart<'a>(names: impl Iterator<Item = &'a mut String>) {
    let mut known = HashSet::new();
    for name in names {
        let base = name.clone();
        let mut number = 1;
        while !known.insert(name.clone()) {
            number += 1;
            *name = format!("{base}-{number}");
        }
    }
}

impl Trace {
    /// Opens runs; a trace of another tool is imported into a temporary run. A directory stands for the runs
    /// in it, and a pattern for the files that match it. Runs with the same name are distinguished by a
    /// number.
    ///
    /// # Errors
    /// Returns an error if a file is missing, is not a run, or has a newer format version.
    pub async fn open(paths: &[PathBuf]) -> Result<Self, AnalyzeError> {
        Self::open_with(paths, &Options::default()).await
    }

    /// Opens runs with explicit [`Options`].
    ///
    /// # Errors
    /// Returns an error if [`Self::open`] would, or if one of the user's query files is malformed.
    pub async fn open_with(paths: &[PathBuf], options: &Options) -> Result<Self, AnalyzeError> {
        let mut imported = Vec::new();
        let mut files = Vec::new();
        for path in paths.iter().map(|path| expand(path)).collect::<Result<Vec<_>, _>>()?.concat() {
            files.push(match import_foreign(&path)? {
                Some((directory, file)) => {
                    imported.push(directory);
                    file
                }
                None => open_run(&path)?,
            });
        }
        tell_apart(files.iter_mut().map(|file| &mut file.name));
        let context = session(options.memory_limit_bytes)?;
        let schema = arrow_schema();
        let mut parts = Vec::new();
        for file in &files {
            for (path, row_groups) in file.paths.iter().zip(&file.row_groups) {
                let table = format!("_run_{}", parts.len());
                let options =
                    ParquetReadOptions { file_extension: "", schema: Some(&schema), ..Default::default() };
                context.register_parquet(table.as_str(), path.to_string_lossy(), options).await?;
                if let Some(inner) = context.deregister_table(table.as_str())? {
                    let run = RunTable::new(inner, row_groups.clone());
                    context.register_table(table.as_str(), Arc::new(run))?;
                }
                parts.push(format!("SELECT {} AS run, * FROM {table}", quoted(&file.name)));
            }
        }
        let events = context.sql(&parts.join(" UNION ALL ")).await?.into_view();
        context.register_table("events", events)?;
        let mut trace = Self::finish(context, files, true, options.queries.as_deref()).await?;
        trace._imported = imported;
        Ok(trace)
    }

    /// Opens exactly one run.
    ///
    /// # Errors
    /// Returns an error if [`Self::open`] would, or if the path stands for several runs.
    pub async fn open_one(path: &Path) -> Result<Self, AnalyzeError> {
        let trace = Self::open(&[path.to_owned()]).await?;
        match trace.files.len() {
            1 => Ok(trace),
            count => Err(AnalyzeError::Query(format!(
                "{} stands for {count} runs, and this takes one: `analyze merge` makes one of them",
                path.display()
            ))),
        }
    }

    async fn finish(
        context: SessionContext,
        files: Vec<RunFile>,
        immutable: bool,
        queries: Option<&Path>,
    ) -> Result<Self, AnalyzeError> {
        register_facts(&context, &files)?;
        let derived = functions::register(&context, &files, immutable)?;
        let queries = catalog::register(&context, queries).await?;
        Ok(Self { context, files, derived, queries, _imported: Vec::new() })
    }

    /// Creates a trace whose `events` table is empty and accepts inserts, for tests of the queries.
    #[cfg(test)]
    pub async fn literal() -> Result<Self, AnalyzeError> {
        let context = session(None)?;
        use arrow::datatypes::{DataType, Field, Schema};
        let mut fields = vec![Arc::new(Field::new("run", DataType::Utf8, true))];
        fields.extend(arrow_schema().fields().iter().cloned());
        let schema = Arc::new(Schema::new(fields));
        let table = datafusion::datasource::MemTable::try_new(schema, vec![vec![]])?;
        context.register_table("events", Arc::new(table))?;
        Self::finish(context, Vec::new(), false, None).await
    }

    /// Returns the calls classified with `params`, and the schedule behind them.
    ///
    /// # Errors
    /// Returns an error if the data is damaged.
    pub async fn derived(&self, params: Params) -> Result<Arc<Derived>, AnalyzeError> {
        self.derived.get(params).await
    }

    /// Returns the opened runs.
    pub fn files(&self) -> &[RunFile] {
        &self.files
    }

    /// Returns the queries of the library, and the user's own.
    pub fn queries(&self) -> &[Query] {
        &self.queries
    }

    /// Plans a query. Statements that write are not allowed.
    ///
    /// # Errors
    /// Returns an error if the query cannot be planned or is not a query.
    pub async fn sql(&self, query: &str) -> Result<DataFrame, AnalyzeError> {
        let options =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let planned = self.context.sql_with_options(query, options).await;
        planned.map_err(|error| sql_error::explained(error, query, &self.context, &self.queries))
    }

    /// Plans a query of the library with the given parameters as (name, value). The others have the defaults
    /// of its header.
    ///
    /// # Errors
    /// Returns an error if a parameter is unknown, or if its value does not have the parameter's type.
    pub async fn query(&self, query: &Query, params: &[(String, String)]) -> Result<DataFrame, AnalyzeError> {
        let mut values = Vec::new();
        if let Some((name, _)) =
            params.iter().find(|(name, _)| !query.params.iter().any(|param| param.name == *name))
        {
            return Err(AnalyzeError::Query(format!("{} has no parameter {name}", query.name)));
        }
        for param in &query.params {
            let given = params.iter().find(|(name, _)| *name == param.name);
            let text = given.map_or(param.default.as_str(), |(_, value)| value);
            values.push((param.name.clone(), typed(&param.name, text, &param.ty)?));
        }
        Ok(self.sql(query.select()).await?.with_param_values(values)?)
    }

    /// Runs a query to its end and returns its batches.
    ///
    /// # Errors
    /// Returns an error if the query cannot be planned or the data is damaged.
    pub async fn batches(&self, query: &str) -> Result<Vec<RecordBatch>, AnalyzeError> {
        Ok(self.sql(query).await?.collect().await?)
    }

    /// Returns the SQL session, for replays that read `events` themselves.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }
}

/// Parses the value of a parameter as the type that the query's header declares.
fn typed(name: &str, text: &str, ty: &str) -> Result<ScalarValue, AnalyzeError> {
    let wrong = |what: &str| AnalyzeError::Query(format!("parameter {name}: {text:?} is {what}"));
    Ok(match ty {
        "int64" => ScalarValue::Int64(Some(text.parse().map_err(|_| wrong("no whole number"))?)),
        "float64" => ScalarValue::Float64(Some(text.parse().map_err(|_| wrong("no number"))?)),
        "ns" => {
            ScalarValue::Int64(Some(text.parse::<Nanos>().map_err(|_| wrong("no time, such as 10ms"))?.0))
        }
        "bytes" => {
            ScalarValue::Int64(Some(text.parse::<Bytes>().map_err(|_| wrong("no size, such as 2MiB"))?.0))
        }
        _ => ScalarValue::Utf8(Some(text.to_owned())),
    })
}

/// Returns the value of a parameter without a declared type: an integer or a float if the text parses as one,
/// and else a string.
pub fn guessed(text: &str) -> ScalarValue {
    let whole = text.parse().ok().map(|value| ScalarValue::Int64(Some(value)));
    let number = || text.parse().ok().map(|value| ScalarValue::Float64(Some(value)));
    whole.or_else(number).unwrap_or_else(|| ScalarValue::Utf8(Some(text.to_owned())))
}

fn session(memory_limit_bytes: Option<usize>) -> Result<SessionContext, AnalyzeError> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = memory_limit_bytes {
        runtime = runtime.with_memory_limit(bytes, 1.0);
    }
    let mut config = SessionConfig::new().with_information_schema(true);
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    options.execution.parquet.schema_force_view_types = false;
    options.sql_parser.map_string_types_to_utf8view = false;
    let runtime = runtime.build_arc()?;
    let query_rules = planner::query_rules(&runtime.memory_pool);
    let state = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_physical_optimizer_rules(planner::plan_rules());
    let state = query_rules.into_iter().fold(state, SessionStateBuilder::with_optimizer_rule);
    Ok(SessionContext::new_with_state(state.build()))
}

/// Registers the tables `_ops`, `_runs`, `_threads`, `_processes` and `_lost`: what the metadata of the files
/// and the schema crate contain.
fn register_facts(context: &SessionContext, files: &[RunFile]) -> Result<(), AnalyzeError> {
    let text = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
    let batch = |columns: Vec<(&str, ArrayRef)>| {
        RecordBatch::try_from_iter(columns).map_err(|error| AnalyzeError::Internal(error.to_string()))
    };
    let ops = Op::ALL;
    let of_ops = |f: fn(&Op) -> &'static str| text(ops.iter().map(|op| f(op).to_owned()).collect());
    context.register_batch(
        "_ops",
        batch(vec![
            ("op", of_ops(|op| op.name())),
            ("layer", of_ops(|op| op.layer().name())),
            ("class", of_ops(|op| op.class().name())),
        ])?,
    )?;
    let number = |of: &dyn Fn(&RunFile) -> Option<i64>| {
        Arc::new(files.iter().map(of).collect::<arrow::array::Int64Array>()) as ArrayRef
    };
    let is_synchronised: BooleanArray = files.iter().map(|file| file.run.clock.is_synchronised).collect();
    let runs = RecordBatch::try_from_iter_with_nullable(
        [
            ("run", text(files.iter().map(|file| file.name.clone()).collect())),
            ("host", text(files.iter().map(|file| file.run.host.name.clone()).collect())),
            ("producer", text(files.iter().map(|file| file.run.producer.clone()).collect())),
            ("start_ns", number(&|file| Some(file.run.clock.start_ns))),
            ("end_ns", number(&|file| Some(file.run.clock.end_ns))),
            ("wall_offset_ns", number(&|file| file.run.clock.wall_offset().map(|(offset, _)| offset))),
            ("wall_error_ns", number(&|file| file.run.clock.wall_offset().and_then(|(_, error)| error))),
            ("is_synchronised", Arc::new(is_synchronised) as ArrayRef),
            ("utc_error_ns", number(&|file| file.run.clock.utc_error_ns())),
        ]
        .map(|(name, column)| (name, column, true)),
    );
    context.register_batch("_runs", runs.map_err(|error| AnalyzeError::Internal(error.to_string()))?)?;
    let threads: Vec<_> = files
        .iter()
        .flat_map(|file| file.run.threads.iter().map(move |thread| (&file.name, thread)))
        .collect();
    context.register_batch(
        "_threads",
        batch(vec![
            ("run", text(threads.iter().map(|(run, _)| (*run).clone()).collect())),
            ("pid", Arc::new(UInt32Array::from_iter_values(threads.iter().map(|(_, t)| t.pid)))),
            ("tid", Arc::new(UInt32Array::from_iter_values(threads.iter().map(|(_, t)| t.tid)))),
            ("comm", text(threads.iter().map(|(_, t)| t.comm.clone()).collect())),
        ])?,
    )?;
    let processes: Vec<_> = files
        .iter()
        .flat_map(|file| file.run.processes.iter().map(move |process| (&file.name, process)))
        .collect();
    let of_processes = |f: fn(&trace_schema::ProcessInfo) -> String| {
        text(processes.iter().map(|(_, process)| f(process)).collect())
    };
    context.register_batch(
        "_processes",
        batch(vec![
            ("run", text(processes.iter().map(|(run, _)| (*run).clone()).collect())),
            ("pid", Arc::new(UInt32Array::from_iter_values(processes.iter().map(|(_, p)| p.pid)))),
            (
                "parent_pid",
                Arc::new(UInt32Array::from_iter_values(processes.iter().map(|(_, p)| p.parent_pid))),
            ),
            ("command", of_processes(|process| process.command.join(" "))),
            ("cgroup", of_processes(|process| process.cgroup.clone())),
            ("container_id", of_processes(|process| process.container_id.clone())),
            ("pod_name", of_processes(|process| process.pod_name.clone())),
        ])?,
    )?;
    let lost: Vec<_> =
        files.iter().flat_map(|file| file.run.lost.iter().map(move |lost| (&file.name, lost))).collect();
    let of_lost = |f: fn(&trace_schema::Lost) -> i64| {
        Arc::new(arrow::array::Int64Array::from_iter_values(lost.iter().map(|(_, l)| f(l)))) as ArrayRef
    };
    context.register_batch(
        "_lost",
        batch(vec![
            ("run", text(lost.iter().map(|(run, _)| (*run).clone()).collect())),
            ("probe", text(lost.iter().map(|(_, l)| l.probe.clone()).collect())),
            ("from_ns", of_lost(|l| l.from_ns)),
            ("to_ns", of_lost(|l| l.to_ns)),
            ("lost_count", of_lost(|l| l.count as i64)),
        ])?,
    )?;
    Ok(())
}
