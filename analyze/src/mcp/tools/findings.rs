//! `findings`: what is wrong with a run, ranked.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::question::Question;
use crate::{
    mcp::{
        answer::Answer,
        finding::{say_open, shown},
        id::Id,
        runs::Runs,
    },
    questions::findings::Finding,
};
use analyze_run::error::AnalyzeError;

/// The arguments of `findings`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Path of the run, as open lists it; not needed if there is only one.
    run: Option<String>,
    /// Only findings of this kind, such as waiting-for-cpu.
    kind: Option<String>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

/// The account of a run's time, of which costs are parts.
const ACCOUNT: &str = "SELECT pid, wall_ns, stage, part, sum(time_ns) AS time_ns FROM run_time GROUP BY pid, wall_ns, stage, part ORDER BY time_ns DESC, pid, stage, part";

impl Question for Params {
    const ABOUT: &'static str = "What is wrong with a run, ranked: what ended it first, then what costs most of its wall time. Costs are \
        parts of one account of the run's time and do not overlap; each finding has its evidence, how sure it is, what it leaves \
        open, and what to do. An empty list of a run whose is_open is true proves nothing.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        let opened = runs.get(self.run.as_deref()).await?;
        let (name, found) = (opened.name.as_str(), opened.findings().await?);
        let is_wanted = |finding: &&Finding| self.kind.as_deref().is_none_or(|kind| kind == finding.kind);
        let wanted: Vec<&Finding> = found.findings.iter().filter(is_wanted).collect();
        let findings =
            wanted.iter().map(|finding| shown(name, finding)).collect::<Result<Vec<Value>, _>>()?;
        let data = json!({
            "run": name,
            "account": { "id": Id::sql(name, ACCOUNT).to_string(), "wall_ns": found.wall_ns, "bound": found.bound },
            "findings": findings,
            "is_open": found.is_open,
            "warnings": found.warnings,
        });
        let mut answer = Answer::about(name, data);
        wanted.iter().for_each(|finding| say_open(&mut answer, finding));
        if found.is_open {
            answer.open(
                "most of the run's wall time",
                "it is not on record what the threads did in it, so that finding nothing proves nothing; warnings say what is missing",
            );
        }
        Ok(answer)
    }
}
