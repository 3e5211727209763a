//! Bundled recordings: the list of scenarios, and one that was opened with its findings.

use serde::Serialize;

use super::findings;
use crate::{
    demo::Scenario,
    questions::findings::Findings,
    report::document::{Block, Document, Table, whole},
};

/// A scenario whose recording was written and asked for its findings.
#[derive(Serialize)]
pub struct Opened<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Path of the recording.
    pub run: String,
    /// Path of the report's page; `None` if none was written.
    pub page: Option<String>,
    /// Commands to go on with.
    pub next: Vec<String>,
    /// What is wrong with the run.
    pub findings: &'a Findings,
}

/// Arranges the list of scenarios.
pub fn list(scenarios: &[Scenario]) -> Document {
    let rows = scenarios.iter().map(|scenario| [scenario.name.to_owned(), scenario.story.to_owned()]);
    let table = Table::texts(&[whole("scenario"), whole("what was recorded")], rows);
    let how = "`analyze demo SCENARIO` writes the recording into the folder inquest-demo, says what is wrong with it, what to look for, \
               and how to go on.";
    Document::answer(vec![Block::Table(table), Block::Note(how.to_owned())])
}

/// Arranges an opened scenario: its findings, then what to look for and how to go on.
pub fn opened(opened: &Opened<'_>) -> Document {
    let mut document = findings::document(opened.findings);
    let mut more = vec![
        Block::Heading(format!("What was recorded: {}", opened.scenario.name)),
        Block::Note(opened.scenario.story.to_owned()),
        Block::Heading("What to look for".to_owned()),
        Block::List(opened.scenario.look_for.iter().map(|line| (*line).to_owned()).collect()),
        Block::Heading("How to go on".to_owned()),
        Block::Code(opened.next.join("\n")),
    ];
    let files: Vec<&str> =
        [Some(&opened.run), opened.page.as_ref()].into_iter().flatten().map(String::as_str).collect();
    more.push(Block::Note(format!("Files: {}", files.join(", "))));
    if let Some(section) = document.sections.first_mut() {
        section.blocks.append(&mut more);
    }
    document
}
