//! The cost of a copy as a function of its size: a straight line through the on-CPU times of one function and
//! direction. The fit is robust, so that a few slow calls do not bend the baseline they are compared with:
//! the slope is the median of the slopes between pairs (Theil 1950, Sen 1968), each weighted by the
//! difference of its sizes (Jaeckel 1972), because a slope between close sizes is mostly noise.
//!
//! Where rows of the scheduler are missing, a copy ran for at most the time on record. Slope and offset are medians, so that
//! lines through the least and the most that these copies may have run bound the line of a whole record ([`CostBounds`]).

use rayon::prelude::*;
use serde::Serialize;

/// Minimum difference of the sizes of a pair: a slope over less says more about noise than about cost.
const MIN_PAIR_BYTES: f64 = 65_536.0;
/// Minimum number of usable pairs; with fewer, no line is fitted.
const MIN_PAIRS: usize = 10;
/// Minimum share of the variance that a line must explain to be used as a baseline.
const MIN_R_SQUARED: f64 = 0.5;
/// Maximum number of points that pairs are formed of; more are thinned evenly in order of size.
const MAX_POINTS: usize = 400;

/// A fitted line: `time = fixed_ns + ns_per_byte * bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Cost of a copy of zero bytes in nanoseconds; not negative.
    pub fixed_ns: f64,
    /// Cost of one more byte in nanoseconds; positive.
    pub ns_per_byte: f64,
    /// Share of the variance of the times that the line explains, at most 1.
    pub r_squared: f64,
}

impl Line {
    /// Returns the cost of a copy in nanoseconds.
    pub fn at(&self, bytes: f64) -> f64 {
        self.fixed_ns + self.ns_per_byte * bytes
    }
}

/// The copies of one function and direction, in order of time. A copy takes 16 bytes.
#[derive(Clone, Debug, Default)]
pub struct Points {
    /// Size in bytes and running time in nanoseconds.
    all: Vec<(f64, f64)>,
    /// Indices of those that may have run for less time.
    unsure: Vec<usize>,
}

impl Points {
    /// Adds a copy; `is_unsure` if rows of the scheduler may be missing while it ran.
    pub fn add(&mut self, bytes: f64, ns: f64, is_unsure: bool) {
        if is_unsure {
            self.unsure.push(self.all.len());
        }
        self.all.push((bytes, ns));
    }

    /// Fits the line to those copies whose running time is known, and bounds the line of all copies if there are others.
    pub fn fit(mut self) -> (Option<Line>, Option<CostBounds>) {
        if self.unsure.is_empty() {
            return (fit(self.all), None);
        }
        let mut least: Vec<(f64, f64, f64)> = self.all.iter().map(|(bytes, ns)| (*bytes, *ns, *ns)).collect();
        for index in &self.unsure {
            least[*index].1 = 0.0;
        }
        let mut unsure = self.unsure.into_iter().peekable();
        let mut index = 0;
        self.all.retain(|_| {
            index += 1;
            unsure.next_if_eq(&(index - 1)).is_none()
        });
        (fit(self.all), Some(bounds(least)))
    }
}

/// Between which costs in nanoseconds that of a copy lies if a line fits all copies. Whether one does may not be known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostBounds {
    /// Offset and slope of the least and the most that a copy costs; `None` if the sizes do not vary enough for a line.
    ends: Option<[(f64, f64); 2]>,
}

impl CostBounds {
    /// Returns the least and the most that a copy costs, if these are its costs in nanoseconds without a line.
    pub fn at(&self, bytes: f64, without: [f64; 2]) -> [f64; 2] {
        let Some([least, most]) = self.ends else { return without };
        [without[0].min(least.0 + least.1 * bytes), without[1].max(most.0 + most.1 * bytes)]
    }
}

/// Bounds the line through points of size in bytes, and the least and the most time in nanoseconds.
fn bounds(mut sorted: Vec<(f64, f64, f64)>) -> CostBounds {
    sorted.par_sort_by(|a, b| a.0.total_cmp(&b.0));
    let sizes: Vec<f64> = sorted.iter().map(|point| point.0).collect();
    let least = slope(&sizes, |big, small| sorted[big].1 - sorted[small].2);
    let most = slope(&sizes, |big, small| sorted[big].2 - sorted[small].1);
    // Only a line that rises fits.
    let ends = least.zip(most).filter(|(_, most)| *most > 0.0).map(|(least, most)| {
        let least = least.max(0.0);
        let fixed_least = fixed(sorted.iter().map(|(bytes, ns, _)| ns - most * bytes).collect());
        let fixed_most = fixed(sorted.iter().map(|(bytes, _, ns)| ns - least * bytes).collect());
        [(fixed_least, least), (fixed_most, most)]
    });
    CostBounds { ends }
}

/// Returns the median slope between pairs of points, given their sizes in bytes in ascending order; `None` if too few pairs
/// differ enough. `rise` is the difference of the times of two points, given by their indices, the larger one first.
fn slope(sizes: &[f64], rise: impl Fn(usize, usize) -> f64) -> Option<f64> {
    let step = sizes.len().div_ceil(MAX_POINTS).max(1);
    // The largest point is kept whatever the step is, because it determines the slope.
    let thinned: Vec<usize> = (0..sizes.len()).rev().step_by(step).collect();
    let mut slopes = Vec::new();
    for (place, big) in thinned.iter().enumerate() {
        for small in &thinned[place + 1..] {
            let bytes = sizes[*big] - sizes[*small];
            if bytes >= MIN_PAIR_BYTES && sizes[*big] >= 2.0 * sizes[*small] {
                slopes.push((rise(*big, *small) / bytes, bytes));
            }
        }
    }
    if slopes.len() < MIN_PAIRS {
        return None;
    }
    weighted_median(&mut slopes)
}

/// Returns the offset of a line: the median of what its slope leaves of the times, in nanoseconds; not negative. Panics if
/// there are no times.
fn fixed(mut rest: Vec<f64>) -> f64 {
    let middle = (rest.len() - 1) / 2;
    rest.select_nth_unstable_by(middle, f64::total_cmp).1.max(0.0)
}

/// Returns the value at which half of the total weight is reached. Each entry is a value and its weight.
fn weighted_median(values: &mut [(f64, f64)]) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut reached = 0.0;
    values
        .iter()
        .find(|(_, weight)| {
            reached += weight;
            reached >= half
        })
        .map(|(value, _)| *value)
}

/// Fits the line to points of size in bytes and time in nanoseconds. Returns `None` if the sizes do not vary
/// enough, or if they do not explain the times.
fn fit(mut sorted: Vec<(f64, f64)>) -> Option<Line> {
    sorted.par_sort_by(|a, b| a.0.total_cmp(&b.0));
    let sizes: Vec<f64> = sorted.iter().map(|point| point.0).collect();
    let rise = |big: usize, small: usize| sorted[big].1 - sorted[small].1;
    let ns_per_byte = slope(&sizes, rise).filter(|slope| *slope > 0.0)?;
    let fixed_ns = fixed(sorted.iter().map(|(bytes, ns)| ns - ns_per_byte * bytes).collect());
    let mean = sorted.iter().map(|point| point.1).sum::<f64>() / sorted.len() as f64;
    let total: f64 = sorted.iter().map(|(_, ns)| (ns - mean).powi(2)).sum();
    let residual: f64 = sorted.iter().map(|(bytes, ns)| (ns - fixed_ns - ns_per_byte * bytes).powi(2)).sum();
    let r_squared = if total > 0.0 { 1.0 - residual / total } else { 0.0 };
    (r_squared >= MIN_R_SQUARED).then_some(Line { fixed_ns, ns_per_byte, r_squared })
}

#[cfg(test)]
mod tests {
    use super::*;
    use analyze_run::random::Random;

    #[test]
    fn a_few_slow_calls_do_not_bend_the_line() {
        let mut points: Vec<_> =
            (0..60).map(|i| (f64::from(i) * 1e5, 5_000.0 + f64::from(i) * 1e4)).collect();
        points[10].1 += 2e5;
        points[50].1 += 2e5;
        let line = fit(points).expect("a line");
        assert!((line.ns_per_byte - 0.1).abs() < 0.001, "{line:?}");
        assert!((line.fixed_ns - 5_000.0).abs() < 100.0, "{line:?}");
    }

    /// Whatever part of some copies' time was not time on CPU, the line of all copies lies within the bounds.
    #[test]
    fn bounds_contain_the_line_of_a_whole_record() {
        let mut random = Random(11);
        for round in 0..60 {
            let (mut whole, mut part) = (Points::default(), Points::default());
            let share = random.unit() * 0.4;
            for _ in 0..80 {
                let bytes = random.below(50) as f64 * 1e5;
                let ns = 4_000.0 + bytes * 0.1 + random.below(3_000) as f64;
                let is_unsure = random.unit() < share;
                whole.add(bytes, ns, false);
                part.add(bytes, if is_unsure { ns + random.below(90_000) as f64 } else { ns }, is_unsure);
            }
            let line = whole.fit().0.expect("a line");
            let (_, bounds) = part.fit();
            for bytes in [0.0, 1e5, 1e6, 9e6] {
                let [least, most] = bounds.map_or([line.at(bytes); 2], |bounds| {
                    bounds.at(bytes, [f64::INFINITY, f64::NEG_INFINITY])
                });
                let cost = line.at(bytes);
                assert!(least <= cost + 1e-6 && cost <= most + 1e-6, "{round}: {least} {cost} {most}");
            }
        }
        let mut few = Points::default();
        few.add(4096.0, 10.0, true);
        let (line, bounds) = few.fit();
        assert_eq!((line, bounds.map(|bounds| bounds.at(4096.0, [0.0, 10.0]))), (None, Some([0.0, 10.0])));
    }

    #[test]
    fn a_line_needs_ten_pairs_of_sizes_far_enough_apart() {
        // Each size is twice the one before, and 64 KiB is the least difference.
        let sizes =
            |count: u32| (0..count).map(|number| 65_536.0 * f64::from(1 << number)).collect::<Vec<f64>>();
        let slope_of = |sizes: &[f64]| slope(sizes, |big, small| 0.5 * (sizes[big] - sizes[small]));
        assert_eq!([slope_of(&sizes(4)), slope_of(&sizes(5))], [None, Some(0.5)]);
        // One pair fewer: its sizes differ by too little, or their ratio is too small.
        for (index, size) in [(0, 65_537.0), (4, 1_048_575.0)] {
            let mut sizes = sizes(5);
            sizes[index] = size;
            assert_eq!(slope_of(&sizes), None, "{size}");
        }
        assert_eq!(slope_of(&[65_535.0, 131_070.0, 262_144.0, 524_288.0, 1_048_576.0]), None);
        // Of many points, which are thinned, the largest one stays.
        let mut many = vec![0.0; 999];
        many.push(1e6);
        assert_eq!(slope_of(&many), Some(0.5));
    }

    #[test]
    fn medians_of_slopes_and_of_what_they_leave() {
        assert_eq!(weighted_median(&mut [(2.0, 1.0), (1.0, 1.0)]), Some(1.0));
        assert_eq!(weighted_median(&mut [(1.0, 1.0), (2.0, 3.0), (9.0, 1.0)]), Some(2.0));
        assert_eq!(weighted_median(&mut []), None);
        assert_eq!([vec![5.0, 1.0], vec![5.0, 1.0, 4.0], vec![-3.0]].map(fixed), [1.0, 4.0, 0.0]);
    }

    #[test]
    fn a_line_that_does_not_rise_or_explain_the_times_is_none() {
        let points = |ns: fn(u32) -> f64| (0..60).map(|i| (f64::from(i) * 1e5, ns(i))).collect::<Vec<_>>();
        assert_eq!(fit(points(|_| 5_000.0)), None);
        assert_eq!(fit(points(|i| 9e6 - 1e4 * f64::from(i))), None);
        // Times alternate around a line that rises by 590 us in all.
        let noisy = |noise: f64| {
            let time = |i: u32| 1e7 + f64::from(i) * 1e4 + if i % 4 < 2 { noise } else { -noise };
            fit((0..60).map(|i| (f64::from(i) * 1e5, time(i))).collect())
        };
        assert!(noisy(9e4).is_some_and(|line| (0.5..0.6).contains(&line.r_squared)), "{:?}", noisy(9e4));
        assert_eq!(noisy(1e5), None, "47 % of the variance");
    }

    #[test]
    fn one_size_has_no_line() {
        assert_eq!(fit(vec![(4096.0, 10.0); 100]), None);
        assert_eq!(fit(Vec::new()), None);
    }
}
