//! Every function by stratum, the longest totals first.

use super::time;
use crate::analysis::summary::Line;

/// Strata shown.
const SHOWN: usize = 60;

/// One line of the table.
pub(crate) struct Stratum {
    pub(crate) op: String,
    pub(crate) stratum: String,
    pub(crate) calls: i64,
    pub(crate) p50: String,
    pub(crate) p90: String,
    pub(crate) p99: String,
    pub(crate) max: String,
    pub(crate) total: String,
}

/// The table, bounded.
pub(crate) struct Strata {
    pub(crate) shown: Vec<Stratum>,
    pub(crate) all_count: usize,
}

pub(crate) fn build(lines: &[Line]) -> Strata {
    let cell = |ns: Option<f64>| ns.map_or_else(|| "–".to_owned(), time);
    let shown = lines
        .iter()
        .take(SHOWN)
        .map(|line| Stratum {
            op: line.op.clone(),
            stratum: line.stratum(),
            calls: line.calls_count,
            p50: cell(line.p50_ns),
            p90: cell(line.p90_ns),
            p99: cell(line.p99_ns),
            max: cell(line.max_ns.map(|ns| ns as f64)),
            total: cell(line.total_ns.map(|ns| ns as f64)),
        })
        .collect();
    Strata { shown, all_count: lines.len() }
}
