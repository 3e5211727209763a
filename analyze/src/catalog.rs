//! The query library: the views in `queries/`, which are embedded in this program and registered in the order
//! of their dependencies.
//!
//! A query file consists of a header of comments and one SELECT:
//!
//! ```sql
//! -- name: one sentence on what a row is.
//! -- needs: tables and views it reads, separated by commas
//! -- columns:
//! --   name  type  unit-or-dash  meaning
//! SELECT ...
//! ```
//! A file that takes parameters declares them before its columns:
//!
//! ```sql
//! -- params:
//! --   name  type  default  meaning
//! ```
//! and uses `$name` in its SELECT. It does not become a view; `analyze queries` runs it. Names that begin
//! with `_` are internal. The files of a user's own directory are read in the same way, and a file whose name
//! is already in the library replaces that query.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use datafusion::prelude::SessionContext;
use serde::Serialize;

use crate::{error::AnalyzeError, functions, views::Views};

/// The path in `queries/` and the text of every embedded query file.
const FILES: &[(&str, &str)] = &[
    ("compare/metrics_calls.sql", include_str!("../../queries/compare/metrics_calls.sql")),
    ("compare/metrics_causes.sql", include_str!("../../queries/compare/metrics_causes.sql")),
    ("compare/metrics_copies.sql", include_str!("../../queries/compare/metrics_copies.sql")),
    ("compare/metrics_fragmentation.sql", include_str!("../../queries/compare/metrics_fragmentation.sql")),
    ("compare/metrics_gaps.sql", include_str!("../../queries/compare/metrics_gaps.sql")),
    ("compare/metrics_gpu.sql", include_str!("../../queries/compare/metrics_gpu.sql")),
    ("compare/metrics_leaks.sql", include_str!("../../queries/compare/metrics_leaks.sql")),
    ("compare/metrics_memory.sql", include_str!("../../queries/compare/metrics_memory.sql")),
    ("compare/metrics_nccl.sql", include_str!("../../queries/compare/metrics_nccl.sql")),
    ("compare/metrics_off_cpu.sql", include_str!("../../queries/compare/metrics_off_cpu.sql")),
    ("compare/metrics_phases.sql", include_str!("../../queries/compare/metrics_phases.sql")),
    ("compare/metrics_run.sql", include_str!("../../queries/compare/metrics_run.sql")),
    ("compare/metrics_strata.sql", include_str!("../../queries/compare/metrics_strata.sql")),
    ("compare/metrics_time.sql", include_str!("../../queries/compare/metrics_time.sql")),
    ("compare/metrics_waiting.sql", include_str!("../../queries/compare/metrics_waiting.sql")),
    ("core/chain_links.sql", include_str!("../../queries/core/chain_links.sql")),
    ("core/critical_path.sql", include_str!("../../queries/core/critical_path.sql")),
    ("core/data_quality.sql", include_str!("../../queries/core/data_quality.sql")),
    ("core/device_busy.sql", include_str!("../../queries/core/device_busy.sql")),
    ("core/device_work.sql", include_str!("../../queries/core/device_work.sql")),
    ("core/kernels.sql", include_str!("../../queries/core/kernels.sql")),
    ("core/launch_gaps.sql", include_str!("../../queries/core/launch_gaps.sql")),
    ("core/launch_rate.sql", include_str!("../../queries/core/launch_rate.sql")),
    ("core/lost.sql", include_str!("../../queries/core/lost.sql")),
    ("core/marks.sql", include_str!("../../queries/core/marks.sql")),
    ("core/nccl.sql", include_str!("../../queries/core/nccl.sql")),
    ("core/off_cpu.sql", include_str!("../../queries/core/off_cpu.sql")),
    ("core/op_summary.sql", include_str!("../../queries/core/op_summary.sql")),
    ("core/op_time.sql", include_str!("../../queries/core/op_time.sql")),
    ("core/ops.sql", include_str!("../../queries/core/ops.sql")),
    ("core/phases.sql", include_str!("../../queries/core/phases.sql")),
    ("core/process_events.sql", include_str!("../../queries/core/process_events.sql")),
    ("core/processes.sql", include_str!("../../queries/core/processes.sql")),
    ("core/runs.sql", include_str!("../../queries/core/runs.sql")),
    ("core/samples.sql", include_str!("../../queries/core/samples.sql")),
    ("core/slow_calls.sql", include_str!("../../queries/core/slow_calls.sql")),
    ("core/stacks.sql", include_str!("../../queries/core/stacks.sql")),
    ("core/threads.sql", include_str!("../../queries/core/threads.sql")),
    ("core/wall_ops.sql", include_str!("../../queries/core/wall_ops.sql")),
    ("gpu/copies.sql", include_str!("../../queries/gpu/copies.sql")),
    ("gpu/graphs.sql", include_str!("../../queries/gpu/graphs.sql")),
    ("gpu/nccl_volume.sql", include_str!("../../queries/gpu/nccl_volume.sql")),
    ("gpu/op_latency.sql", include_str!("../../queries/gpu/op_latency.sql")),
    ("gpu/sync_calls.sql", include_str!("../../queries/gpu/sync_calls.sql")),
    ("gpu/sync_waits.sql", include_str!("../../queries/gpu/sync_waits.sql")),
    ("host/off_cpu_causes.sql", include_str!("../../queries/host/off_cpu_causes.sql")),
    ("host/run_queue_latency.sql", include_str!("../../queries/host/run_queue_latency.sql")),
    ("host/thread_activity.sql", include_str!("../../queries/host/thread_activity.sql")),
    ("memory/leak_sites.sql", include_str!("../../queries/memory/leak_sites.sql")),
    ("memory/leaks.sql", include_str!("../../queries/memory/leaks.sql")),
    ("memory/memory_blocks.sql", include_str!("../../queries/memory/memory_blocks.sql")),
    ("memory/memory_churn.sql", include_str!("../../queries/memory/memory_churn.sql")),
    ("memory/memory_curve.sql", include_str!("../../queries/memory/memory_curve.sql")),
    ("memory/memory_driver.sql", include_str!("../../queries/memory/memory_driver.sql")),
    ("memory/memory_epochs.sql", include_str!("../../queries/memory/memory_epochs.sql")),
    ("memory/memory_exports.sql", include_str!("../../queries/memory/memory_exports.sql")),
    ("memory/memory_fragmentation.sql", include_str!("../../queries/memory/memory_fragmentation.sql")),
    ("memory/memory_ledger.sql", include_str!("../../queries/memory/memory_ledger.sql")),
    ("memory/memory_ooms.sql", include_str!("../../queries/memory/memory_ooms.sql")),
    ("memory/memory_pauses.sql", include_str!("../../queries/memory/memory_pauses.sql")),
    ("memory/memory_releases.sql", include_str!("../../queries/memory/memory_releases.sql")),
    ("memory/memory_requests.sql", include_str!("../../queries/memory/memory_requests.sql")),
    ("memory/memory_segments.sql", include_str!("../../queries/memory/memory_segments.sql")),
    ("memory/memory_use.sql", include_str!("../../queries/memory/memory_use.sql")),
];

/// The tables that exist before any view is registered.
const TABLES: &[&str] = &["events", "_lost", "_ops", "_processes", "_runs", "_threads"];

/// One output column, as the header of its query file documents it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// The name of the column.
    pub name: String,
    /// The type of the column, as in `int64` or `string`.
    pub ty: String,
    /// The unit of the values, as in `ns` or `bytes`, or `-` if there is none.
    pub unit: String,
    /// The meaning of the column, in one sentence or more.
    pub doc: String,
}

/// One parameter of a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Param {
    /// The name of the parameter, without the `$`.
    pub name: String,
    /// The type of the parameter: `int64`, `float64`, `ns`, `bytes`; any other name stands for a string.
    pub ty: String,
    /// The value that is used when the user gives none, as text.
    pub default: String,
    /// The meaning of the parameter, in one sentence or more.
    pub doc: String,
}

/// One query file, parsed.
#[derive(Clone, Debug, Serialize)]
pub struct Query {
    /// The path of the file; for an embedded file, it begins with `queries/`.
    pub path: String,
    /// The name of the query, which is also the name of its view.
    pub name: String,
    /// One sentence on what a row is.
    pub purpose: String,
    /// The names of the tables and views that the query reads.
    pub needs: Vec<String>,
    /// The parameters; empty for a view.
    pub params: Vec<Param>,
    /// The output columns, in order.
    pub columns: Vec<Column>,
    /// The whole text of the file, header included.
    pub sql: String,
}

impl Query {
    /// Returns the name of the folder that contains the file, or an empty string.
    pub fn package(&self) -> &str {
        Path::new(&self.path).parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or("")
    }

    /// Returns the SELECT without the header.
    pub fn select(&self) -> &str {
        let header: usize =
            self.sql.split_inclusive('\n').take_while(|line| line.starts_with("--")).map(str::len).sum();
        self.sql[header..].trim_end()
    }
}

/// Splits a line such as "a   b  c d" into its first three words and the rest.
fn words(line: &str) -> Option<[String; 4]> {
    let mut rest = line.trim_start();
    let mut word = || {
        let end = rest.find(char::is_whitespace)?;
        let (first, tail) = rest.split_at(end);
        rest = tail.trim_start();
        Some(first.to_owned())
    };
    let (first, second, third) = (word()?, word()?, word()?);
    Some([first, second, third, rest.trim_end().to_owned()])
}

/// Parses the text of a query file. Returns a message that names the fault if the header is malformed.
fn parse(path: &str, text: &str) -> Result<Query, String> {
    let mut query = Query {
        path: path.to_owned(),
        name: String::new(),
        purpose: String::new(),
        needs: Vec::new(),
        params: Vec::new(),
        columns: Vec::new(),
        sql: text.to_owned(),
    };
    let mut part = "";
    for line in text.lines().map_while(|line| line.strip_prefix("--")) {
        let incomplete =
            || format!("{path}: of {} a line is incomplete: --{line}", part.trim_end_matches(':'));
        if let Some(needs) = line.strip_prefix(" needs:") {
            query.needs = needs.split(',').map(|need| need.trim().to_owned()).collect();
        } else if matches!(line.trim(), "columns:" | "params:") {
            part = line.trim();
        } else if part == "columns:" {
            let [name, ty, unit, doc] = words(line).ok_or_else(incomplete)?;
            query.columns.push(Column { name, ty, unit, doc });
        } else if part == "params:" {
            let [name, ty, default, doc] = words(line).ok_or_else(incomplete)?;
            query.params.push(Param { name, ty, default, doc });
        } else if query.name.is_empty() {
            let (name, purpose) =
                line.trim().split_once(": ").ok_or_else(|| format!("{path}: no purpose"))?;
            (query.name, query.purpose) = (name.to_owned(), purpose.to_owned());
        }
    }
    if query.name.is_empty() || query.needs.is_empty() || query.columns.is_empty() {
        return Err(format!("{path}: the header lacks its name, its needs or its columns"));
    }
    Ok(query)
}

/// Lists the `.sql` files of a directory and of its immediate subdirectories.
fn files_of(directory: &Path) -> Result<Vec<PathBuf>, AnalyzeError> {
    let list = |directory: &Path| -> Result<Vec<PathBuf>, AnalyzeError> {
        let io = |source| AnalyzeError::Io { path: directory.to_owned(), source };
        let entries = std::fs::read_dir(directory).map_err(io)?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()).map_err(io))
            .collect::<Result<Vec<_>, _>>()?;
        paths.sort();
        Ok(paths)
    };
    let mut files = Vec::new();
    for path in list(directory)? {
        if path.is_dir() {
            files.extend(list(&path)?);
        } else {
            files.push(path);
        }
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "sql"));
    Ok(files)
}

/// Returns every query, each after the queries that it needs. `directory` is the user's own query directory.
///
/// # Errors
/// Returns an error if a file cannot be read, if its header is malformed, or if it needs something that does
/// not exist. A fault of an embedded file is an internal error.
pub fn queries(directory: Option<&Path>) -> Result<Vec<Query>, AnalyzeError> {
    let mut waiting = Vec::new();
    for (path, text) in FILES {
        waiting.push(parse(&format!("queries/{path}"), text).map_err(AnalyzeError::Internal)?);
    }
    for path in directory.map_or_else(|| Ok(Vec::new()), files_of)? {
        let text = std::fs::read_to_string(&path)
            .map_err(|source| AnalyzeError::Io { path: path.clone(), source })?;
        let query = parse(&path.display().to_string(), &text).map_err(AnalyzeError::Query)?;
        waiting.retain(|known| known.name != query.name);
        waiting.push(query);
    }
    let mut ordered: Vec<Query> = Vec::new();
    while !waiting.is_empty() {
        let known = |name: &str| {
            TABLES.contains(&name)
                || functions::kinds_of(name).is_some()
                || ordered.iter().any(|query| query.name == name)
        };
        let (ready, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|query| query.needs.iter().all(|need| known(need)));
        if ready.is_empty() {
            let needs = |query: &Query| {
                let missing: Vec<&str> =
                    query.needs.iter().map(String::as_str).filter(|need| !known(need)).collect();
                format!("{} needs {}", query.path, missing.join(", "))
            };
            let needs: Vec<String> = rest.iter().map(needs).collect();
            let text = format!("queries that need what there is not: {}", needs.join("; "));
            return Err(if directory.is_some() {
                AnalyzeError::Query(text)
            } else {
                AnalyzeError::Internal(text)
            });
        }
        ordered.extend(ready);
        waiting = rest;
    }
    Ok(ordered)
}

/// Registers every query without parameters as a view, and returns all queries. The views of the library are
/// planned when they are first used; if a user's directory is given, every view is planned at once, so that
/// its faults are reported.
///
/// # Errors
/// Returns an error if `queries` does, or if a view does not plan while a user's directory is given.
pub async fn register(
    context: &SessionContext,
    directory: Option<&Path>,
) -> Result<Vec<Query>, AnalyzeError> {
    let queries = queries(directory)?;
    let views = queries.iter().filter(|query| query.params.is_empty());
    let views: HashMap<String, String> = views.map(|query| (query.name.clone(), query.sql.clone())).collect();
    let catalog = context.catalog("datafusion");
    let schema = catalog.as_ref().and_then(|catalog| catalog.schema("public"));
    let (Some(catalog), Some(tables)) = (catalog, schema) else {
        return Err(AnalyzeError::Internal("the session has no schema for views".to_owned()));
    };
    catalog.register_schema("public", Arc::new(Views::new(context, tables, views)))?;
    for query in queries.iter().filter(|query| directory.is_some() && query.params.is_empty()) {
        let planned = context.table_provider(query.name.as_str()).await;
        planned
            .map_err(|error| AnalyzeError::Query(format!("{}: {}", query.path, error.strip_backtrace())))?;
    }
    Ok(queries)
}

/// Returns the reference of the query library as Markdown.
pub fn reference() -> Result<String, AnalyzeError> {
    let mut queries = queries(None)?;
    queries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut text = "# The query library: reference\n\nGenerated from the headers of the files; `BLESS=1 cargo nextest run reference` writes it.\n".to_owned();
    for query in &queries {
        text += &format!(
            "\n## {}\n\n`{}`: {}\n\nNeeds {}.\n",
            query.name,
            query.path,
            query.purpose,
            query.needs.join(", ")
        );
        if !query.params.is_empty() {
            text += "\n| parameter | type | default | meaning |\n|---|---|---|---|\n";
            for param in &query.params {
                text += &format!(
                    "| {} | {} | {} | {} |\n",
                    param.name,
                    param.ty,
                    param.default,
                    param.doc.replace('|', "\\|")
                );
            }
        }
        text += "\n| column | type | unit | meaning |\n|---|---|---|---|\n";
        for column in &query.columns {
            text += &format!(
                "| {} | {} | {} | {} |\n",
                column.name,
                column.ty,
                column.unit,
                column.doc.replace('|', "\\|")
            );
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn files_in(directory: &Path, ending: &str) -> Vec<String> {
        let mut found: Vec<String> = std::fs::read_dir(directory)
            .expect("queries/")
            .flatten()
            .flat_map(|package| std::fs::read_dir(package.path()).into_iter().flatten().flatten())
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == ending))
            // These files are tests of functions, which have no SQL file.
            .filter(|path| !path.parent().is_some_and(|parent| parent.ends_with("functions")))
            .map(|path| path.strip_prefix(directory).expect("below").to_string_lossy().into_owned())
            .collect();
        found.sort();
        found
    }

    #[test]
    fn every_file_is_listed_and_has_a_test() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../queries");
        let listed: Vec<_> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(files_in(&directory, "sql"), listed);
        let tests: Vec<_> = listed.iter().map(|path| path.replace(".sql", ".slt")).collect();
        assert_eq!(files_in(&directory, "slt"), tests);
    }

    #[tokio::test]
    async fn headers_match_what_is_planned() {
        let trace = Trace::literal().await.expect("trace");
        for query in queries(None).expect("queries") {
            let frame = trace.query(&query, &[]).await.expect("plan");
            let planned: Vec<String> = frame
                .schema()
                .fields()
                .iter()
                .map(|field| format!("{} {}", field.name(), type_name(field.data_type())))
                .collect();
            let documented: Vec<String> =
                query.columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
            assert_eq!(planned, documented, "{}", query.path);
            for column in &query.columns {
                assert!(column.doc.ends_with('.'), "{}.{}", query.name, column.name);
                match column.unit.as_str() {
                    "-" => {}
                    "ns" if matches!(
                        column.name.as_str(),
                        "ts" | "dur" | "call_ts" | "range_ts" | "alloc_ts"
                    ) => {}
                    unit => {
                        assert!(column.name.ends_with(&format!("_{unit}")), "{}.{}", query.name, column.name)
                    }
                }
            }
        }
    }

    #[test]
    fn reference_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../queries/REFERENCE.md");
        let text = reference().expect("a reference");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).expect("written");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "queries/REFERENCE.md is not current: BLESS=1 writes it");
    }

    #[test]
    fn a_user_s_directory_adds_and_replaces() {
        let directory = tempfile::tempdir().expect("a directory");
        let write =
            |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
        let header = "-- needs: ops\n-- columns:\n--   op  string  -  Function.\nSELECT op FROM ops";
        write("mine.sql", &format!("-- mine: one row per call.\n{header}"));
        write(
            "ops.sql",
            "-- samples: one row per call.\n-- needs: events\n-- columns:\n--   op  string  -  Function.\nSELECT op FROM events",
        );
        let found = queries(Some(directory.path())).expect("queries");
        assert_eq!(found.len(), FILES.len() + 1);
        assert!(
            found.iter().find(|query| query.name == "samples").is_some_and(|query| query.columns.len() == 1)
        );
        write(
            "bad.sql",
            "-- bad: one row.\n-- needs: nothing_like_it\n-- columns:\n--   op  string  -  Function.\nSELECT 1",
        );
        let error = queries(Some(directory.path())).expect_err("a need that is not met").to_string();
        assert!(error.contains("bad.sql needs nothing_like_it"), "{error}");
        write("bad.sql", "SELECT 1");
        let error = queries(Some(directory.path())).expect_err("no header").to_string();
        assert!(error.contains("bad.sql: the header lacks"), "{error}");
    }

    fn type_name(ty: &arrow::datatypes::DataType) -> String {
        use arrow::datatypes::DataType;
        match ty {
            DataType::Dictionary(_, _) | DataType::Utf8 | DataType::Utf8View => "string".to_owned(),
            other => other.to_string().to_lowercase(),
        }
    }
}
