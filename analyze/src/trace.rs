//! Opens one or several runs, checks them and registers them for SQL.
//!
//! The view `events` holds the rows of all runs, with the name of the run as its first column. Queries also
//! see the views of `queries/` and the tables that Rust derives (`functions`). Nothing is computed before a
//! query needs it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use analyze_engine::{catalog::Query, session::Session};
use analyze_import::{FORMATS, Importer, Job, Layout};
use analyze_run::{
    error::AnalyzeError,
    events::{Batches, Events},
    memory_budget, panics, progress,
    run_file::{self, RunFile, tell_apart},
};
use analyze_verdict::{
    derived::{Derived, Source},
    params::Params,
    shared_sweep::SharedSweep,
};
use arrow::array::RecordBatch;
use datafusion::prelude::{DataFrame, SessionContext};

use crate::{library::LIBRARY, tables};

/// A set of opened runs in one SQL session.
pub struct Trace {
    session: Session,
    files: Vec<RunFile>,
    derived: Arc<Source>,
    /// The folders of runs that were imported for this trace; they are removed with it.
    _imported: Vec<tempfile::TempDir>,
}

/// A trace for questions that are asked side by side: those that read all calls do so in one sweep of the rows.
///
/// Each question is a [part](Self::part), and reads calls in one query of which [`Trace::shares_sweep`] is true, or asks for the
/// verdicts ([`Trace::derived`]). What it asks besides is read by itself.
pub struct Together {
    trace: Trace,
    shared: Arc<SharedSweep>,
}

impl Together {
    /// Returns the trace that the questions are asked.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the future of a question. All of them are made before the first one is polled, and are polled side by side.
    pub fn part<T>(&self, question: impl Future<Output = T>) -> impl Future<Output = T> {
        let part = self.shared.part();
        async move {
            let answer = question.await;
            drop(part);
            answer
        }
    }
}

/// Returns the format of another tool's trace.
fn sniffed(path: &Path) -> Result<Option<&'static dyn Importer>, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    panics::decoding(path, || FORMATS.sniff(path).map_err(io))
}

/// Another tool's trace as a run in a temporary folder; `None`: it is none that is known.
fn import_foreign(path: &Path) -> Result<Option<(tempfile::TempDir, RunFile)>, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    if !path.exists() {
        return Ok(None);
    }
    let Some(format) = sniffed(path)? else { return Ok(None) };
    progress::say(&format!(
        "analyze: {} is no run but a trace of the format {name}: imported for this command (`analyze import {name}` keeps it)",
        path.display(),
        name = format.name()
    ));
    let directory = tempfile::tempdir().map_err(io)?;
    let out = directory.path().join("run.parquet");
    let job = Job { file: path, out: &out, force: false, layout: &Layout::default() };
    panics::decoding(path, || format.convert(&job))?;
    let mut file = run_file::open(&out)?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    file.name = name.split('.').next().unwrap_or_default().to_owned();
    Ok(Some((directory, file)))
}

/// How runs are opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directory with the user's own query files.
    pub queries: Option<PathBuf>,
}

/// Returns an argument as a glob pattern. What is there is a path, whatever its name; so is the name of a run in parts.
fn pattern(path: &Path) -> Option<&str> {
    let is_there = path.symlink_metadata().is_ok() || !trace_writer::parts_of(path).is_empty();
    path.to_str().filter(|text| !is_there && text.contains(['*', '?', '[']))
}

/// Returns the paths of the runs that an argument stands for, sorted: the `*.parquet` files of a directory,
/// the files that match a pattern, or the path itself. A directory that is another tool's trace is one path.
pub fn expand(path: &Path) -> Result<Vec<PathBuf>, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    let mut found: Vec<PathBuf> = if path.is_dir() && sniffed(path)?.is_none() {
        let entries = std::fs::read_dir(path).map_err(io)?;
        let paths = entries
            .map(|entry| entry.map(|entry| entry.path()).map_err(io))
            .collect::<Result<Vec<_>, _>>()?;
        paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "parquet")).collect()
    } else if let Some(pattern) = pattern(path) {
        let paths =
            glob::glob(pattern).map_err(|error| AnalyzeError::Query(format!("{pattern}: {error}")))?;
        let unreadable =
            |error: glob::GlobError| AnalyzeError::Io { path: error.path().to_owned(), source: error.into() };
        paths.collect::<Result<_, _>>().map_err(unreadable)?
    } else {
        return Ok(vec![path.to_owned()]);
    };
    if found.is_empty() {
        let reason = "it holds no run (*.parquet)".to_owned();
        return Err(AnalyzeError::NoRun { path: path.to_owned(), reason });
    }
    found.sort();
    Ok(found)
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
                None => run_file::open(&path)?,
            });
        }
        tell_apart(files.iter_mut().map(|file| &mut file.name));
        let session = Session::open(&files, Some(memory_budget::bytes())).await?;
        let mut trace = Self::finish(session, files, true, options.queries.as_deref()).await?;
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

    /// Opens a trace whose table `events` is empty and takes rows: for tests of queries.
    pub async fn literal() -> Result<Self, AnalyzeError> {
        Self::finish(Session::literal()?, Vec::new(), false, None).await
    }

    async fn finish(
        mut session: Session,
        files: Vec<RunFile>,
        immutable: bool,
        queries: Option<&Path>,
    ) -> Result<Self, AnalyzeError> {
        let derived = tables::register(&session, &files, immutable)?;
        session.register_views(&LIBRARY, queries).await?;
        Ok(Self { session, files, derived, _imported: Vec::new() })
    }

    /// Returns the calls, classified.
    ///
    /// # Errors
    /// Returns an error if the data is damaged.
    pub async fn derived(&self, params: Params) -> Result<Arc<Derived>, AnalyzeError> {
        self.derived.get(params).await
    }

    /// Returns this trace for questions that are asked side by side. It must not outlive this one.
    pub fn together(&self) -> Together {
        let (source, shared) = self.derived.sharing();
        let derived = Arc::new(source);
        let session = self.session.with_source(Arc::clone(&derived));
        Together {
            trace: Self { session, files: self.files.clone(), derived, _imported: Vec::new() },
            shared,
        }
    }

    /// Returns whether a query may be asked together with others that share a sweep: it reads calls, once, and no other
    /// derived table.
    ///
    /// # Errors
    /// Returns an error if the query cannot be planned.
    pub async fn shares_sweep(&self, query: &str) -> Result<bool, AnalyzeError> {
        Ok(tables::shares_sweep(&self.session.scanned(query).await?))
    }

    /// Returns the opened runs.
    pub fn files(&self) -> &[RunFile] {
        &self.files
    }

    /// Returns the queries of the library, and the user's own.
    pub fn queries(&self) -> &[Query] {
        self.session.queries()
    }

    /// Plans a query. Statements that write are not allowed.
    ///
    /// # Errors
    /// Returns an error if the query cannot be planned or is not a query.
    pub async fn sql(&self, query: &str) -> Result<DataFrame, AnalyzeError> {
        self.session.sql(query).await
    }

    /// Plans a query of the library with the given parameters as (name, value). The others have the defaults
    /// of its header.
    ///
    /// # Errors
    /// Returns an error if a parameter is unknown, or if its value does not have the parameter's type.
    pub async fn query(&self, query: &Query, params: &[(String, String)]) -> Result<DataFrame, AnalyzeError> {
        self.session.query(query, params).await
    }

    /// Runs a query to its end and returns its batches.
    ///
    /// # Errors
    /// Returns an error if the query cannot be planned or the data is damaged.
    pub async fn batches(&self, query: &str) -> Result<Vec<RecordBatch>, AnalyzeError> {
        self.session.batches(query).await
    }

    /// Returns the table `events` and what is derived from it, for readers that know no session.
    pub fn events(&self) -> Arc<dyn Events> {
        self.session.events()
    }

    /// Returns the answer to a query whose sorts and joins spill to disk rather than take much memory.
    pub fn sorted(&self, query: &str) -> Batches {
        self.session.events().sorted(query)
    }

    /// Returns the SQL session, for replays that read `events` themselves.
    pub fn context(&self) -> &SessionContext {
        self.session.context()
    }
}
