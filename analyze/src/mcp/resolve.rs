//! What an id of evidence stands for: the rows of views, a finding, or a part of the library.

use serde_json::{Value, json};
use trace_schema::Nanos;

use super::{
    answer::{Answer, ID, call_of, with_id},
    budget::{LeftOut, MOST_BYTES},
    finding::{say_open, shown},
    id::Id,
    library,
    runs::{Opened, Runs},
};
use crate::questions::{
    query::{answered, in_time},
    rows::{self, Limits, Rows},
    thing::Thing,
};
use analyze_run::error::AnalyzeError;

/// The text on how to investigate, which is the prompt, the resource and the agent skill.
pub const SKILL: &str = include_str!("SKILL.md");
/// The number of rows of a query unless the request has one.
pub const DEFAULT_ROWS: usize = 50;
/// The largest number of rows of a query.
pub const MOST_ROWS: usize = 1000;
/// The time that a query may take unless the request has one.
pub const DEFAULT_TIME: Nanos = Nanos(30_000_000_000);
/// The longest time that a query may take.
pub const MOST_TIME: Nanos = Nanos(300_000_000_000);
/// The largest number of bytes of a query's text.
pub const MOST_QUERY_BYTES: usize = 8 << 10;

/// How much of a query's answer is read, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The largest number of rows.
    pub rows_count: usize,
    /// The longest time.
    pub time: Nanos,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { rows_count: DEFAULT_ROWS, time: DEFAULT_TIME }
    }
}

/// Reads the first rows of a query, in time.
async fn read(opened: &Opened, query: &str, bounds: Bounds) -> Result<Rows, AnalyzeError> {
    if query.len() > MOST_QUERY_BYTES {
        return Err(AnalyzeError::Query(format!("the query has more than {MOST_QUERY_BYTES} bytes")));
    }
    let limits = Limits { rows_count: bounds.rows_count, size_bytes: MOST_BYTES };
    let work = answered(rows::read(&opened.trace, query, limits));
    in_time(bounds.time, "timeout_ms of the tool sql", work).await
}

/// Answers with the first rows of a query.
///
/// # Errors
/// Returns an error if the query is wrong or is no query, takes too long, or the data is damaged.
pub async fn sql(opened: &Opened, query: &str, bounds: Bounds) -> Result<Answer, AnalyzeError> {
    let found = read(opened, query, bounds).await?;
    let columns = found.columns.iter().map(|column| json!({ "name": column.name, "type": column.ty }));
    let columns: Vec<Value> = columns.collect();
    let shown_count = found.rows.len();
    let data = json!({
        "run": opened.name,
        ID: Id::sql(&opened.name, query).to_string(),
        "columns": columns,
        "rows": found.rows,
    });
    let mut answer = Answer::about(&opened.name, data);
    if found.is_cut {
        answer.left_out.push(LeftOut { list: "/rows".to_owned(), shown_count, all_count: None });
    }
    if !found.why_empty.is_empty() {
        answer.open("the query", found.why_empty.join("; "));
    }
    Ok(answer)
}

/// Answers with what is on record about a thing.
async fn thing(opened: &Opened, thing: Thing) -> Result<Answer, AnalyzeError> {
    let run = opened.name.as_str();
    let mut answer = Answer::about(run, json!({ "run": run }));
    with_id(&mut answer.data, &Id::Thing(run.to_owned(), thing));
    let mut is_known = false;
    for about in thing.queries() {
        let found = read(opened, &about.sql, Bounds { rows_count: MOST_ROWS, ..Bounds::default() }).await?;
        if found.rows.is_empty() {
            let reason = match (found.why_empty.is_empty(), is_known, about.what) {
                (false, ..) => found.why_empty.join("; "),
                (true, true, "excess" | "chain") => {
                    "the call is not slow, or was never off CPU: only slow calls have causes, and those that were off CPU a chain".to_owned()
                }
                (true, true, _) => "the call did not return before the recording ended".to_owned(),
                (true, false, _) => "the run has no such row".to_owned(),
            };
            answer.open(about.what, reason);
        }
        is_known |= !found.rows.is_empty();
        let shown_count = found.rows.len();
        if found.is_cut {
            answer.left_out.push(LeftOut {
                list: format!("/{}/rows", about.what),
                shown_count,
                all_count: None,
            });
        }
        answer.data[about.what] = json!({ ID: Id::sql(run, about.sql).to_string(), "rows": found.rows });
    }
    Ok(answer)
}

/// Answers with the thing that the first row of a query names by its columns.
///
/// # Errors
/// Returns an error if the run has fewer such things, or cannot be read.
pub async fn ranked(opened: &Opened, query: &str, what: &str) -> Result<Answer, AnalyzeError> {
    let found = read(opened, query, Bounds::default()).await?;
    let Some(row) = found.rows.first() else {
        let mut answer = Answer::about(&opened.name, Value::Null);
        let reason = match found.why_empty.is_empty() {
            true => format!("the run has fewer {what}s than this rank"),
            false => found.why_empty.join("; "),
        };
        answer.open(format!("the {what} of this rank"), reason);
        return Ok(answer);
    };
    let number = |name: &str| row.get(name).and_then(Value::as_i64).unwrap_or_default();
    let thread = |name: &str| u32::try_from(number(name)).unwrap_or_default();
    match call_of(&opened.name, row) {
        Some(Id::Thing(_, call)) => thing(opened, call).await,
        _ => thing(opened, Thing::Gap { pid: thread("pid"), tid: thread("tid"), ts_ns: number("ts") }).await,
    }
}

/// Answers with what an id stands for.
///
/// # Errors
/// Returns an error if the run cannot be opened or read, or if the id stands for the answer of a tool, which asks for other
/// ids itself.
pub async fn resolve(runs: &Runs, id: &Id) -> Result<Answer, AnalyzeError> {
    match id {
        Id::Thing(run, of) => {
            let opened = runs.get(Some(run.as_str())).await?;
            thing(&opened, *of).await
        }
        Id::Sql { run, query } => {
            let opened = runs.get(Some(run.as_str())).await?;
            sql(&opened, query, Bounds::default()).await
        }
        Id::Finding { run, kind, pid } => {
            let opened = runs.get(Some(run.as_str())).await?;
            let found = &opened.findings().await?.findings;
            let found: Vec<_> =
                found.iter().filter(|found| found.kind == kind && found.pid == *pid).collect();
            let shown = found.iter().map(|finding| shown(&opened.name, finding));
            let findings: Vec<Value> = shown.collect::<Result<_, _>>()?;
            let mut answer = Answer::about(&opened.name, json!({ "run": opened.name, "findings": findings }));
            found.iter().for_each(|finding| say_open(&mut answer, finding));
            if found.is_empty() {
                answer.open(
                    format!("the finding {kind}"),
                    "the run has no such finding; `findings` lists those that it has",
                );
            }
            Ok(answer)
        }
        Id::Library => library::list(None),
        Id::View(name) => library::view(name),
        Id::Skill => Ok(Answer { data: json!({ "text": SKILL }), ..Answer::default() }),
        Id::Run(_) | Id::Ask { .. } => Err(AnalyzeError::Query(format!(
            "{id} stands for the answer of a tool: read it as a resource, or call the tool"
        ))),
    }
}
