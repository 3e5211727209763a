//! `analyze queries`.

use std::path::PathBuf;

use super::{answer, print, sql::Answer};
use crate::{library::LIBRARY, report::answer::queries as document};
use analyze_engine::error::query_error;
use analyze_run::error::AnalyzeError;

/// List the query library, show a query, or run it on runs
#[derive(clap::Args)]
#[command(
    after_help = "Examples: analyze queries; analyze queries launch_gaps; analyze queries op_latency run.parquet --param op=cudaMalloc"
)]
pub(super) struct Args {
    /// The query [default: list all queries]
    name: Option<String>,
    /// Runs to run it on [default: show its documentation]
    runs: Vec<PathBuf>,
    /// Print the plan instead of running it
    #[arg(long, requires = "runs")]
    explain: bool,
    /// Print the list, or the documentation of a query, as JSON
    #[arg(long, conflicts_with = "runs")]
    json: bool,
    /// Print the reference of the whole library, as Markdown
    #[arg(long, conflicts_with_all = ["name", "json"])]
    markdown: bool,
    #[command(flatten)]
    answer: Answer,
}

impl Args {
    pub(super) async fn run(self) -> Result<(), AnalyzeError> {
        if self.markdown {
            return print(&LIBRARY.reference()?);
        }
        let mut queries = LIBRARY.queries(self.answer.queries.as_deref())?;
        queries.sort_by(|a, b| (a.package(), &a.name).cmp(&(b.package(), &b.name)));
        let Some(name) = &self.name else {
            return answer(self.json, &queries, |queries| document::list(queries));
        };
        let query = queries.iter().find(|query| query.name == *name).ok_or_else(|| {
            AnalyzeError::Query(format!("there is no query {name:?}; `analyze queries` lists them"))
        })?;
        if self.runs.is_empty() {
            return answer(self.json, query, document::document);
        }
        let trace = self.answer.open(&self.runs).await?;
        let frame = trace.query(query, &self.answer.params).await?;
        let frame = if self.explain { frame.explain(false, false).map_err(query_error)? } else { frame };
        self.answer.write(&trace, frame).await
    }
}
