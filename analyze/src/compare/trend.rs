//! Finds change points in an ordered series of runs.
//!
//! The method is E-divisive (Matteson and James, "A nonparametric approach for multiple change point analysis
//! of multivariate data", JASA 109, 2014) with exponent 1 and one split per segment. The split with the
//! largest energy distance between its sides is tested by permuting the segment's runs; if it is significant,
//! both sides are searched in turn. Unlike a t-test, the method assumes nothing about the distribution of the
//! noise; like every permutation test, it assumes that runs without a change are exchangeable.

use serde::Serialize;

use super::{
    change,
    figure::Key,
    metric::Direction,
    runs::Runs,
    samples::{EXACT_FROM, Level, median},
};
use analyze_frame::medians_before;
use analyze_run::random::Random;

/// Smallest number of runs between two changes: fewer are outliers, not a level.
pub const SEGMENT: usize = 3;
/// Largest number of permutations of a test.
const PERMUTATIONS: usize = 999;
/// Number of permutations at least as extreme after which a test ends, because it cannot become significant.
const ENOUGH: usize = 60;
const SEED: u64 = 0x5eed;

/// A change point of a series.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Index of the first run after the change, among the runs that have the figure.
    pub place: usize,
    /// Name of that run.
    pub run: String,
    /// Median of the level before the change, back to the previous change, in the figure's unit.
    pub before: f64,
    /// Median of the level after the change, up to the next change, in the figure's unit.
    pub after: f64,
    /// Relative change of the level; `None` if the level before is 0.
    pub change_ratio: Option<f64>,
    /// p-value of the permutation test.
    pub p: f64,
}

/// A figure over a series of runs.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The figure.
    #[serde(flatten)]
    pub key: Key,
    /// Names of the runs that have the figure, in order. A run that measures the metric has the value 0 where the
    /// metric's declaration says so.
    pub runs: Vec<String>,
    /// Number of runs that are left out because the figure rests on fewer calls there than the metric needs.
    pub few_calls_count: usize,
    /// Values of the figure in these runs, in its unit.
    pub values: Vec<f64>,
    /// Change points, in order.
    pub points: Vec<Point>,
    /// Each run against the runs before it; empty unless asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
}

impl Series {
    /// Returns whether the runs are too few for two levels, so that nothing is known of a change.
    pub fn is_short(&self) -> bool {
        self.values.len() < 2 * SEGMENT
    }
}

/// One run of a series against a window of runs before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Rolling median and MAD; `None` if fewer than five runs come before.
    #[serde(flatten)]
    pub level: Option<Level>,
    /// True if the run lies far from the level (modified z-score above 3.5) and by more than the metric's floor.
    pub is_outlier: bool,
    /// True if it is an outlier on the side that the metric declares as worse.
    pub is_worse: bool,
}

/// Compares each run of a series with the level of up to `window` runs before it. The run itself is left out, so
/// that it cannot hide itself; outliers before it are not, as the median bears them.
pub fn windows(series: &Series, window: u32) -> Vec<Window> {
    let metric = series.key.metric.declaration();
    let at = |(found, value): (Option<(f64, f64)>, &f64)| {
        let level = found.map(|(median, mad)| Level { median, mad });
        let is_far = |level: Level| level.is_far(*value) && (value - level.median).abs() > metric.floor;
        let is_outlier = level.is_some_and(is_far);
        let rises = level.is_some_and(|level| *value > level.median);
        Window { level, is_outlier, is_worse: is_outlier && rises == (metric.direction == Direction::Lower) }
    };
    let levels = medians_before(&series.values, window, EXACT_FROM as u32);
    levels.into_iter().zip(&series.values).map(at).collect()
}

/// Values of a segment of a series, for sums of distances in n log n steps.
struct Distances {
    values: Vec<f64>,
    /// Rank of each value, from 1.
    ranks: Vec<usize>,
    /// Sum of each value's distances to all others.
    sums: Vec<f64>,
}

impl Distances {
    fn of(values: &[f64]) -> Self {
        // Distances do not change with the origin, and small numbers keep more digits.
        let origin = median(values);
        let values: Vec<f64> = values.iter().map(|value| value - origin).collect();
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let (mut ranks, mut sums) = (vec![0; values.len()], vec![0.0; values.len()]);
        let total: f64 = values.iter().sum();
        let mut below = 0.0;
        for (rank, place) in order.iter().enumerate() {
            let value = values[*place];
            ranks[*place] = rank + 1;
            sums[*place] =
                value * rank as f64 - below + (total - below) - value * (values.len() - rank) as f64;
            below += value;
        }
        Self { values, ranks, sums }
    }

    /// Returns the best split of the values in this order: its index, and the energy statistic there.
    fn best_split(&self, order: &[usize]) -> Option<(usize, f64)> {
        let n = order.len();
        let total: f64 = self.sums.iter().sum::<f64>() / 2.0;
        let (mut left, mut right) = (0.0, total);
        let mut best: Option<(usize, f64)> = None;
        // A Fenwick tree over ranks holds the number and the sum of the values on the left.
        let mut tree = vec![(0.0, 0.0); n + 1];
        let (mut sum, pairs) = (0.0, |count: f64| count * (count - 1.0) / 2.0);
        for (k, place) in order.iter().enumerate() {
            let value = self.values[*place];
            let (mut below, mut below_sum, mut at) = (0.0, 0.0, self.ranks[*place]);
            while at > 0 {
                below += tree[at].0;
                below_sum += tree[at].1;
                at &= at - 1;
            }
            let above = k as f64 - below;
            let to_left = value * below - below_sum + (sum - below_sum) - value * above;
            let mut at = self.ranks[*place];
            while at <= n {
                tree[at].0 += 1.0;
                tree[at].1 += value;
                at += at & at.wrapping_neg();
            }
            sum += value;
            left += to_left;
            right -= self.sums[*place] - to_left;
            if k + 1 < SEGMENT || n - k - 1 < SEGMENT {
                continue;
            }
            let (a, b) = ((k + 1) as f64, (n - k - 1) as f64);
            let between = 2.0 * (total - left - right) / (a * b);
            let energy = between - left / pairs(a) - right / pairs(b);
            let statistic = a * b / (a + b) * energy;
            if best.is_none_or(|(_, most)| statistic > most) {
                best = Some((k + 1, statistic));
            }
        }
        best
    }
}

/// Splits a part of the series that begins at `offset`, and then its parts.
fn split(values: &[f64], offset: usize, alpha: f64, found: &mut Vec<(usize, f64)>) {
    let n = values.len();
    if n < 2 * SEGMENT {
        return;
    }
    let distances = Distances::of(values);
    let order: Vec<usize> = (0..n).collect();
    let Some((place, statistic)) = distances.best_split(&order) else { return };
    let mut random = Random::nth(SEED, offset as u64 * 1_000_003 + n as u64);
    let (mut extreme, mut drawn) = (0, 0);
    while drawn < PERMUTATIONS && extreme < ENOUGH {
        // Sums in another order differ in their last digits.
        let other = distances.best_split(&random.choose(n, n));
        extreme += usize::from(other.is_some_and(|(_, other)| other >= statistic * (1.0 - 1e-9)));
        drawn += 1;
    }
    let p = (extreme + 1) as f64 / (drawn + 1) as f64;
    // What equal values leave of their distances is rounding.
    let is_rounding = statistic <= 1e-9 * distances.values.iter().map(|value| value.abs()).sum::<f64>();
    if p > alpha || is_rounding {
        return;
    }
    found.push((offset + place, p));
    split(&values[..place], offset, alpha, found);
    split(&values[place..], offset + place, alpha, found);
}

/// Finds the change points of a figure over runs in the given order; each split is tested at the level
/// `alpha`. The runs have the values that a comparison would use.
pub fn series(runs: &Runs, key: &Key, alpha: f64) -> Series {
    let name = |run: usize| runs.each()[run].name.as_str();
    let measured = if change::has(runs, key) { change::values(runs, key) } else { Vec::new() };
    let with: Vec<(&str, f64)> = measured.into_iter().map(|(run, value)| (name(run), value)).collect();
    let declared = key.metric.declaration();
    let few_calls_count =
        runs.figure(key).filter(|(_, figure)| !declared.has_enough_calls(figure.calls_count)).count();
    let values: Vec<f64> = with.iter().map(|(_, value)| *value).collect();
    let is_log = values.iter().all(|value| *value > 0.0);
    let scaled: Vec<f64> = values.iter().map(|value| if is_log { value.ln() } else { *value }).collect();
    let mut found = Vec::new();
    split(&scaled, 0, alpha, &mut found);
    found.sort_by_key(|(place, _)| *place);
    let ends: Vec<usize> =
        [0].into_iter().chain(found.iter().map(|(place, _)| *place)).chain([values.len()]).collect();
    let point = |(number, (place, p)): (usize, &(usize, f64))| {
        let before = median(&values[ends[number]..*place]);
        let after = median(&values[*place..ends[number + 2]]);
        let change_ratio = (before != 0.0).then(|| after / before - 1.0);
        Point { place: *place, run: with[*place].0.to_owned(), before, after, change_ratio, p: *p }
    };
    let points = found.iter().enumerate().map(point).collect();
    Series {
        key: key.clone(),
        runs: with.iter().map(|(name, _)| (*name).to_owned()).collect(),
        few_calls_count,
        values,
        points,
        windows: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{
        facts::Facts,
        figure::{Figure, Figures},
        runs::RunFigures,
    };

    fn runs(values: &[f64]) -> (Runs, Key) {
        let key = Key::of("wall_ns", None, None);
        let run = |(number, value): (usize, &f64)| RunFigures {
            name: format!("r{number}"),
            facts: Facts::default(),
            figures: [(key.clone(), Figure { value: *value, calls_count: None })].into(),
        };
        (Runs::new(values.iter().enumerate().map(run)).unwrap(), key)
    }

    #[test]
    fn changes_are_where_they_are() {
        let mut random = Random::nth(3, 0);
        let level = |i: usize| {
            if i < 20 {
                100.0
            } else if i < 35 {
                110.0
            } else {
                95.0
            }
        };
        let values: Vec<f64> = (0..60).map(|i| level(i) * (1.0 + 0.01 * random.normal())).collect();
        let (runs, key) = runs(&values);
        let found = series(&runs, &key, 0.01);
        let places: Vec<usize> = found.points.iter().map(|point| point.place).collect();
        assert_eq!(places, [20, 35]);
        assert_eq!(found.points[0].run, "r20");
        assert!((found.points[0].change_ratio.unwrap() - 0.10).abs() < 0.01);
    }

    #[test]
    fn a_window_flags_the_run_that_leaves_it() {
        let mut values: Vec<f64> = (0..12).map(|i| 1e9 + 1e6 * f64::from(i % 4)).collect();
        values[7] = 1.2e9;
        values[10] = 0.9e9;
        let (runs, key) = runs(&values);
        let found = windows(&series(&runs, &key, 0.01), 6);
        assert!(found[..5].iter().all(|window| window.level.is_none()), "too few runs come before");
        assert_eq!(found[5].level, Level::of(&values[..5]));
        assert_eq!(found[11].level, Level::of(&values[5..11]), "six runs, not all");
        let places = |of: fn(&Window) -> bool| {
            found
                .iter()
                .enumerate()
                .filter(|(_, window)| of(window))
                .map(|(place, _)| place)
                .collect::<Vec<_>>()
        };
        assert_eq!((places(|w| w.is_outlier), places(|w| w.is_worse)), (vec![7, 10], vec![7]));
        // The spread of equal values is 0; the floor of 1 ms says what is still of no interest.
        let mut flat = vec![1e9; 8];
        flat[7] += 9e5;
        let (runs, key) = self::runs(&flat);
        assert!(!windows(&series(&runs, &key, 0.01), 6)[7].is_outlier);
    }

    #[test]
    fn a_percentile_of_few_calls_is_no_value_and_an_absent_sum_is_zero() {
        let of = |metric: &str| Key::of(metric, Some("cudaMalloc"), None);
        let run = |number: i64| {
            let calls_count = Some(if number % 2 == 0 { 500 } else { 499 });
            let mut figures: Figures = [(of("p99_ns"), Figure { value: 9e3, calls_count })].into();
            if number > 3 {
                figures.insert(of("calls_ns"), Figure { value: 5e6, calls_count });
            } else {
                figures.insert(Key::of("calls_ns", None, None), Figure { value: 1e9, calls_count: None });
            }
            RunFigures { name: format!("r{number}"), facts: Facts::default(), figures }
        };
        let runs = Runs::new((0..10).map(run)).unwrap();
        let p99 = series(&runs, &of("p99_ns"), 0.05);
        assert_eq!((p99.runs.join(" ").as_str(), p99.few_calls_count), ("r0 r2 r4 r6 r8", 5));
        assert_eq!(windows(&p99, 5).len(), 5);
        let calls = series(&runs, &of("calls_ns"), 0.05);
        assert_eq!((calls.values[3], calls.values[4], calls.few_calls_count), (0.0, 5e6, 0));
        assert_eq!(calls.points.iter().map(|point| point.place).collect::<Vec<_>>(), [4]);
        let absent = Key::of("calls_ns", Some("cuMemAlloc"), None);
        assert!(
            series(&runs, &absent, 0.05).values.is_empty(),
            "no run has it, so it may not have been probed"
        );
    }

    #[test]
    fn a_level_has_three_runs_or_more() {
        let places = |values: &[f64], alpha| {
            let (runs, key) = runs(values);
            let found = series(&runs, &key, alpha);
            assert_eq!(found.is_short(), values.len() < 6);
            found.points.iter().map(|point| point.place).collect::<Vec<_>>()
        };
        // Of the orders of six runs, one in ten separates them as well.
        let step = [1e9, 1.01e9, 0.99e9, 9e9, 9.1e9, 8.9e9];
        assert_eq!((places(&step, 0.2), places(&step, 0.05)), (vec![3], vec![]));
        assert!(places(&step[..5], 0.4).is_empty());
        // Two runs at an end are no level: the split is before the third one.
        let ended = [1e9, 1.01e9, 0.99e9, 1e9, 1.01e9, 0.99e9, 9e9, 9.1e9];
        assert!(places(&ended, 0.49).iter().all(|place| (3..=5).contains(place)));
    }

    #[test]
    fn splits_are_those_of_all_distances() {
        let mut random = Random::nth(5, 0);
        for n in [6, 7, 40] {
            let values: Vec<f64> = (0..n).map(|_| 20.0 + random.below(9) as f64 / 1e3).collect();
            let order = random.choose(n, n);
            let distance = |a: &usize, b: &usize| (values[*a] - values[*b]).abs();
            let within = |side: &[usize]| {
                let sum: f64 = side.iter().flat_map(|a| side.iter().map(move |b| distance(a, b))).sum();
                sum / (side.len() * (side.len() - 1)) as f64
            };
            let statistic = |place: usize| {
                let (left, right) = order.split_at(place);
                let between: f64 = left.iter().flat_map(|a| right.iter().map(move |b| distance(a, b))).sum();
                let (a, b) = (left.len() as f64, right.len() as f64);
                a * b / (a + b) * (2.0 * between / (a * b) - within(left) - within(right))
            };
            let most = (SEGMENT..=n - SEGMENT).map(statistic).fold(f64::MIN, f64::max);
            let (place, found) = Distances::of(&values).best_split(&order).unwrap();
            assert!((found - most).abs() < 1e-12 && (statistic(place) - most).abs() < 1e-12, "{n}");
        }
    }

    #[test]
    fn noise_is_no_change() {
        let mut random = Random::nth(4, 0);
        let alarms = (0..100)
            .filter(|_| {
                let values: Vec<f64> = (0..20).map(|_| 100.0 * (1.0 + 0.05 * random.normal())).collect();
                let (runs, key) = runs(&values);
                !series(&runs, &key, 0.05).points.is_empty()
            })
            .count();
        assert!((1..=11).contains(&alarms), "{alarms} of 100 at 5 %");
        for short in [&[][..], &[1.0], &[1.0, 1.0, 1.0, 2.0, 2.0], &[0.0; 12]] {
            let (runs, key) = runs(short);
            assert!(series(&runs, &key, 0.05).points.is_empty());
        }
    }
}
