//! The query library: views in `queries/`, embedded in this program, registered in the order of what
//! they need.
//!
//! A query file is a header of comments and one SELECT:
//!
//! ```sql
//! -- name: one sentence on what a row is.
//! -- needs: tables and views it reads, separated by commas
//! -- columns:
//! --   name  type  unit-or-dash  meaning
//! SELECT ...
//! ```
//! Names that begin with `_` are internal.

use datafusion::prelude::SessionContext;

use crate::{
    error::AnalyzeError,
    functions::{memory, tables},
};

/// Every query file, by its path in `queries/`.
const FILES: &[(&str, &str)] = &[
    ("core/chain_links.sql", include_str!("../../queries/core/chain_links.sql")),
    ("core/critical_path.sql", include_str!("../../queries/core/critical_path.sql")),
    ("core/data_quality.sql", include_str!("../../queries/core/data_quality.sql")),
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
    ("core/samples.sql", include_str!("../../queries/core/samples.sql")),
    ("core/slow_calls.sql", include_str!("../../queries/core/slow_calls.sql")),
    ("core/stacks.sql", include_str!("../../queries/core/stacks.sql")),
    ("core/threads.sql", include_str!("../../queries/core/threads.sql")),
    ("memory/leak_sites.sql", include_str!("../../queries/memory/leak_sites.sql")),
    ("memory/leaks.sql", include_str!("../../queries/memory/leaks.sql")),
    ("memory/memory_blocks.sql", include_str!("../../queries/memory/memory_blocks.sql")),
    ("memory/memory_curve.sql", include_str!("../../queries/memory/memory_curve.sql")),
    ("memory/memory_epochs.sql", include_str!("../../queries/memory/memory_epochs.sql")),
    ("memory/memory_segments.sql", include_str!("../../queries/memory/memory_segments.sql")),
    ("memory/memory_use.sql", include_str!("../../queries/memory/memory_use.sql")),
];

/// Tables that exist before any view.
const TABLES: &[&str] = &["events", "_lost", "_ops", "_processes", "_threads"];

/// One column as its header documents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) ty: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) doc: &'static str,
}

/// One query file.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) needs: Vec<&'static str>,
    pub(crate) columns: Vec<Column>,
    pub(crate) sql: &'static str,
}

/// Splits "a   b  c d" into its first three words and the rest.
fn column(line: &'static str) -> Option<Column> {
    let mut rest = line.trim_start();
    let mut word = || {
        let end = rest.find(char::is_whitespace)?;
        let (first, tail) = rest.split_at(end);
        rest = tail.trim_start();
        Some(first)
    };
    let (name, ty, unit) = (word()?, word()?, word()?);
    Some(Column { name, ty, unit, doc: rest.trim_end() })
}

fn parse(path: &'static str, text: &'static str) -> Result<Query, AnalyzeError> {
    let bad = |what: &str| AnalyzeError::Internal(format!("queries/{path}: {what}"));
    let mut query = Query { path, name: "", purpose: "", needs: Vec::new(), columns: Vec::new(), sql: text };
    let mut in_columns = false;
    for line in text.lines().map_while(|line| line.strip_prefix("--")) {
        if let Some(needs) = line.strip_prefix(" needs:") {
            query.needs = needs.split(',').map(str::trim).collect();
        } else if line.trim() == "columns:" {
            in_columns = true;
        } else if in_columns {
            query.columns.push(column(line).ok_or_else(|| bad("a column line is incomplete"))?);
        } else if query.name.is_empty() {
            let (name, purpose) = line.trim().split_once(": ").ok_or_else(|| bad("no purpose"))?;
            (query.name, query.purpose) = (name, purpose);
        }
    }
    if query.name.is_empty() || query.needs.is_empty() || query.columns.is_empty() {
        return Err(bad("the header lacks its name, its needs or its columns"));
    }
    Ok(query)
}

/// Every query, each after what it needs.
///
/// # Errors
/// If a header is malformed or needs something that does not exist: a defect of this program.
pub(crate) fn queries() -> Result<Vec<Query>, AnalyzeError> {
    let mut waiting = FILES.iter().map(|(path, text)| parse(path, text)).collect::<Result<Vec<_>, _>>()?;
    let mut ordered: Vec<Query> = Vec::new();
    while !waiting.is_empty() {
        let known = |name: &str| {
            TABLES.contains(&name)
                || memory::NAMES.contains(&name)
                || tables::NAMES.contains(&name)
                || ordered.iter().any(|query| query.name == name)
        };
        let (ready, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|query| query.needs.iter().all(|need| known(need)));
        if ready.is_empty() {
            let names: Vec<_> = rest.iter().map(|query| query.path).collect();
            return Err(AnalyzeError::Internal(format!("queries with unmet needs: {names:?}")));
        }
        ordered.extend(ready);
        waiting = rest;
    }
    Ok(ordered)
}

/// Registers every query as a view.
///
/// # Errors
/// If a query does not plan: a defect of this program.
pub(crate) async fn register(context: &SessionContext) -> Result<(), AnalyzeError> {
    for query in queries()? {
        let view = context
            .sql(query.sql)
            .await
            .map_err(|error| {
                AnalyzeError::Internal(format!("queries/{}: {}", query.path, error.strip_backtrace()))
            })?
            .into_view();
        context.register_table(query.name, view)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::trace::Trace;

    fn files_in(directory: &Path, ending: &str) -> Vec<String> {
        let mut found: Vec<String> = std::fs::read_dir(directory)
            .expect("queries/")
            .flatten()
            .flat_map(|package| std::fs::read_dir(package.path()).into_iter().flatten().flatten())
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == ending))
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
        for query in queries().expect("queries") {
            let frame = trace.sql(&format!("SELECT * FROM {}", query.name)).await.expect("plan");
            let planned: Vec<String> = frame
                .schema()
                .fields()
                .iter()
                .map(|field| format!("{} {}", field.name(), type_name(field.data_type())))
                .collect();
            let documented: Vec<String> =
                query.columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
            assert_eq!(planned, documented, "queries/{}", query.path);
            for column in &query.columns {
                assert!(column.doc.ends_with('.'), "{}.{}", query.name, column.name);
                match column.unit {
                    "-" => {}
                    "ns" if matches!(column.name, "ts" | "dur" | "call_ts" | "range_ts" | "alloc_ts") => {}
                    unit => {
                        assert!(column.name.ends_with(&format!("_{unit}")), "{}.{}", query.name, column.name)
                    }
                }
            }
        }
    }

    fn type_name(ty: &arrow::datatypes::DataType) -> String {
        use arrow::datatypes::DataType;
        match ty {
            DataType::Dictionary(_, _) | DataType::Utf8 | DataType::Utf8View => "string".to_owned(),
            other => other.to_string().to_lowercase(),
        }
    }
}
