//! `next_evidence`: the calls that would confirm a claim, or rule it out.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::question::Question;
use crate::{
    mcp::{
        answer::{Answer, ID},
        finding,
        id::Id,
        next::{for_finding, for_topic},
        runs::{Opened, Runs},
    },
    questions::findings::Finding,
};
use analyze_run::error::AnalyzeError;

/// The arguments of `next_evidence`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Params {
    /// Id of a finding, as findings returns it. Without an id and a topic, all findings of the run are taken.
    id: Option<String>,
    /// Instead of an id: what you want to know, in words, such as "memory grows"; functions that it names, such as cudaFree, are asked for.
    topic: Option<String>,
    /// Path of the run, as open lists it; not needed with an id, or if there is only one.
    run: Option<String>,
    /// Most bytes of the answer, from 2048 to 262144; 16384 by default.
    budget_bytes: Option<usize>,
}

impl Question for Params {
    const ABOUT: &'static str = "The next calls that would confirm a finding, or rule it out: the queries that it rests on, and for its kind \
        those that would show another cause. Each has its tool, its arguments, and why. For a topic in words, the calls to begin with.";

    fn budget_bytes(&self) -> Option<usize> {
        self.budget_bytes
    }

    async fn ask(self, runs: &Runs) -> Result<Answer, AnalyzeError> {
        match (&self.id, &self.topic) {
            (Some(_), Some(_)) => Err(AnalyzeError::Query("give an id or a topic, not both".to_owned())),
            (Some(id), None) => match id.parse::<Id>() {
                Ok(Id::Finding { run, kind, pid }) => {
                    let opened = runs.get(Some(run.as_str())).await?;
                    of_findings(&opened, |finding| finding.kind == kind && finding.pid == pid).await
                }
                Ok(other) => Err(AnalyzeError::Query(format!(
                    "{other} is no finding; `findings` lists those of a run with their ids, and `explain` shows other evidence"
                ))),
                Err(why) => Err(AnalyzeError::Query(format!("{id:?} is no id of evidence: {why}"))),
            },
            (None, Some(topic)) => {
                let opened = runs.get(self.run.as_deref()).await?;
                let calls = for_topic(&opened.name, topic);
                Ok(Answer::about(&opened.name, json!({ "run": opened.name, "calls": calls })))
            }
            (None, None) => {
                let opened = runs.get(self.run.as_deref()).await?;
                of_findings(&opened, |_| true).await
            }
        }
    }
}

/// Returns the calls for the findings of a run that are wanted.
async fn of_findings(opened: &Opened, is_wanted: impl Fn(&Finding) -> bool) -> Result<Answer, AnalyzeError> {
    let run = opened.name.as_str();
    let found = opened.findings().await?;
    let wanted = found.findings.iter().filter(|finding| is_wanted(finding));
    let each = wanted.map(|finding| {
        let calls = for_finding(run, finding);
        json!({ ID: finding::id(run, finding).to_string(), "kind": finding.kind, "title": finding.title, "calls": calls })
    });
    let each: Vec<Value> = each.collect();
    if each.is_empty() {
        let calls = for_topic(run, "");
        let mut answer = Answer::about(run, json!({ "run": run, "calls": calls }));
        answer.open("evidence for a finding", "the run has no such finding; the calls are where to begin");
        return Ok(answer);
    }
    Ok(Answer::about(run, json!({ "run": run, "findings": each })))
}
