//! What is wrong with the run, ranked, with what it costs, what shows it and what to do.

use std::collections::BTreeSet;

use super::{percent, size, time};
use crate::{
    questions::findings::{Confidence, Finding, Findings, Rank},
    report::{
        data::Report,
        document::{Block, Cell, Link, Row, Section, Table, Tone, number, whole, word},
    },
};

/// Largest share of a process's wall time of a cost that is no more than a note in the first line.
const MINOR_RATIO: f64 = 0.05;

/// Formats what a finding costs.
pub(in crate::report) fn cost(finding: &Finding) -> String {
    let time_cost = match (finding.cost_ns, finding.cost_range_ns) {
        (_, Some((least, most))) if least > 0 => {
            Some(format!("{} to {}", time(least as f64), time(most as f64)))
        }
        (_, Some((_, most))) => Some(format!("at most {}", time(most as f64))),
        (Some(ns), None) => Some(time(ns as f64)),
        (None, None) => None,
    };
    let parts: Vec<String> = time_cost.into_iter().chain(finding.cost_bytes.map(size)).collect();
    if parts.is_empty() { "–".to_owned() } else { parts.join(", ") }
}

/// Formats the share of the process's wall time.
fn share(finding: &Finding) -> String {
    finding.share_ratio.map_or_else(|| "–".to_owned(), percent)
}

/// Names how sure a finding's cost is.
fn confidence(finding: &Finding) -> &'static str {
    match finding.confidence {
        Confidence::Measured => "measured",
        Confidence::Bounded => "bounded",
        Confidence::Inconclusive => "inconclusive",
    }
}

/// Returns how a finding is emphasized.
pub(in crate::report) fn tone(finding: &Finding) -> Tone {
    let is_minor = finding.share_ratio.is_some_and(|ratio| ratio < MINOR_RATIO);
    match finding.confidence {
        Confidence::Inconclusive => Tone::Open,
        Confidence::Bounded if finding.cost_range_ns.is_some_and(|(least, _)| least == 0) => Tone::Open,
        _ if finding.rank == Rank::Note || finding.rank == Rank::Cost && is_minor => Tone::Open,
        _ => Tone::Bad,
    }
}

/// Returns the first line of an answer: the first finding, or that there is none, and what bounds the run.
pub(in crate::report) fn main_sentence(findings: &Findings) -> (String, Tone) {
    let Some(first) = findings.findings.first().filter(|first| first.rank < Rank::Note) else {
        return match (findings.wall_ns, findings.is_open) {
            (None, _) => {
                ("No CUDA call is on record: there is no time to account for.".to_owned(), Tone::Open)
            }
            (Some(_), true) => (
                format!("Inconclusive: most of the run's time is not on record. {}", findings.bound),
                Tone::Open,
            ),
            (Some(_), false) => (
                format!("Nothing is found that costs the run time or memory. {}", findings.bound),
                Tone::Good,
            ),
        };
    };
    let costs = match (first.cost_ns, first.share_ratio) {
        (Some(_), Some(ratio)) => format!(" It costs {}, {} of the wall time.", cost(first), percent(ratio)),
        (Some(_), None) => format!(" It costs {}.", cost(first)),
        (None, _) => first.cost_bytes.map_or_else(String::new, |bytes| format!(" It holds {}.", size(bytes))),
    };
    let open = match first.confidence {
        Confidence::Inconclusive => format!(" Inconclusive: {}", first.open),
        _ => String::new(),
    };
    (format!("{}{costs}{open}", first.title), tone(first))
}

/// Describes what shows a finding, what to do and what that saves.
fn details(finding: &Finding) -> String {
    let evidence: Vec<&str> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    let overlaps = finding.overlaps.join(", ");
    let facts = [
        ("Evidence", evidence.join("; ")),
        ("Not known", finding.open.clone()),
        ("The same time is in", overlaps),
        ("To do", finding.to_do.clone()),
        ("Saves", finding.saves.clone()),
    ];
    let told = facts.into_iter().filter(|(_, text)| !text.is_empty());
    told.map(|(name, text)| format!("{name}: {}.", text.trim_end_matches('.'))).collect::<Vec<_>>().join(" ")
}

/// Returns whether the findings are about more than one process, so that each says which.
fn has_several(findings: &Findings) -> bool {
    let pids: BTreeSet<i64> = findings.findings.iter().filter_map(|finding| finding.pid).collect();
    pids.len() > 1
}

fn row((place, finding): (usize, &Finding)) -> Row {
    let section =
        finding.evidence.iter().map(|evidence| evidence.section).find(|section| !section.is_empty());
    let links = section.into_iter().map(|section| Link::to_section(section, finding.kind)).collect();
    Row {
        cells: vec![
            (place + 1).into(),
            Cell { tone: tone(finding), ..Cell::from(&finding.title) },
            cost(finding).into(),
            share(finding).into(),
            confidence(finding).into(),
            Cell { links, ..Cell::from(finding.kind) },
        ],
        note: details(finding),
        ..Row::default()
    }
}

/// Arranges the findings, and the queries behind their figures.
pub(in crate::report) fn blocks(findings: &Findings) -> Vec<Block> {
    if findings.findings.is_empty() {
        return Vec::new();
    }
    let columns =
        [number("#"), whole("Finding"), number("Cost"), number("Share"), whole("Cost is"), whole("Kind")];
    let rows = findings.findings.iter().enumerate().map(row).collect();
    let mut table = Table::new(&columns, rows, "");
    if has_several(findings) {
        let pid = |finding: &Finding| finding.pid.map_or_else(|| "–".to_owned(), |pid| pid.to_string());
        table = table.with(number("PID"), findings.findings.iter().map(|finding| pid(finding).into()));
    }
    let mut blocks = vec![Block::Table(table)];
    let evidence = findings.findings.iter().enumerate().flat_map(|(place, finding)| {
        let with_query = finding.evidence.iter().filter(|evidence| !evidence.sql.is_empty());
        with_query.map(move |evidence| [(place + 1).to_string(), evidence.text.clone(), evidence.sql.clone()])
    });
    let queries = Table::texts(&[number("#"), word("Figure"), whole("SQL")], evidence);
    if !queries.rows.is_empty() {
        blocks.push(Block::Table(queries.caption("The queries behind these figures").folded()));
    }
    blocks
}

/// Builds the section; `None` if nothing was found.
pub(super) fn build(report: &Report) -> Option<Section> {
    let mut blocks = blocks(&report.findings);
    if blocks.is_empty() {
        return None;
    }
    blocks.push(Block::Note(
        "What ended the run comes first, then what costs most. Each nanosecond of a process counts in one finding at most.".to_owned(),
    ));
    Some(Section {
        id: "findings",
        short: "Findings",
        question: "What is wrong, what does it cost, and what to do?".to_owned(),
        blocks,
    })
}
