//! Finds where the profile may lie in the run. The time between two calls is recorded on both sides, and a
//! rare one reveals the offset of the clocks. Every pair of equal times votes for an offset; the rarer the
//! time is, the more its votes weigh. Wrong votes scatter.

use std::collections::HashMap;

use super::calls::{Functions, Side};

/// Maximum number of the run's gaps that are searched: the longest, because they are the rarest.
const MAX_GAPS: usize = 1 << 20;
/// Maximum number of votes, in total and, on average, for each gap of the profile. The rarest gaps vote
/// first.
const MAX_VOTES: usize = 1 << 20;
const VOTES_PER_GAP: usize = 16;
/// Maximum number of similar gaps; a gap with more of them tells nothing.
const MAX_ALIKE: usize = 1 << 11;
/// Maximum difference in nanoseconds between a gap's two records, in addition to a thousandth of the gap.
const GAP_SLACK_NS: i64 = 3_000;
/// Width in nanoseconds within which offsets count as one, because the drift of the clocks spreads the votes.
const WINDOW_NS: i64 = 100_000;
/// Width in nanoseconds of the narrower window that the offset is finally taken from.
const NARROW_NS: i64 = 8_000;
/// Maximum number of candidates.
const MAX_CANDIDATES: usize = 8;

/// An offset with many votes.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Offset in nanoseconds from the profile's clock to the run's.
    pub(super) offset_ns: i64,
    /// Median time on the profile's clock of the gaps that voted for the offset, in nanoseconds.
    pub(super) at_ns: i64,
    /// Pairs of a thread of the profile and one of the run that voted for the offset, those with most votes
    /// first.
    pub(super) threads: Vec<(usize, usize)>,
}

/// The time from the start of one call of a thread to the start of the next.
struct Gap {
    /// Families of the two calls.
    between: (u32, u32),
    gap_ns: i64,
    thread: usize,
    /// Start of the second call in nanoseconds.
    at_ns: i64,
}

/// A vote for an offset, by a gap of the profile and a similar gap of the run.
#[derive(Clone, Copy)]
struct Vote {
    offset_ns: i64,
    at_ns: i64,
    threads: (usize, usize),
    weight: f64,
}

/// Returns the gaps of all threads of a side.
fn gaps(side: &Side, functions: &Functions) -> Vec<Gap> {
    let mut gaps = Vec::with_capacity(side.calls_count());
    for (thread, calls) in side.threads.iter().map(|thread| &thread.calls).enumerate() {
        gaps.extend(calls.windows(2).filter_map(|pair| match pair {
            [a, b] => Some(Gap {
                between: (functions.family(a.op), functions.family(b.op)),
                gap_ns: b.start.saturating_sub(a.start),
                thread,
                at_ns: b.start,
            }),
            _ => None,
        }));
    }
    gaps
}

/// Returns all votes, sorted by offset. `claims` has, for each thread of the profile, the thread of the run
/// with the same IDs, if there is one.
fn votes(profile: &Side, captured: &Side, functions: &Functions, claims: &[Option<usize>]) -> Vec<Vote> {
    let mut known = gaps(captured, functions);
    if known.len() > MAX_GAPS {
        known.select_nth_unstable_by_key(MAX_GAPS, |gap| std::cmp::Reverse(gap.gap_ns));
        known.truncate(MAX_GAPS);
    }
    known.sort_unstable_by_key(|gap| (gap.between, gap.gap_ns, gap.at_ns));
    let claimed: Vec<usize> = claims.iter().flatten().copied().collect();
    let found = |gap: &Gap| {
        let slack = GAP_SLACK_NS + gap.gap_ns / 1_000;
        let from =
            known.partition_point(|other| (other.between, other.gap_ns) < (gap.between, gap.gap_ns - slack));
        let to = known.partition_point(|other| {
            (other.between, other.gap_ns) <= (gap.between, gap.gap_ns.saturating_add(slack))
        });
        from..to
    };
    let mut asked: Vec<(usize, Gap)> = gaps(profile, functions)
        .into_iter()
        .map(|gap| (found(&gap).len(), gap))
        .filter(|(count, _)| (1..=MAX_ALIKE).contains(count))
        .collect();
    asked.sort_by_key(|(count, gap)| (*count, gap.at_ns));
    let max_votes = asked.len().saturating_mul(VOTES_PER_GAP).min(MAX_VOTES);
    let mut votes: Vec<Vote> = Vec::new();
    let mut seen = 0;
    for (count, gap) in asked {
        seen += count;
        if seen > max_votes {
            break;
        }
        let first = votes.len();
        let others = known.get(found(&gap)).unwrap_or_default();
        votes.extend(others.iter().filter_map(|other| {
            let is_allowed = match claims.get(gap.thread).copied().flatten() {
                Some(claim) => claim == other.thread,
                None => !claimed.contains(&other.thread),
            };
            is_allowed.then(|| Vote {
                offset_ns: other.at_ns.saturating_sub(gap.at_ns),
                at_ns: gap.at_ns,
                threads: (gap.thread, other.thread),
                weight: 0.0,
            })
        }));
        let cast = votes.len() - first;
        votes.iter_mut().skip(first).for_each(|vote| vote.weight = 1.0 / cast as f64);
    }
    votes.sort_unstable_by_key(|vote| (vote.offset_ns, vote.at_ns));
    votes
}

/// Returns, for each vote, the total weight of the votes from it on within `width_ns`.
fn windows(votes: &[Vote], width_ns: i64) -> Vec<f64> {
    let mut sums = vec![0.0; votes.len()];
    let (mut sum, mut end) = (0.0, 0);
    for (first, vote) in votes.iter().enumerate() {
        while let Some(next) =
            votes.get(end).filter(|next| next.offset_ns.saturating_sub(vote.offset_ns) <= width_ns)
        {
            sum += next.weight;
            end += 1;
        }
        sums[first] = sum;
        sum -= vote.weight;
    }
    sums
}

/// Returns the index of the largest sum.
fn heaviest(sums: &[f64]) -> Option<usize> {
    sums.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(index, _)| index)
}

/// Returns the votes from index `first` on within `width_ns`.
fn within(votes: &[Vote], first: usize, width_ns: i64) -> &[Vote] {
    let votes = votes.get(first..).unwrap_or_default();
    let start = votes.first().map_or(0, |vote| vote.offset_ns);
    let end = votes.partition_point(|vote| vote.offset_ns.saturating_sub(start) <= width_ns);
    votes.get(..end).unwrap_or_default()
}

/// Returns the offsets with most weight, the heaviest first.
pub(super) fn candidates(
    profile: &Side,
    captured: &Side,
    functions: &Functions,
    claims: &[Option<usize>],
) -> Vec<Candidate> {
    let votes = votes(profile, captured, functions, claims);
    let mut sums = windows(&votes, WINDOW_NS);
    let mut found = Vec::new();
    while found.len() < MAX_CANDIDATES {
        let Some(first) = heaviest(&sums).filter(|first| sums[*first] > 0.0) else { break };
        let wide = within(&votes, first, WINDOW_NS);
        let narrow = heaviest(&windows(wide, NARROW_NS)).map_or(wide, |first| within(wide, first, NARROW_NS));
        let mut times: Vec<i64> = narrow.iter().map(|vote| vote.at_ns).collect();
        times.sort_unstable();
        let mut threads: HashMap<(usize, usize), f64> = HashMap::new();
        for vote in wide {
            *threads.entry(vote.threads).or_default() += vote.weight;
        }
        let mut threads: Vec<_> = threads.into_iter().collect();
        threads.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let middle = |values: &[i64]| values.get(values.len() / 2).copied();
        let offsets: Vec<i64> = narrow.iter().map(|vote| vote.offset_ns).collect();
        if let (Some(offset_ns), Some(at_ns)) = (middle(&offsets), middle(&times)) {
            let threads = threads.into_iter().map(|(threads, _)| threads).collect();
            found.push(Candidate { offset_ns, at_ns, threads });
        }
        // A window that overlaps this one belongs to the same candidate.
        let start = votes.get(first).map_or(0, |vote| vote.offset_ns);
        let from = votes.partition_point(|vote| vote.offset_ns < start.saturating_sub(WINDOW_NS));
        let to = votes.partition_point(|vote| vote.offset_ns <= start.saturating_add(WINDOW_NS));
        sums.iter_mut().take(to).skip(from).for_each(|sum| *sum = 0.0);
    }
    found
}
