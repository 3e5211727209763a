//! What the questions of the command line answer about a run, as JSON and as the document that users read.

use analyze::{
    questions::{
        alerts, chains, findings, info,
        memory::{
            advice, expandable, history,
            state::{self, At},
        },
        phases, summary,
        threshold::Threshold,
        verify, what_if,
    },
    report::{Block, Document, Report, answer as document},
    trace::Trace,
};
use analyze_memory::leaks::growth;
use analyze_verdict::params::Params;
use serde_json::{Value, json};

use super::answer::Answer;

/// The questions, as verbs of the command line.
pub(super) const QUESTIONS: [&str; 12] = [
    "findings",
    "info",
    "summary",
    "chains",
    "memory",
    "memory --advice",
    "releases",
    "oom",
    "leaks",
    "alerts",
    "what-if",
    "verify",
];

/// Verbs that answer no question about one run: they answer queries (the other tables), compare runs by their metrics (the last
/// table), arrange or serve the answers of other verbs, or write runs and files.
pub(super) const OTHERS: [&str; 16] = [
    "check", "sql", "queries", "report", "compare", "baseline", "trend", "export", "mcp", "head", "slice",
    "merge", "import", "align", "recover", "demo",
];

/// Fields of a report that describe it.
const OF_THE_REPORT: [&str; 3] = ["report_version", "info", "has_schedule"];
/// Fields whose lists are remarks on an answer, not the answer.
const REMARKS: [&str; 3] = ["warnings", "notes", "reasons"];

/// The answer to one question of the command line.
async fn ask(trace: &Trace, question: &str) -> (Value, Document) {
    let warnings: Vec<String> = trace.files().iter().flat_map(|file| info::warnings(&file.run)).collect();
    let said = warnings.clone();
    match question {
        "findings" => {
            let found = findings::run(trace).await.unwrap();
            (json!(found), document::findings::document(&found))
        }
        "info" => {
            let found = info::run(trace).await.unwrap();
            (json!(found), document::info::document(&found))
        }
        "summary" => {
            let (lines, phases) = (summary::run(trace).await.unwrap(), phases::run(trace).await.unwrap());
            let value = json!({ "strata": lines, "phases": phases, "warnings": warnings });
            (value, document::summary::document(&lines, &phases, said))
        }
        "chains" => {
            let found = chains::run(trace, Params::default(), chains::EXAMPLES).await.unwrap();
            (json!(found), document::chains::document(&found, 1))
        }
        "memory" => {
            let found = state::run(trace, &At::Peak).await.unwrap();
            (json!({ "moment": found, "warnings": warnings }), document::memory::document(&found, said, 1))
        }
        "memory --advice" => {
            let found = advice::run(trace).await.unwrap();
            (json!(found), document::advice::document(&found))
        }
        "releases" => {
            let found = history::run(trace).await.unwrap();
            (json!(found), document::releases::document(&found, 1))
        }
        "oom" => {
            let found = expandable::failures(trace).await.unwrap();
            (json!(found), document::oom::document(&found, 1))
        }
        "leaks" => {
            let params = growth::Params { epochs: None };
            let found = growth::run(&trace.events(), trace.files(), &params).await.unwrap();
            (
                json!({ "allocators": found, "warnings": warnings }),
                document::leaks::document(&found, &[], said, 1),
            )
        }
        "alerts" => {
            let (over, lasts_ns) = ("90%".parse::<Threshold>().unwrap(), 300_000_000_000);
            let found = alerts::run(trace, over, lasts_ns).await.unwrap();
            (json!({ "alerts": found, "warnings": warnings }), document::alerts::document(&found, said, 0))
        }
        "what-if" => {
            let found = what_if::run(trace, &what_if::Params::default()).await.unwrap();
            (json!(found), document::what_if::document(&found))
        }
        "verify" => {
            let found = verify::run(trace).await.unwrap();
            (json!(found), document::verify::document(&found))
        }
        other => panic!("{other} is no question"),
    }
}

/// Returns whether a value holds an entry of a list, or at its top a number, other than 0.
fn has_content(value: &Value) -> bool {
    fn has_list(value: &Value) -> bool {
        match value {
            Value::Array(entries) => entries.iter().any(|entry| entry.as_f64() != Some(0.0)),
            Value::Object(fields) => {
                fields.iter().any(|(name, field)| !REMARKS.contains(&name.as_str()) && has_list(field))
            }
            _ => false,
        }
    }
    let is_number = |field: &Value| field.as_f64().is_some_and(|number| number != 0.0);
    has_list(value) || value.as_object().is_some_and(|fields| fields.values().any(is_number))
}

/// The verdicts of an answer.
#[derive(Default)]
struct Verdicts {
    /// Number of verdicts that say something.
    definite_count: usize,
    /// The reasons of those that are inconclusive.
    inconclusive: Vec<String>,
    /// The reasons of those on functions without a slow call; they count if there is no other verdict.
    idle: Vec<String>,
    /// What weakens other parts of the answer.
    weak: Vec<String>,
}

fn add(reasons: &mut Vec<String>, reason: String) {
    if !reasons.contains(&reason) {
        reasons.push(reason);
    }
}

impl Verdicts {
    /// Collects the verdicts in a value; `outer` is the reason that an enclosing object gives.
    fn collect(&mut self, value: &Value, outer: &str) {
        if let Value::Array(entries) = value {
            entries.iter().for_each(|entry| self.collect(entry, outer));
        }
        let Value::Object(fields) = value else { return };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let list = |name: &str| {
            let entries = fields.get(name).and_then(Value::as_array).filter(|entries| !entries.is_empty())?;
            Some(entries.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; "))
        };
        let own = text("reason").or_else(|| list("reasons")).or_else(|| list("notes"));
        let reason = own.unwrap_or_else(|| outer.to_owned());
        let because =
            |name: &str| if reason.is_empty() { format!("`{name}` is inconclusive") } else { reason.clone() };
        for (name, field) in fields {
            match (name.as_str(), field) {
                ("verdict" | "scheduler", Value::String(word)) if word == "inconclusive" => {
                    let is_idle = fields.get("slow_count").and_then(Value::as_u64) == Some(0);
                    let reasons = if is_idle { &mut self.idle } else { &mut self.inconclusive };
                    add(reasons, because(name));
                }
                ("is_known", Value::Bool(false)) => add(&mut self.inconclusive, because(name)),
                ("verdict" | "scheduler", Value::String(_)) | ("is_known", Value::Bool(true)) => {
                    self.definite_count += 1;
                }
                ("cause", Value::String(word)) if word == "inconclusive" => {
                    add(&mut self.weak, "a part of the time is inconclusive".to_owned());
                }
                ("is_inferred", Value::Bool(true)) => {
                    add(&mut self.weak, "inferred from usage reports and calls of the driver".to_owned());
                }
                ("quality_ratio", Value::Null) => add(&mut self.weak, "null: `quality_ratio`".to_owned()),
                ("expandable_reason" | "why_not_known", Value::String(why)) => {
                    add(&mut self.weak, why.clone())
                }
                (name, Value::Number(bytes))
                    if name.contains("unknown_bytes") && bytes.as_i64() != Some(0) =>
                {
                    add(&mut self.weak, format!("a part is in `{name}`"));
                }
                (name, field) if !REMARKS.contains(&name) => self.collect(field, &reason),
                _ => {}
            }
        }
    }
}

fn answer(value: &Value, empty: impl FnOnce() -> String) -> Answer {
    if !has_content(value) {
        let reason = empty();
        return if reason.is_empty() { Answer::Silent } else { Answer::Inconclusive(reason) };
    }
    let mut verdicts = Verdicts::default();
    verdicts.collect(value, "");
    if verdicts.definite_count == 0 && verdicts.inconclusive.is_empty() {
        verdicts.inconclusive = std::mem::take(&mut verdicts.idle);
    }
    let is_open = verdicts.definite_count == 0 && !verdicts.inconclusive.is_empty();
    let reasons = [verdicts.inconclusive, verdicts.weak].concat().join("; ");
    match reasons.is_empty() {
        true => Answer::Computed,
        false if is_open => Answer::Inconclusive(reasons),
        false => Answer::Bounded(reasons),
    }
}

/// Returns the paragraphs of a document, or its first warning if there are none.
fn notes(document: &Document) -> String {
    let blocks = || document.sections.iter().flat_map(|section| &section.blocks);
    let notes = blocks().filter_map(|block| match block {
        Block::Note(note) => Some(note.clone()),
        _ => None,
    });
    let notes: Vec<String> = notes.collect();
    let warning = blocks().find_map(|block| match block {
        Block::Warnings(warnings) => warnings.first().cloned(),
        _ => None,
    });
    if notes.is_empty() { warning.unwrap_or_default() } else { notes.join("; ") }
}

/// Returns the answer to a question about a run.
pub(super) async fn question(trace: &Trace, question: &str) -> Answer {
    let (value, document) = ask(trace, question).await;
    answer(&value, || notes(&document))
}

/// Returns the answer of every part of a run's report.
pub(super) async fn report(trace: &Trace) -> Vec<(String, Answer)> {
    let report = Report::of(trace).await.unwrap();
    let Value::Object(fields) = serde_json::to_value(&report).unwrap() else {
        panic!("a report is an object")
    };
    let of_answers = fields.into_iter().filter(|(name, _)| !OF_THE_REPORT.contains(&name.as_str()));
    let left_out = || "the report has no such section".to_owned();
    of_answers.map(|(name, field)| (format!("report: {name}"), answer(&field, left_out))).collect()
}
