//! One figure on both sides, and how it differs between them: means, estimate, confidence interval and test.

use serde::Serialize;

use super::{
    figure::Key,
    runs::Runs,
    samples::{Difference, Method, difference, mean, outliers},
};

/// False discovery rate of the changes that are listed: one of which `q` is larger may well be chance.
pub const LISTED_Q: f64 = 0.05;

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

/// Returns the values that a figure has in these runs, each with the place of its run. A value that rests on too
/// few calls is left out, and one that is absent may be known to be 0, as the metric's declaration says.
pub(super) fn values(runs: &Runs, key: &Key) -> Vec<(usize, f64)> {
    let declared = key.metric.declaration();
    let mut figures = runs.figure(key).peekable();
    let value = |run: usize| match figures.next_if(|(at, _)| *at == run) {
        Some((_, figure)) => declared.has_enough_calls(figure.calls_count).then_some((run, figure.value)),
        None => (declared.is_zero_if_absent && runs.measures(run, key)).then_some((run, 0.0)),
    };
    (0..runs.each().len()).filter_map(value).collect()
}

/// Returns whether a run has the figure.
pub(super) fn has(runs: &Runs, key: &Key) -> bool {
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

    /// Converts a change in the figure's unit to a difference, as `delta` converts back; a fall to zero and below
    /// is infinite on a scale of logarithms.
    pub(super) fn difference_of(&self, delta: f64) -> f64 {
        if !self.difference.is_log {
            return delta;
        }
        let ratio = delta / self.base_mean;
        if ratio > -1.0 { ratio.ln_1p() } else { f64::NEG_INFINITY }
    }

    /// Estimated change, in the figure's unit.
    pub fn estimate(&self) -> f64 {
        self.delta(self.difference.estimate)
    }

    /// Converts a difference to a share of the base mean; infinite if the base mean is zero.
    pub(super) fn share(&self, difference: f64) -> f64 {
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
        if [low, high].into_iter().all(|end| self.share(end).is_finite()) {
            format!("{} to {}", self.end(low), self.end(high))
        } else {
            let by = |difference: f64| self.key.show(self.delta(difference));
            format!("{} to {}", by(low), by(high))
        }
    }

    /// Formats one end of a confidence interval: as a share of the base mean, or in the figure's unit if that mean
    /// is zero.
    pub(super) fn end(&self, difference: f64) -> String {
        let share = self.share(difference);
        if share.is_finite() { signed(share) } else { self.key.show(self.delta(difference)) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{
        facts::Facts,
        figure::{Figure, Figures},
        runs::RunFigures,
    };

    /// Compares the wall times of five runs a side.
    fn change(base: f64, new: f64) -> Change {
        let key = Key::of("wall_ns", None, None);
        let run = |value: f64| RunFigures {
            name: "r".to_owned(),
            facts: Facts::default(),
            figures: Figures::from([(key.clone(), Figure { value, calls_count: None })]),
        };
        let [base, new] = [base, new].map(|value| Runs::new((0..5).map(|_| run(value))).unwrap());
        Change::of(&base, &new, &key).unwrap()
    }

    #[test]
    fn differences_and_amounts_convert_to_each_other() {
        let logarithmic = change(200.0, 400.0);
        for (delta, expected) in [
            (200.0, 2_f64.ln()),
            (-100.0, -2_f64.ln()),
            (0.0, 0.0),
            (-200.0, f64::NEG_INFINITY),
            (-201.0, f64::NEG_INFINITY),
        ] {
            let found = logarithmic.difference_of(delta);
            assert!(found == expected || (found - expected).abs() < 1e-12, "{delta}: {found}");
        }
        assert!((logarithmic.estimate() - 200.0).abs() < 1e-9);
        // There is no logarithm of zero.
        let linear = change(200.0, 0.0);
        assert_eq!((linear.difference_of(-50.0), linear.estimate()), (-50.0, -200.0));
        assert_eq!((linear.share(-50.0), linear.shown()), (-0.25, "-100.0 %".to_owned()));
        let from_zero = change(0.0, 200.0);
        assert_eq!((from_zero.share(0.0), from_zero.shown()), (0.0, "from 0".to_owned()));
        assert_eq!([1.0, -1.0].map(|delta| from_zero.share(delta)), [f64::INFINITY, f64::NEG_INFINITY]);
    }

    #[test]
    fn large_changes_are_shown_as_multiples() {
        for (ratio, expected) in [
            (0.0, "+0.00 %"),
            (0.0994, "+9.94 %"),
            (-0.0994, "-9.94 %"),
            (0.0996, "+10.0 %"),
            (-0.0996, "-10.0 %"),
            (-1.0, "-100.0 %"),
            (8.99, "+899.0 %"),
            (9.0, "× 10.0"),
            (98.94, "× 99.9"),
            (98.96, "× 100"),
        ] {
            assert_eq!(signed(ratio), expected, "{ratio}");
        }
    }
}
