//! The SQL library as answers show it: its views, their columns, and the table of events.

use analyze_engine::catalog::Query;
use serde_json::{Value, json};
use trace_schema::arrow_schema;

use super::{answer::Answer, id::Id};
use crate::library::LIBRARY;
use analyze_run::{error::AnalyzeError, suggest};

/// The table of all rows, which is no view.
const EVENTS: &str = "events";

/// Returns the queries that can be read as views, without deprecated names.
fn views() -> Result<Vec<Query>, AnalyzeError> {
    let mut views = LIBRARY.queries(None)?;
    views.retain(|query| query.params.is_empty() && query.alias_of.is_none());
    views.sort_by(|a, b| (a.package(), &a.name).cmp(&(b.package(), &b.name)));
    Ok(views)
}

fn summary(view: &Query) -> Value {
    json!({ "view": view.name, "about": view.purpose, "id": Id::View(view.name.clone()).to_string() })
}

/// Returns a number for how well a view fits words in lower case: 0 if a word is nowhere in it.
fn fit(view: &Query, words: &[String]) -> usize {
    let columns = view.columns.iter().map(|column| format!("{} {}", column.name, column.doc).to_lowercase());
    let columns: Vec<String> = columns.collect();
    let (name, purpose) = (view.name.to_lowercase(), view.purpose.to_lowercase());
    let of = |word: &String| {
        let in_columns = columns.iter().any(|column| column.contains(word.as_str()));
        4 * usize::from(name.contains(word.as_str()))
            + 2 * usize::from(purpose.contains(word.as_str()))
            + usize::from(in_columns)
    };
    let fits: Vec<usize> = words.iter().map(of).collect();
    if fits.contains(&0) { 0 } else { fits.iter().sum() }
}

/// Lists the views, those that fit a search best first; without a search, all of them by package.
///
/// # Errors
/// Returns an error if the library is malformed.
pub fn list(search: Option<&str>) -> Result<Answer, AnalyzeError> {
    let words: Vec<String> =
        search.unwrap_or_default().to_lowercase().split_whitespace().map(str::to_owned).collect();
    let mut fitting: Vec<(usize, Query)> =
        views()?.into_iter().map(|view| (fit(&view, &words), view)).collect();
    if !words.is_empty() {
        fitting.retain(|(fit, _)| *fit > 0);
        fitting.sort_by_key(|(fit, _)| std::cmp::Reverse(*fit));
    }
    let mut views: Vec<Value> = fitting.iter().map(|(_, view)| summary(view)).collect();
    if words.is_empty() {
        let id = Id::View(EVENTS.to_owned()).to_string();
        views.insert(0, json!({ "view": EVENTS, "about": "One row per recorded event, of which all views are made.", "id": id }));
    }
    let mut answer = Answer { data: json!({ "views": views }), ..Answer::default() };
    if views.is_empty() {
        answer.open("the search", "no view has all of these words in its name, its purpose or its columns; search for one of them, or for none to list all views");
    }
    Ok(answer)
}

/// Describes one view: what a row is, and its columns with types and units.
///
/// # Errors
/// Returns an error if there is no such view.
pub fn view(name: &str) -> Result<Answer, AnalyzeError> {
    let id = Id::View(name.to_owned()).to_string();
    if name == EVENTS {
        let schema = arrow_schema();
        let columns = schema
            .fields()
            .iter()
            .map(|field| json!({ "name": field.name(), "type": field.data_type().to_string() }));
        let columns: Vec<Value> = columns.collect();
        let about = "One row per recorded event. `run` is the name of the run; ts and dur are nanoseconds.";
        return Ok(Answer {
            data: json!({ "view": name, "id": id, "about": about, "columns": columns }),
            ..Answer::default()
        });
    }
    let views = views()?;
    let Some(view) = views.iter().find(|view| view.name == name) else {
        let near = suggest::perhaps(&suggest::alike(name, views.iter().map(|view| view.name.as_str())));
        return Err(AnalyzeError::Query(format!(
            "there is no view {name:?}{near}; `schema` without a view lists them"
        )));
    };
    let columns = view.columns.iter().map(
        |column| json!({ "name": column.name, "type": column.ty, "unit": column.unit, "about": column.doc }),
    );
    let columns: Vec<Value> = columns.collect();
    let data =
        json!({ "view": name, "id": id, "about": view.purpose, "needs": view.needs, "columns": columns });
    Ok(Answer { data, ..Answer::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_found_by_their_words() {
        let first = |search: &str| list(Some(search)).expect("a list").data["views"][0]["view"].clone();
        assert_eq!(first("slow_calls"), "slow_calls");
        assert_eq!(first("Wakeup CHAIN"), "chain_links");
        let none = list(Some("zebra")).expect("a list");
        assert_eq!((none.data["views"].as_array().map(Vec::len), none.cannot_answer.len()), (Some(0), 1));
        assert_eq!(list(None).expect("a list").data["views"][0]["view"], "events");
        let columns = view("launch_gaps").expect("a view").data["columns"].clone();
        assert!(columns.as_array().is_some_and(|all| all.iter().any(|column| column["name"] == "host_ns")));
        assert!(view("launch_gap").expect_err("an error").to_string().contains("launch_gaps"));
        assert!(view("events").expect("a table").data["columns"].as_array().is_some_and(|all| all.len() > 5));
    }
}
