//! Spans of time, merged where they touch.

/// Disjoint spans of time in order, in nanoseconds; the ends are part of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<(i64, i64)>);

impl Spans {
    /// Returns whether a time lies in one of the spans.
    pub fn contains(&self, at: i64) -> bool {
        let first = self.0.partition_point(|(_, end)| *end < at);
        self.0.get(first).is_some_and(|(start, _)| *start <= at)
    }
}

impl From<Vec<(i64, i64)>> for Spans {
    /// Merges spans, given by start and end in any order; those that end before they start are left out.
    fn from(mut spans: Vec<(i64, i64)>) -> Self {
        spans.retain(|(start, end)| start <= end);
        spans.sort_unstable();
        spans.dedup_by(|later, earlier| {
            let is_one = later.0 <= earlier.1;
            if is_one {
                earlier.1 = earlier.1.max(later.1);
            }
            is_one
        });
        Self(spans)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::Spans;

    #[test]
    fn a_time_lies_in_a_span_or_between_two() {
        let spans = Spans::from(vec![(30, 40), (0, 10), (10, 12), (2, 5), (50, 50), (60, 20)]);
        assert_eq!(spans, Spans(vec![(0, 12), (30, 40), (50, 50)]));
        let within: Vec<i64> = (-1..70).filter(|at| spans.contains(*at)).collect();
        let expected: Vec<i64> = (0..=12).chain(30..=40).chain([50]).collect();
        assert_eq!(within, expected);
        assert!(!Spans::default().contains(0));
    }

    proptest! {
        #[test]
        fn a_time_is_contained_if_one_of_the_spans_has_it(given in vec((-20..20_i64, -3..9_i64), 0..12)) {
            let given: Vec<(i64, i64)> = given.into_iter().map(|(start, length)| (start, start + length)).collect();
            let spans = Spans::from(given.clone());
            for at in -25..30 {
                prop_assert_eq!(spans.contains(at), given.iter().any(|(start, end)| (*start..=*end).contains(&at)));
            }
            prop_assert!(spans.0.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", spans);
        }
    }
}
