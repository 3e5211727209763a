//! How the clock of a profiler's trace relates to that of a captured run of the same process, and which calls
//! both of them recorded.
//!
//! ```text
//! vote    times between calls that both sides have ─► a few offsets that may be the right one
//! follow  calls near the place of the votes are paired and a line is fitted; the part is doubled until it
//!         reaches both ends
//! prove   is the line a clock, are its calls there, and is no other offset nearly as good? If not: no answer
//! ```
//! A pair is not found by correlation: top-level calls of one thread do not overlap, so two records of the
//! same function of which one encloses the other on one clock are of the same call.

mod calls;
mod line;
mod moved;
mod pair;
mod prove;
pub mod rewrite;
#[cfg(test)]
mod tests;
mod vote;

use std::ops::Range;

pub use calls::{Call, Functions, Side};
pub use line::Line;

use self::{
    pair::{Lane, Pair, all_pairs, lanes, pairs, strata},
    vote::Candidate,
};

/// Maximum distance in nanoseconds between the middles of a call's two records.
pub const REACH_NS: i64 = 20_000;
/// Number of calls around the place of the votes that are paired first.
const SEED_CALLS: usize = 512;
/// Maximum distance in nanoseconds of the first pairs from the offset that the votes gave.
const SEED_REACH_NS: i64 = 100_000;
/// Width in nanoseconds within which offsets count as one in the first pairs.
const SEED_WIDTH_NS: i64 = 4_000;
/// Maximum number of times that all calls are paired and the line is fitted anew.
const MAX_ROUNDS: usize = 6;
/// Maximum rate by which a kernel corrects a clock.
const MAX_DRIFT: f64 = 500e-6;
/// Maximum number of pairs of threads that are tried if their IDs do not match.
const MAX_TRIALS: usize = 4_096;

/// Measures of how good an alignment is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quality {
    /// Number of the profile's calls that the run could have.
    pub matchable_count: u64,
    /// Number of these calls that were matched.
    pub matched_count: u64,
    /// Number of consecutive unmatched calls before the first or after the last matched one, whichever is
    /// larger.
    pub unmatched_end_count: u64,
    /// Median distance in nanoseconds between the two records of a call after alignment.
    pub residual_median_ns: i64,
    /// 99th percentile of that distance in nanoseconds.
    pub residual_p99_ns: i64,
    /// Maximum of that distance in nanoseconds.
    pub residual_max_ns: i64,
    /// Largest distance in nanoseconds of the median of a part of the profile from the line.
    pub nonlinearity_ns: i64,
    /// Range in nanoseconds over which the offset can be changed so that in nearly all calls one record
    /// encloses the other. If it is negative, there is no such offset.
    pub room_ns: i64,
}

impl Quality {
    /// Returns the maximum error of the offset in nanoseconds; `None` if the records of calls do not enclose
    /// each other.
    pub fn offset_error_ns(&self) -> Option<i64> {
        (self.room_ns >= 0).then(|| self.room_ns / 2 + 1)
    }
}

/// The times in which the run could record calls, on the run's clock in nanoseconds.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Time from the start to the end of the recording. The run could not record calls of the profile outside
    /// of it.
    pub span: Range<i64>,
    /// Loss intervals, in which the run has lost some calls.
    pub lost: Vec<Range<i64>>,
}

/// The rows of one call on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matched {
    /// Row in the profile.
    pub profile_row: u64,
    /// Row in the captured run.
    pub captured_row: u64,
}

/// A thread on both sides, each as process ID and thread ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// IDs in the profile. They may differ from those of the run, as they do if the profile is from inside a
    /// container.
    pub profile: (u32, u32),
    /// IDs in the captured run.
    pub captured: (u32, u32),
}

/// An alignment that holds.
#[derive(Clone, Debug)]
pub struct Aligned {
    /// The relation of the two clocks.
    pub line: Line,
    /// The calls that both sides recorded.
    pub matched: Vec<Matched>,
    /// The threads whose calls were matched.
    pub threads: Vec<Threads>,
    /// Measures of how good the alignment is.
    pub quality: Quality,
}

/// A candidate that is being developed into an alignment.
struct Attempt {
    line: Line,
    threads: Vec<(usize, usize)>,
    lanes: Vec<Lane>,
    /// Middles of the profile's calls in these lanes, in order of time.
    times: Vec<i64>,
}

impl Attempt {
    fn new(profile: &Side, captured: &Side, functions: &Functions, threads: Vec<(usize, usize)>) -> Self {
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
    fn seed(&mut self, candidate: &Candidate, functions: &Functions) -> usize {
        let place = self.times.partition_point(|ts| *ts < candidate.at_ns);
        let part = self.around(place, SEED_CALLS / 2);
        self.line = Line::flat(candidate.offset_ns);
        let differences = prove::differences(&self.lanes, &self.line, &part, SEED_REACH_NS, SEED_CALLS);
        let Some((_, by_ns)) = prove::densest(&differences, SEED_WIDTH_NS) else { return 0 };
        self.line = self.line.shifted(by_ns);
        pairs(&self.lanes, &self.line, &part, SEED_WIDTH_NS, functions).len()
    }

    /// Follows the clock from the candidate's place to both ends of the profile.
    fn follow(&mut self, at_ns: i64, functions: &Functions) {
        let place = self.times.partition_point(|ts| *ts < at_ns);
        let mut count = SEED_CALLS / 2;
        let mut rounds = 0;
        while rounds < MAX_ROUNDS {
            let is_whole = count >= self.times.len();
            let found = pairs(&self.lanes, &self.line, &self.around(place, count), REACH_NS, functions);
            let Some(line) = line::through(&strata(&self.lanes, &found)) else { return };
            if line.drift.abs() > MAX_DRIFT {
                return;
            }
            if is_whole {
                if line == self.line {
                    return;
                }
                rounds += 1;
            }
            self.line = line;
            count = count.saturating_mul(2);
        }
    }

    /// Assumes that these pairs of threads are the same thread.
    fn pair_threads(
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

/// Returns the threads whose IDs match, and of the others those that voted for a candidate.
fn threads_of(claims: &[Option<usize>], candidate: &Candidate) -> Vec<(usize, usize)> {
    let mut threads: Vec<(usize, usize)> =
        claims.iter().enumerate().filter_map(|(a, b)| Some((a, (*b)?))).collect();
    for (a, b) in &candidate.threads {
        if !threads.iter().any(|(known, other)| known == a || other == b) {
            threads.push((*a, *b));
        }
    }
    threads.sort_unstable();
    threads
}

/// Pairs threads that had no part in the vote, using the relation of the clocks found so far.
fn adopt(attempt: &mut Attempt, profile: &Side, captured: &Side, functions: &Functions) {
    let free = |side: &Side, taken: &dyn Fn(usize) -> bool| -> Vec<usize> {
        (0..side.threads.len()).filter(|number| !taken(*number)).collect()
    };
    let mut threads = attempt.threads.clone();
    let own = free(profile, &|number| threads.iter().any(|(a, _)| *a == number));
    let others = free(captured, &|number| threads.iter().any(|(_, b)| *b == number));
    if own.len().saturating_mul(others.len()) > MAX_TRIALS {
        return;
    }
    let mut taken: Vec<usize> = Vec::new();
    for a in own {
        let Some(thread) = profile.threads.get(a).filter(|thread| !thread.calls.is_empty()) else { continue };
        let trial = |b: &usize| {
            let lanes = lanes(thread, captured.threads.get(*b)?, functions);
            let found = pairs(&lanes, &attempt.line, &(i64::MIN..i64::MAX), SEED_WIDTH_NS, functions);
            Some((found.len(), *b))
        };
        let best = others.iter().filter(|b| !taken.contains(b)).filter_map(trial).max();
        if let Some((_, b)) = best.filter(|(count, _)| count * 2 > thread.calls.len()) {
            taken.push(b);
            threads.push((a, b));
        }
    }
    attempt.pair_threads(profile, captured, functions, threads);
}

/// Aligns a profile with a run that was recorded in `recording`. The calls of each side are passed as they
/// were recorded.
///
/// # Errors
/// Returns a sentence that says why there is no alignment that holds.
pub fn run(
    mut profile: Side,
    mut captured: Side,
    functions: &Functions,
    recording: &Recording,
) -> Result<Aligned, String> {
    calls::make_comparable(&mut profile, &mut captured, functions);
    if profile.calls_count() == 0 {
        return Err("the two have no function in common of which both recorded calls".to_owned());
    }
    let claims: Vec<Option<usize>> =
        profile.threads.iter().map(|thread| captured.thread(thread.pid, thread.tid)).collect();
    let candidates = vote::candidates(&profile, &captured, functions, &claims);
    let mut attempt = Attempt::new(&profile, &captured, functions, Vec::new());
    let mut best: Option<(usize, &Candidate, Line)> = None;
    for candidate in &candidates {
        attempt.pair_threads(&profile, &captured, functions, threads_of(&claims, candidate));
        let count = attempt.seed(candidate, functions);
        if best.as_ref().is_none_or(|(most, ..)| count > *most) {
            best = Some((count, candidate, attempt.line));
        }
    }
    let Some((_, candidate, line)) = best else {
        return Err("no time between two calls in the one is that of such calls in the other".to_owned());
    };
    attempt.pair_threads(&profile, &captured, functions, threads_of(&claims, candidate));
    attempt.line = line;
    attempt.follow(candidate.at_ns, functions);
    adopt(&mut attempt, &profile, &captured, functions);
    attempt.follow(candidate.at_ns, functions);
    let found = all_pairs(&attempt.lanes, &attempt.line, REACH_NS, functions);
    let others: Vec<i64> = candidates
        .iter()
        .map(|other| other.offset_ns.saturating_sub(attempt.line.offset_at(other.at_ns)))
        .collect();
    let (low, high) = prove::offset_bounds(&attempt, &found);
    attempt.line = attempt.line.shifted(low.midpoint(high));
    let room_ns = high.saturating_sub(low);
    let quality = prove::quality(&attempt, &found, &profile, recording, room_ns);
    prove::check(&attempt, &quality, &others, recording, functions)?;
    Ok(finish(attempt, &found, quality, &profile, &captured))
}

fn finish(attempt: Attempt, found: &[Pair], quality: Quality, profile: &Side, captured: &Side) -> Aligned {
    let rows = |pair: &Pair| {
        let (call, other) = attempt.lanes.get(pair.lane)?.calls(pair)?;
        Some(Matched { profile_row: call.row, captured_row: other.row })
    };
    let threads = |(a, b): &(usize, usize)| {
        let (a, b) = (profile.threads.get(*a)?, captured.threads.get(*b)?);
        Some(Threads { profile: (a.pid, a.tid), captured: (b.pid, b.tid) })
    };
    Aligned {
        line: attempt.line,
        matched: found.iter().filter_map(rows).collect(),
        threads: attempt.threads.iter().filter_map(threads).collect(),
        quality,
    }
}
