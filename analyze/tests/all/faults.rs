//! Planted faults, recorded on the stub's libraries (`testdata/faults`): what is found first, what it names, and what it costs.
//!
//! The truth was measured: each fault ran in pairs with a twin that has none, and its cost is the difference of their loops.

use std::collections::BTreeMap;

use analyze::{
    questions::findings::{self, Finding, Rank},
    trace::Trace,
};
use serde::Deserialize;

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
    fn agrees(&self, finding: &Finding) -> bool {
        let seconds = |ns: i64| ns as f64 / 1e9;
        let is_within = finding
            .cost_range_ns
            .is_some_and(|(least_ns, most_ns)| (seconds(least_ns)..=seconds(most_ns)).contains(&self.mean));
        let is_near = finding.cost_ns.map(seconds).is_some_and(|cost| {
            (cost - self.mean).abs() <= COST_RATIO * self.mean || (self.low..=self.high).contains(&cost)
        });
        is_within || is_near
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

/// What is wrong with the findings of a run with a fault; empty if nothing is.
fn mismatches(truth: &Truth, findings: &[Finding]) -> Vec<String> {
    let mut counted = findings.iter().filter(|finding| !truth.accepted.contains_key(finding.kind));
    let Some(first) = counted.next() else { return vec!["nothing was found".to_owned()] };
    let mut wrong = Vec::new();
    if Some(first.kind) != truth.kind.as_deref() {
        wrong.push(format!("found {} first, not {:?}", first.kind, truth.kind));
    }
    let missing: Vec<_> = truth.names.iter().filter(|name| !first.title.contains(*name)).collect();
    if !missing.is_empty() {
        wrong.push(format!("{missing:?} not named in: {}", first.title));
    }
    if let Some(cost) = truth.cost_s.as_ref().filter(|cost| !cost.agrees(first)) {
        wrong.push(format!(
            "costs {:.3} s ({:.3} to {:.3}), not {:?} ns ({:?})",
            cost.mean, cost.low, cost.high, first.cost_ns, first.cost_range_ns
        ));
    }
    wrong
}

#[tokio::test]
async fn a_planted_fault_is_found_first_with_its_cost() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, truth) in truths() {
        let Some(file) = &truth.fault else { continue };
        count += 1;
        wrong.extend(
            mismatches(&truth, &findings_of(file).await).into_iter().map(|what| format!("{name}: {what}")),
        );
    }
    assert!(count >= 20, "{count} faults");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
    assert!(count >= 15, "{count} runs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_cost_agrees_with_its_interval_or_lies_near_its_mean() {
    let cost = Cost { mean: 1.0, low: 0.7, high: 1.1 };
    let of = |ns| Finding::new("disk", Rank::Cost, None, String::new()).costs(ns, 3_000_000_000);
    assert!(cost.agrees(&of(750_000_000)) && cost.agrees(&of(1_090_000_000)));
    assert!(!cost.agrees(&of(600_000_000)) && !cost.agrees(&of(1_200_000_000)));
    let sure = Cost { low: 0.99, high: 1.01, ..cost };
    assert!(sure.agrees(&of(950_000_000)) && !sure.agrees(&of(850_000_000)));
    let bounded = |least_ns, most_ns| of(0).bounded(least_ns, most_ns, 3_000_000_000, "a test");
    assert!(sure.agrees(&bounded(0, 2_000_000_000)) && !sure.agrees(&bounded(0, 900_000_000 - 1)));
    assert!(mismatches(&truths()["stub-disk"], &[]).len() == 1);
}
