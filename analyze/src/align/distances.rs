//! Distances between the calls of the two sides, by which an offset is found where many of them agree.

use std::ops::Range;

use super::{line::Line, pair::Lane};

/// Returns the distances between each of the profile's calls in `times` and each of the run's calls of the
/// same lane that is at most `reach_ns` away, sorted. At most `max_calls` calls of a lane are used.
pub(super) fn differences(
    lanes: &[Lane],
    line: &Line,
    times: &Range<i64>,
    reach_ns: i64,
    max_calls: usize,
) -> Vec<i64> {
    /// Maximum number of neighbours of one call.
    const MAX_NEIGHBOURS: usize = 256;
    let mut found = Vec::new();
    for lane in lanes {
        let from = lane.profile.partition_point(|call| call.middle() < times.start);
        let calls = lane.profile.get(from..).unwrap_or_default().iter();
        for call in calls.take_while(|call| call.middle() < times.end).take(max_calls) {
            let moved = line.apply(call.middle());
            let first = moved.saturating_sub(reach_ns);
            let place = lane.captured.partition_point(|other| other.middle() < first);
            let others = lane.captured.get(place..).unwrap_or_default().iter().map(|other| other.middle());
            let near = others.take_while(|other| other.saturating_sub(moved) <= reach_ns);
            found.extend(near.take(MAX_NEIGHBOURS).map(|other| other.saturating_sub(moved)));
        }
    }
    found.sort_unstable();
    found
}

/// Returns the largest number of values within `width`, and the median of these values. The values must be
/// sorted.
pub(super) fn densest(values: &[i64], width: i64) -> Option<(usize, i64)> {
    let (mut end, mut best) = (0, None);
    for (first, value) in values.iter().enumerate() {
        while values.get(end).is_some_and(|last| last.saturating_sub(*value) <= width) {
            end += 1;
        }
        if best.is_none_or(|(count, _)| end - first > count) {
            best = Some((end - first, first));
        }
    }
    let (count, first) = best?;
    Some((count, *values.get(first + count / 2)?))
}
