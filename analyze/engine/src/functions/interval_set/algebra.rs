//! Sets of nanoseconds as half-open intervals `[ts, end)`, sorted, that neither overlap nor touch.
//!
//! ```text
//! a           ├──────┤     ├────────►        ►: open, its end is not on record
//! b               ├──────────┤
//! union       ├─────────────────────►
//! intersect       ├──┤     ├─┤
//! subtract    ├───┤          ├──────►
//! ```

/// The end of an interval that was still open, which is later than every other time.
pub(super) const OPEN: i64 = i64::MAX;

/// An interval `[ts, end)` in ns, which is never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interval {
    pub(super) ts: i64,
    pub(super) end: i64,
}

/// Replaces intervals, in any order, by the set of their union.
pub(super) fn merge(intervals: &mut Vec<Interval>) {
    if intervals.is_sorted_by(|a, b| a.end < b.ts) {
        return;
    }
    intervals.sort_unstable();
    intervals.dedup_by(|later, kept| {
        let joins = later.ts <= kept.end;
        if joins {
            kept.end = kept.end.max(later.end);
        }
        joins
    });
}

/// Returns the intersection of two sets.
pub(super) fn intersect(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
        let (ts, end) = (left.ts.max(right.ts), left.end.min(right.end));
        if ts < end {
            both.push(Interval { ts, end });
        }
        if left.end <= right.end {
            a.next()
        } else {
            b.next()
        };
    }
    both
}

/// Returns what is in set `a` but not in set `b`.
pub(super) fn subtract(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut rest = Vec::new();
    let mut b = b;
    for interval in a {
        // Intervals of `b` that end before this interval begins also end before all later ones begin.
        b = &b[b.partition_point(|hole| hole.end <= interval.ts)..];
        let mut ts = interval.ts;
        for hole in b.iter().take_while(|hole| hole.ts < interval.end) {
            if hole.ts > ts {
                rest.push(Interval { ts, end: hole.ts });
            }
            ts = ts.max(hole.end);
        }
        if ts < interval.end {
            rest.push(Interval { ts, end: interval.end });
        }
    }
    rest
}

/// Returns the number of nanoseconds in a set, or `None` if its last interval is open.
pub(super) fn coverage_ns(set: &[Interval]) -> Option<i128> {
    let is_open = set.last().is_some_and(|last| last.end == OPEN);
    let sum = || set.iter().map(|interval| i128::from(interval.end) - i128::from(interval.ts)).sum();
    (!is_open).then(sum)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    /// The number of times that are checked one by one.
    const TIMES: i64 = 48;

    /// Returns which of these times the set contains, and whether it is open at the end.
    fn counted(intervals: &[Interval]) -> (Vec<bool>, bool) {
        let has = |time: i64| intervals.iter().any(|i| i.ts <= time && time < i.end);
        ((0..TIMES).map(has).collect(), intervals.iter().any(|interval| interval.end == OPEN))
    }

    fn intervals() -> impl Strategy<Value = Vec<Interval>> {
        let interval = (0..TIMES, option::weighted(0.9, 1..13_i64));
        let interval = interval.prop_map(|(ts, length)| Interval {
            ts,
            end: length.map_or(OPEN, |length| (ts + length).min(TIMES)),
        });
        vec(interval, 0..8)
    }

    fn is_canonical(set: &[Interval]) -> bool {
        set.iter().all(|interval| interval.ts < interval.end)
            && set.windows(2).all(|pair| pair[0].end < pair[1].ts)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn sets_are_what_counting_every_nanosecond_says(mut a in intervals(), mut b in intervals()) {
            let (in_a, in_b) = (counted(&a), counted(&b));
            merge(&mut a);
            merge(&mut b);
            prop_assert!(is_canonical(&a) && is_canonical(&b), "{:?} {:?}", a, b);
            prop_assert_eq!((counted(&a), counted(&b)), (in_a.clone(), in_b.clone()));
            let (both, rest) = (intersect(&a, &b), subtract(&a, &b));
            prop_assert!(is_canonical(&both) && is_canonical(&rest), "{:?} {:?}", both, rest);
            let expected = |of: fn(bool, bool) -> bool| {
                let times = in_a.0.iter().zip(&in_b.0);
                (times.map(|(a, b)| of(*a, *b)).collect::<Vec<bool>>(), of(in_a.1, in_b.1))
            };
            prop_assert_eq!(counted(&both), expected(|a, b| a && b));
            prop_assert_eq!(counted(&rest), expected(|a, b| a && !b));
            let times = in_a.0.iter().filter(|is_in| **is_in).count() as i128;
            prop_assert_eq!(coverage_ns(&a), (!in_a.1).then_some(times));
        }
    }

    #[test]
    fn all_of_time_is_counted() {
        let all = [Interval { ts: i64::MIN, end: OPEN - 1 }];
        assert_eq!(coverage_ns(&all), Some((1 << 64) - 2));
    }
}
