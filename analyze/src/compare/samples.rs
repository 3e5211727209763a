//! Tests whether a figure differs between two sets of runs. The unit is the run: the calls of one run share
//! its noise, so that a test on calls finds "changes" where there are none.
//!
//! | runs on the smaller side | test | estimate and interval |
//! |---|---|---|
//! | 1, 2 | none: the variation between runs is unknown | the ratio alone |
//! | 3, 4 | Welch's t-test on means | Welch's |
//! | 5 and more | exact permutation of the runs' ranks (Wilcoxon–Mann–Whitney) | Hodges and Lehmann's |
//! | more than 25 on a side | Welch's t-test: means of that many runs are nearly normal | Welch's |
//!
//! Figures that are all positive are compared as logarithms, so that the estimated effect is a ratio. The
//! permutation test gives tied values the mean of their ranks.
//!
//! The permutation test assumes that the sides differ in nothing but a shift, which two kinds of runs violate:
//! - If the smaller side varies more, the test finds changes where there are none (five runs that differ by 5 %
//!   against twenty that differ by 0.5 %: in 16 of 100 comparisons at 5 %). Its p-value is therefore that of
//!   Welch's t-test on the ranks if that one is larger.
//! - If some runs of a side are far slower than its others, the shift between typical runs does not show it. A
//!   difference therefore has the interval of the difference of means, too.

use analyze_run::quantiles;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence level of intervals.
const CONFIDENCE: f64 = 0.95;
/// Smallest number of runs on the smaller side for the permutation test; with fewer it cannot become
/// significant.
pub(super) const EXACT_FROM: usize = 5;
/// Largest number of runs on a side for the permutation test; above it, a test on means is as good.
const EXACT_TO: usize = 25;
/// Smallest number of runs on the smaller side for which there is a test.
pub const TEST_FROM: usize = 3;

/// Statistical test of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// No test: there are too few runs.
    None,
    /// Welch's t-test on means.
    Welch,
    /// Exact permutation test of ranks.
    Exact,
}

impl Method {
    /// Name of the test in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no test",
            Self::Welch => "Welch",
            Self::Exact => "exact permutation",
        }
    }

    /// Returns the test used for these numbers of runs.
    pub fn of(base: usize, new: usize) -> Self {
        match base.min(new) {
            0..TEST_FROM => Self::None,
            TEST_FROM..EXACT_FROM => Self::Welch,
            _ if base.max(new) > EXACT_TO => Self::Welch,
            _ => Self::Exact,
        }
    }

    /// Returns the smallest one-sided p that the test can reach with these numbers of runs.
    pub fn least_p(self, base: usize, new: usize) -> f64 {
        match self {
            Self::None => 1.0,
            Self::Welch => 0.0,
            Self::Exact => 1.0 / subsets(base + new, base),
        }
    }
}

/// Number of ways to choose `chosen` of `of` items.
fn subsets(of: usize, chosen: usize) -> f64 {
    (0..chosen).map(|i| (of - i) as f64 / (i + 1) as f64).product::<f64>().round()
}

/// Estimated difference between two sides: new minus base, of the logarithms or of the figures themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The test that was used.
    pub method: Method,
    /// True if `estimate`, `low` and `high` are differences of natural logarithms.
    pub is_log: bool,
    /// Estimated difference.
    pub estimate: f64,
    /// Lower end of its 95 % confidence interval; infinite if there are too few runs.
    pub low: f64,
    /// Upper end of that interval; infinite if there are too few runs.
    pub high: f64,
    /// Lower end of the 95 % confidence interval of the difference of means (Welch's); infinite if there are too
    /// few runs.
    pub mean_low: f64,
    /// Upper end of that interval; infinite if there are too few runs.
    pub mean_high: f64,
    /// Probability of a rise at least as large if there is no difference.
    pub p_up: f64,
    /// Probability of a fall at least as large if there is no difference.
    pub p_down: f64,
}

impl Difference {
    /// Two-sided p-value.
    pub fn p(&self) -> f64 {
        (2.0 * self.p_up.min(self.p_down)).min(1.0)
    }

    /// Converts a difference of logarithms to a relative change; `None` if this is not a difference of
    /// logarithms.
    pub fn ratio(&self, difference: f64) -> Option<f64> {
        self.is_log.then(|| difference.exp() - 1.0)
    }
}

/// Estimates how many runs a side bring the end of a confidence interval to a distance from its estimate, if
/// `runs` runs a side leave it at `width`: the width falls with the root of the number of runs. The answer is
/// more than `runs`, and infinite if the distance is not positive.
pub fn runs_for(runs: usize, width: f64, distance: f64) -> f64 {
    let runs = runs as f64;
    if distance > 0.0 { (runs * (width / distance).powi(2)).ceil().max(runs + 1.0) } else { f64::INFINITY }
}

/// Arithmetic mean; 0 for an empty slice.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Median of at least one value.
pub fn median(values: &[f64]) -> f64 {
    quantiles::median(values).unwrap_or(f64::NAN)
}

/// Mean and sample variance. The variance is not finite for fewer than two values.
pub fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = mean(values);
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, squares / (n - 1.0))
}

fn welch(base: &[f64], new: &[f64]) -> (f64, f64, f64, f64, f64) {
    let ((base_mean, base_var), (new_mean, new_var)) = (moments(base), moments(new));
    let (n, m) = (base.len() as f64, new.len() as f64);
    let (a, b) = (base_var / n, new_var / m);
    let (difference, error) = (new_mean - base_mean, (a + b).sqrt());
    // A spread no larger than rounding errors is not noise, and a t-test would divide by it. Nor is such a
    // difference one: means of equal values differ in their last digits if their numbers do.
    let rounding = 1e-12 * base_mean.abs().max(new_mean.abs()).max(f64::MIN_POSITIVE);
    if error <= rounding {
        let difference = if difference.abs() <= rounding { 0.0 } else { difference };
        let of = |is_so: bool| if is_so { 0.0 } else { 1.0 };
        let p = if difference == 0.0 { (1.0, 1.0) } else { (of(difference > 0.0), of(difference < 0.0)) };
        return (difference, difference, difference, p.0, p.1);
    }
    let freedom = (a + b).powi(2) / (a * a / (n - 1.0) + b * b / (m - 1.0));
    let Ok(t) = StudentsT::new(0.0, 1.0, freedom) else {
        return (difference, f64::NEG_INFINITY, f64::INFINITY, 1.0, 1.0);
    };
    let reach = t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * error;
    let below = t.cdf(difference / error);
    (difference, difference - reach, difference + reach, 1.0 - below, below)
}

/// Counts, for each sum, the subsets of `chosen` ranks that have it.
fn rank_sums(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    // The sum of the ranks before the next one, which no subset of them exceeds.
    let mut reach = 0;
    for rank in ranks {
        for size in (1..=chosen).rev() {
            let (fewer, these) = ways.split_at_mut(size);
            let without = &fewer[size - 1][..=reach];
            these[0][*rank..].iter_mut().zip(without).for_each(|(ways, without)| *ways += without);
        }
        reach += rank;
    }
    ways.swap_remove(chosen)
}

fn exact(base: &[f64], new: &[f64]) -> (f64, f64, f64, f64, f64) {
    let (base_ranks, new_ranks) = ranks(base, new);
    let untied: Vec<usize> = (1..=base.len() + new.len()).collect();
    let untied_ways = rank_sums(&untied, new.len());
    let total: f64 = untied_ways.iter().sum();
    // Doubled, so that the ranks of ties are integers.
    let doubled = |ranks: &[f64]| ranks.iter().map(|rank| (2.0 * rank) as usize).collect::<Vec<usize>>();
    let seen: usize = doubled(&new_ranks).iter().sum();
    let mut all = [doubled(&base_ranks), doubled(&new_ranks)].concat();
    all.sort_unstable();
    let is_tied = !all.iter().copied().eq(untied.iter().map(|rank| 2 * rank));
    let tied_ways = is_tied.then(|| rank_sums(&all, new.len()));
    let (ways, seen) = tied_ways.as_ref().map_or((&untied_ways, seen / 2), |ways| (ways, seen));
    let p_up = ways[seen..].iter().sum::<f64>() / total;
    let p_down = ways[..=seen].iter().sum::<f64>() / total;

    let mut differences: Vec<f64> = new.iter().flat_map(|n| base.iter().map(move |b| n - b)).collect();
    differences.sort_by(f64::total_cmp);
    let count = differences.len();
    let estimate = (differences[(count - 1) / 2] + differences[count / 2]) / 2.0;
    // Counts the pairs that may be left out at each end before the confidence falls short. Ties are ignored
    // here.
    let least = new.len() * (new.len() + 1) / 2;
    let mut outside = 0.0;
    let left_out = (0..count).find(|pairs| {
        outside += untied_ways.get(least + pairs).copied().unwrap_or(0.0) / total;
        outside > (1.0 - CONFIDENCE) / 2.0
    });
    match left_out {
        Some(pairs) if pairs > 0 => {
            (estimate, differences[pairs - 1], differences[count - pairs], p_up, p_down)
        }
        _ => (estimate, f64::NEG_INFINITY, f64::INFINITY, p_up, p_down),
    }
}

/// Returns the ranks of the values of both sides among all of them.
fn ranks(base: &[f64], new: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut base_ranks = quantiles::ranks(&[base, new].concat());
    let new_ranks = base_ranks.split_off(base.len());
    (base_ranks, new_ranks)
}

/// Compares two sets of at least one run each.
pub fn difference(base: &[f64], new: &[f64]) -> Difference {
    let is_log = base.iter().chain(new).all(|value| *value > 0.0);
    let scaled =
        |values: &[f64]| values.iter().map(|v| if is_log { v.ln() } else { *v }).collect::<Vec<f64>>();
    let (base, new) = (scaled(base), scaled(new));
    let method = Method::of(base.len(), new.len());
    let unknown = || (mean(&new) - mean(&base), f64::NEG_INFINITY, f64::INFINITY, 1.0, 1.0);
    let of_means = if method == Method::None { unknown() } else { welch(&base, &new) };
    let (_, mean_low, mean_high, ..) = of_means;
    let (estimate, low, high, p_up, p_down) = match method {
        Method::None | Method::Welch => of_means,
        Method::Exact => {
            let (base_ranks, new_ranks) = ranks(&base, &new);
            let (.., ranks_up, ranks_down) = welch(&base_ranks, &new_ranks);
            let (estimate, low, high, p_up, p_down) = exact(&base, &new);
            (estimate, low, high, p_up.max(ranks_up), p_down.max(ranks_down))
        }
    };
    Difference { method, is_log, estimate, low, high, mean_low, mean_high, p_up, p_down }
}

/// Adjusts p-values by Holm's method: rejecting those up to α makes a false rejection with a probability of
/// at most α in the whole family.
pub fn holm(ps: &[f64]) -> Vec<f64> {
    adjusted(ps, |rank, count| (count - rank) as f64, true)
}

/// Adjusts p-values by Benjamini and Hochberg's method: of those up to q, a share of at most q is expected to
/// be false.
pub fn benjamini_hochberg(ps: &[f64]) -> Vec<f64> {
    adjusted(ps, |rank, count| count as f64 / (rank + 1) as f64, false)
}

fn adjusted(ps: &[f64], factor: impl Fn(usize, usize) -> f64, rising: bool) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|a, b| ps[*a].total_cmp(&ps[*b]));
    let mut out: Vec<f64> =
        order.iter().enumerate().map(|(rank, i)| ps[*i] * factor(rank, ps.len())).collect();
    if rising {
        (1..out.len()).for_each(|i| out[i] = out[i].max(out[i - 1]));
    } else {
        (0..out.len().saturating_sub(1)).rev().for_each(|i| out[i] = out[i].min(out[i + 1]));
    }
    let mut by_place = vec![1.0; ps.len()];
    order.iter().zip(out).for_each(|(place, p)| by_place[*place] = p.min(1.0));
    by_place
}

/// Median of values, and the median of their absolute deviations from it (MAD).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// Median, in the unit of the values.
    pub median: f64,
    /// Median absolute deviation, not scaled to a standard deviation, in the unit of the values.
    pub mad: f64,
}

impl Level {
    /// Returns the level of the values; `None` for fewer than five, which do not tell what is usual.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.len() < EXACT_FROM {
            return None;
        }
        let centre = median(values);
        let mad = median(&values.iter().map(|value| (value - centre).abs()).collect::<Vec<f64>>());
        Some(Self { median: centre, mad })
    }

    /// Returns whether a value lies far from the level, by Iglewicz and Hoaglin's modified z-score.
    pub fn is_far(&self, value: f64) -> bool {
        const LIMIT: f64 = 3.5;
        0.6745 * (value - self.median).abs() > LIMIT * self.mad.max(1e-9 * self.median.abs())
    }
}

/// Returns the places of values that lie far from the others; none for fewer than five values.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let level = Level::of(values);
    (0..values.len()).filter(|i| level.is_some_and(|level| level.is_far(values[*i]))).collect()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Enumerates all subsets.
    fn by_hand(base: &[f64], new: &[f64]) -> (f64, f64) {
        let all: Vec<f64> = base.iter().chain(new).copied().collect();
        let rank = |value: f64| {
            let (below, same) =
                (all.iter().filter(|v| **v < value).count(), all.iter().filter(|v| **v == value).count());
            below as f64 + (same as f64 + 1.0) / 2.0
        };
        let seen: f64 = new.iter().map(|value| rank(*value)).sum();
        let (mut up, mut down, mut count) = (0.0, 0.0, 0.0);
        for mask in 0_u32..1 << all.len() {
            if mask.count_ones() as usize == new.len() {
                let sum: f64 = (0..all.len()).filter(|i| mask >> i & 1 == 1).map(|i| rank(all[i])).sum();
                count += 1.0;
                up += f64::from(u8::from(sum >= seen));
                down += f64::from(u8::from(sum <= seen));
            }
        }
        (up / count, down / count)
    }

    /// Figures of which some are equal.
    fn side(runs: Range<usize>) -> impl Strategy<Value = Vec<f64>> {
        vec((1..40_u32).prop_map(f64::from), runs)
    }

    fn is_near(a: f64, b: f64) -> bool {
        a == b || (a - b).abs() < 1e-9
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn ranks_are_permuted_exactly(base in side(5..8), new in side(5..8)) {
            let (estimate, low, high, p_up, p_down) = exact(&base, &new);
            let (up, down) = by_hand(&base, &new);
            prop_assert!((p_up - up).abs() < 1e-12 && (p_down - down).abs() < 1e-12, "{} {}", p_up, up);
            prop_assert!(low <= estimate && estimate <= high);
            let found = difference(&base, &new);
            prop_assert!(found.method == Method::Exact && found.p_up >= up && found.p_down >= down);
        }
    }

    proptest! {
        /// What rises from one side to the other falls from that to the first.
        #[test]
        fn exchanged_sides_differ_by_as_much(base in side(1..30), new in side(1..30)) {
            let (one, other) = (difference(&base, &new), difference(&new, &base));
            prop_assert_eq!((one.method, one.is_log), (other.method, other.is_log));
            for (found, expected) in [
                (one.estimate, -other.estimate),
                (one.low, -other.high),
                (one.high, -other.low),
                (one.mean_low, -other.mean_high),
                (one.mean_high, -other.mean_low),
                (one.p_up, other.p_down),
                (one.p_down, other.p_up),
                (one.p(), other.p()),
            ] {
                prop_assert!(is_near(found, expected), "{:?} {:?}", one, other);
            }
            prop_assert!(one.low <= one.estimate && one.estimate <= one.high && (0.0..=1.0).contains(&one.p()));
        }

        #[test]
        fn runs_without_noise_do_not_differ(value in 0.001..1e12_f64, base in 3..30_usize, new in 3..30_usize) {
            let found = difference(&vec![value; base], &vec![value; new]);
            prop_assert_eq!((found.estimate, found.p_up, found.p_down), (0.0, 1.0, 1.0), "{:?}", found);
        }

        /// Runs that all differ by one factor, and runs without any noise, differ by just that.
        #[test]
        fn intervals_contain_a_shift_of_all_runs(base in side(3..30), factor in 0.2..5.0_f64, is_flat: bool) {
            let base = if is_flat { vec![base[0]; base.len()] } else { base };
            let new: Vec<f64> = base.iter().rev().map(|value| value * factor).collect();
            let (found, shift) = (difference(&base, &new), factor.ln());
            prop_assert!(found.is_log && is_near(found.estimate, shift), "{:?}", found);
            for (low, high) in [(found.low, found.high), (found.mean_low, found.mean_high)] {
                prop_assert!(low <= shift + 1e-9 && shift <= high + 1e-9, "{:?}", found);
                prop_assert!(!is_flat || is_near(low, high), "{:?}", found);
            }
        }

        #[test]
        fn families_are_corrected_by_definition(ps in vec((0..=20_u32).prop_map(|p| f64::from(p) / 20.0), 0..12)) {
            let count = |is_meant: &dyn Fn(f64) -> bool| ps.iter().filter(|p| is_meant(**p)).count() as f64;
            for (place, p) in ps.iter().enumerate() {
                let at_least = |other: &f64| (ps.len() as f64 - count(&|p| p < *other)) * other;
                let holm_p = ps.iter().filter(|other| **other <= *p).map(at_least).fold(0.0, f64::max);
                prop_assert!(is_near(holm(&ps)[place], holm_p.min(1.0)));
                let at_most = |other: &f64| ps.len() as f64 / count(&|p| p <= *other) * other;
                let q = ps.iter().filter(|other| **other >= *p).map(at_most).fold(1.0, f64::min);
                prop_assert!(is_near(benjamini_hochberg(&ps)[place], q));
            }
        }

        /// A value lies far if it is more than 3.5 / 0.6745 median deviations from the median.
        #[test]
        fn outliers_are_far_from_the_median(values in side(1..12)) {
            let middle = |mut values: Vec<f64>| {
                values.sort_by(f64::total_cmp);
                (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
            };
            let centre = middle(values.clone());
            let deviation = |value: &f64| (value - centre).abs();
            let usual = middle(values.iter().map(deviation).collect()).max(1e-9 * centre);
            let is_far = |place: &usize| values.len() >= 5 && deviation(&values[*place]) > 3.5 / 0.6745 * usual;
            prop_assert_eq!(outliers(&values), (0..values.len()).filter(is_far).collect::<Vec<usize>>());
        }
    }

    #[test]
    fn the_number_of_runs_chooses_the_test() {
        for (base, new, expected) in [
            (2, 99, Method::None),
            (3, 3, Method::Welch),
            (4, 25, Method::Welch),
            (5, 5, Method::Exact),
            (25, 25, Method::Exact),
            (26, 25, Method::Welch),
            (5, 26, Method::Welch),
        ] {
            assert_eq!((Method::of(base, new), Method::of(new, base)), (expected, expected), "{base} {new}");
        }
        let least = difference(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((least.p_up - Method::Exact.least_p(5, 5)).abs() < 1e-12 && least.p_down == 1.0);
        assert_eq!([subsets(10, 5), subsets(7, 0), subsets(50, 2)], [252.0, 1.0, 1225.0]);
        assert_eq!([Method::None, Method::Welch].map(|method| method.least_p(5, 5)), [1.0, 0.0]);
    }

    #[test]
    fn intervals_have_the_confidence_they_claim() {
        // The true shift of 3 between two sets of five uniform numbers lies outside the interval in at most 5
        // % of 4,000 draws, allowing for chance.
        let mut random = analyze_run::random::Random(5);
        let mut draw = |shift: f64| {
            (0..5).map(|_| 100.0 + shift + random.below(1000) as f64 / 100.0).collect::<Vec<_>>()
        };
        let outside = (0..4000)
            .filter(|_| {
                let (base, new) = (draw(0.0), draw(3.0));
                let (_, low, high, ..) = exact(&base, &new);
                !(low..=high).contains(&3.0)
            })
            .count();
        assert!((80..=220).contains(&outside), "{outside}");
    }

    #[test]
    fn few_noisy_runs_against_many_quiet_ones_raise_no_more_alarms_than_promised() {
        let mut random = analyze_run::random::Random(9);
        let mut alarms = [0; 2];
        for _ in 0..200 {
            let mut side = |runs: usize, spread: f64| {
                (0..runs).map(|_| (spread * random.normal()).exp()).collect::<Vec<f64>>()
            };
            let (base, new) = (side(20, 0.005), side(5, 0.05));
            let of_ranks = exact(&base, &new).3;
            alarms[0] += usize::from(of_ranks <= 0.05);
            alarms[1] += usize::from(difference(&base, &new).p_up <= 0.05);
        }
        // Of 200, 5 % are 10; chance adds up to 6 of them.
        assert!(alarms[0] > 20 && alarms[1] <= 16, "{alarms:?}");
    }

    #[test]
    fn a_wild_run_hides_no_change_of_the_others() {
        let base = [1.0, 1.01, 1.02, 1.03, 1.04];
        let found = difference(&base, &[1.2, 1.21, 1.22, 1.23, 4.0]);
        assert!((found.p_up - Method::Exact.least_p(5, 5)).abs() < 1e-12, "{found:?}");
        assert!(found.mean_low < 0.0 && found.low > 0.0, "{found:?}");
    }

    #[test]
    fn welch_as_published() {
        // Student's sleep data, treated as two groups. R's t.test(extra ~ group) gives p = 0.07939, interval
        // -3.365 to 0.2055.
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let (estimate, low, high, p_up, _) = welch(&one, &two);
        assert!((estimate - 1.58).abs() < 1e-9, "{estimate}");
        assert!((low + 0.2054832).abs() < 1e-6 && (high - 3.3654832).abs() < 1e-6, "{low} {high}");
        assert!((2.0 * p_up - 0.0793941).abs() < 1e-6, "{p_up}");
    }

    #[test]
    fn families_are_corrected() {
        let ps = [0.01, 0.04, 0.03, 0.005];
        assert_eq!(holm(&ps), [0.03, 0.06, 0.06, 0.02]);
        let found = benjamini_hochberg(&ps);
        for (found, expected) in found.iter().zip([0.02, 0.04, 0.04, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{found}");
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn intervals_narrow_with_the_root_of_the_runs() {
        assert_eq!(runs_for(5, 0.04, 0.02), 20.0);
        assert_eq!(runs_for(5, 0.01, 0.02), 6.0, "five runs did not decide");
        assert!(runs_for(5, 0.04, 0.0).is_infinite() && runs_for(5, 0.04, -0.1).is_infinite());
    }

    #[test]
    fn no_noise_and_no_runs() {
        let same = difference(&[5.0; 3], &[5.0; 3]);
        assert_eq!((same.estimate, same.p_up, same.p_down), (0.0, 1.0, 1.0));
        let more = difference(&[0.0; 3], &[4.0; 3]);
        assert!(!more.is_log && more.p_up == 0.0 && more.p_down == 1.0 && more.estimate == 4.0);
        let one = difference(&[1.0], &[2.0]);
        assert_eq!((one.method, one.p_up), (Method::None, 1.0));
        assert!(one.high.is_infinite());
        assert_eq!(outliers(&[1.0, 1.01, 0.99, 1.0, 1.02, 2.0]), [5]);
        assert!(outliers(&[1.0; 6]).is_empty());
        // Zero has no logarithm.
        assert!(!difference(&[0.0, 1.0], &[1.0]).is_log && difference(&[1e-9], &[1.0]).is_log);
    }
}
