//! Error messages for queries that cannot be planned: what is wrong, where in the query, and which name may
//! have been meant.
//!
//! ```text
//! there is no table or view opps; perhaps ops
//!   line 1:  SELECT op FROM opps
//!                           ^^^^
//! ```

use datafusion::{
    catalog::SchemaProvider,
    common::{Column, SchemaError},
    error::DataFusionError,
    prelude::SessionContext,
};

use trace_schema::Op;

use crate::{catalog::Query, error::query_error};
use analyze_run::{
    error::AnalyzeError,
    suggest::{alike, perhaps},
};

/// The number of characters of a long line that are shown before the place of an error, and from it on.
const AROUND: usize = 80;

/// A part of one line of a query. Lines and columns count from 1; a column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    column: usize,
    length: usize,
}

impl Place {
    fn line(self, query: &str) -> &str {
        query.lines().nth(self.line.saturating_sub(1)).unwrap_or_default()
    }

    fn text(self, query: &str) -> String {
        self.line(query).chars().skip(self.column.saturating_sub(1)).take(self.length).collect()
    }

    /// Returns this place, extended to the whole word that begins there.
    fn word(self, query: &str) -> Self {
        let rest = self.line(query).chars().skip(self.column.saturating_sub(1));
        let length = rest.take_while(|c| c.is_alphanumeric() || *c == '_').count();
        Self { length: length.max(1), ..self }
    }

    /// Formats the line of the query, with carets below this part of it.
    fn shown(self, query: &str) -> String {
        let head = format!("  line {}:  ", self.line);
        let before = self.column.saturating_sub(1);
        let cut = before.saturating_sub(AROUND);
        let line: String = self.line(query).chars().skip(cut).take(2 * AROUND).collect();
        // A tab is kept as a tab, so that the carets are in the column where the terminal shows the part.
        let blank = line.chars().take(before - cut).map(|c| if c == '\t' { '\t' } else { ' ' });
        let margin = " ".repeat(head.len()) + &blank.collect::<String>();
        format!("\n{head}{line}\n{margin}{}", "^".repeat(self.length.min(AROUND)))
    }
}

/// Returns the place in the query where the planner or the parser found the error, if it is known.
fn place(error: &DataFusionError, query: &str) -> Option<Place> {
    let number = |number: u64| usize::try_from(number).ok().filter(|number| *number > 0);
    if let Some(span) = error.diagnostic().and_then(|diagnostic| diagnostic.span) {
        let (line, column) = (number(span.start.line)?, number(span.start.column)?);
        let is_one_line = span.start.line == span.end.line && span.end.column > span.start.column;
        let length = if is_one_line { number(span.end.column - span.start.column)? } else { 1 };
        return Some(Place { line, column, length });
    }
    let DataFusionError::SQL(error, _) = error.find_root() else { return None };
    let message = error.to_string();
    if let Some((_, at)) = message.rsplit_once(" at Line: ") {
        let (line, column) = at.split_once(", Column: ")?;
        let place = Place { line: line.parse().ok()?, column: column.parse().ok()?, length: 1 };
        return Some(place.word(query));
    }
    // The parser reached the end of the query and expected more.
    let (index, last) = query.trim_end().lines().enumerate().last()?;
    Some(Place { line: index + 1, column: last.chars().count() + 1, length: 1 })
}

fn no_column(field: &Column, valid: &[Column], views: &[Query]) -> String {
    let nearest = alike(&field.name, valid.iter().map(|column| column.name.as_str()));
    let mut text = format!("there is no column {}{}", field.flat_name(), perhaps(&nearest));
    let has = |view: &&Query| view.columns.iter().any(|column| column.name == field.name);
    let with: Vec<&str> = views.iter().filter(has).map(|view| view.name.as_str()).collect();
    let is_value = Op::ALL.iter().any(|op| op.name().eq_ignore_ascii_case(&field.name));
    if is_value {
        text += "; text is written in 'single quotes'";
    } else if !with.is_empty() {
        text += &format!("; it is one of {}", with.join(", "));
    } else if nearest.is_empty() && !valid.is_empty() {
        let names: Vec<&str> = valid.iter().map(|column| column.name.as_str()).collect();
        text += &format!("; there are {}", names.join(", "));
    }
    text
}

fn no_table(name: &str, context: &SessionContext) -> String {
    let schema = context.catalog("datafusion").and_then(|catalog| catalog.schema("public"));
    let tables = schema
        .as_ref()
        .map_or_else(Vec::new, |schema: &std::sync::Arc<dyn SchemaProvider>| schema.table_names());
    let nearest = alike(name, tables.iter().map(String::as_str).filter(|table| !table.starts_with('_')));
    format!("there is no table or view {name}{}; `analyze queries` lists them", perhaps(&nearest))
}

fn no_function(name: &str, context: &SessionContext) -> String {
    let state = context.state();
    let known = state
        .scalar_functions()
        .keys()
        .chain(state.aggregate_functions().keys())
        .chain(state.window_functions().keys());
    format!("there is no function {name}{}", perhaps(&alike(name, known.map(String::as_str))))
}

/// Returns the place of the call of the function that a message is about, if the query calls it in exactly
/// one place.
fn called(message: &str, query: &str) -> Option<Place> {
    let name =
        message.split_once("unction '").or_else(|| message.split_once(" call to '"))?.1.split('\'').next()?;
    let mut found = Vec::new();
    for (index, line) in query.lines().enumerate() {
        let lower = line.to_ascii_lowercase();
        for (start, _) in lower.match_indices(name) {
            let before = lower[..start].chars().next_back();
            let is_word = before.is_none_or(|c| !c.is_alphanumeric() && c != '_');
            if is_word && lower[start + name.len()..].trim_start().starts_with('(') {
                let column = lower[..start].chars().count() + 1;
                found.push(Place { line: index + 1, column, length: name.chars().count() });
            }
        }
    }
    if found.len() == 1 { found.pop() } else { None }
}

/// Converts the error of a query that could not be planned into a message with its place and with
/// suggestions. `views` are the known queries, searched for columns of the same name. An error that does not
/// concern the query itself is converted without them.
pub fn explained(
    error: DataFusionError,
    query: &str,
    context: &SessionContext,
    views: &[Query],
) -> AnalyzeError {
    let mut place = place(&error, query);
    let said = error.diagnostic().map(|diagnostic| diagnostic.message.clone()).unwrap_or_default();
    let text = place.map(|place| place.text(query)).unwrap_or_default();
    let better = match error.find_root() {
        DataFusionError::SchemaError(schema, _) => match schema.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => Some(no_column(field, valid_fields, views)),
            _ => None,
        },
        DataFusionError::SQL(parser, _) => {
            let message = parser.to_string();
            let message = message.split(" at Line: ").next().unwrap_or_default();
            Some(message.trim_start_matches("sql parser error: ").replace("EOF", "the end of the query"))
        }
        _ if said.starts_with("table '") => {
            // The place that the planner reports includes the alias.
            let name = text.split_whitespace().next().unwrap_or_default();
            place = place.map(|place| Place { length: name.chars().count().max(1), ..place });
            Some(no_table(name, context))
        }
        _ if said.starts_with("Invalid function") => Some(no_function(&text, context)),
        DataFusionError::Plan(message) => {
            place = place.or_else(|| called(message, query));
            // The function's own message is extracted from the planner's message around it.
            let own = message.split_once("user-defined coercion failed with: ").map(|(_, own)| own);
            own.map(|own| own.trim_start_matches("Error during planning: "))
                .and_then(|own| own.split(". No function matches").next())
                .map(str::to_owned)
        }
        _ => None,
    };
    match query_error(error) {
        AnalyzeError::Query(message) => {
            let place = place.map(|place| place.shown(query)).unwrap_or_default();
            AnalyzeError::Query(better.unwrap_or(message) + &place)
        }
        other => other,
    }
}
