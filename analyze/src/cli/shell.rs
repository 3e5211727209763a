//! The dialogue of `analyze sql RUN`: queries line by line, until a semicolon.

use std::{borrow::Cow, path::PathBuf};

use rustyline::{
    Context, Editor, Helper,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};

use super::{print, show, sql::Answer};
use crate::{
    library::LIBRARY,
    questions::query::plan,
    report::{Block, Document, Table, answer::queries as document, whole, word},
    trace::Trace,
};
use analyze_engine::{catalog, functions::reference};
use analyze_run::text;
use analyze_run::{error::AnalyzeError, progress};

const HELP: &str = "A query ends with a semicolon. \\d lists tables and views, \\d NAME describes one, \\df lists functions, \\q leaves; Tab completes names.\n";

/// What Tab completes: words of SQL, and names of views and columns.
struct Names(Vec<String>);

impl Completer for Names {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..pos];
        let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |place| place + 1);
        let word = before[start..].to_lowercase();
        let fits = self.0.iter().filter(|name| name.to_lowercase().starts_with(&word));
        let pairs = fits.map(|name| Pair { display: name.clone(), replacement: name.clone() });
        Ok((start, pairs.collect()))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Borrowed(prompt)
    }
}

impl Validator for Names {
    fn validate(&self, ctx: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = ctx.input().trim();
        let is_whole = text.is_empty() || text.starts_with('\\') || text.ends_with(';');
        Ok(if is_whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Helper for Names {}

fn failed(error: &ReadlineError) -> AnalyzeError {
    AnalyzeError::Query(format!("the terminal: {error}"))
}

/// Where earlier queries are kept; `None`: nowhere.
fn history() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    Some(state.or_else(home)?.join("inquest/sql_history"))
}

fn describe(queries: &[catalog::Query], name: &str) -> Result<(), AnalyzeError> {
    if name.is_empty() {
        return show(&document::views(queries));
    }
    match queries.iter().find(|query| query.name == name) {
        Some(query) => show(&document::view(query)),
        None => print(&format!("there is no view {name}: \\d lists them\n")),
    }
}

fn functions() -> Document {
    let row = |function: &reference::Function| {
        let of = &function.documentation;
        let first = of.description.split_inclusive(". ").next().unwrap_or_default();
        [of.syntax_example.clone(), first.to_owned()]
    };
    let columns = [whole("function"), word("and all of DataFusion's")];
    let rows = reference::functions();
    Document::answer(vec![Block::Table(Table::texts(&columns, rows.iter().map(row)))])
}

/// Asks for queries until there are no more. What is wrong with one does not end the dialogue.
///
/// # Errors
/// If the terminal cannot be used.
pub(super) async fn run(trace: &Trace, answer: &Answer) -> Result<(), AnalyzeError> {
    let queries = LIBRARY.queries(answer.queries.as_deref())?;
    let words =
        ["SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "EXPLAIN", "WITH", "events"];
    let mut names: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    for query in &queries {
        names.push(query.name.clone());
        names.extend(query.columns.iter().map(|column| column.name.clone()));
    }
    names.extend(reference::functions().into_iter().map(|function| function.name));
    names.sort();
    names.dedup();
    let mut editor: Editor<Names, FileHistory> = Editor::new().map_err(|error| failed(&error))?;
    editor.set_helper(Some(Names(names)));
    let history = history();
    if let Some(path) = &history {
        // There is none before the first time.
        let _ = editor.load_history(path);
    }
    print(HELP)?;
    loop {
        let line = match editor.readline("inquest> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(&error)),
        };
        let text = line.trim().trim_end_matches(';').trim();
        if text.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(line.as_str());
        match text.strip_prefix('\\') {
            Some("q") => break,
            Some("df") => show(&functions())?,
            Some(command) if command == "d" || command.starts_with("d ") => {
                describe(&queries, command[1..].trim())?;
            }
            Some(_) => print(HELP)?,
            None => {
                progress::begin();
                let result = match plan(trace, text, &answer.params).await {
                    Ok(frame) => answer.write(trace, frame).await,
                    Err(error) => Err(error),
                };
                progress::end();
                if let Err(error) = result {
                    print(&format!("{}\n", text::harmless(&error.to_string())))?;
                }
            }
        }
    }
    if let Some(path) = history {
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        if folder.is_ok() {
            // A dialogue that cannot be remembered was one all the same.
            let _ = editor.save_history(&path);
        }
    }
    Ok(())
}
