//! Applies the rule of [`super`] to two sets of runs.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    change::{Change, LISTED_Q, has, signed, values},
    facts::{self, Discord},
    figure::Key,
    findings::{self, FindingChange},
    gate::{Gate, Limit, Rules},
    run_time::RunTime,
    runs::{About, Runs},
    samples::{Method, TEST_FROM, benjamini_hochberg, holm, runs_for},
    why::{self, Account},
    work::{self, Work},
};
use analyze_run::error::AnalyzeError;

/// Version of the comparison's JSON. Additions keep it; changes and removals raise it.
const VERSION: u32 = 1;

/// Smallest relative change that is listed, however certain it is.
const LISTED_RATIO: f64 = 0.01;
/// Largest number of runs a side that is estimated; a larger one is not worth a number.
const MOST_RUNS: f64 = 1000.0;

/// Outcome of one gate, or of all gates together. The order is that of severity: the outcome of a comparison
/// is the maximum over its gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The gate holds.
    Pass,
    /// The trace or the number of runs does not suffice for an answer.
    Inconclusive,
    /// The change exceeds the limit, but one or two runs on a side prove nothing.
    Suspect,
    /// The figure got significantly worse, beyond its limit and floor.
    Regression,
}

impl Outcome {
    /// Name of the outcome in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Inconclusive => "inconclusive",
            Self::Suspect => "suspect",
            Self::Regression => "regression",
        }
    }
}

/// Result of a gate for one figure.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// The gate.
    pub gate: Gate,
    /// The figure that the gate checks.
    pub key: Key,
    /// Outcome of the gate.
    pub outcome: Outcome,
    /// Explanation of the outcome in one sentence.
    pub reason: String,
    /// One-sided p, corrected by Holm's method over all gates; `None` if the figure could not be compared.
    pub p: Option<f64>,
    /// The comparison; `None` if a side does not have the figure.
    pub change: Option<Change>,
}

/// A run that took part in a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Taking {
    /// Name of the run.
    pub run: String,
    /// Wall time in ns; `None` if it was not measured.
    pub wall_ns: Option<f64>,
    /// Number of recorded events.
    pub rows_count: u64,
    /// Number of lost events.
    pub lost_count: u64,
    /// Figures of gates for which the run lies far from the others of its side.
    pub is_outlier_of: Vec<String>,
}

/// Result of a comparison, as its JSON has it.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Version of this format.
    pub comparison_version: u32,
    /// Most severe outcome of any gate; inconclusive if there is no gate.
    pub outcome: Outcome,
    /// The rules that were applied.
    pub rules: Rules,
    /// Runs of the base side.
    pub base: Vec<Taking>,
    /// Runs of the new side.
    pub new: Vec<Taking>,
    /// The difference of the wall times and its parts; `None` if some run has no account of its wall time.
    pub run_time: Option<RunTime>,
    /// Findings that one side has and the other has not, or that cost more or less; `None` if those of some run are not known.
    pub findings: Option<Vec<FindingChange>>,
    /// Circumstances that differ between runs.
    pub discords: Vec<Discord>,
    /// Kinds of work of which the sides do different amounts.
    pub work: Vec<Work>,
    /// Warnings that weaken the conclusions, the one about the work first.
    pub cautions: Vec<String>,
    /// Results of the gates.
    pub gates: Vec<Judged>,
    /// Breakdowns of the differences into parts.
    pub accounts: Vec<Account>,
    /// Listed changes: whole subjects before groups, largest relative change first.
    pub changes: Vec<Change>,
    /// Number of distinct figures in the runs, among which changes were looked for.
    pub figures_count: usize,
}

impl Comparison {
    /// Serializes the comparison as JSON.
    ///
    /// # Errors
    /// Returns an error if a value cannot be represented in JSON.
    pub fn json(&self) -> Result<String, AnalyzeError> {
        serde_json::to_string(self).map_err(|error| AnalyzeError::Internal(error.to_string()))
    }
}

impl Judged {
    fn inconclusive(gate: &Gate, key: &Key, reason: String) -> Self {
        Self {
            gate: gate.clone(),
            key: key.clone(),
            outcome: Outcome::Inconclusive,
            reason,
            p: None,
            change: None,
        }
    }

    /// Gives a value the sign with which worse is positive.
    fn adverse(&self, value: f64) -> f64 {
        if self.gate.may_not_fall { -value } else { value }
    }

    /// Differences up to this amount do not count, in the figure's unit.
    fn floor(&self) -> f64 {
        self.gate.floor.unwrap_or_else(|| self.key.metric.declaration().floor)
    }

    /// Largest change for the worse that does not fail the gate, in the figure's unit: its limit, or its floor
    /// if that is larger.
    fn limit(&self, change: &Change) -> f64 {
        let limit = match self.gate.limit {
            Limit::Ratio(limit) => limit * change.base_mean.abs(),
            Limit::By(limit) => limit,
        };
        limit.max(self.floor())
    }

    /// Returns whether a change by this share of the base's value is one for the worse that the gate is to fail
    /// on; false if the figure could not be compared.
    pub fn forbids(&self, change_ratio: f64) -> bool {
        let forbids =
            |change: &Change| self.adverse(change_ratio * change.base_mean.abs()) > self.limit(change);
        self.change.as_ref().is_some_and(forbids)
    }

    /// Converts a change for the worse from the figure's unit to the scale of differences, worse being
    /// positive. It is larger by what rounding may do, so that a change of just that amount lies within it.
    fn reach(&self, change: &Change, amount: f64) -> f64 {
        const ROUNDING: (f64, f64) = (1e-9, 1e-12);
        let reach = self.adverse(change.difference_of(self.adverse(amount)));
        reach * (1.0 + ROUNDING.0) + ROUNDING.1
    }

    /// Formats a change for the worse by an amount in the figure's unit: as a share if the gate's limit is one.
    fn bound(&self, change: &Change, amount: f64) -> String {
        let is_share = matches!(self.gate.limit, Limit::Ratio(_)) && amount > self.floor();
        if is_share && change.base_mean != 0.0 {
            return signed(self.adverse(amount / change.base_mean.abs()));
        }
        format!("{}{}", if self.gate.may_not_fall { '-' } else { '+' }, self.key.show(amount))
    }

    /// Judges the gate, which is one of `gates_count` gates with a p-value.
    fn judge(mut self, rules: &Rules, gates_count: usize) -> Self {
        let Some(change) = &self.change else { return self };
        let found = &change.difference;
        let (base, new) = (change.base.len(), change.new.len());
        let runs = match (base, new) {
            (1, 1) => "one run a side".to_owned(),
            _ if base == new => format!("{base} runs a side"),
            _ => format!("{base} and {new} runs"),
        };
        let ends = if self.gate.may_not_fall { (found.high, found.low) } else { (found.low, found.high) };
        let (best, worst) = (self.adverse(ends.0), self.adverse(ends.1));
        let estimate = self.adverse(found.estimate);
        let worst_mean = if self.gate.may_not_fall { found.mean_low } else { found.mean_high };
        let mean_estimate = self.adverse(f64::midpoint(found.mean_low, found.mean_high));
        // A change beyond `limit` fails, and a pass excludes one beyond `bound`.
        let limit = self.limit(change);
        let bound = rules.resolution_ratio.map_or(limit, |ratio| limit.max(ratio * change.base_mean.abs()));
        let (fails_from, passes_to) = (self.reach(change, limit), self.reach(change, bound));
        let is_beyond = estimate > fails_from;
        let shown = change.shown();
        if found.method == Method::None {
            let beyond = if is_beyond { "beyond its limit" } else { "within its limit" };
            self.outcome = if is_beyond { Outcome::Suspect } else { Outcome::Inconclusive };
            self.reason = format!(
                "{shown}, {beyond}; but {runs}: how much runs differ is not known from fewer than {TEST_FROM} a side"
            );
            return self;
        }
        let p = self.p.unwrap_or(1.0);
        let shown = format!("{shown} (95 %: {})", change.interval());
        if p <= rules.alpha && is_beyond {
            self.outcome = Outcome::Regression;
            self.reason = format!("{shown}, p {}", p_shown(p));
            return self;
        }
        let excludes = |worst: f64| worst <= passes_to;
        if excludes(worst) && excludes(self.adverse(worst_mean)) {
            self.outcome = Outcome::Pass;
            let is_change = p <= rules.alpha && estimate > 0.0;
            self.reason = if is_change { format!("{shown}: a change, within its limit") } else { shown };
            return self;
        }
        self.outcome = Outcome::Inconclusive;
        let least = found.method.least_p(base, new) * gates_count as f64;
        if least > rules.alpha {
            self.reason = format!(
                "{shown}: with {runs} no regression can be shown on {gates_count} gates at once: p would be {least:.3} at best; more runs or fewer gates are needed"
            );
            return self;
        }
        let needed = |worst: f64, estimate: f64| match excludes(worst) {
            true => 0.0,
            false => runs_for(base.min(new), worst - estimate, passes_to - estimate),
        };
        let to_pass = needed(worst, estimate).max(needed(self.adverse(worst_mean), mean_estimate));
        let to_fail = runs_for(base.min(new), estimate - best, estimate - fails_from);
        let decides = match to_pass.min(to_fail) {
            count if count <= MOST_RUNS => format!("about {count:.0} runs a side would decide"),
            _ => "more than 1,000 runs a side would be needed to decide".to_owned(),
        };
        let bound = self.bound(change, bound);
        self.reason = if is_beyond {
            format!(
                "{shown}: beyond its limit, but with {runs} not significant (p {}); {decides}",
                p_shown(p)
            )
        } else if excludes(worst) {
            format!(
                "{shown}: {runs} exclude a change of the usual run beyond {bound}, but the mean over the runs may have changed by {}; {decides}",
                change.end(worst_mean)
            )
        } else {
            format!("{shown}: {runs} and their noise do not exclude a change beyond {bound}; {decides}")
        };
        self
    }
}

/// Formats a p-value.
pub fn p_shown(p: f64) -> String {
    if p < 0.001 { "below 0.001".to_owned() } else { format!("{p:.3}") }
}

/// Looks up the figures of every gate on both sides. A gate whose figure is missing is marked as
/// inconclusive, with the reason.
fn gated(rules: &Rules, base: &Runs, new: &Runs) -> Result<Vec<Judged>, AnalyzeError> {
    let known = || base.keys().iter().chain(new.keys());
    let mut gates = Vec::new();
    for (gate, key) in rules.figures(known())? {
        gates.push(match Change::of(base, new, &key) {
            Some(change) => Judged {
                p: Some(if gate.may_not_fall { change.difference.p_down } else { change.difference.p_up }),
                change: Some(change),
                ..Judged::inconclusive(gate, &key, String::new())
            },
            None => {
                let is_somewhere = has(base, &key) || has(new, &key);
                let side = if values(base, &key).is_empty() { "base" } else { "new" };
                let why = match key.metric.declaration().min_calls.filter(|_| is_somewhere) {
                    Some(least) => {
                        format!("no {side} run has the {least} calls that {} needs", key.metric.name())
                    }
                    None if is_somewhere => format!("no {side} run has it"),
                    None => "no run has it, so it may not have been measured".to_owned(),
                };
                Judged::inconclusive(gate, &key, why)
            }
        });
    }
    Ok(gates)
}

fn judged(rules: &Rules, gates: Vec<Judged>) -> Vec<Judged> {
    let tested: Vec<f64> = gates.iter().filter_map(|gate| gate.p).collect();
    let mut corrected = holm(&tested).into_iter();
    let with_p = |gate: Judged| {
        let p = gate.p.and_then(|_| corrected.next());
        Judged { p, ..gate }.judge(rules, tested.len())
    };
    gates.into_iter().map(with_p).collect()
}

/// Judges the gates only, without the rest of the comparison, as simulations need it.
pub fn gates_of(rules: &Rules, base: &Runs, new: &Runs) -> Result<Vec<Judged>, AnalyzeError> {
    Ok(judged(rules, gated(rules, base, new)?))
}

/// Compares two sides of at least one run each. `allowed` names circumstances that may differ without
/// forbidding a verdict.
///
/// # Errors
/// Returns an error if a gate matches no metric, or if the same run is given twice.
pub fn compare(
    base: &Runs,
    new: &Runs,
    rules: &Rules,
    allowed: &[String],
) -> Result<Comparison, AnalyzeError> {
    if let Some((one, other)) = facts::repeated([base, new]) {
        return Err(AnalyzeError::Query(format!("{one} and {other} are the same run: it would count twice")));
    }
    let discords: Vec<Discord> = facts::discords(base, new)
        .into_iter()
        .map(|discord| Discord {
            forbids: discord.forbids && !allowed.iter().any(|name| name == discord.what),
            ..discord
        })
        .collect();
    let forbidden: Vec<&str> = discords.iter().filter(|d| d.forbids).map(|d| d.what).collect();
    let mut gates = gates_of(rules, base, new)?;
    if !forbidden.is_empty() {
        for gate in &mut gates {
            gate.outcome = Outcome::Inconclusive;
            gate.reason = format!("not comparable: the runs differ in {}", forbidden.join(", "));
        }
    }
    let keys: BTreeSet<&Key> = base.keys().iter().chain(new.keys()).collect();
    let figures_count = keys.len();
    let mut all: Vec<Change> = keys.into_iter().filter_map(|key| Change::of(base, new, key)).collect();
    let ps: Vec<f64> =
        all.iter().filter(|c| c.difference.method != Method::None).map(|c| c.difference.p()).collect();
    let mut corrected = benjamini_hochberg(&ps).into_iter();
    for change in &mut all {
        change.q = if change.difference.method == Method::None { None } else { corrected.next() };
    }
    let run_time = RunTime::of(base, new, &all);
    let wall_ns = run_time.as_ref().map_or(0.0, |run_time| run_time.base.mean_ns);
    let findings = findings::changes(base, new, &all, wall_ns);
    let accounts = why::accounts(&all, run_time.as_ref().is_some_and(|run_time| run_time.is_recorded));
    let work = work::differences(base, new);
    if !work.is_empty() {
        for gate in &mut gates {
            if gate.outcome == Outcome::Regression && gate.key.metric.is_time() {
                gate.reason += "; the sides do different work";
            }
        }
    }
    let cautions = work::caution(&work).into_iter().chain(facts::cautions(base, new)).collect();
    let is_listed = |change: &Change| {
        change.q.is_some_and(|q| q <= LISTED_Q)
            && change.share(change.difference.estimate).abs() >= LISTED_RATIO
            && change.estimate().abs() > change.key.metric.declaration().floor
    };
    let mut changes: Vec<Change> = all.into_iter().filter(is_listed).collect();
    let weight = |change: &Change| change.share(change.difference.estimate).abs();
    changes.sort_by(|a, b| {
        a.key
            .stratum
            .is_some()
            .cmp(&b.key.stratum.is_some())
            .then(weight(b).total_cmp(&weight(a)))
            .then(a.key.cmp(&b.key))
    });
    let outcome = gates.iter().map(|gate| gate.outcome).max().unwrap_or(Outcome::Inconclusive);
    let taking = |runs: &Runs| {
        let of = |(place, run): (usize, &About)| Taking {
            run: run.name.clone(),
            wall_ns: runs.get(place, &Key::of("wall_ns", None, None)).map(|figure| figure.value),
            rows_count: run.facts.rows_count,
            lost_count: run.facts.lost_count,
            is_outlier_of: gates
                .iter()
                .filter(|gate| gate.change.as_ref().is_some_and(|change| change.outliers.contains(&run.name)))
                .map(|gate| gate.key.to_string())
                .collect(),
        };
        runs.each().iter().enumerate().map(of).collect()
    };
    Ok(Comparison {
        comparison_version: VERSION,
        outcome,
        rules: rules.clone(),
        base: taking(base),
        new: taking(new),
        run_time,
        findings,
        work,
        cautions,
        discords,
        gates,
        accounts,
        changes,
        figures_count,
    })
}

#[cfg(test)]
mod tests;
