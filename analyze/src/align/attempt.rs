//! Develops one candidate for an alignment: pairs calls, fits a line, and follows the clock to both ends.

use std::ops::Range;

use super::{
    alignment::REACH_NS,
    calls::{Call, Functions, Side},
    distances::{densest, differences},
    line::{self, Line},
    pair::{Lane, groups, lanes, pairs},
    vote::Candidate,
};

/// Number of calls around the place of the votes that are paired first.
const SEED_CALLS: usize = 512;
/// Maximum distance in nanoseconds of the first pairs from the offset that the votes gave.
const SEED_REACH_NS: i64 = 100_000;
/// Width in nanoseconds within which offsets count as one in the first pairs.
pub(super) const SEED_WIDTH_NS: i64 = 4_000;
/// Maximum number of times that all calls are paired and the line is fitted anew.
const MAX_ROUNDS: usize = 6;
/// Number of calls on either side of the candidate's place that are followed first: the fewer, the less the
/// clocks have drifted apart between them.
const FIRST_CALLS: usize = 64;
/// Maximum drift. A kernel corrects a clock by at most 500 ppm, so that two clocks drift apart by at most twice
/// as much. The hundredth beyond that is for the clock that it is measured by.
const MAX_DRIFT: f64 = 1_010e-6;

/// A candidate that is being developed into an alignment.
pub(super) struct Attempt {
    pub(super) line: Line,
    pub(super) threads: Vec<(usize, usize)>,
    pub(super) lanes: Vec<Lane>,
    /// Middles of the profile's calls in these lanes, in order of time.
    pub(super) times: Vec<i64>,
}

impl Attempt {
    pub(super) fn new(
        profile: &Side,
        captured: &Side,
        functions: &Functions,
        threads: Vec<(usize, usize)>,
    ) -> Self {
        let of = |(a, b): &(usize, usize)| match (profile.threads.get(*a), captured.threads.get(*b)) {
            (Some(a), Some(b)) => lanes(a, b, functions),
            _ => Vec::new(),
        };
        let lanes: Vec<Lane> = threads.iter().flat_map(of).collect();
        let mut times: Vec<i64> =
            lanes.iter().flat_map(|lane| lane.profile.iter().map(Call::middle)).collect();
        times.sort_unstable();
        Self { line: Line::default(), threads, lanes, times }
    }

    /// Returns the times from `count` calls before to `count` calls after `place`.
    fn around(&self, place: usize, count: usize) -> Range<i64> {
        let from = place.saturating_sub(count);
        let to = place.saturating_add(count);
        let start = if from == 0 { i64::MIN } else { self.times.get(from).copied().unwrap_or(i64::MIN) };
        start..self.times.get(to).copied().unwrap_or(i64::MAX)
    }

    /// Sets the line from the calls around the candidate's place, and returns how many of them it pairs.
    pub(super) fn seed(&mut self, candidate: &Candidate, functions: &Functions) -> usize {
        let place = self.times.partition_point(|ts| *ts < candidate.at_ns);
        let part = self.around(place, SEED_CALLS / 2);
        self.line = Line::flat(candidate.offset_ns);
        let differences = differences(&self.lanes, &self.line, &part, SEED_REACH_NS, SEED_CALLS);
        let Some((_, by_ns)) = densest(&differences, SEED_WIDTH_NS) else { return 0 };
        self.line = self.line.shifted(by_ns);
        pairs(&self.lanes, &self.line, &part, SEED_WIDTH_NS, functions).len()
    }

    /// Returns how far apart the two records of a call in these times may lie, for all that is known of the
    /// drift, if the line is right in their middle.
    fn reach_ns(&self, times: &Range<i64>) -> i64 {
        let first = self.times.first().map_or(0, |ts| times.start.max(*ts));
        let last = self.times.last().map_or(0, |ts| times.end.min(*ts));
        let drift = match self.line.drift_error > 0.0 {
            true => MAX_DRIFT.min(3.0 * self.line.drift_error),
            false => MAX_DRIFT,
        };
        REACH_NS.saturating_add((drift * last.saturating_sub(first) as f64 / 2.0) as i64)
    }

    /// Follows the clock from the candidate's place to both ends of the profile.
    pub(super) fn follow(&mut self, at_ns: i64, functions: &Functions) {
        let place = self.times.partition_point(|ts| *ts < at_ns);
        let mut count = FIRST_CALLS;
        let mut rounds = 0;
        while rounds < MAX_ROUNDS {
            let is_whole = count >= self.times.len();
            let times = self.around(place, count);
            let found = pairs(&self.lanes, &self.line, &times, self.reach_ns(&times), functions);
            let Some(line) = line::through(&groups(&self.lanes, &found)) else { return };
            let is_possible = line.drift.abs() - line.drift_error <= MAX_DRIFT;
            if is_whole {
                if line == self.line || !is_possible {
                    return;
                }
                rounds += 1;
            }
            // A few calls may mislead; more of them will tell.
            if is_possible {
                self.line = line;
            }
            count = count.saturating_mul(2);
        }
    }

    /// Assumes that these pairs of threads are the same thread.
    pub(super) fn pair_threads(
        &mut self,
        profile: &Side,
        captured: &Side,
        functions: &Functions,
        threads: Vec<(usize, usize)>,
    ) {
        if threads != self.threads {
            *self = Self { line: self.line, ..Self::new(profile, captured, functions, threads) };
        }
    }
}
