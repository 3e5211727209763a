//! The workload's own phases.

use super::time;
use crate::analysis::phases::Phase;

/// Rows shown at most.
const SHOWN: usize = 40;

/// One phase for reading.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) ranges: i64,
    pub(crate) total: String,
    pub(crate) calls: i64,
    pub(crate) launches: i64,
    pub(crate) inside: String,
    pub(crate) scheduler: String,
    pub(crate) blocked: String,
}

/// The section.
pub(crate) struct Phases {
    pub(crate) shown: Vec<Line>,
    pub(crate) all_count: usize,
}

/// The section; `None` if the workload named no phase.
pub(crate) fn build(phases: &[Phase]) -> Option<Phases> {
    let line = |phase: &Phase| Line {
        name: phase.phase.clone(),
        ranges: phase.ranges_count,
        total: time(phase.total_ns as f64),
        calls: phase.calls_count,
        launches: phase.launches_count,
        inside: time(phase.calls_ns as f64),
        scheduler: time(phase.scheduler_ns as f64),
        blocked: time(phase.blocked_ns as f64),
    };
    (!phases.is_empty())
        .then(|| Phases { shown: phases.iter().take(SHOWN).map(line).collect(), all_count: phases.len() })
}
