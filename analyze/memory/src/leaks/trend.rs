//! Estimates the trend of a series at equal steps: the Theil-Sen slope, which is the median of the slopes of
//! all pairs and is robust against a few outliers or a single step, and its 95 % confidence interval after
//! Sen (P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968), with the variance
//! of Kendall's statistic corrected for ties as in the Mann-Kendall test. The interval lies above zero
//! exactly where that test finds an increase.
//!
//! The interval assumes independent values. The live bytes at the ends of two consecutive epochs often are
//! not independent, so no verdict rests on a trend alone.

use serde::Serialize;

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// A slope with its confidence interval, in bytes per epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// The Theil-Sen slope.
    pub bytes_per_epoch: f64,
    /// The lower end of the 95 % confidence interval.
    pub low_bytes_per_epoch: f64,
    /// The upper end of the 95 % confidence interval.
    pub high_bytes_per_epoch: f64,
}

impl Trend {
    /// Returns whether the values increase significantly: the whole interval lies above zero.
    pub fn is_up(&self) -> bool {
        self.low_bytes_per_epoch > 0.0
    }
}

/// Returns the trend of values at consecutive epochs, or `None` if there are fewer than three.
pub fn trend(values: &[i64]) -> Option<Trend> {
    let n = values.len();
    if n < 3 {
        return None;
    }
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    for (first, from) in values.iter().enumerate() {
        let later = values.iter().enumerate().skip(first + 1);
        slopes.extend(later.map(|(second, to)| (*to as f64 - *from as f64) / (second - first) as f64));
    }
    slopes.sort_by(f64::total_cmp);
    let pairs = slopes.len();
    let median = (slopes[(pairs - 1) / 2] + slopes[pairs / 2]) / 2.0;
    let width = Z * variance(values).sqrt();
    let low = ((pairs as f64 - width) / 2.0).round() - 1.0;
    let high = ((pairs as f64 + width) / 2.0).round();
    Some(Trend {
        bytes_per_epoch: median,
        low_bytes_per_epoch: slopes[low.max(0.0) as usize],
        high_bytes_per_epoch: slopes[(high as usize).min(pairs - 1)],
    })
}

/// Returns the variance of Kendall's statistic, corrected for ties.
fn variance(values: &[i64]) -> f64 {
    let term = |n: usize| (n * (n - 1) * (2 * n + 5)) as f64;
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|equal| term(equal.len())).sum();
    (term(values.len()) - ties) / 18.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[i64]) -> (f64, f64, f64) {
        let trend = trend(values).expect("a trend");
        (trend.bytes_per_epoch, trend.low_bytes_per_epoch, trend.high_bytes_per_epoch)
    }

    #[test]
    fn a_straight_line_is_its_own_trend() {
        assert_eq!(of(&[0, 3, 6, 9, 12, 15, 18, 21]), (3.0, 3.0, 3.0));
    }

    #[test]
    fn one_outlier_does_not_matter() {
        assert_eq!(of(&[0, 1, 2, 3, 1_000_000, 5, 6, 7, 8, 9]).0, 1.0);
    }

    /// The expected values are those of `scipy.stats.theilslopes(y, method="separate", alpha=0.95)` of SciPy
    /// 1.
    #[test]
    fn the_interval_is_that_of_scipy() {
        let near = |found: (f64, f64, f64), expected: (f64, f64, f64)| {
            let differences = [found.0 - expected.0, found.1 - expected.1, found.2 - expected.2];
            assert!(differences.iter().all(|difference| difference.abs() < 1e-12), "{found:?}");
        };
        near(of(&[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]), (0.4, 0.0, 0.615_384_615_384_615_4));
        near(
            of(&[10, 12, 9, 14, 14, 14, 20, 18, 25, 23, 30, 28]),
            (1.866_071_428_571_428_6, 1.333_333_333_333_333_3, 2.5),
        );
    }

    #[test]
    fn a_constant_has_no_trend() {
        let flat = trend(&[5; 20]).expect("a trend");
        assert_eq!((flat.bytes_per_epoch, flat.is_up()), (0.0, false));
    }

    #[test]
    fn one_step_is_no_increase() {
        let mut values = [0; 40];
        values[10..].fill(60 << 20);
        assert!(!trend(&values).expect("a trend").is_up());
    }

    #[test]
    fn two_values_have_no_trend() {
        assert_eq!(trend(&[1, 2]), None);
        assert_eq!(of(&[1, 2, 3]), (1.0, 1.0, 1.0));
        // An interval that touches zero shows no increase.
        let touching = trend(&[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]).expect("a trend");
        assert_eq!((touching.low_bytes_per_epoch, touching.is_up()), (0.0, false));
    }
}
