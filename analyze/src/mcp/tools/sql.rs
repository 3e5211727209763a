//! `sql`: the first rows of a query.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use trace_schema::Nanos;

use super::question::Question;
use crate::mcp::{
    answer::Answer,
    resolve::{Bounds, DEFAULT_ROWS, DEFAULT_TIME, MOST_ROWS, MOST_TIME, sql},
    runs::Runs,
};
use analyze_run::error::AnalyzeError;

/// The arguments of `sql`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// One SELECT over the views that schema lists.
    query: String,
    /// Path of the run, as open lists it; not needed if there is only one.
    run: Option<String>,
    /// Most rows, up to 1000; 50 by default.
    limit: Option<usize>,
    /// Longest time in milliseconds, up to 300000; 30000 by default.
    timeout_ms: Option<u64>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

impl Question for Params {
    const ABOUT: &'static str = "Query a run with SQL (DataFusion). It can only read. Look up views and columns with schema first; times \
        (ts, dur, …_ns) are nanoseconds. Aggregate in the query rather than fetching rows. If the answer says nothing because the \
        run lacks what the query asks for, cannot_answer says what would have recorded it.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        let opened = runs.get(self.run.as_deref()).await?;
        let asked_ns =
            self.timeout_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000));
        let bounds = Bounds {
            rows_count: self.limit.unwrap_or(DEFAULT_ROWS).min(MOST_ROWS),
            time: Nanos(asked_ns.unwrap_or(DEFAULT_TIME.0).min(MOST_TIME.0)),
        };
        sql(&opened, &self.query, bounds).await
    }
}
