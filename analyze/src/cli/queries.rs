//! `analyze queries`.

use std::path::PathBuf;

use super::{print, print_json, sql::Answer};
use crate::{library::LIBRARY, output};
use analyze_engine::{catalog::Query, error::query_error};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

/// List the query library, show a query, or run it on runs
#[derive(clap::Args)]
#[command(
    after_help = "Examples: analyze queries; analyze queries launch_gaps; analyze queries op_latency run.parquet --param op=cudaMalloc"
)]
pub struct Args {
    /// The query; none: list them
    name: Option<String>,
    /// Runs to run it on; none: show what it says of itself
    runs: Vec<PathBuf>,
    /// Print the plan instead of running it
    #[arg(long, requires = "runs")]
    explain: bool,
    /// Print JSON (the list, or what a query says of itself)
    #[arg(long, conflicts_with = "runs")]
    json: bool,
    /// Print the reference of the whole library, as Markdown
    #[arg(long, conflicts_with_all = ["name", "json"])]
    markdown: bool,
    #[command(flatten)]
    answer: Answer,
}

fn listed(queries: &[Query]) -> String {
    let rows: Vec<Vec<String>> = queries
        .iter()
        .map(|query| vec![query.package().to_owned(), query.name.clone(), query.purpose.clone()])
        .collect();
    output::columns(&["package", "query", "one row"], &rows, &[])
}

fn shown(query: &Query) -> String {
    let mut text = format!("{}: {}\nneeds {}\n", query.name, query.purpose, query.needs.join(", "));
    if !query.params.is_empty() {
        let rows: Vec<Vec<String>> = query
            .params
            .iter()
            .map(|param| vec![param.name.clone(), param.ty.clone(), param.default.clone(), param.doc.clone()])
            .collect();
        text += &format!("\n{}", output::columns(&["parameter", "type", "default", ""], &rows, &[]));
    }
    let rows: Vec<Vec<String>> = query
        .columns
        .iter()
        .map(|column| vec![column.name.clone(), column.ty.clone(), column.unit.clone(), column.doc.clone()])
        .collect();
    text += &format!("\n{}", output::columns(&["column", "type", "unit", ""], &rows, &[]));
    text += &format!("\n{}\n", query.select());
    text::harmless(&text)
}

impl Args {
    pub async fn run(self) -> Result<(), AnalyzeError> {
        if self.markdown {
            return print(&LIBRARY.reference()?);
        }
        let mut queries = LIBRARY.queries(self.answer.queries.as_deref())?;
        queries.sort_by(|a, b| (a.package(), &a.name).cmp(&(b.package(), &b.name)));
        let Some(name) = &self.name else {
            return if self.json { print_json(&queries) } else { print(&listed(&queries)) };
        };
        let query = queries.iter().find(|query| query.name == *name).ok_or_else(|| {
            AnalyzeError::Query(format!("there is no query {name:?}; `analyze queries` lists them"))
        })?;
        if self.runs.is_empty() {
            return if self.json { print_json(query) } else { print(&shown(query)) };
        }
        let trace = self.answer.open(&self.runs).await?;
        let frame = trace.query(query, &self.answer.params).await?;
        let frame = if self.explain { frame.explain(false, false).map_err(query_error)? } else { frame };
        self.answer.write(&trace, frame).await
    }
}
