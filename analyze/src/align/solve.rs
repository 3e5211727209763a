//! Finds the alignment of a profile with a run: the best candidate of the vote, developed and proved.

use super::{
    alignment::{Aligned, Matched, Quality, REACH_NS, Recording, Threads},
    attempt::{Attempt, SEED_WIDTH_NS},
    calls::{self, Functions, Side},
    line::Line,
    pair::{Pair, all_pairs, lanes, pairs},
    prove,
    vote::{self, Candidate},
};

/// Maximum number of pairs of threads that are tried if their IDs do not match.
const MAX_TRIALS: usize = 4_096;

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
