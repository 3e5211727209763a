//! The rule of [`super`], applied.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    facts::{self, Discord, RunFigures, measures},
    figure::Key,
    gate::{Gate, Limit, Rules},
    samples::{Difference, Method, TEST_FROM, benjamini_hochberg, difference, holm, mean, outliers},
    why::{self, Account},
};
use analyze_run::error::AnalyzeError;

/// Of the data. What is added keeps it; what changes or goes raises it.
const VERSION: u32 = 1;

/// Smaller changes are not listed, however sure they are.
const LISTED_RATIO: f64 = 0.01;
/// Share of the listed that may be false.
const LISTED_Q: f64 = 0.05;

/// What a gate, or all of them, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Pass,
    /// The trace, or the number of runs, does not answer.
    Inconclusive,
    /// Beyond the limit, but one or two runs a side prove nothing.
    Suspect,
    Regression,
}

impl Outcome {
    /// For reading.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Inconclusive => "inconclusive",
            Self::Suspect => "suspect",
            Self::Regression => "regression",
        }
    }
}

/// A figure of both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    #[serde(flatten)]
    pub key: Key,
    pub base: Vec<f64>,
    pub new: Vec<f64>,
    pub base_mean: f64,
    pub new_mean: f64,
    /// New over base, less 1; `None`: there are zeros.
    pub change_ratio: Option<f64>,
    /// Ends of its 95 % interval; `None`: too few runs.
    pub low_ratio: Option<f64>,
    pub high_ratio: Option<f64>,
    #[serde(flatten)]
    pub difference: Difference,
    /// p of both directions, by Benjamini and Hochberg over all figures; `None`: no test.
    pub q: Option<f64>,
    /// Runs far from the others of their side. They are not left out.
    pub outliers: Vec<String>,
}

/// A side's values of a figure, each with its run.
fn values<'a>(runs: &'a [RunFigures], key: &Key) -> Vec<(&'a RunFigures, f64)> {
    let value = |run: &RunFigures| match run.figures.get(key) {
        Some(figure) => {
            let enough =
                key.min_calls().is_none_or(|least| figure.calls_count.is_none_or(|calls| calls >= least));
            enough.then_some(figure.value)
        }
        None => (key.is_sum() && measures(run, key)).then_some(0.0),
    };
    runs.iter().filter_map(|run| value(run).map(|value| (run, value))).collect()
}

impl Change {
    /// `None`: a side has no run with this figure. What no run has at all is not known to be zero: it may not be probed.
    pub fn of(base: &[RunFigures], new: &[RunFigures], key: &Key) -> Option<Self> {
        if !base.iter().chain(new).any(|run| run.figures.contains_key(key)) {
            return None;
        }
        let (base, new) = (values(base, key), values(new, key));
        let numbers =
            |side: &[(&RunFigures, f64)]| side.iter().map(|(_, value)| *value).collect::<Vec<f64>>();
        let (base_values, new_values) = (numbers(&base), numbers(&new));
        if base.is_empty() || new.is_empty() {
            return None;
        }
        let found = difference(&base_values, &new_values);
        let ratio = |end: f64| found.ratio(end).filter(|ratio| ratio.is_finite());
        let far = |side: &[(&RunFigures, f64)], values: &[f64]| {
            outliers(values).into_iter().map(|place| side[place].0.name.clone()).collect::<Vec<_>>()
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
            outliers: [far(&base, &base_values), far(&new, &new_values)].concat(),
            base: base_values,
            new: new_values,
        })
    }

    /// A difference in the figure's unit.
    fn delta(&self, difference: f64) -> f64 {
        self.difference.ratio(difference).map_or(difference, |ratio| ratio * self.base_mean)
    }

    /// By how much it changed, in its unit.
    pub fn estimate(&self) -> f64 {
        self.delta(self.difference.estimate)
    }

    /// A difference as a share of the base: infinite where the base is nothing.
    fn share(&self, difference: f64) -> f64 {
        self.difference.ratio(difference).unwrap_or_else(|| match difference {
            0.0 => 0.0,
            _ if self.base_mean == 0.0 => f64::INFINITY.copysign(difference),
            _ => difference / self.base_mean.abs(),
        })
    }

    /// The change for reading.
    pub fn shown(&self) -> String {
        let share = self.share(self.difference.estimate);
        if share.is_infinite() { "from 0".to_owned() } else { signed(share) }
    }

    /// Its interval for reading.
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

/// A share with its sign; a multiple, where that reads better.
pub fn signed(ratio: f64) -> String {
    if ratio >= 9.0 {
        let times = 1.0 + ratio;
        return if times < 99.95 { format!("× {times:.1}") } else { format!("× {times:.0}") };
    }
    let digits = if ratio.abs() < 0.0995 { 2 } else { 1 };
    format!("{:+.digits$} %", 100.0 * ratio)
}

/// A gate, judged on one figure.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    pub gate: Gate,
    pub key: Key,
    pub outcome: Outcome,
    /// In a sentence.
    pub reason: String,
    /// By Holm over all gates.
    pub p: Option<f64>,
    pub change: Option<Change>,
}

/// A run that took part.
#[derive(Clone, Debug, Serialize)]
pub struct Taking {
    pub run: String,
    pub wall_ns: Option<f64>,
    pub rows_count: u64,
    pub lost_count: u64,
    /// Gates on whose figures it is far from the others of its side.
    pub is_outlier_of: Vec<String>,
}

/// All that is found.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub comparison_version: u32,
    pub outcome: Outcome,
    pub rules: Rules,
    pub base: Vec<Taking>,
    pub new: Vec<Taking>,
    pub discords: Vec<Discord>,
    pub cautions: Vec<String>,
    pub gates: Vec<Judged>,
    /// What the differences are made of.
    pub accounts: Vec<Account>,
    /// Figures that changed, surest first.
    pub changes: Vec<Change>,
    /// Figures that were looked at.
    pub figures_count: usize,
}

impl Comparison {
    /// As JSON.
    ///
    /// # Errors
    /// If a value has no JSON.
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

    /// For the worse is up.
    fn adverse(&self, value: f64) -> f64 {
        if self.gate.may_not_fall { -value } else { value }
    }

    /// Judges a gate whose p is `p` of `gates_count`.
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
        let floor = self.gate.floor.unwrap_or_else(|| self.key.floor());
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

/// p for reading.
pub fn p_shown(p: f64) -> String {
    if p < 0.001 { "below 0.001".to_owned() } else { format!("{p:.3}") }
}

/// Gates with the figures of both sides; those without are said to be so.
fn gated(rules: &Rules, base: &[RunFigures], new: &[RunFigures]) -> Result<Vec<Judged>, AnalyzeError> {
    let known = || base.iter().chain(new).flat_map(|run| run.figures.keys());
    let mut gates = Vec::new();
    for (gate, key) in rules.figures(known())? {
        gates.push(match Change::of(base, new, &key) {
            Some(change) => Judged {
                p: Some(if gate.may_not_fall { change.difference.p_down } else { change.difference.p_up }),
                change: Some(change),
                ..Judged::inconclusive(gate, &key, String::new())
            },
            None => {
                let has = |runs: &[RunFigures]| runs.iter().any(|run| run.figures.contains_key(&key));
                let side = if values(base, &key).is_empty() { "base" } else { "new" };
                let why = match key.min_calls().filter(|_| has(base) || has(new)) {
                    Some(least) => {
                        format!("no {side} run has the {least} calls that {} needs", key.metric)
                    }
                    None if has(base) || has(new) => format!("no {side} run has it"),
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

/// Only the gates: for simulations.
pub fn gates_of(rules: &Rules, base: &[RunFigures], new: &[RunFigures]) -> Result<Vec<Judged>, AnalyzeError> {
    Ok(judged(rules, gated(rules, base, new)?))
}

/// Compares two sides, of at least one run each. `allowed`: circumstances that may differ all the same.
///
/// # Errors
/// If a gate is about a metric that there is not, or a run stands twice.
pub fn compare(
    base: &[RunFigures],
    new: &[RunFigures],
    rules: &Rules,
    allowed: &[String],
) -> Result<Comparison, AnalyzeError> {
    if let Some((one, other)) = facts::repeated(base.iter().chain(new)) {
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
    let keys: BTreeSet<&Key> = base.iter().chain(new).flat_map(|run| run.figures.keys()).collect();
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
            && change.estimate().abs() > change.key.floor()
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
    let taking = |runs: &[RunFigures]| {
        let of = |run: &RunFigures| Taking {
            run: run.name.clone(),
            wall_ns: run.figures.get(&Key::of("wall_ns", None, None)).map(|figure| figure.value),
            rows_count: run.facts.rows_count,
            lost_count: run.facts.lost_count,
            is_outlier_of: gates
                .iter()
                .filter(|gate| gate.change.as_ref().is_some_and(|change| change.outliers.contains(&run.name)))
                .map(|gate| gate.key.to_string())
                .collect(),
        };
        runs.iter().map(of).collect()
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
