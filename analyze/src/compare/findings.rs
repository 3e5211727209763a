//! The findings of the runs of two sides: which are new, which are gone, and which cost more or less.
//!
//! The findings of a run are figures like others, so that baselines keep them and gates can name them:
//! `findings_count(KIND)`, `finding_ns(KIND)` and `finding_bytes(KIND)`. A finding whose cost the record does not tell is left
//! out, and so are all findings of a run whose scheduler or most of whose time is not on record: finding nothing there proves
//! nothing.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    change::{Change, LISTED_Q, values},
    figure::{Figure, Figures, Key},
    metric::{Declaration, Metric},
    runs::Runs,
    samples::mean,
};
use crate::questions::findings::{Confidence, Findings, LEAST_SHARE_RATIO};

/// Metric with the number of findings, in all and of each kind.
const COUNT: &str = "findings_count";
/// Metric with the wall time that the findings of a kind cost.
const TIME: &str = "finding_ns";
/// Metric with the memory that the findings of a kind cost.
const MEMORY: &str = "finding_bytes";

/// Returns a metric of findings. A run whose findings are known has 0 of each that it does not have.
fn metric(name: &str) -> Metric {
    let (unit, floor) = match name {
        TIME => ("ns", 1e6),
        MEMORY => ("bytes", 1_048_576.0),
        _ => ("count", 0.0),
    };
    let declaration = Declaration {
        name: name.to_owned(),
        floor,
        unit: unit.to_owned(),
        is_zero_if_absent: true,
        measured_with: Some(COUNT.to_owned()),
        is_declared: true,
        ..Declaration::default()
    };
    declaration.into()
}

/// Returns the figures of a run's findings; none if most of its time is not on record.
pub(super) fn figures(found: &Findings) -> Figures {
    let mut figures = Figures::new();
    if found.is_open {
        return figures;
    }
    let mut add = |name: &str, kind: Option<&str>, value: f64| {
        let key = Key::with(metric(name), kind, None);
        figures.entry(key).or_insert(Figure { value: 0.0, calls_count: None }).value += value;
    };
    add(COUNT, None, 0.0);
    for finding in found.findings.iter().filter(|one| one.confidence != Confidence::Inconclusive) {
        add(COUNT, None, 1.0);
        add(COUNT, Some(finding.kind), 1.0);
        if let Some(cost_ns) = finding.cost_ns {
            add(TIME, Some(finding.kind), cost_ns as f64);
        }
        if let Some(cost_bytes) = finding.cost_bytes {
            add(MEMORY, Some(finding.kind), cost_bytes as f64);
        }
    }
    figures
}

/// How the findings of a kind differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// No base run has one.
    New,
    /// They cost more.
    More,
    /// They cost less.
    Less,
    /// No new run has one.
    Gone,
}

impl Difference {
    /// Name of the difference in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::More => "costs more",
            Self::Less => "costs less",
            Self::Gone => "gone",
        }
    }
}

/// Findings of one kind that the sides do not have alike. Costs are means over the runs of a side; a run without has 0.
#[derive(Clone, Debug, Serialize)]
pub struct FindingChange {
    /// Kind of the findings, such as `waiting-for-cpu`.
    pub kind: String,
    /// How they differ.
    pub difference: Difference,
    /// Number of base runs that have one.
    pub base_runs_count: usize,
    /// Number of new runs that have one.
    pub new_runs_count: usize,
    /// Wall time that they cost in the base, in nanoseconds.
    pub base_ns: f64,
    /// Wall time that they cost in the new runs, in nanoseconds.
    pub new_ns: f64,
    /// Memory that they cost in the base, in bytes.
    pub base_bytes: f64,
    /// Memory that they cost in the new runs, in bytes.
    pub new_bytes: f64,
}

/// Returns the mean of a figure over the runs of a side; 0 where it is absent.
fn mean_of(runs: &Runs, key: &Key) -> f64 {
    mean(&values(runs, key).into_iter().map(|(_, value)| value).collect::<Vec<f64>>())
}

/// Returns how the findings of the sides differ, those that are new first, then by cost. `all` are the compared figures, and a
/// cost that is on both sides counts if it changes by at least 2 % of `wall_ns`, the wall time of a base run, and chance alone
/// would seldom change it. Returns `None` if the findings of some run are not known.
pub fn changes(base: &Runs, new: &Runs, all: &[Change], wall_ns: f64) -> Option<Vec<FindingChange>> {
    let whole = Key::with(metric(COUNT), None, None);
    let are_known = |runs: &Runs| runs.figure(&whole).count() == runs.each().len();
    if !are_known(base) || !are_known(new) {
        return None;
    }
    let of_counts = base.keys().iter().chain(new.keys()).filter(|key| key.metric.name() == COUNT);
    let kinds: BTreeSet<&str> = of_counts.filter_map(|key| key.subject.as_deref()).collect();
    let change = |kind: &str| {
        let key = |name: &str| Key::with(metric(name), Some(kind), None);
        let having = |runs: &Runs| runs.figure(&key(COUNT)).count();
        let means = |name: &str| (mean_of(base, &key(name)), mean_of(new, &key(name)));
        let ((base_ns, new_ns), (base_bytes, new_bytes)) = (means(TIME), means(MEMORY));
        let (base_runs_count, new_runs_count) = (having(base), having(new));
        let time = key(TIME);
        let found = all.iter().find(|change| change.key == time);
        let may_be_chance = found.and_then(|change| change.q).is_some_and(|q| q > LISTED_Q);
        let is_small = (new_ns - base_ns).abs() < LEAST_SHARE_RATIO * wall_ns;
        let difference = match (base_runs_count, new_runs_count) {
            (0, _) => Difference::New,
            (_, 0) => Difference::Gone,
            _ if may_be_chance || is_small => return None,
            _ if new_ns > base_ns => Difference::More,
            _ => Difference::Less,
        };
        Some(FindingChange {
            kind: kind.to_owned(),
            difference,
            base_runs_count,
            new_runs_count,
            base_ns,
            new_ns,
            base_bytes,
            new_bytes,
        })
    };
    let mut changes: Vec<FindingChange> = kinds.into_iter().filter_map(change).collect();
    let size = |change: &FindingChange| (change.new_ns - change.base_ns).abs();
    changes.sort_by(|a, b| a.difference.cmp(&b.difference).then_with(|| size(b).total_cmp(&size(a))));
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compare::{facts::Facts, runs::RunFigures},
        questions::findings::{Finding, Rank},
    };

    fn found(costs: &[(&'static str, i64)]) -> Findings {
        let finding = |(kind, cost_ns): &(&'static str, i64)| {
            Finding::new(kind, Rank::Cost, Some(1), String::new()).costs(*cost_ns, 1000)
        };
        Findings {
            run: "run".to_owned(),
            wall_ns: Some(1000),
            findings: costs.iter().map(finding).collect(),
            bound: String::new(),
            is_open: false,
            warnings: Vec::new(),
        }
    }

    fn side(runs: &[Findings]) -> Runs {
        let run = |found: &Findings| RunFigures {
            name: String::new(),
            facts: Facts::default(),
            figures: figures(found),
        };
        Runs::new(runs.iter().map(run)).unwrap()
    }

    #[test]
    fn new_and_gone_findings_are_told_from_those_that_cost_more() {
        let base =
            side(&[found(&[("stopped", 100), ("gone", 50), ("same", 300)]), found(&[("stopped", 100)])]);
        let new = side(&[found(&[("hog", 400), ("hog", 100), ("stopped", 200), ("same", 150)])]);
        let all = changes(&base, &new, &[], 1000.0).unwrap();
        let told: Vec<_> =
            all.iter().map(|one| (one.kind.as_str(), one.difference, one.base_ns, one.new_ns)).collect();
        let expected = [
            ("hog", Difference::New, 0.0, 500.0),
            ("stopped", Difference::More, 100.0, 200.0),
            ("gone", Difference::Gone, 25.0, 0.0),
        ];
        assert_eq!(told, expected);
        assert_eq!((all[0].base_runs_count, all[2].base_runs_count), (0, 1));
    }

    #[test]
    fn what_is_not_known_is_not_compared() {
        let open = Findings { is_open: true, ..found(&[]) };
        let quiet = side(&[found(&[("hog", 400)])]);
        assert!(changes(&quiet, &side(&[open]), &[], 1000.0).is_none());
        let unsure = Findings {
            findings: vec![Finding::new("hang", Rank::Failure, None, String::new()).inconclusive("why")],
            ..found(&[])
        };
        assert!(changes(&side(&[found(&[])]), &side(&[unsure]), &[], 1000.0).unwrap().is_empty());
    }
}
