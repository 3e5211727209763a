//! The relation of two clocks as a line, by robust regression: a Theil–Sen estimate through the medians of
//! consecutive parts, with Sen's confidence interval for its slope. The distance between the two records of a
//! call differs between functions, so slopes are taken within each group of functions and then pooled.

use analyze_run::quantiles::median_high;

/// Maximum number of parts.
const MAX_PARTS: usize = 64;
/// Minimum number of points in a part.
const MIN_POINTS: usize = 8;
/// Minimum number of parts for a slope.
const MIN_PARTS: usize = 4;
/// Half the width of a 95 % interval in standard deviations.
const CONFIDENCE: f64 = 1.96;

/// What has to be added to a time `ts` of the profile to get the time of the run:
/// `offset_ns + drift * (ts - origin_ns)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// The time of the profile in nanoseconds at which the offset is `offset_ns`.
    pub origin_ns: i64,
    /// The offset at the origin in nanoseconds.
    pub offset_ns: i64,
    /// Change of the offset per time, a pure number: 1e-6 is one part per million.
    pub drift: f64,
    /// Half the width of the drift's 95 % confidence interval.
    pub drift_error: f64,
}

impl Line {
    /// Makes a line with an offset and no drift.
    pub(super) fn flat(offset_ns: i64) -> Self {
        Self { offset_ns, ..Self::default() }
    }

    /// Returns the offset in nanoseconds at a time of the profile.
    pub(super) fn offset_at(&self, ts: i64) -> i64 {
        let drifted = ts.saturating_sub(self.origin_ns) as f64 * self.drift;
        self.offset_ns.saturating_add(drifted.round() as i64)
    }

    /// Converts a time of the profile in nanoseconds to the run's clock.
    pub fn apply(&self, ts: i64) -> i64 {
        ts.saturating_add(self.offset_at(ts))
    }

    /// Returns the line with an offset that is larger by `by_ns`.
    pub(super) fn shifted(self, by_ns: i64) -> Self {
        Self { offset_ns: self.offset_ns.saturating_add(by_ns), ..self }
    }
}

/// A time of the profile, and the offset of the run's time from it, in nanoseconds.
pub(super) type Point = (i64, i64);

/// Returns the median time and the median offset of each part, relative to `zero`. The points must be in
/// order of time.
fn parts(points: &[Point], zero: Point) -> Vec<(f64, f64)> {
    let count = (points.len() / MIN_POINTS).clamp(1, MAX_PARTS);
    let size = points.len().div_ceil(count).max(1);
    let of = |part: &[Point]| {
        let mut times: Vec<i64> = part.iter().map(|(ts, _)| ts.saturating_sub(zero.0)).collect();
        let mut offsets: Vec<i64> = part.iter().map(|(_, offset)| offset.saturating_sub(zero.1)).collect();
        Some((median_high(&mut times)? as f64, median_high(&mut offsets)? as f64))
    };
    points.chunks(size).filter_map(of).collect()
}

/// Fits a line through the points of some groups; `None` if there are no points. The groups may be offset
/// from one another. The points of each must be in order of time. A slope whose confidence interval contains
/// zero is set to zero.
pub(super) fn through(groups: &[Vec<Point>]) -> Option<Line> {
    let mut times: Vec<i64> = groups.iter().flatten().map(|(ts, _)| *ts).collect();
    let zero = (median_high(&mut times)?, groups.iter().flatten().next()?.1);
    let mut slopes: Vec<f64> = Vec::new();
    let (mut variance, mut most_parts) = (0.0, 0);
    for points in groups {
        let parts = parts(points, zero);
        for (index, a) in parts.iter().enumerate() {
            let later = parts.iter().skip(index + 1).filter(|b| b.0 > a.0);
            slopes.extend(later.map(|b| (b.1 - a.1) / (b.0 - a.0)));
        }
        let n = parts.len() as f64;
        variance += n * (n - 1.0) * (2.0 * n + 5.0) / 18.0;
        most_parts = most_parts.max(parts.len());
    }
    slopes.sort_by(f64::total_cmp);
    // Sen 1968: the number of places by which the order of the slopes may be off.
    let spread = CONFIDENCE * variance.sqrt();
    let low = ((slopes.len() as f64 - spread) / 2.0).floor();
    let high = ((slopes.len() as f64 + spread) / 2.0).ceil();
    let at =
        |place: f64| slopes.get(place.clamp(0.0, slopes.len().saturating_sub(1) as f64) as usize).copied();
    let (drift, error) = match (at(low), slopes.get(slopes.len() / 2), at(high)) {
        (Some(low), Some(drift), Some(high)) if most_parts >= MIN_PARTS => {
            let error = (high - low) / 2.0;
            if low <= 0.0 && high >= 0.0 { (0.0, error) } else { (*drift, error) }
        }
        _ => (0.0, 0.0),
    };
    let line = Line { origin_ns: zero.0, offset_ns: zero.1, drift, drift_error: error };
    let mut left: Vec<i64> =
        groups.iter().flatten().map(|(ts, offset)| offset.saturating_sub(line.offset_at(*ts))).collect();
    median_high(&mut left).map(|by| line.shifted(by))
}

/// Returns the largest distance in nanoseconds of a part's median from the line, after the median of each
/// group is subtracted.
pub(super) fn nonlinearity_ns(groups: &[Vec<Point>], line: &Line) -> i64 {
    let mut left: Vec<Point> = Vec::new();
    for points in groups {
        let residual = |(ts, offset): &Point| (*ts, offset.saturating_sub(line.offset_at(*ts)));
        let of: Vec<Point> = points.iter().map(residual).collect();
        let mut residuals: Vec<i64> = of.iter().map(|(_, residual)| *residual).collect();
        let own = median_high(&mut residuals).unwrap_or(0);
        left.extend(of.iter().map(|(ts, residual)| (*ts, residual.saturating_sub(own))));
    }
    left.sort_unstable();
    parts(&left, (0, 0)).iter().map(|(_, median)| median.abs() as i64).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_among_outliers() {
        let points: Vec<Point> = (0..1_000)
            .map(|i| {
                let ts = i * 1_000_000;
                let noise = if i % 5 == 0 { 40_000 } else { i % 7 - 3 };
                (ts, 5_000_000_000 + ts / 20_000 + noise)
            })
            .collect();
        let line = through(std::slice::from_ref(&points)).unwrap();
        assert!((line.drift - 50e-6).abs() < 1e-7, "{line:?}");
        assert!((line.offset_at(0) - 5_000_000_000).abs() < 100, "{line:?}");
        assert!(line.drift_error < 1e-6 && nonlinearity_ns(&[points], &line) < 100, "{line:?}");
    }

    #[test]
    fn a_slope_that_may_be_chance_is_none() {
        let points: Vec<Point> = (0..200).map(|i| (i * 10_000, (i * 7919) % 500)).collect();
        assert_eq!(through(std::slice::from_ref(&points)).unwrap().drift, 0.0);
        assert_eq!(through(&[]), None);
    }

    #[test]
    fn strata_may_lie_apart() {
        // Which of the two groups has more points changes with time: their distance must not become a slope.
        let of = |number: i64| -> Vec<Point> {
            let there = |i: &i64| i * 100 / 1_000 > (i * 37) % 100;
            (0..1_000)
                .filter(|i| there(i) == (number == 0))
                .map(|i| (i * 1_000_000, number * 4_000 + i * 10 + i % 3))
                .collect()
        };
        let line = through(&[of(0), of(1)]).unwrap();
        assert!((line.drift - 10e-6).abs() < 1e-7, "{line:?}");
        assert!(nonlinearity_ns(&[of(0), of(1)], &line) < 100, "{line:?}");
    }

    #[test]
    fn a_step_is_no_line() {
        let points: Vec<Point> =
            (0..400).map(|i| (i * 1_000_000, if i < 200 { 0 } else { 100_000 })).collect();
        assert!(
            nonlinearity_ns(std::slice::from_ref(&points), &through(std::slice::from_ref(&points)).unwrap())
                > 10_000
        );
    }
}
