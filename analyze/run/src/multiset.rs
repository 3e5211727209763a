//! A multiset of many durations in little memory: it counts how often each value occurred.
//!
//! Calls are short and alike, so a counter for each nanosecond costs less than a number for each call. Values
//! below `COUNTED` are counted in pages, which are allocated when they are needed; longer ones are rare and
//! are kept as they are, at 8 bytes each. The first few values are kept, too, because most kinds of calls
//! have no more. Later ones are counted many at a time, while the counters of one set are in the processor's
//! cache. Quantiles are those of SQL's `percentile_cont`.
//!
//! ```text
//! 0 ≤ value < 2^20 (1.05 ms)   counted one by one                                             exact
//! longer                       kept up to LONG of them, then counted in 1024 buckets for
//!                              each power of two, of which the middle stands for the values   ± 0.05 %
//! ```

use std::sync::Once;

use crate::{hash::HashMap, progress};

/// Values from 0 up to this one, exclusive, are counted.
pub const COUNTED: i64 = 1 << 20;
/// Number of values in a page.
const PAGE: usize = 256;
/// Number of values that are kept before any is counted.
const KEPT: usize = 2048;

/// Number of values that are counted at once: several for each cache line of counters.
const FRESH: usize = 1 << 13;
/// Number of kept values above which the long ones of them are counted in buckets.
const LONG: usize = 1 << 18;
/// The bits of a value after the highest one that its bucket tells apart.
const FINE_BITS: u32 = 10;

/// Returns the middle of the bucket of a value of at least [`COUNTED`]; it is in the same bucket.
fn middle(value: i64) -> i64 {
    let width_bits = value.ilog2() - FINE_BITS;
    (value >> width_bits << width_bits) + (1 << (width_bits - 1))
}

/// Says once that quantiles are not exact any more.
fn say_inexact() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        progress::say(&format!(
            "analyze: note: more than {LONG} calls of a kind are longer than 1.05 ms: medians and percentiles among these are \
             within 0.05 %"
        ));
    });
}

/// Counters of consecutive values.
type Page = [u32; PAGE];

/// Values with their counts, in ascending order of the values.
pub type Counted = Vec<(f64, u64)>;

/// A multiset of integers.
#[derive(Clone, Debug, Default)]
pub struct Multiset {
    count: u64,
    /// Counters by page; empty if no value is counted yet.
    pages: Vec<Option<Box<Page>>>,
    /// Number of pages that are allocated.
    pages_count: usize,
    /// Values that are not counted but stored.
    kept: Vec<i64>,
    /// Number of long values by the middle of their bucket; empty while they are stored.
    buckets: HashMap<i64, u64>,
    /// Values below [`COUNTED`] that are waiting to be counted.
    fresh: Vec<u32>,
}

impl Multiset {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        self.count += 1;
        if self.pages.is_empty() || !(0..COUNTED).contains(&value) {
            self.keep(value);
            return;
        }
        self.fresh.push(value as u32);
        if self.fresh.len() == FRESH {
            self.count_fresh();
        }
    }

    /// Stores a value, and begins to count once enough values are stored.
    fn keep(&mut self, value: i64) {
        if value >= COUNTED && !self.buckets.is_empty() {
            *self.buckets.entry(middle(value)).or_default() += 1;
            return;
        }
        self.kept.push(value);
        if self.kept.len() > LONG && value >= COUNTED {
            say_inexact();
            for value in self.kept.extract_if(.., |value| *value >= COUNTED) {
                *self.buckets.entry(middle(value)).or_default() += 1;
            }
            self.kept.shrink_to_fit();
        }
        if self.pages.is_empty() && self.kept.len() == KEPT {
            self.pages.resize(COUNTED as usize / PAGE, None);
            self.fresh = self
                .kept
                .extract_if(.., |value| (0..COUNTED).contains(value))
                .map(|value| value as u32)
                .collect();
        }
    }

    /// Counts the values that are waiting to be counted; a quantile need not sort them then.
    pub fn count_fresh(&mut self) {
        for value in self.fresh.drain(..) {
            let index = value as usize;
            let page = &mut self.pages[index / PAGE];
            if page.is_none() {
                self.pages_count += 1;
            }
            let page = page.get_or_insert_with(|| Box::new([0; PAGE]));
            let count = &mut page[index % PAGE];
            match count.checked_add(1) {
                Some(more) => *count = more,
                None => self.kept.push(value.into()),
            }
        }
    }

    /// Returns the number of values, with multiplicity.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the memory in bytes that the values take.
    pub fn size_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Option<Box<Page>>>()
            + self.pages_count * size_of::<Page>()
            + self.kept.capacity() * size_of::<i64>()
            + self.buckets.capacity() * size_of::<(i64, u64)>()
            + self.fresh.capacity() * size_of::<u32>()
    }
}

/// Merges some sets into a list of values with their counts.
pub fn counted_of(sets: &[&Multiset]) -> Counted {
    let mut all: Counted = Vec::new();
    visit(sets, |value, count| {
        match all.last_mut() {
            Some(last) if last.0 == value as f64 => last.1 += count,
            _ => all.push((value as f64, count)),
        }
        true
    });
    all
}

/// Calls `is_more` with the values of some sets and their counts, in ascending order, until it returns false.
/// A value may be passed more than once, each time with a part of its count.
fn visit(sets: &[&Multiset], mut is_more: impl FnMut(i64, u64) -> bool) {
    let mut kept: Vec<(i64, u64)> = Vec::new();
    for set in sets {
        kept.extend(set.kept.iter().map(|value| (*value, 1)));
        kept.extend(set.fresh.iter().map(|value| (i64::from(*value), 1)));
        kept.extend(set.buckets.iter().map(|(value, count)| (*value, *count)));
    }
    kept.sort_unstable();
    let mut kept = kept.into_iter().peekable();
    let pages_count = sets.iter().map(|set| set.pages.len()).max().unwrap_or(0);
    let mut sums = [0_u64; PAGE];
    for number in 0..pages_count {
        let mut pages = sets.iter().filter_map(|set| set.pages.get(number)?.as_deref()).peekable();
        if pages.peek().is_none() {
            continue;
        }
        sums.fill(0);
        for page in pages {
            sums.iter_mut().zip(page).for_each(|(sum, count)| *sum += u64::from(*count));
        }
        for (index, count) in sums.iter().enumerate().filter(|(_, count)| **count > 0) {
            let value = (number * PAGE + index) as i64;
            while let Some((kept, count)) = kept.next_if(|(kept, _)| *kept <= value) {
                if !is_more(kept, count) {
                    return;
                }
            }
            if !is_more(value, *count) {
                return;
            }
        }
    }
    for (value, count) in kept {
        if !is_more(value, count) {
            return;
        }
    }
}

/// Returns the value at `place` among all values of some sets in ascending order, and the next one.
fn pair(sets: &[&Multiset], place: u64) -> (i64, i64) {
    let (mut passed, mut low, mut high) = (0, None, 0);
    visit(sets, |value, count| {
        passed += count;
        if low.is_none() && passed > place {
            low = Some(value);
        }
        high = value;
        passed <= place.saturating_add(1)
    });
    (low.unwrap_or(high), high)
}

/// Returns the quantile `q` (0 to 1) of the values of some sets by the definition of SQL's `percentile_cont`:
/// exact, and linear between neighbours. `zeros` is the number of additional values that are zero; no value
/// may be negative then. The result is `NaN` if there are no values.
pub fn quantile(sets: &[&Multiset], zeros: u64, q: f64) -> f64 {
    let count = zeros + sets.iter().map(|set| set.count).sum::<u64>();
    if count == 0 {
        return f64::NAN;
    }
    let place = q.clamp(0.0, 1.0) * (count - 1) as f64;
    let below = place.floor();
    let (low, high) = match (below as u64).checked_sub(zeros) {
        Some(place) => pair(sets, place),
        None if below as u64 + 1 == zeros => (0, pair(sets, 0).0),
        None => (0, 0),
    };
    low as f64 + (high - low) as f64 * (place - below)
}

/// Returns quantiles of the values of `base` without those of `minus`, which must be among them (or near those that stand for
/// them), and with those of `plus`. The results are `NaN` if no values are left.
pub fn quantiles<const N: usize>(
    base: &Counted,
    minus: &Counted,
    plus: &Counted,
    shares: [f64; N],
) -> [f64; N] {
    let total = |values: &Counted| values.iter().map(|(_, count)| count).sum::<u64>();
    let count = (total(base) + total(plus)).saturating_sub(total(minus));
    if count == 0 {
        return [f64::NAN; N];
    }
    let place = |share: f64| share.clamp(0.0, 1.0) * (count - 1) as f64;
    // The places are sorted, because the shares may be in any order.
    let mut wanted: Vec<u64> =
        shares.iter().flat_map(|share| [place(*share).floor() as u64, place(*share).ceil() as u64]).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut found: Vec<f64> = Vec::with_capacity(wanted.len());
    let (mut b, mut m, mut p) = (0, 0, 0);
    let mut passed = 0_u64;
    while found.len() < wanted.len() && (b < base.len() || p < plus.len()) {
        let next = |values: &Counted, at: usize| values.get(at).map_or(f64::INFINITY, |(value, _)| *value);
        let value = next(base, b).min(next(plus, p));
        let take = |values: &Counted, at: &mut usize| match values.get(*at) {
            Some((of, count)) if of.total_cmp(&value).is_le() => {
                *at += 1;
                *count
            }
            _ => 0,
        };
        passed += take(base, &mut b) + take(plus, &mut p);
        // One value may stand for many.
        let mut gone = 0;
        while minus.get(m).is_some_and(|(of, _)| of.total_cmp(&value).is_le()) {
            gone += take(minus, &mut m);
        }
        passed = passed.saturating_sub(gone);
        while wanted.get(found.len()).is_some_and(|place| *place < passed) {
            found.push(value);
        }
    }
    let at = |place: u64| wanted.binary_search(&place).ok().and_then(|index| found.get(index)).copied();
    shares.map(|share| {
        let place = place(share);
        let (low, high) = (at(place.floor() as u64), at(place.ceil() as u64));
        low.zip(high).map_or(f64::NAN, |(low, high)| low + (high - low) * (place - place.floor()))
    })
}

/// Merges two lists of values with their counts.
pub fn merged(mut one: Counted, other: Counted) -> Counted {
    one.extend(other);
    one.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    one.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            earlier.1 += later.1;
        }
        is_same
    });
    one
}

/// Sorts and counts values.
pub fn counted(mut values: Vec<f64>) -> Counted {
    values.sort_unstable_by(f64::total_cmp);
    let mut counted: Counted = Vec::new();
    for value in values {
        match counted.last_mut() {
            Some(last) if last.0 == value => last.1 += 1,
            _ => counted.push((value, 1)),
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::random::Random;

    /// Returns a quantile by sorting; the values may be in any order.
    fn of_values(mut values: Vec<f64>, q: f64) -> f64 {
        values.sort_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
        let place = q * last as f64;
        let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
        low + (high - low) * (place - place.floor())
    }

    /// Returns whether two numbers are the same, or none.
    fn is_same(a: f64, b: f64) -> bool {
        a == b || a.is_nan() && b.is_nan()
    }

    /// Values that are counted, and those that are not, each with the number of times that it is added.
    fn parts() -> impl Strategy<Value = Vec<(i64, usize)>> {
        let value =
            prop_oneof![0..600_i64, COUNTED - 3..COUNTED + 3, 0..3 * COUNTED, -5..0_i64, Just(COUNTED + 99)];
        vec((value, prop_oneof![1..4_usize, 1..6000_usize]), 0..6)
    }

    fn add(set: &mut Multiset, parts: &[(i64, usize)]) {
        // In turns, so that equal values do not come together.
        let most = parts.iter().map(|(_, count)| *count).max().unwrap_or(0);
        for turn in 0..most {
            parts.iter().filter(|(_, count)| turn < *count).for_each(|(value, _)| set.add(*value));
        }
    }

    fn repeated(parts: &[(i64, usize)]) -> Vec<f64> {
        parts.iter().flat_map(|(value, count)| vec![*value as f64; *count]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn counting_gives_the_quantiles_of_sorting(
            first in parts(), second in parts(), zeros in 0..9_u64, q in 0.0..=1.0_f64
        ) {
            // With additional zeros, no value may be below zero.
            let bounded = |parts: Vec<(i64, usize)>| -> Vec<(i64, usize)> {
                let least = if zeros > 0 { 0 } else { i64::MIN };
                parts.into_iter().map(|(value, count)| (value.max(least), count)).collect()
            };
            let (first, second) = (bounded(first), bounded(second));
            let mut sets = [Multiset::default(), Multiset::default()];
            add(&mut sets[0], &first);
            add(&mut sets[1], &second);
            let all = [repeated(&first), repeated(&second)].concat();
            prop_assert_eq!(sets[0].count() + sets[1].count(), all.len() as u64);
            let sets = [&sets[0], &sets[1]];
            prop_assert_eq!(counted_of(&sets), counted(all.clone()));
            let with_zeros = [all, vec![0.0; zeros as usize]].concat();
            for q in [0.0, q, 0.5, 1.0] {
                let (found, expected) = (quantile(&sets, zeros, q), of_values(with_zeros.clone(), q));
                prop_assert!(is_same(found, expected), "{}: {} {}", q, found, expected);
            }
        }

        #[test]
        fn values_are_exchanged_for_others(
            kept in vec(0..40_u32, 0..30), gone in vec(0..40_u32, 0..20), new in vec(-20..40_i32, 0..20)
        ) {
            let floats = |values: &[u32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
            let new: Vec<f64> = new.into_iter().map(f64::from).collect();
            let base = merged(counted(floats(&kept)), counted(floats(&gone)));
            prop_assert_eq!(&base, &counted([floats(&kept), floats(&gone)].concat()));
            let shares = [0.5, 0.99, 0.0, 1.0, 0.3];
            let found = quantiles(&base, &counted(floats(&gone)), &counted(new.clone()), shares);
            for (found, share) in found.into_iter().zip(shares) {
                let expected = of_values([floats(&kept), new.clone()].concat(), share);
                prop_assert!(is_same(found, expected), "{}: {} {}", share, found, expected);
            }
        }
    }

    #[test]
    fn no_values_have_no_quantiles() {
        assert!(quantile(&[], 0, 0.5).is_nan());
        assert_eq!((quantile(&[], 5, 0.5), quantile(&[], 5, 1.0)), (0.0, 0.0));
        assert!(quantiles(&Vec::new(), &Vec::new(), &Vec::new(), [0.5])[0].is_nan());
    }

    #[test]
    fn many_long_values_take_little_memory_and_err_as_little_as_is_said() {
        let mut random = Random(7);
        let mut set = Multiset::default();
        let (mut values, mut minus, mut plus, mut left) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for index in 0..2 * LONG {
            let value = COUNTED + (random.below(1 << 36) >> random.below(16)) as i64;
            set.add(value);
            values.push(value as f64);
            if index % 3 == 0 {
                minus.push(value as f64);
                plus.push(value as f64 / 2.0);
            }
            left.push(value as f64 / if index % 3 == 0 { 2.0 } else { 1.0 });
        }
        assert!(set.size_bytes() < 2 << 20, "{} bytes", set.size_bytes());
        assert_eq!(set.count(), values.len() as u64);
        let near =
            |found: f64, exact: f64| assert!((found / exact - 1.0).abs() < 0.002, "{found}, not {exact}");
        for q in [0.0, 0.1, 0.5, 0.99, 1.0] {
            near(quantile(&[&set], 0, q), of_values(values.clone(), q));
        }
        let found = quantiles(&counted_of(&[&set]), &counted(minus), &counted(plus), [0.1, 0.5, 0.9, 0.99]);
        for (found, q) in found.into_iter().zip([0.1, 0.5, 0.9, 0.99]) {
            near(found, of_values(left.clone(), q));
        }
        for value in [COUNTED, COUNTED + 1, 3 << 30, i64::MAX] {
            let found = middle(value);
            assert!((found as f64 / value as f64 - 1.0).abs() <= 0.0005, "{value}: {found}");
            assert_eq!(middle(found), found);
        }
    }

    /// A set of short calls takes the memory of its counters, not of its calls.
    #[test]
    fn a_counted_value_takes_no_memory() {
        let mut set = Multiset::default();
        (0..3 * FRESH as i64).for_each(|call| set.add(call % 500));
        set.count_fresh();
        let size_bytes = set.size_bytes();
        assert!(size_bytes < 200_000, "{size_bytes}");
        (0..20 * FRESH as i64).for_each(|call| set.add(call % 500));
        assert_eq!(set.size_bytes(), size_bytes);
    }
}
