//! Which call of a thread lies within which, and which marked range they began in.
//!
//! ```text
//! depth 0   ├────────── cudaLaunchKernel ──────────┤   ├─ cudaFree ─┤
//! depth 1      ├─ cuModuleLoad ─┤ ├─ cuLaunch ─┤
//! ```
//! Intervals are half-open. A call without end reaches to the end of time.

/// A call on its thread. Sorted by start, longest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) ts: i64,
    /// `None`: not finished when recording ended.
    pub(crate) dur: Option<i64>,
}

/// A call's place among the others of its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Calls around it.
    pub(crate) depth: i64,
    /// The innermost of them.
    pub(crate) parent: Option<usize>,
    /// The direct child that took longest.
    pub(crate) child: Option<usize>,
    /// Time in direct children.
    pub(crate) child_ns: i64,
}

pub(crate) fn end(ts: i64, dur: Option<i64>) -> i64 {
    dur.map_or(i64::MAX, |dur| ts.saturating_add(dur))
}

/// Length of the intersection of `[a, b)` and `[c, d)`.
pub(crate) fn overlap(a: i64, b: i64, c: i64, d: i64) -> i64 {
    b.min(d).saturating_sub(a.max(c)).max(0)
}

/// Nesting of the calls of one thread; counts those that cross another one.
pub(crate) fn places(calls: &[Span], crossing_count: &mut u64) -> Vec<Place> {
    let mut places = vec![Place::default(); calls.len()];
    let mut around: Vec<usize> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        while around.last().is_some_and(|&outer| end(calls[outer].ts, calls[outer].dur) <= call.ts) {
            around.pop();
        }
        let call_end = end(call.ts, call.dur);
        // Only a clock error makes calls of one thread overlap without containing each other.
        // Those around it end the later the further out they are.
        let before = around.len();
        while around.last().is_some_and(|&outer| end(calls[outer].ts, calls[outer].dur) < call_end) {
            around.pop();
        }
        *crossing_count += u64::from(around.len() < before);
        places[index].depth = around.len() as i64;
        if let Some(&outer) = around.last() {
            places[index].parent = Some(outer);
            let longest = places[outer].child.and_then(|child| calls[child].dur);
            let parent = &mut places[outer];
            if let Some(dur) = call.dur {
                parent.child_ns = parent.child_ns.saturating_add(dur);
                if longest.is_none_or(|longest| dur > longest) {
                    parent.child = Some(index);
                }
            }
        }
        around.push(index);
    }
    places
}

/// The innermost range around each of the sorted times `ts`: of those that contain it, the one that began
/// last. Ranges are sorted by start; those of several threads may overlap in any way.
pub(crate) fn innermost(ts: impl Iterator<Item = i64>, ranges: &[Span]) -> Vec<Option<usize>> {
    let mut around: Vec<usize> = Vec::new();
    let mut next = 0;
    ts.map(|ts| {
        while ranges.get(next).is_some_and(|range| range.ts <= ts) {
            around.push(next);
            next += 1;
        }
        around.retain(|&range| end(ranges[range].ts, ranges[range].dur) > ts);
        around.last().copied()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(ts: i64, dur: i64) -> Span {
        Span { ts, dur: Some(dur) }
    }

    #[test]
    fn a_call_belongs_to_the_range_that_began_last() {
        let range = |ts, dur| Span { ts, dur };
        let ranges = [range(0, Some(100)), range(10, Some(20)), range(15, Some(50)), range(200, None)];
        let found = innermost([5, 10, 20, 40, 65, 99, 100, 150, 200, 900].into_iter(), &ranges);
        let expected = [Some(0), Some(1), Some(2), Some(2), Some(0), Some(0), None, None, Some(3), Some(3)];
        assert_eq!(found, expected);
    }

    #[test]
    fn unfinished_calls_have_children() {
        let calls = [Span { ts: 0, dur: None }, span(10, 5), span(20, 7)];
        let places = places(&calls, &mut 0);
        assert_eq!(places[1].parent, Some(0));
        assert_eq!((places[0].child, places[0].child_ns), (Some(2), 12));
    }

    #[test]
    fn nesting_follows_containment() {
        let calls = [span(0, 100), span(10, 50), span(20, 10), span(70, 10), span(200, 1)];
        let places = places(&calls, &mut 0);
        let depths: Vec<_> = places.iter().map(|place| place.depth).collect();
        assert_eq!(depths, [0, 1, 2, 1, 0]);
        assert_eq!((places[0].child, places[0].child_ns), (Some(1), 60));
        assert_eq!(places[4].parent, None);
    }

    #[test]
    fn calls_that_cross_are_counted() {
        let mut crossing = 0;
        let places = places(&[span(0, 10), span(5, 10), span(20, 5)], &mut crossing);
        assert_eq!(crossing, 1);
        assert!(places.iter().all(|place| place.depth == 0));
    }
}
