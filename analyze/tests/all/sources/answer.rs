//! What a source lets a question, a view or a metric answer: a word, and the reasons that the program gave for it.

use std::collections::BTreeSet;

use analyze_engine::catalog::Query;

use super::observe::Observed;

/// The answer of one source, as the program's own output has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    /// It has values for all that any source has values for.
    Computed,
    /// A part is missing, for this reason.
    Bounded(String),
    /// Nothing is known, for this reason.
    Inconclusive(String),
    /// There are no rows, and no reason is given: the program would have claimed that nothing happened.
    Silent,
}

impl Answer {
    /// Returns the word of a cell.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Computed => "computed",
            Self::Bounded(_) => "bounded",
            Self::Inconclusive(_) => "inconclusive",
            Self::Silent => "silent",
        }
    }

    /// Returns the reason of a cell; `None` if the answer needs none.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Bounded(reason) | Self::Inconclusive(reason) => Some(reason),
            Self::Computed | Self::Silent => None,
        }
    }

    /// Returns whether another sample may tell something where this one told nothing.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Inconclusive(_) | Self::Silent)
    }

    fn without_rows(query: &Query, observed: &Observed) -> Self {
        match observed.reasons.is_empty() {
            false => Self::Inconclusive(observed.reasons.join("; ")),
            // The header says what no rows mean.
            true if query.purpose.contains("No rows mean") => Self::Computed,
            true => Self::Silent,
        }
    }
}

fn nulls<'a>(columns: impl Iterator<Item = &'a String>) -> Option<String> {
    let columns: Vec<String> = columns.map(|column| format!("`{column}`")).collect();
    (!columns.is_empty()).then(|| format!("null: {}", columns.join(", ")))
}

fn open<'a>(columns: impl Iterator<Item = &'a String>) -> Option<String> {
    let columns: Vec<String> = columns.map(|column| format!("`{column}`")).collect();
    (!columns.is_empty()).then(|| format!("a part is in {}", columns.join(", ")))
}

/// Returns the answer of a source to a query; `known` are the columns that some source fills.
pub(super) fn of_view(query: &Query, observed: &Observed, known: &BTreeSet<String>) -> Answer {
    if !observed.has_rows {
        return Answer::without_rows(query, observed);
    }
    // In the order of the header.
    let is_missing = |name: &&String| known.contains(*name) && !observed.filled.contains(*name);
    let missing = nulls(query.columns.iter().map(|column| &column.name).filter(is_missing));
    let parts: Vec<String> = [missing, open(observed.open.iter())].into_iter().flatten().collect();
    if parts.is_empty() { Answer::Computed } else { Answer::Bounded(parts.join("; ")) }
}

/// Returns the answer of a source to one metric of a query.
pub(super) fn of_metric(query: &Query, metric: &str, observed: &Observed) -> Answer {
    if !observed.has_rows {
        return Answer::without_rows(query, observed);
    }
    if !observed.filled.contains(metric) {
        return Answer::Inconclusive("it is null".to_owned());
    }
    let unit =
        |name: &str| query.columns.iter().find(|column| column.name == name).map(|column| &column.unit);
    // What is in no part is missing from each of them.
    let is_of_unit = |name: &&String| **name != metric && unit(name.as_str()) == unit(metric);
    let is_part = !observed.open.contains(metric);
    open(observed.open.iter().filter(is_of_unit))
        .filter(|_| is_part)
        .map_or(Answer::Computed, Answer::Bounded)
}
