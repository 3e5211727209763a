//! Quantiles of values that are all in memory. (Verdicts count values instead of keeping them, and have exact quantiles of
//! counts: `crate::multiset`.)

/// Returns the quantile `share` (0 to 1) of sorted values by the definition of SQL's `percentile_cont`: linear between
/// neighbours. `None` if there are no values.
pub fn interpolated(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (low, part) = (place.floor() as usize, place.fract());
    let (below, above) = (sorted.get(low)?, sorted.get(low + 1).or_else(|| sorted.last())?);
    Some(below + part * (above - below))
}

/// Returns the value of sorted ones that is nearest to the quantile `share` (0 to 1), the higher one of two that are
/// equally near. `None` if there are no values.
pub fn nearest<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let place = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    sorted.get(place.round() as usize).copied()
}

/// Returns the median; for an even number of values, the mean of the two in the middle. `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

/// Returns the median; for an even number of values, the lower one of the two in the middle. The values are put in another
/// order. `None` if there are no values.
pub fn median_low(values: &mut [i64]) -> Option<i64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

/// Returns the median; for an even number of values, the higher one of the two in the middle. The values are put in
/// another order. `None` if there are no values.
pub fn median_high(values: &mut [i64]) -> Option<i64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// Returns the rank of each value among all of them, from 1; tied values have the mean of their ranks.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = |value: &f64| {
        let below = sorted.partition_point(|other| other < value);
        let to = sorted.partition_point(|other| other <= value);
        (below + 1 + to) as f64 / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn quantiles_are_between_or_at_values() {
        let sorted = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(
            [0.0, 0.5, 0.75, 1.0].map(|share| interpolated(&sorted, share)),
            [1.0, 3.0, 5.0, 8.0].map(Some)
        );
        assert_eq!([0.0, 0.5, 0.6, 2.0].map(|share| nearest(&sorted, share)), [1.0, 4.0, 4.0, 8.0].map(Some));
        assert_eq!((interpolated(&[], 0.5), nearest::<i64>(&[], 0.5)), (None, None));
    }

    #[test]
    fn medians_of_even_numbers_differ() {
        assert_eq!((median(&[4.0, 1.0, 2.0]), median(&[4.0, 1.0])), (Some(2.0), Some(2.5)));
        assert_eq!((median_low(&mut [4, 1, 2, 3]), median_high(&mut [4, 1, 2, 3])), (Some(2), Some(3)));
        assert_eq!((median_low(&mut [7]), median_high(&mut [7])), (Some(7), Some(7)));
        assert_eq!((median(&[]), median_low(&mut []), median_high(&mut [])), (None, None, None));
    }

    #[test]
    fn tied_values_have_the_mean_of_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!((ranks(&[7.0; 3]), ranks(&[])), (vec![2.0; 3], Vec::new()));
    }

    proptest! {
        /// A quantile between two values weighs each by how near the other one is; no other value matters.
        #[test]
        fn quantiles_weigh_their_neighbours(
            mut values in vec(-1e6..1e6_f64, 1..20), share in prop_oneof![0.0..=1.0_f64, -1.0..2.0_f64]
        ) {
            values.sort_by(f64::total_cmp);
            let place = share.clamp(0.0, 1.0) * (values.len() - 1) as f64;
            let weight = |index: usize| (1.0 - (index as f64 - place).abs()).max(0.0);
            let expected: f64 = values.iter().enumerate().map(|(index, value)| weight(index) * value).sum();
            let found = interpolated(&values, share).unwrap();
            prop_assert!((found - expected).abs() <= 1e-6, "{} {}", found, expected);
            let distance = |index: &usize| (*index as f64 - place).abs();
            let first = (0..values.len()).rev().min_by(|a, b| distance(a).total_cmp(&distance(b)));
            prop_assert_eq!(nearest(&values, share), first.map(|index| values[index]));
        }

        /// The lower median is the least value that half of the values do not exceed, and the higher one the greatest
        /// that half of them reach.
        #[test]
        fn medians_have_half_of_the_values_on_either_side(values in vec(-9..9_i64, 1..20)) {
            let half = |is_side: &dyn Fn(&i64) -> bool| 2 * values.iter().filter(|v| is_side(v)).count() >= values.len();
            let low = values.iter().copied().filter(|m| half(&|v| v <= m)).min();
            let high = values.iter().copied().filter(|m| half(&|v| v >= m)).max();
            prop_assert_eq!(median_low(&mut values.clone()), low);
            prop_assert_eq!(median_high(&mut values.clone()), high);
            let numbers: Vec<f64> = values.iter().map(|value| *value as f64).collect();
            prop_assert_eq!(median(&numbers), low.zip(high).map(|(low, high)| (low + high) as f64 / 2.0));
        }
    }
}
