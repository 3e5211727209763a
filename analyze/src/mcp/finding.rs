//! Findings as answers show them: with the id of each, and the ids of the queries that show it.

use serde_json::{Value, json};

use super::{
    answer::{self, Answer, with_id},
    id::Id,
};
use crate::questions::findings::{Confidence, Finding};
use analyze_run::error::AnalyzeError;

/// Returns the id of a finding.
pub fn id(run: &str, finding: &Finding) -> Id {
    Id::Finding { run: run.to_owned(), kind: finding.kind.to_owned(), pid: finding.pid }
}

/// Returns a finding with its ids.
///
/// # Errors
/// Returns an error if a value cannot be represented in JSON.
pub fn shown(run: &str, finding: &Finding) -> Result<Value, AnalyzeError> {
    let evidence = finding.evidence.iter().map(|evidence| {
        let mut shown = json!({ "text": evidence.text });
        if !evidence.sql.is_empty() {
            with_id(&mut shown, &Id::sql(run, evidence.sql.clone()));
        }
        shown
    });
    let evidence: Vec<Value> = evidence.collect();
    let mut value = answer::json(finding)?;
    value["evidence"] = Value::Array(evidence);
    with_id(&mut value, &id(run, finding));
    Ok(value)
}

/// Says what a finding leaves open, if its cost is inconclusive.
pub fn say_open(answer: &mut Answer, finding: &Finding) {
    if finding.confidence == Confidence::Inconclusive {
        answer.open(format!("the finding {}", finding.kind), finding.open.clone());
    }
}
