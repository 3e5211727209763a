//! `explain`: everything on record about one call, gap, block or finding.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;

use super::question::Question;
use crate::{
    mcp::{
        answer::Answer,
        id::Id,
        resolve::{ranked, resolve},
        runs::Runs,
    },
    questions::thing::{gap_of_rank, slow_call_of_rank},
};
use analyze_run::error::AnalyzeError;

/// The arguments of `explain`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Id of evidence from another answer (call, chain, gap, block, finding, sql).
    id: Option<String>,
    /// Instead of an id: the slow call with this rank by excess latency, from 1.
    slow_call_rank: Option<usize>,
    /// Instead of an id: the gap between launches with this rank by length, from 1.
    gap_rank: Option<usize>,
    /// Path of the run, for a rank; not needed if there is only one.
    run: Option<String>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

impl Question for Params {
    const ABOUT: &'static str = "Everything on record about one thing. A call: the division of its time to the nanosecond, the causes of \
        its excess latency, and its wakeup chain, whose links sum to it. A gap between launches: what the thread did. A block of \
        memory: its state, size and allocation. Give the id that stands beside a figure, or a rank.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        match (&self.id, self.slow_call_rank, self.gap_rank) {
            (Some(id), None, None) => {
                let parsed = id.parse::<Id>();
                let wrong = |why: String| AnalyzeError::Query(format!("{id:?} is no id of evidence: {why}"));
                let parsed = parsed.map_err(wrong)?;
                resolve(runs, &parsed).await
            }
            (None, Some(rank), None) => {
                let opened = runs.get(self.run.as_deref()).await?;
                ranked(&opened, &slow_call_of_rank(rank), "slow call").await
            }
            (None, None, Some(rank)) => {
                let opened = runs.get(self.run.as_deref()).await?;
                ranked(&opened, &gap_of_rank(rank), "gap").await
            }
            _ => Err(AnalyzeError::Query(
                "give one of id, slow_call_rank and gap_rank; `findings` and `sql` return ids".to_owned(),
            )),
        }
    }
}
