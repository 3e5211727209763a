//! What every answer is: data, the ids of its evidence, what the record does not tell, and what was left out.
//!
//! Text from a trace is data that somebody else wrote: it is bounded, and its control and bidirectional characters are
//! escaped, before a client sees it. Ids and arguments of calls are made here, and stay exact.

use std::{collections::BTreeSet, fmt::Display};

use rmcp::schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    budget::{self, LeftOut},
    id::{Id, SCHEME},
};
use crate::{
    questions::{
        explain_empty,
        query::plan,
        thing::{CallKey, Thing},
    },
    trace::Trace,
};
use analyze_run::{error::AnalyzeError, text::harmless};

/// The field of an answer's objects that has the id of their evidence.
pub const ID: &str = "id";
/// The field of an answer's objects that has arguments of a call, which stay exact.
pub const ARGUMENTS: &str = "arguments";
/// The largest number of characters of one text.
const MOST_CHARS: usize = 1000;
/// The largest number of things of which one answer says that the record does not tell them.
const MOST_OPEN: usize = 20;

/// Something that the record does not tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub struct CannotAnswer {
    /// What cannot be answered.
    pub what: String,
    /// Why: what the record lacks.
    pub reason: String,
}

/// The answer to a question, before it is cut to a budget.
#[derive(Debug, Default)]
pub struct Answer {
    /// The run that was asked; `None` if it was none or several.
    pub run: Option<String>,
    /// The data.
    pub data: Value,
    /// What the record does not tell.
    pub cannot_answer: Vec<CannotAnswer>,
    /// What was left out before the answer is cut to its budget.
    pub left_out: Vec<LeftOut>,
}

/// An answer as clients get it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub struct Reply {
    /// Id of this answer as a whole: reading it as a resource asks the same question again.
    pub id: String,
    /// The data; an `id` in an object is the id of the evidence for the figures beside it.
    pub answer: Value,
    /// Every id in the answer; each can be read as a resource.
    pub evidence: Vec<String>,
    /// What the record does not tell, with the reason; empty if it tells all that was asked.
    pub cannot_answer: Vec<CannotAnswer>,
    /// Whether items of the answer were left out.
    pub truncated: bool,
    /// What was left out.
    pub left_out: Vec<LeftOut>,
}

impl Answer {
    /// Creates the answer about a run.
    pub fn about(run: &str, data: Value) -> Self {
        Self { run: Some(run.to_owned()), data, ..Self::default() }
    }

    /// Says that the record does not tell something.
    pub fn open(&mut self, what: impl Into<String>, reason: impl Into<String>) {
        self.cannot_answer.push(CannotAnswer { what: what.into(), reason: reason.into() });
    }

    /// Says for what reason a view of a run has no rows, so that something cannot be answered.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub async fn open_without_rows(
        &mut self,
        what: &str,
        trace: &Trace,
        view: &str,
    ) -> Result<(), AnalyzeError> {
        let frame = plan(trace, &format!("SELECT * FROM {view}"), &[]).await?;
        let mut notes = explain_empty::notes(trace, frame.logical_plan()).await?;
        if notes.is_empty() {
            notes.push(format!("the view {view} has no such row in this run"));
        }
        self.open(what, notes.join("; "));
        Ok(())
    }

    /// Cuts the answer to a budget. `id` is that of the answer.
    pub fn within(self, id: &Id, budget_bytes: usize) -> Reply {
        let mut cannot_answer = self.cannot_answer;
        let more_count = cannot_answer.len().saturating_sub(MOST_OPEN);
        cannot_answer.truncate(MOST_OPEN);
        for open in &mut cannot_answer {
            open.what = quoted(&open.what);
            open.reason = quoted(&open.reason);
        }
        let mut left_out = self.left_out;
        if more_count > 0 {
            let all_count = Some(MOST_OPEN + more_count);
            left_out.push(LeftOut { list: "cannot_answer".to_owned(), shown_count: MOST_OPEN, all_count });
        }
        let answer = all_quoted(self.data);
        let mut reply = Reply {
            id: id.to_string(),
            answer,
            evidence: Vec::new(),
            cannot_answer,
            truncated: false,
            left_out,
        };
        loop {
            reply.evidence = ids(&reply.answer);
            reply.truncated = !reply.left_out.is_empty();
            // What cannot be written as text has no size, and cannot be sent either.
            let size_bytes = serde_json::to_vec(&reply).map_or(0, |text| text.len());
            // The question is as long as the client made it.
            let excess_bytes = size_bytes.saturating_sub(reply.id.len()).saturating_sub(budget_bytes);
            if excess_bytes == 0 {
                return reply;
            }
            if !budget::cut(&mut reply.answer, excess_bytes, &mut reply.left_out) {
                if reply.answer.is_null() {
                    // The last one says that the budget is too small.
                    if reply.cannot_answer.len() <= 1 {
                        return reply;
                    }
                    reply.cannot_answer.remove(0);
                    continue;
                }
                reply.answer = Value::Null;
                reply.left_out = vec![LeftOut { list: String::new(), shown_count: 0, all_count: None }];
                reply.cannot_answer.push(CannotAnswer {
                    what: "the answer within its budget".to_owned(),
                    reason: format!(
                        "its figures take more than {budget_bytes} bytes; ask with a larger budget_bytes"
                    ),
                });
            }
        }
    }
}

/// Returns text of a trace as data: bounded, with control and bidirectional characters escaped.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => {
            format!("{}… ({} characters)", harmless(&text[..end]), text.chars().count())
        }
        None => harmless(text),
    }
}

/// Returns whether a field holds an id that was made here: nothing in it needs an escape.
fn is_id(name: &str, value: &str) -> bool {
    name == ID && value.starts_with(SCHEME) && value.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns a value with all its texts as data.
fn all_quoted(value: Value) -> Value {
    let field = |(name, value): (String, Value)| {
        let value = match value {
            Value::String(text) if is_id(&name, &text) => Value::String(text),
            value if name == ARGUMENTS => value,
            value => all_quoted(value),
        };
        (quoted(&name), value)
    };
    match value {
        Value::String(text) => Value::String(quoted(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(all_quoted).collect()),
        Value::Object(fields) => Value::Object(fields.into_iter().map(field).collect()),
        other => other,
    }
}

/// Returns all ids in an answer, each once.
fn ids(value: &Value) -> Vec<String> {
    fn collect<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Value::String(id) if is_id(name, id) && id.parse::<Id>().is_ok() => {
                            found.insert(id);
                        }
                        _ if name == ARGUMENTS => {}
                        other => collect(other, found),
                    }
                }
            }
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    collect(value, &mut found);
    found.into_iter().map(str::to_owned).collect()
}

/// Returns data as JSON.
///
/// # Errors
/// Returns an error if a value cannot be represented in JSON.
pub fn json(data: impl Serialize) -> Result<Value, AnalyzeError> {
    serde_json::to_value(data).map_err(|error| AnalyzeError::Internal(error.to_string()))
}

/// Adds the id of evidence to an object; other values stay as they are.
pub fn with_id(value: &mut Value, id: &impl Display) {
    if let Value::Object(fields) = value {
        fields.insert(ID.to_owned(), Value::String(id.to_string()));
    }
}

/// Returns the id of the call that a row of a view names by its columns `pid`, `tid`, `ts` and `depth`.
pub fn call_of(run: &str, row: &Map<String, Value>) -> Option<Id> {
    let number = |name: &str| row.get(name).and_then(Value::as_i64);
    let thread = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
    let (pid, tid) = (thread("pid")?, thread("tid")?);
    let key = CallKey { pid, tid, ts_ns: number("ts")?, depth: number("depth")? };
    Some(Id::Thing(run.to_owned(), Thing::Call(key)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_of_a_trace_is_bounded_and_escaped_and_ids_are_exact() {
        let long = "x".repeat(MOST_CHARS + 5);
        let query = format!("SELECT '{long}'");
        let id = Id::sql("r", query.clone()).to_string();
        let data = json!({
            "id": id, "name": "a\u{202e}b\u{1b}", "long": long, "pool": { "id": "inquest://x \u{202e}" },
            "arguments": { "query": query }, "nested": [{ "id": "inquest://-/skill" }, { "id": "inquest://-/none" }],
        });
        let reply = Answer { data, ..Answer::default() }.within(&Id::Skill, budget::MOST_BYTES);
        assert_eq!(reply.answer["name"], "a\\u202eb\\u001b");
        assert!(reply.answer["long"].as_str().is_some_and(|text| text.ends_with("x… (1005 characters)")));
        assert_eq!(reply.answer["arguments"]["query"], json!(query));
        assert_eq!(reply.answer["pool"]["id"], "inquest://x \\u202e");
        assert_eq!(reply.evidence, ["inquest://-/skill".to_owned(), id]);
        assert!(!reply.truncated);
    }

    #[test]
    fn an_answer_is_no_longer_than_its_budget() {
        let rows: Vec<Value> =
            (0..1000).map(|row| json!({ "row": row, "id": format!("inquest://r/gap/1/1/{row}") })).collect();
        let whole = json!({ "rows": rows });
        for budget_bytes in [budget::LEAST_BYTES, 5_000, 20_000] {
            let answer = Answer { data: whole.clone(), ..Answer::default() };
            let reply = answer.within(&Id::Library, budget_bytes);
            let size = serde_json::to_vec(&reply).expect("text").len();
            assert!(
                size <= budget_bytes + reply.id.len() && size > budget_bytes / 3,
                "{size} of {budget_bytes}"
            );
            let shown = reply.answer["rows"].as_array().expect("rows").len();
            assert_eq!(reply.evidence.len(), shown);
            let left_out = LeftOut { list: "/rows".to_owned(), shown_count: shown, all_count: Some(1000) };
            assert!(reply.truncated && reply.left_out == [left_out]);
        }
        let texts: Map<String, Value> =
            (0..50).map(|text| (text.to_string(), json!("y".repeat(900)))).collect();
        let reply = Answer { data: Value::Object(texts), ..Answer::default() }.within(&Id::Library, 5_000);
        assert!(reply.answer.is_null() && reply.truncated);
        assert!(reply.cannot_answer[0].reason.contains("budget_bytes"), "{:?}", reply.cannot_answer);
    }
}
