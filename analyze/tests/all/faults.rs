//! Planted faults, recorded on an H200 and on the stub's libraries (`testdata/faults`): what is found first, what it names, and what
//! it costs.
//!
//! The truth was measured: each fault ran in pairs with a twin that has none, and its cost is the difference of their loops. A twin
//! that is kept and has the same finding, at a smaller cost, is what the fault is compared with. `testdata/faults/results.md` is the
//! table.

use std::collections::BTreeMap;

use analyze::{
    questions::findings::{self, Finding, Rank},
    trace::Trace,
};
use serde::Deserialize;
use trace_schema::Bytes;

use super::support::{testdata, truth};

/// Largest deviation of a cost from the measured one, unless that is less certain.
const COST_RATIO: f64 = 0.1;
/// Share of the wall time from which on a cost is a false alarm in a run without a fault.
const ALARM_RATIO: f64 = 0.05;

/// The measured cost in seconds, with its 95 % interval.
#[derive(Deserialize)]
struct Cost {
    mean: f64,
    low: f64,
    high: f64,
}

impl Cost {
    /// Returns whether a finding that costs `twin_ns` nanoseconds without the fault agrees.
    fn agrees(&self, finding: &Finding, twin_ns: i64) -> bool {
        let seconds = |ns: i64| (ns - twin_ns) as f64 / 1e9;
        let is_within = finding
            .cost_range_ns
            .is_some_and(|(least_ns, most_ns)| (seconds(least_ns)..=seconds(most_ns)).contains(&self.mean));
        is_within || finding.cost_ns.map(seconds).is_some_and(|cost| self.is_near(cost))
    }

    /// Returns whether a cost in seconds lies within the tolerance.
    fn is_near(&self, cost: f64) -> bool {
        (cost - self.mean).abs() <= COST_RATIO * self.mean || (self.low..=self.high).contains(&cost)
    }
}

/// What is true of a fault, or of a run without one.
#[derive(Deserialize)]
struct Truth {
    fault: Option<String>,
    twin: Option<String>,
    kind: Option<String>,
    names: Vec<String>,
    cost_s: Option<Cost>,
    /// Findings that do not count, with the reason.
    accepted: BTreeMap<String, String>,
}

fn truths() -> BTreeMap<String, Truth> {
    serde_json::from_value(truth("faults/truth.json")).unwrap()
}

async fn findings_of(file: &str) -> Vec<Finding> {
    let trace = Trace::open_one(testdata(&format!("faults/{file}")).as_ref()).await.unwrap();
    findings::run(&trace).await.unwrap().findings
}

/// The cost in nanoseconds that the twin has of a kind of finding; 0 if it is not kept.
async fn of_twin(truth: &Truth, kind: Option<&str>) -> i64 {
    let Some(file) = &truth.twin else { return 0 };
    let found = findings_of(file).await;
    found.iter().filter(|finding| Some(finding.kind) == kind).filter_map(|finding| finding.cost_ns).sum()
}

/// What is wrong with the findings of a run with a fault; empty if nothing is.
fn mismatches(truth: &Truth, findings: &[Finding], twin_ns: i64) -> Vec<String> {
    let is_other = |finding: &&Finding| {
        Some(finding.kind) == truth.kind.as_deref() || !truth.accepted.contains_key(finding.kind)
    };
    let mut counted = findings.iter().filter(is_other);
    let Some(first) = counted.next() else { return vec!["nothing was found".to_owned()] };
    let mut wrong = Vec::new();
    if Some(first.kind) != truth.kind.as_deref() {
        wrong.push(format!("found {} first, not {:?}", first.kind, truth.kind));
    }
    let missing: Vec<_> = truth.names.iter().filter(|name| !first.title.contains(*name)).collect();
    if !missing.is_empty() {
        wrong.push(format!("{missing:?} not named in: {}", first.title));
    }
    if let Some(cost) = truth.cost_s.as_ref().filter(|cost| !cost.agrees(first, twin_ns)) {
        wrong.push(format!(
            "costs {:.3} s ({:.3} to {:.3}), not {:?} ns ({:?}; {twin_ns} ns in the twin)",
            cost.mean, cost.low, cost.high, first.cost_ns, first.cost_range_ns
        ));
    }
    wrong
}

/// Seconds with two digits behind the point.
fn seconds(ns: i64) -> String {
    format!("{:.2}", ns as f64 / 1e9)
}

/// The row of a fault in the table.
fn row(name: &str, truth: &Truth, first: &Finding, twin_ns: i64) -> String {
    let found = match (first.cost_range_ns, first.cost_ns, first.cost_bytes) {
        (Some((least_ns, most_ns)), ..) => format!("{} to {}", seconds(least_ns), seconds(most_ns)),
        (None, Some(ns), _) => seconds(ns),
        (None, None, Some(bytes)) => Bytes(bytes).to_string(),
        (None, None, None) => "–".to_owned(),
    };
    let found =
        if twin_ns > 0 { format!("{found}, and {} without the fault", seconds(twin_ns)) } else { found };
    let (measured, verdict) = match &truth.cost_s {
        None => ("–".to_owned(), ""),
        Some(cost) => {
            let of_fault = |ns: i64| (ns - twin_ns) as f64 / 1e9;
            let is_bound = first.cost_range_ns.is_some_and(|(least_ns, most_ns)| {
                (of_fault(least_ns)..=of_fault(most_ns)).contains(&cost.mean)
            });
            (
                format!("{:.2} [{:.2}, {:.2}]", cost.mean, cost.low, cost.high),
                if is_bound { "within the bounds" } else { "equal" },
            )
        }
    };
    let confidence = serde_json::to_value(first.confidence).unwrap();
    format!(
        "| {name} | `{}` | {found} | {} | {measured} | {verdict} |",
        first.kind,
        confidence.as_str().unwrap()
    )
}

#[tokio::test]
async fn a_planted_fault_is_found_first_with_its_cost() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    let mut table = String::from(
        "# What is found of planted faults\n\n\
         Written by the test `faults` of `analyze`. Costs are in seconds of wall time, or in memory. *Measured* is the mean difference of the \
         loops of fault and twin in five pairs, with its 95 % interval. *Equal*: the cost lies in that interval or within a tenth of the mean; \
         *within the bounds*: the record only bounds the cost, and the mean lies between. Names with `stub` were recorded without a GPU.\n\n\
         | planted | first finding | its cost | which is | measured | |\n|---|---|---|---|---|---|\n",
    );
    for (name, truth) in truths() {
        let Some(file) = &truth.fault else { continue };
        count += 1;
        let (found, twin_ns) = (findings_of(file).await, of_twin(&truth, truth.kind.as_deref()).await);
        let mismatches = mismatches(&truth, &found, twin_ns);
        let first = found.iter().find(|finding| Some(finding.kind) == truth.kind.as_deref());
        if let Some(first) = first.filter(|_| mismatches.is_empty()) {
            table += &row(&name, &truth, first, twin_ns);
            table.push('\n');
        }
        wrong.extend(mismatches.into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(count >= 30, "{count} faults");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let path = testdata("faults/results.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == table, "{path} is not current; BLESS=1 writes it:\n{table}");
}

#[tokio::test]
async fn a_run_without_a_fault_has_no_finding_that_costs() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, truth) in truths() {
        let Some(file) = &truth.twin else { continue };
        count += 1;
        let is_alarm = |finding: &Finding| {
            let is_costly = finding.share_ratio.is_none_or(|ratio| ratio >= ALARM_RATIO);
            finding.rank < Rank::Cost || finding.rank == Rank::Cost && is_costly
        };
        for finding in findings_of(file).await {
            let is_accepted = truth.accepted.get(finding.kind).is_some_and(|reason| !reason.is_empty());
            if is_alarm(&finding) && !is_accepted {
                wrong
                    .push(format!("{name}: {} ({:?}): {}", finding.kind, finding.share_ratio, finding.title));
            }
        }
    }
    assert!(count >= 8, "{count} runs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_cost_agrees_with_its_interval_or_lies_near_its_mean() {
    let cost = Cost { mean: 1.0, low: 0.7, high: 1.1 };
    let of = |ns| Finding::new("disk", Rank::Cost, None, String::new()).costs(ns, 3_000_000_000);
    assert!(cost.agrees(&of(750_000_000), 0) && cost.agrees(&of(1_090_000_000), 0));
    assert!(!cost.agrees(&of(600_000_000), 0) && !cost.agrees(&of(1_200_000_000), 0));
    assert!(cost.agrees(&of(1_500_000_000), 500_000_000) && !cost.agrees(&of(1_000_000_000), 500_000_000));
    let sure = Cost { low: 0.99, high: 1.01, ..cost };
    assert!(sure.agrees(&of(950_000_000), 0) && !sure.agrees(&of(850_000_000), 0));
    let bounded = |least_ns, most_ns| of(0).bounded(least_ns, most_ns, 3_000_000_000, "a test");
    assert!(sure.agrees(&bounded(0, 2_000_000_000), 0) && !sure.agrees(&bounded(0, 900_000_000 - 1), 0));
    assert!(mismatches(&truths()["stub-disk"], &[], 0).len() == 1);
}
