//! Checks that the rule keeps its promises, on simulated comparisons whose truth is known: how often any gate
//! fails although nothing changed, how often one fails when something did, and how often one passes although
//! the change is beyond its limit. Common alternatives are measured beside it: a rank test and a t-test on
//! pooled calls, and a plain limit in percent.
//!
//! Runs are either generated, with the noise that benchmarks have, or drawn from recorded runs.

use std::{collections::BTreeMap, ops::Range};

use rayon::prelude::*;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::{
    facts::Facts,
    figure::{Figure, Figures, Key},
    gate::Rules,
    judge::{Judged, Outcome, gates_of},
    runs::{RunFigures, Runs},
    samples::{mean, moments},
};
use analyze_run::{error::AnalyzeError, quantiles::interpolated, random::Random};

const SEED: u64 = 0x1296;
/// Number of calls in a generated run.
const CALLS: usize = 600;
/// Relative limit of the plain comparison without statistics.
const PLAIN_LIMIT: f64 = 0.05;
/// Significance level of the tests on pooled calls.
const CALLS_ALPHA: f64 = 0.05;

/// Source of the variation between runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    /// Run means vary by 2 %, log-normally.
    Normal,
    /// `Normal`, with each call correlated with the one before it (0.9).
    Autocorrelated,
    /// Run means follow Student's t with 3 degrees of freedom, scaled to the same variance.
    HeavyTails,
    /// Three runs in ten are 6 % slower.
    Bimodal,
    /// Runs are drawn from recorded runs.
    Recorded,
}

impl Noise {
    /// The kinds of noise that are generated.
    pub const GENERATED: [Self; 4] = [Self::Normal, Self::Autocorrelated, Self::HeavyTails, Self::Bimodal];

    /// Name of the noise in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "runs differ by 2 %",
            Self::Autocorrelated => "the same, calls autocorrelated (0.9)",
            Self::HeavyTails => "heavy tails (t, 3 d.f.)",
            Self::Bimodal => "bimodal (3 in 10 are 6 % slower)",
            Self::Recorded => "recorded runs, resampled",
        }
    }
}

/// A run, with the durations of some of its calls.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The run's figures.
    pub run: RunFigures,
    /// Durations of calls in ns; empty if unknown.
    pub calls_ns: Vec<f64>,
}

/// Generates a run that is slower by the ratio `change`.
fn generated(noise: Noise, change: f64, random: &mut Random) -> Simulated {
    let (own, common) = (random.normal(), random.normal());
    let of_run = match noise {
        // Scaled to unit variance: a normal number over the root of the mean of three squares, divided by the
        // root of three.
        Noise::HeavyTails => {
            let squares: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
            0.02 * common / (squares / 3.0).sqrt() / 3_f64.sqrt()
        }
        Noise::Bimodal => 0.01 * common + if random.unit() < 0.3 { 0.06 } else { 0.0 },
        _ => 0.02 * common,
    };
    let factor = (1.0 + change) * of_run.exp();
    let memory = if noise == Noise::Autocorrelated { 0.9_f64 } else { 0.0 };
    let mut level = random.normal();
    let mut draw = || {
        level = memory * level + (1.0 - memory * memory).sqrt() * random.normal();
        10_000.0 * factor * (0.35 * level).exp()
    };
    let calls_ns: Vec<f64> = (0..CALLS).map(|_| draw()).collect();
    let total: f64 = calls_ns.iter().sum();
    let mut sorted = calls_ns.clone();
    sorted.sort_by(f64::total_cmp);
    // Time between calls: more than 100 times the total of the generated calls, with noise of its own.
    let gaps = 1e9 * factor * (0.01 * own).exp();
    let allocated = (1_u64 << 30) as f64 * (1.0 + 0.001 * random.normal());
    let reserved = (allocated * 1.1 / 2_097_152.0).ceil() * 2_097_152.0
        + if random.unit() < 0.3 { 20_971_520.0 } else { 0.0 };
    let mut figures = Figures::new();
    let mut add = |metric: &str, subject: Option<&str>, value: f64| {
        figures.insert(Key::of(metric, subject, None), Figure { value, calls_count: Some(CALLS as i64) });
    };
    add("wall_ns", None, total * 100.0 + gaps);
    add("launch_gap_ns", None, gaps);
    add("calls_ns", None, total * 100.0);
    add("alloc_calls_count", None, 100.0 + random.below(3) as f64);
    add("allocated_peak_bytes", None, allocated);
    add("reserved_peak_bytes", None, reserved);
    for (metric, q) in [("p50_ns", 0.5), ("p99_ns", 0.99)] {
        add(metric, Some("cudaLaunchKernel"), interpolated(&sorted, q).unwrap_or(f64::NAN));
    }
    Simulated { run: RunFigures { name: String::new(), facts: Facts::default(), figures }, calls_ns }
}

/// Scales the times of a recorded run so that it is slower by the ratio `change`.
fn slowed(run: &Simulated, change: f64) -> Simulated {
    let mut run = run.clone();
    for (key, figure) in &mut run.run.figures {
        if key.metric.is_time() {
            figure.value *= 1.0 + change;
        }
    }
    run.calls_ns.iter_mut().for_each(|ns| *ns *= 1.0 + change);
    run
}

/// Rank test on pooled calls with the normal approximation, which is what most tools' "Mann–Whitney" does.
fn ranks_say_slower(base: &[f64], new: &[f64]) -> bool {
    let mut all: Vec<(f64, bool)> =
        base.iter().map(|v| (*v, false)).chain(new.iter().map(|v| (*v, true))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let sum: f64 =
        all.iter().enumerate().filter(|(_, (_, is_new))| *is_new).map(|(place, _)| place as f64 + 1.0).sum();
    let (n, m) = (base.len() as f64, new.len() as f64);
    let (mean, deviation) = (m * (n + m + 1.0) / 2.0, (n * m * (n + m + 1.0) / 12.0).sqrt());
    1.0 - Normal::standard().cdf((sum - mean) / deviation) < CALLS_ALPHA
}

/// Welch's t-test on the logarithms of pooled calls.
fn means_say_slower(base: &[f64], new: &[f64]) -> bool {
    let of = |values: &[f64]| {
        let (mean, variance) = moments(&values.iter().map(|v| v.ln()).collect::<Vec<_>>());
        (mean, variance / values.len() as f64)
    };
    let ((old, a), (now, b)) = (of(base), of(new));
    // For thousands of calls, Student's t distribution is practically normal.
    1.0 - Normal::standard().cdf((now - old) / (a + b).sqrt()) < CALLS_ALPHA
}

/// The methods that report a regression, whether the gates leave it undecided, whether the change is beyond the
/// limit of any gate on a time, and whether such a gate passes.
#[derive(Clone, Copy, Debug, Default)]
struct Says {
    gates: bool,
    undecided: bool,
    is_beyond: bool,
    false_pass: bool,
    ranks: bool,
    means: bool,
    percent: bool,
}

/// Compares runs whose times are longer by the ratio `change` on the new side.
fn says(rules: &Rules, base: &[Simulated], new: &[Simulated], change: f64) -> Result<Says, AnalyzeError> {
    let runs = |side: &[Simulated]| Runs::new(side.iter().map(|one| one.run.clone()));
    let (old, now) = (runs(base)?, runs(new)?);
    let gates = gates_of(rules, &old, &now)?;
    let worst = gates.iter().map(|gate| gate.outcome).max();
    let beyond: Vec<&Judged> =
        gates.iter().filter(|gate| gate.key.metric.is_time() && gate.forbids(change)).collect();
    let pooled =
        |side: &[Simulated]| side.iter().flat_map(|one| one.calls_ns.iter().copied()).collect::<Vec<_>>();
    let (a, b) = (pooled(base), pooled(new));
    let wall = Key::of("wall_ns", None, None);
    let mean_wall =
        |side: &Runs| mean(&side.figure(&wall).map(|(_, figure)| figure.value).collect::<Vec<_>>());
    let has_calls = a.len() > 1 && b.len() > 1;
    Ok(Says {
        gates: worst == Some(Outcome::Regression),
        undecided: worst == Some(Outcome::Inconclusive),
        is_beyond: !beyond.is_empty(),
        false_pass: beyond.iter().any(|gate| gate.outcome == Outcome::Pass),
        ranks: has_calls && ranks_say_slower(&a, &b),
        means: has_calls && means_say_slower(&a, &b),
        percent: mean_wall(&now) > (1.0 + PLAIN_LIMIT) * mean_wall(&old),
    })
}

/// Results of simulated comparisons of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Source of the variation between runs.
    pub noise: Noise,
    /// Number of runs on each side.
    pub runs_a_side: usize,
    /// Relative amount by which the new runs are slower.
    pub change_ratio: f64,
    /// Number of simulated comparisons.
    pub comparisons_count: usize,
    /// Share of comparisons in which the gates report a regression.
    pub gates_ratio: f64,
    /// Share of comparisons that the gates leave inconclusive.
    pub undecided_ratio: f64,
    /// Share of comparisons in which a gate on a time passes although the change is beyond its limit; `None` if
    /// the change is beyond no gate's limit.
    pub false_pass_ratio: Option<f64>,
    /// Share in which the rank test on pooled calls reports a regression; `None` if calls are unknown.
    pub pooled_ranks_ratio: Option<f64>,
    /// Share in which the t-test on pooled calls reports a regression; `None` if calls are unknown.
    pub pooled_means_ratio: Option<f64>,
    /// Share in which the plain limit on wall time reports a regression.
    pub percent_ratio: f64,
}

/// Parameters of a simulation.
pub struct Plan<'a> {
    /// Rules to check.
    pub rules: &'a Rules,
    /// Number of comparisons to simulate.
    pub comparisons: usize,
    /// Recorded runs, without a change among them.
    pub recorded: &'a [Simulated],
}

impl Plan<'_> {
    fn draw(
        &self,
        noise: Noise,
        runs: usize,
        change: f64,
        random: &mut Random,
    ) -> (Vec<Simulated>, Vec<Simulated>) {
        if noise != Noise::Recorded {
            let mut side = |change| (0..runs).map(|_| generated(noise, change, random)).collect();
            return (side(0.0), side(change));
        }
        let places = random.choose(self.recorded.len(), 2 * runs);
        let side = |range: Range<usize>, change| {
            places[range].iter().map(|place| slowed(&self.recorded[*place], change)).collect()
        };
        (side(0..runs, 0.0), side(runs..2 * runs, change))
    }

    /// Simulates comparisons with this many runs on each side and this relative change. Returns `None` if too
    /// few runs are recorded.
    ///
    /// # Errors
    /// Returns an error if a gate matches no figure.
    pub fn line(&self, noise: Noise, runs: usize, change: f64) -> Result<Option<Line>, AnalyzeError> {
        if noise == Noise::Recorded && self.recorded.len() < 2 * runs {
            return Ok(None);
        }
        let one = |number: usize| {
            let mut random = Random::nth(SEED, number as u64);
            let (base, new) = self.draw(noise, runs, change, &mut random);
            says(self.rules, &base, &new, change)
        };
        let all = (0..self.comparisons).into_par_iter().map(one).collect::<Result<Vec<Says>, _>>()?;
        let ratio = |of: fn(&Says) -> bool| {
            all.iter().filter(|says| of(says)).count() as f64 / all.len().max(1) as f64
        };
        let has_calls = noise != Noise::Recorded || self.recorded.iter().all(|run| run.calls_ns.len() > 1);
        Ok(Some(Line {
            noise,
            runs_a_side: runs,
            change_ratio: change,
            comparisons_count: all.len(),
            gates_ratio: ratio(|says| says.gates),
            undecided_ratio: ratio(|says| says.undecided),
            false_pass_ratio: all.iter().any(|says| says.is_beyond).then(|| ratio(|says| says.false_pass)),
            pooled_ranks_ratio: has_calls.then(|| ratio(|says| says.ranks)),
            pooled_means_ratio: has_calls.then(|| ratio(|says| says.means)),
            percent_ratio: ratio(|says| says.percent),
        }))
    }
}

/// Statistical power of a comparison with this many runs on each side.
#[derive(Clone, Debug, Serialize)]
pub struct Power {
    /// Number of runs on each side.
    pub runs_a_side: usize,
    /// Share of comparisons that find a change, from 0 to 1, by the change (`+5%`).
    pub found: BTreeMap<String, f64>,
    /// Share of comparisons without a change in which a gate fails.
    pub false_ratio: f64,
    /// Share of comparisons without a change that are inconclusive.
    pub undecided_ratio: f64,
}

/// Relative changes for which the power is computed.
pub const CHANGES: [f64; 4] = [0.02, 0.05, 0.10, 0.20];
/// Numbers of runs on each side for which the power is computed.
pub const RUNS: [usize; 7] = [3, 4, 5, 6, 8, 10, 12];

/// Draws a run like those of a baseline, with replacement. Its distance from the mean is widened by as much
/// as a sample of this size understates the deviation.
fn like(recorded: &[RunFigures], change: f64, random: &mut Random) -> RunFigures {
    let mut run = recorded[random.below(recorded.len())].clone();
    let n = recorded.len() as f64;
    for (key, figure) in &mut run.figures {
        let values: Vec<f64> =
            recorded.iter().filter_map(|one| one.figures.get(key)).map(|figure| figure.value).collect();
        let mean = mean(&values);
        figure.value = (mean + (figure.value - mean) * (n / (n - 1.0)).sqrt()).max(0.0);
        if key.metric.is_time() {
            figure.value *= 1.0 + change;
        }
    }
    run
}

/// Computes, from runs like these, which changes a comparison of how many runs can detect. Only the figures
/// of the gates are needed.
///
/// # Errors
/// Returns an error if there are fewer than three runs, or if a gate matches no figure.
pub fn power(rules: &Rules, recorded: &Runs, comparisons: usize) -> Result<Vec<Power>, AnalyzeError> {
    let count = recorded.each().len();
    if count < 3 {
        return Err(AnalyzeError::Inconclusive(format!(
            "{count} runs do not tell how much runs differ: at least 3 are needed"
        )));
    }
    let wanted = rules.figures(recorded.keys().iter())?;
    let wanted: Vec<Key> = wanted.into_iter().map(|(_, key)| key).collect();
    let recorded = recorded.apart(|key| wanted.contains(key));
    let outcomes = |runs: usize, change: f64| {
        let one = |number: usize| {
            let mut random = Random::nth(SEED, number as u64);
            let mut side = |change| {
                Runs::new((0..runs).map(|_| like(&recorded, change, &mut random)).collect::<Vec<_>>())
            };
            let (base, new) = (side(0.0)?, side(change)?);
            Ok(gates_of(rules, &base, &new)?.iter().map(|gate| gate.outcome).max())
        };
        (0..comparisons).into_par_iter().map(one).collect::<Result<Vec<_>, AnalyzeError>>()
    };
    let share = |outcomes: &[Option<Outcome>], of: Outcome| {
        outcomes.iter().filter(|outcome| **outcome == Some(of)).count() as f64 / outcomes.len().max(1) as f64
    };
    RUNS.into_iter()
        .map(|runs| {
            let none = outcomes(runs, 0.0)?;
            let found = CHANGES.into_iter().map(|change| {
                Ok((format!("+{:.0}%", 100.0 * change), share(&outcomes(runs, change)?, Outcome::Regression)))
            });
            Ok(Power {
                runs_a_side: runs,
                found: found.collect::<Result<_, AnalyzeError>>()?,
                false_ratio: share(&none, Outcome::Regression),
                undecided_ratio: share(&none, Outcome::Inconclusive),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_found_where_nothing_is_and_something_where_something_is() {
        let rules = Rules::new(&[], None, None).expect("the usual gates");
        let plan = Plan { rules: &rules, comparisons: 150, recorded: &[] };
        let line = |noise, runs, change| plan.line(noise, runs, change).expect("a line").expect("generated");
        for (noise, runs) in Noise::GENERATED.into_iter().zip([5, 3, 8, 5]) {
            let none = line(noise, runs, 0.0);
            // The bound is 5 %, plus what chance adds with 150 comparisons.
            assert!(none.gates_ratio <= 0.10, "{none:?}");
        }
        for found in [line(Noise::Normal, 5, 0.10), line(Noise::Normal, 8, 0.08)] {
            assert!(found.gates_ratio >= 0.9, "{found:?}");
        }
        let calls = line(Noise::Autocorrelated, 5, 0.0);
        assert!(calls.pooled_ranks_ratio > Some(0.15), "calls of a run are not independent: {calls:?}");
    }

    #[test]
    fn a_gate_does_not_pass_what_is_beyond_its_limit() {
        let line = |gate: &str, noise, change| {
            let rules = Rules::new(&[gate.to_owned()], None, None).expect("a gate");
            let plan = Plan { rules: &rules, comparisons: 200, recorded: &[] };
            [3, 5].map(|runs| plan.line(noise, runs, change).expect("a line").expect("generated"))
        };
        for noise in Noise::GENERATED {
            for found in line("wall_ns < +2%", noise, 0.05) {
                assert!(found.false_pass_ratio.is_some_and(|ratio| ratio <= 0.05), "{found:?}");
            }
        }
        // A change within the limit passes, and rightly so; none is beyond it.
        for found in line("wall_ns < +25%", Noise::Normal, 0.05) {
            let passes = 1.0 - found.gates_ratio - found.undecided_ratio;
            assert!(found.false_pass_ratio.is_none() && passes >= 0.9, "{found:?}");
        }
    }
}
