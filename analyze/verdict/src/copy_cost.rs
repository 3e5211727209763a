//! The cost of a copy as a function of its size: a straight line through the on-CPU times of one function and
//! direction. The fit is robust, so that a few slow calls do not bend the baseline they are compared with:
//! the slope is the median of the slopes between pairs (Theil 1950, Sen 1968), each weighted by the
//! difference of its sizes (Jaeckel 1972), because a slope between close sizes is mostly noise.

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
pub fn fit(mut sorted: Vec<(f64, f64)>) -> Option<Line> {
    sorted.par_sort_by(|a, b| a.0.total_cmp(&b.0));
    let step = sorted.len().div_ceil(MAX_POINTS).max(1);
    // The largest point is kept whatever the step is, because it determines the slope.
    let thinned: Vec<_> = sorted.iter().rev().step_by(step).collect();
    let mut slopes = Vec::new();
    for (i, big) in thinned.iter().enumerate() {
        for small in &thinned[i + 1..] {
            let bytes = big.0 - small.0;
            if bytes >= MIN_PAIR_BYTES && big.0 >= 2.0 * small.0 {
                slopes.push(((big.1 - small.1) / bytes, bytes));
            }
        }
    }
    if slopes.len() < MIN_PAIRS {
        return None;
    }
    let ns_per_byte = weighted_median(&mut slopes).filter(|slope| *slope > 0.0)?;
    let mut rest: Vec<f64> = sorted.iter().map(|(bytes, ns)| ns - ns_per_byte * bytes).collect();
    let middle = (rest.len() - 1) / 2;
    let fixed_ns = rest.select_nth_unstable_by(middle, f64::total_cmp).1.max(0.0);
    let mean = sorted.iter().map(|point| point.1).sum::<f64>() / sorted.len() as f64;
    let total: f64 = sorted.iter().map(|(_, ns)| (ns - mean).powi(2)).sum();
    let residual: f64 = sorted.iter().map(|(bytes, ns)| (ns - fixed_ns - ns_per_byte * bytes).powi(2)).sum();
    let r_squared = if total > 0.0 { 1.0 - residual / total } else { 0.0 };
    (r_squared >= MIN_R_SQUARED).then_some(Line { fixed_ns, ns_per_byte, r_squared })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn one_size_has_no_line() {
        assert_eq!(fit(vec![(4096.0, 10.0); 100]), None);
        assert_eq!(fit(Vec::new()), None);
    }
}
