//! How well a profiler's trace is aligned with a run.

use std::path::Path;

use trace_schema::{Alignment, Bytes, Nanos};

use crate::{
    align::rewrite::Outcome,
    report::{
        document::{Block, Document, Table},
        section::is_few,
    },
};

/// Describes how well an alignment is known, as names and values.
pub fn facts(alignment: &Alignment) -> [(&'static str, String); 4] {
    let Alignment { matched_count, matchable_count, offset_ns, drift_ppm, drift_error_ppm, .. } = alignment;
    let share = *matched_count as f64 / (*matchable_count).max(1) as f64 * 100.0;
    let error = match alignment.offset_error_ns {
        Some(error) => format!("within {}", Nanos(error)),
        None => "error not known: records of calls do not enclose one another".to_owned(),
    };
    let p99 = match is_few(0.99, *matched_count as i64) {
        true => String::new(),
        false => format!("p99 {}, ", Nanos(alignment.residual_p99_ns)),
    };
    [
        ("matched", format!("{matched_count} of {matchable_count} calls ({share:.2} %)")),
        ("offset", format!("{offset_ns} ns, {error}")),
        (
            "drift",
            format!(
                "{drift_ppm:.3} ± {drift_error_ppm:.3} ppm; no part is more than {} off the line",
                Nanos(alignment.nonlinearity_ns)
            ),
        ),
        (
            "residual",
            format!(
                "median {}, {p99}largest {}",
                Nanos(alignment.residual_median_ns),
                Nanos(alignment.residual_max_ns)
            ),
        ),
    ]
}

/// Arranges the outcome of an alignment that was written to `out`.
pub fn document(outcome: &Outcome, out: &Path) -> Document {
    let mut facts = facts(&outcome.alignment).to_vec();
    facts.push((
        "wall",
        outcome.wall_difference_ns.map_or_else(
            || "not known to both".to_owned(),
            |ns| format!("the two differ by {} on the time of day", Nanos(ns.saturating_abs())),
        ),
    ));
    for (name, counts) in [("added", &outcome.added), ("left out", &outcome.left_out)] {
        let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        facts.push((name, if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }));
    }
    let size = Bytes(outcome.size_bytes as i64);
    facts.push(("written", format!("{} events, {size}: {}", outcome.rows_count, out.display())));
    Document::answer(vec![Block::Table(Table::facts(facts))])
}
