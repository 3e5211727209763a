//! Windows over a series of values.

use polars::prelude::*;

/// Returns, for each value of a series, the median of the up to `window` values before it and the median of their
/// absolute deviations from it (MAD). The value itself is left out. `None`: fewer than `least` values come before.
pub fn medians_before(values: &[f64], window: u32, least: u32) -> Vec<Option<(f64, f64)>> {
    let values = Float64Chunked::from_slice("value".into(), values);
    let of_window = |at: usize| {
        let count = at.min(window as usize);
        if count < least as usize {
            return None;
        }
        let before = values.slice((at - count) as i64, count);
        let median = before.median()?;
        Some((median, (&before - median).apply_values(f64::abs).median()?))
    };
    (0..values.len()).map(of_window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_those_of_the_values_before() {
        let values: Vec<f64> = (0..40).map(|place| f64::from(place * 7919 % 101) / 3.0).collect();
        let median = |values: &[f64]| {
            let mut values = values.to_vec();
            values.sort_by(f64::total_cmp);
            (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
        };
        let found = medians_before(&values, 8, 5);
        assert_eq!(found.len(), 40);
        for (place, found) in found.into_iter().enumerate() {
            let before = &values[place.saturating_sub(8)..place];
            if before.len() < 5 {
                assert_eq!(found, None);
                continue;
            }
            let centre = median(before);
            let deviation = median(&before.iter().map(|value| (value - centre).abs()).collect::<Vec<_>>());
            let (found, mad) = found.unwrap();
            assert!(
                (found - centre).abs() < 1e-9 && (mad - deviation).abs() < 1e-9,
                "{place}: {found} {mad}"
            );
        }
        assert!(medians_before(&[], 5, 5).is_empty());
    }
}
