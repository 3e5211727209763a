//! What is wrong with a run, ranked.

use crate::{
    questions::findings::{Finding, Findings},
    report::{
        document::{Block, Document, Table, Tone, whole},
        section::findings::{blocks, cost, main_sentence},
    },
};

/// Arranges the findings.
pub fn document(findings: &Findings) -> Document {
    let mut all = blocks(findings);
    let (main, tone) = main_sentence(findings);
    // Without a finding the first line has it.
    if !main.contains(&findings.bound) {
        all.push(Block::Note(findings.bound.clone()));
    }
    all.push(Block::Warnings(findings.warnings.clone()));
    let mut document = Document::answer(all);
    (document.verdict.main, document.verdict.tone) = (main, tone);
    document
}

/// Arranges what a check of the findings decided: each finding with whether it fails the check.
pub fn checked<'a>(
    findings: impl IntoIterator<Item = (&'a Finding, &'static str)>,
    passed: bool,
) -> Document {
    let rows = findings.into_iter().map(|(finding, decision)| {
        [decision.to_owned(), finding.kind.to_owned(), cost(finding), finding.title.clone()]
    });
    let table = Table::texts(&[whole("Check"), whole("Kind"), whole("Cost"), whole("Finding")], rows);
    let mut document =
        Document::answer(if table.rows.is_empty() { Vec::new() } else { vec![Block::Table(table)] });
    (document.verdict.main, document.verdict.tone) = match passed {
        true => ("Passed: no finding is over the limits.".to_owned(), Tone::Good),
        false => ("Not passed.".to_owned(), Tone::Bad),
    };
    document
}
