//! Determines which call of the profile is which call of the run, given the relation of the clocks.
//!
//! ```text
//! run       ├── 1 ──┤  ├── 2 ──┤            ├─ 3 ─┤  ├─ 4 ─┤      top-level calls of a family do
//! profile    ├─ a ─┤    ├─ b ─┤    (lost)   ├── c ──┤ (lost)      not overlap, nor do their middles
//!                                                             change order
//! ```
//! While the line is being searched for, two calls are paired if each is the nearest to the other. In the
//! end, they must also overlap. If a thread was preempted between the two records of a call, their middles
//! may be far apart. Therefore, calls that are left between two pairs, in equal numbers on both sides, are
//! paired in order if they overlap.

use std::ops::Range;

use super::{
    calls::{Call, Functions, Thread},
    line::{Line, Point},
};

/// Error of the clocks that is tolerated when two records are tested for overlap.
const SLACK_NS: i64 = 500;

/// The calls of one thread and one family on both sides, each sorted by start.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub(super) profile: Vec<Call>,
    pub(super) captured: Vec<Call>,
}

/// The two records of a call, as indices into a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) lane: usize,
    pub(super) profile: usize,
    pub(super) captured: usize,
}

/// Returns the lanes of two threads that have calls on both sides.
pub(super) fn lanes(profile: &Thread, captured: &Thread, functions: &Functions) -> Vec<Lane> {
    let mut lanes: std::collections::BTreeMap<u32, Lane> = std::collections::BTreeMap::new();
    for call in &profile.calls {
        lanes.entry(functions.family(call.op)).or_default().profile.push(*call);
    }
    for call in &captured.calls {
        lanes.entry(functions.family(call.op)).or_default().captured.push(*call);
    }
    lanes.into_values().filter(|lane| !lane.profile.is_empty() && !lane.captured.is_empty()).collect()
}

/// Returns, for each value of `from`, the index of the nearest value of `to`. Both must be sorted.
fn nearest(from: &[i64], to: &[i64]) -> Vec<usize> {
    let mut at = 0;
    from.iter()
        .map(|ts| {
            let away = |place: usize| to.get(place).map_or(u64::MAX, |other| other.abs_diff(*ts));
            while at + 1 < to.len() && away(at + 1) <= away(at) {
                at += 1;
            }
            at
        })
        .collect()
}

impl Lane {
    /// Returns the two records of a pair.
    pub(super) fn calls(&self, pair: &Pair) -> Option<(&Call, &Call)> {
        Some((self.profile.get(pair.profile)?, self.captured.get(pair.captured)?))
    }

    /// Returns whether the two records overlap in time, within the error of the clocks.
    fn overlaps(&self, pair: &Pair, line: &Line) -> bool {
        self.calls(pair).is_some_and(|(call, other)| {
            line.apply(call.start) < other.end.saturating_add(SLACK_NS)
                && other.start < line.apply(call.end).saturating_add(SLACK_NS)
        })
    }

    /// Pairs those of the profile's calls whose middle lies in `times`, in order. The middles of a pair are
    /// at most `reach_ns` apart.
    fn pairs(
        &self,
        number: usize,
        line: &Line,
        times: &Range<i64>,
        reach_ns: i64,
        functions: &Functions,
    ) -> Vec<Pair> {
        let from = self.profile.partition_point(|call| call.middle() < times.start);
        let to = self.profile.partition_point(|call| call.middle() < times.end).max(from);
        let profile = self.profile.get(from..to).unwrap_or_default();
        let moved: Vec<i64> = profile.iter().map(|call| line.apply(call.middle())).collect();
        let (Some(first), Some(last)) = (moved.first(), moved.last()) else { return Vec::new() };
        let (first, last) = (first.saturating_sub(reach_ns), last.saturating_add(reach_ns));
        let base = self.captured.partition_point(|call| call.middle() < first);
        let end = self.captured.partition_point(|call| call.middle() <= last).max(base);
        let captured = self.captured.get(base..end).unwrap_or_default();
        let middles: Vec<i64> = captured.iter().map(Call::middle).collect();
        if captured.is_empty() {
            return Vec::new();
        }
        let (of_profile, of_captured) = (nearest(&moved, &middles), nearest(&middles, &moved));
        let mut pairs = Vec::with_capacity(profile.len());
        for (index, (call, ts)) in profile.iter().zip(&moved).enumerate() {
            let Some(place) = of_profile.get(index).copied() else { continue };
            let Some(other) = captured.get(place) else { continue };
            if of_captured.get(place) == Some(&index)
                && ts.abs_diff(other.middle()) <= reach_ns.unsigned_abs()
                && functions.can_be_one(call.op, other.op)
            {
                pairs.push(Pair { lane: number, profile: from + index, captured: base + place });
            }
        }
        pairs
    }

    /// Adds the pairs that lie between those given.
    fn fill(&self, number: usize, line: &Line, pairs: Vec<Pair>, functions: &Functions) -> Vec<Pair> {
        let mut filled: Vec<Pair> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            if let Some(last) = filled.last().copied() {
                let left = pair.profile - last.profile;
                if left > 1 && left == pair.captured - last.captured {
                    let between = (1..left).map(|step| Pair {
                        lane: number,
                        profile: last.profile + step,
                        captured: last.captured + step,
                    });
                    filled.extend(between.filter(|pair| {
                        self.overlaps(pair, line)
                            && self.calls(pair).is_some_and(|(a, b)| functions.can_be_one(a.op, b.op))
                    }));
                }
            }
            filled.push(pair);
        }
        filled
    }

    /// Returns the middle of the profile's record, and the offset of the run's record from it.
    pub(super) fn point(&self, pair: &Pair) -> Option<Point> {
        let (call, other) = self.calls(pair)?;
        Some((call.middle(), other.middle().saturating_sub(call.middle())))
    }
}

/// Returns the pairs of all lanes.
pub(super) fn pairs(
    lanes: &[Lane],
    line: &Line,
    times: &Range<i64>,
    reach_ns: i64,
    functions: &Functions,
) -> Vec<Pair> {
    let of = |(number, lane): (usize, &Lane)| lane.pairs(number, line, times, reach_ns, functions);
    lanes.iter().enumerate().flat_map(of).collect()
}

/// Returns the pairs of all lanes that overlap, and those that lie between others.
pub(super) fn all_pairs(lanes: &[Lane], line: &Line, reach_ns: i64, functions: &Functions) -> Vec<Pair> {
    let times = i64::MIN..i64::MAX;
    let of = |(number, lane): (usize, &Lane)| {
        let mut pairs = lane.pairs(number, line, &times, reach_ns, functions);
        pairs.retain(|pair| lane.overlaps(pair, line));
        lane.fill(number, line, pairs, functions)
    };
    lanes.iter().enumerate().flat_map(of).collect()
}

/// Returns the offsets of pairs, grouped by the two functions: which end of a call a record is late at, and
/// by how much, depends on the functions. The points of a group are in order of time.
pub(super) fn groups(lanes: &[Lane], pairs: &[Pair]) -> Vec<Vec<Point>> {
    let mut groups: std::collections::BTreeMap<(u32, u32), Vec<Point>> = std::collections::BTreeMap::new();
    for pair in pairs {
        let lane = lanes.get(pair.lane);
        if let Some((lane, (call, other))) = lane.and_then(|lane| Some((lane, lane.calls(pair)?))) {
            groups.entry((call.op, other.op)).or_default().extend(lane.point(pair));
        }
    }
    groups.values_mut().for_each(|points| points.sort_unstable());
    groups.into_values().collect()
}

/// Returns the offsets of pairs in order of time.
pub(super) fn points(lanes: &[Lane], pairs: &[Pair]) -> Vec<Point> {
    let of = |pair: &Pair| lanes.get(pair.lane).and_then(|lane| lane.point(pair));
    let mut points: Vec<Point> = pairs.iter().filter_map(of).collect();
    points.sort_unstable();
    points
}
