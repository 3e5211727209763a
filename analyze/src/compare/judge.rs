//! Applies the rule of [`super`] to two sets of runs.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    facts::{self, Discord},
    figure::Key,
    gate::{Gate, Limit, Rules},
    runs::{About, Runs},
    samples::{Difference, Method, TEST_FROM, benjamini_hochberg, difference, holm, mean, outliers},
    why::{self, Account},
};
use analyze_run::error::AnalyzeError;

/// Version of the comparison's JSON. Additions keep it; changes and removals raise it.
const VERSION: u32 = 1;

/// Smallest relative change that is listed, however certain it is.
const LISTED_RATIO: f64 = 0.01;
/// False discovery rate of the listed changes.
const LISTED_Q: f64 = 0.05;

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

/// Comparison of one figure between the two sides.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    #[serde(flatten)]
    /// The figure.
    pub key: Key,
    /// Values of the base runs, in the figure's unit.
    pub base: Vec<f64>,
    /// Values of the new runs, in the figure's unit.
    pub new: Vec<f64>,
    /// Mean of the base values.
    pub base_mean: f64,
    /// Mean of the new values.
    pub new_mean: f64,
    /// Estimated ratio of new to base, minus 1; `None` if not all values are positive.
    pub change_ratio: Option<f64>,
    /// Lower end of the 95 % confidence interval of `change_ratio`; `None` if there are too few runs for an
    /// interval, or if `change_ratio` is `None`.
    pub low_ratio: Option<f64>,
    /// Upper end of that interval; `None` as `low_ratio`.
    pub high_ratio: Option<f64>,
    #[serde(flatten)]
    /// Result of the test.
    pub difference: Difference,
    /// Two-sided p, corrected by Benjamini and Hochberg's method over all figures; `None` if there was no
    /// test.
    pub q: Option<f64>,
    /// Names of runs that lie far from the others of their side. They are not left out.
    pub outliers: Vec<String>,
}

/// Returns a side's values of a figure, each with the place of its run.
fn values(runs: &Runs, key: &Key) -> Vec<(usize, f64)> {
    let declared = key.metric.declaration();
    let mut figures = runs.figure(key).peekable();
    let value = |run: usize| match figures.next_if(|(at, _)| *at == run) {
        Some((_, figure)) => {
            let enough =
                declared.min_calls.is_none_or(|least| figure.calls_count.is_none_or(|calls| calls >= least));
            enough.then_some((run, figure.value))
        }
        None => (declared.is_zero_if_absent && runs.measures(run, key)).then_some((run, 0.0)),
    };
    (0..runs.each().len()).filter_map(value).collect()
}

/// Returns whether a run has the figure.
fn has(runs: &Runs, key: &Key) -> bool {
    runs.figure(key).next().is_some()
}

impl Change {
    /// Compares one figure. Returns `None` if a side has no run with it. A figure that no run has is not
    /// known to be zero, because it may not have been probed.
    pub fn of(base: &Runs, new: &Runs, key: &Key) -> Option<Self> {
        if !has(base, key) && !has(new, key) {
            return None;
        }
        let (base_at, new_at) = (values(base, key), values(new, key));
        let numbers = |side: &[(usize, f64)]| side.iter().map(|(_, value)| *value).collect::<Vec<f64>>();
        let (base_values, new_values) = (numbers(&base_at), numbers(&new_at));
        if base_values.is_empty() || new_values.is_empty() {
            return None;
        }
        let found = difference(&base_values, &new_values);
        let ratio = |end: f64| found.ratio(end).filter(|ratio| ratio.is_finite());
        let far = |runs: &Runs, side: &[(usize, f64)], values: &[f64]| {
            let name = |place: usize| runs.each()[side[place].0].name.clone();
            outliers(values).into_iter().map(name).collect::<Vec<_>>()
        };
        Some(Self {
            key: key.clone(),
            base_mean: mean(&base_values),
            new_mean: mean(&new_values),
            change_ratio: ratio(found.estimate),
            low_ratio: found.low.is_finite().then(|| ratio(found.low)).flatten(),
            high_ratio: found.high.is_finite().then(|| ratio(found.high)).flatten(),
            difference: found,
            q: None,
            outliers: [far(base, &base_at, &base_values), far(new, &new_at, &new_values)].concat(),
            base: base_values,
            new: new_values,
        })
    }

    /// Converts a difference to the figure's unit.
    fn delta(&self, difference: f64) -> f64 {
        self.difference.ratio(difference).map_or(difference, |ratio| ratio * self.base_mean)
    }

    /// Estimated change, in the figure's unit.
    pub fn estimate(&self) -> f64 {
        self.delta(self.difference.estimate)
    }

    /// Converts a difference to a share of the base mean; infinite if the base mean is zero.
    fn share(&self, difference: f64) -> f64 {
        self.difference.ratio(difference).unwrap_or_else(|| match difference {
            0.0 => 0.0,
            _ if self.base_mean == 0.0 => f64::INFINITY.copysign(difference),
            _ => difference / self.base_mean.abs(),
        })
    }

    /// Formats the estimated change.
    pub fn shown(&self) -> String {
        let share = self.share(self.difference.estimate);
        if share.is_infinite() { "from 0".to_owned() } else { signed(share) }
    }

    /// Formats the confidence interval of the change; a dash if there is none.
    pub fn interval(&self) -> String {
        let (low, high) = (self.difference.low, self.difference.high);
        if self.difference.method == Method::None || !(low.is_finite() && high.is_finite()) {
            return "–".to_owned();
        }
        let (low, high) = (self.share(low), self.share(high));
        if low.is_finite() && high.is_finite() {
            format!("{} to {}", signed(low), signed(high))
        } else {
            let by = |difference: f64| self.key.show(self.delta(difference));
            format!("{} to {}", by(self.difference.low), by(self.difference.high))
        }
    }
}

/// Formats a relative change as a signed percentage, or as a multiple if it is tenfold or more.
pub fn signed(ratio: f64) -> String {
    if ratio >= 9.0 {
        let times = 1.0 + ratio;
        return if times < 99.95 { format!("× {times:.1}") } else { format!("× {times:.0}") };
    }
    let digits = if ratio.abs() < 0.0995 { 2 } else { 1 };
    format!("{:+.digits$} %", 100.0 * ratio)
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
    /// Circumstances that differ between runs.
    pub discords: Vec<Discord>,
    /// Warnings that weaken the conclusions.
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
        let worst = if self.gate.may_not_fall { found.low } else { found.high };
        let floor = self.gate.floor.unwrap_or_else(|| self.key.metric.declaration().floor);
        let by = self.adverse(change.estimate());
        let is_beyond = match self.gate.limit {
            Limit::Ratio(limit) => self.adverse(change.share(found.estimate)) > limit,
            Limit::By(limit) => by > limit,
        } && by > floor;
        let shown = change.shown();
        if found.method == Method::None {
            let beyond = if is_beyond { "beyond its limit" } else { "within its limit" };
            self.outcome = if is_beyond { Outcome::Suspect } else { Outcome::Inconclusive };
            self.reason = format!(
                "{shown}, {beyond}; but {runs}: how much runs differ is not known from fewer than {TEST_FROM} a side"
            );
            return self;
        }
        let least = found.method.least_p(base, new) * gates_count as f64;
        if least > rules.alpha {
            self.outcome = Outcome::Inconclusive;
            self.reason = format!(
                "with {runs} nothing can be shown on {gates_count} gates at once: p would be {least:.3} at best; more runs or fewer gates are needed"
            );
            return self;
        }
        let p = self.p.unwrap_or(1.0);
        if p <= rules.alpha && is_beyond {
            self.outcome = Outcome::Regression;
            self.reason = format!("{shown} (95 %: {}), p {}", change.interval(), p_shown(p));
            return self;
        }
        let allowed = match self.gate.limit {
            Limit::Ratio(limit) => self.adverse(change.share(worst)) <= limit.max(rules.resolution_ratio),
            Limit::By(limit) => {
                self.adverse(change.delta(worst)) <= limit.max(rules.resolution_ratio * change.base_mean)
            }
        } || self.adverse(change.delta(worst)) <= floor;
        self.outcome = if allowed { Outcome::Pass } else { Outcome::Inconclusive };
        self.reason = if !allowed {
            format!(
                "{shown} (95 %: {}): {runs} and their noise do not exclude a change beyond {}",
                change.interval(),
                signed(rules.resolution_ratio)
            )
        } else if p <= rules.alpha && by > 0.0 {
            format!("{shown} (95 %: {}): a change, within its limit", change.interval())
        } else {
            format!("{shown} (95 %: {})", change.interval())
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
    let accounts = why::accounts(&all);
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
        cautions: facts::cautions(base, new),
        discords,
        gates,
        accounts,
        changes,
        figures_count,
    })
}
