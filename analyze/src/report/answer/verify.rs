//! Whether a run is intact.

use crate::{
    questions::verify::Check,
    report::document::{Block, Document, Table},
};

/// Arranges what a check found.
pub fn document(check: &Check) -> Document {
    let mut facts = vec![("rows", check.rows_count.to_string())];
    facts.extend(check.faults.iter().map(|fault| ("broken", fault.what.clone())));
    let contradiction = check.contradictions.iter();
    facts.extend(contradiction.map(|note| ("note", format!("{}: {} rows", note.what, note.rows_count))));
    facts.extend(check.warnings.iter().map(|note| ("note", note.clone())));
    let quality = check.quality_ratio.map(|ratio| format!("{ratio:.6}"));
    let unknown = || "not known: this source does not count what it loses".to_owned();
    facts.push(("quality", quality.unwrap_or_else(unknown)));
    Document::answer(vec![Block::Table(Table::facts(facts))])
}
