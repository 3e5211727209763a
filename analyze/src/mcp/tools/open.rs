//! `open`: which runs there are, and what one of them is.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::question::Question;
use crate::{
    mcp::{answer::Answer, budget::LeftOut, id::Id, runs::Runs},
    questions::info,
};
use analyze_run::error::AnalyzeError;

/// The arguments of `open`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Path of a run (or of another tool's trace) below the server's roots. Without it, the runs are listed.
    run: Option<String>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

impl Question for Params {
    const ABOUT: &'static str = "List the recorded runs of GPU workloads, or open one: what it recorded, on which machine, how many \
        events of which kind, and the warnings that weaken every answer about it. Begin here, then call findings.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        match &self.run {
            None => Ok(listed(runs)),
            Some(run) => described(runs, run).await,
        }
    }
}

/// Lists the runs that are open, and those that can be opened.
fn listed(runs: &Runs) -> Answer {
    let open = runs.names();
    let (mut names, is_cut) = runs.roots.list();
    names.extend(open.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<String>>());
    let all = names.iter().map(|name| {
        json!({ "run": name, "id": Id::Run(name.clone()).to_string(), "is_open": open.contains(name) })
    });
    let data = json!({ "runs": all.collect::<Vec<Value>>() });
    let more =
        is_cut.then(|| LeftOut { list: "/runs".to_owned(), shown_count: names.len(), all_count: None });
    Answer { data, left_out: more.into_iter().collect(), ..Answer::default() }
}

async fn described(runs: &Runs, run: &str) -> Result<Answer, AnalyzeError> {
    let opened = runs.get(Some(run)).await?;
    let name = opened.name.as_str();
    let info = info::run(&opened.trace).await?.into_iter().next();
    let info = info.ok_or_else(|| AnalyzeError::Internal("a trace without a run".to_owned()))?;
    let provenance = &info.provenance;
    let counts = "SELECT kind, op, count(*) AS rows_count FROM events GROUP BY kind, op ORDER BY rows_count DESC, kind, op";
    let data = json!({
        "run": name,
        "id": Id::Run(name.to_owned()).to_string(),
        "rows_count": info.rows_count,
        "size_bytes": info.size_bytes,
        "recorded": {
            "id": Id::sql(name, "SELECT * FROM runs").to_string(),
            "producer": provenance.producer,
            "command": provenance.command,
            "joined_running": provenance.joined_running,
            "host": provenance.host,
            "gpus": provenance.gpus,
            "profile": provenance.profile,
            "span_ns": provenance.clock.end_ns.saturating_sub(provenance.clock.start_ns),
            "not_captured": provenance.not_captured,
        },
        "events": { "id": Id::sql(name, counts).to_string(), "counts": info.counts },
        "warnings": info.warnings,
    });
    Ok(Answer::about(name, data))
}
