//! Decides whether an alignment holds. An alignment is refused if
//! - too few calls are matched, in number or as a share of those that the run could have;
//! - the two records of a matched call lie too far apart, or the relation of the clocks is not a line;
//! - in more than a few calls neither record encloses the other, because the records of one call always do;
//! - a clock was set: calls at an end cannot be matched and that is not by chance, or some part of the
//!   profile fits elsewhere in its surroundings, or nowhere although the run lost nothing;
//! - another offset matches nearly as many calls: a loop shifted by one iteration, or chance.

use std::ops::Range;

use analyze_run::quantiles::{median_high, nearest};
use trace_schema::Nanos;

use super::{
    alignment::{Quality, REACH_NS, Recording},
    attempt::Attempt,
    calls::{Functions, Side},
    distances::{densest, differences},
    line::{self, Line},
    pair::{Pair, groups, pairs, points},
};

/// Minimum number of matched calls.
const MIN_MATCHED_COUNT: u64 = 32;
/// Minimum share of matched calls in those that the run could have.
const MIN_MATCHED_RATIO: f64 = 0.5;
/// Minimum number of consecutive unmatched calls at an end, and maximum probability of so many by the share
/// of the other calls that are unmatched: together they show that a clock was set.
const MIN_END_COUNT: u64 = 3;
const MAX_END_CHANCE: f64 = 1e-3;
/// Maximum of the median distance of a call's two records, and of the distance of any part's median from the
/// line.
const MAX_RESIDUAL_NS: i64 = 5_000;
/// Maximum by which calls may contradict each other about the offset: the error of a clock from one reading
/// to the next.
const MAX_CONFLICT_NS: i64 = 2_000;
/// Maximum share of the alignment's matches that another offset may have.
const MAX_RIVAL_RATIO: f64 = 0.7;
/// Rivals are shifts by 1 to this many calls, in both directions.
const RIVAL_CALLS: usize = 16;
/// Maximum number of parts on which rivals are measured.
const RIVAL_PARTS: usize = 8;
/// Maximum number of parts of the profile that are checked closely.
const PARTS: usize = 64;
/// Minimum and maximum number of calls of a part that are checked.
const PART_CALLS: (usize, usize) = (64, 512);
/// Distance in which a part is searched for another place that it fits.
const SURROUNDINGS_NS: i64 = 50_000;
/// A part fits its place if that place has at least the first share of the calls of the best place nearby,
/// and at least the second share of the part's calls.
const MIN_PLACE_RATIO: f64 = 0.9;
const MIN_PART_RATIO: f64 = 0.25;
/// Minimum width of a window of distances: records are accurate to the nanosecond or the microsecond, and
/// smaller distances do not count.
const MIN_WIDTH_NS: i64 = 500;
/// Share of the calls whose records may be wrong when the error of the offset is estimated.
const OUTLIERS_RATIO: f64 = 0.01;

/// Returns the quantile `share` of sorted values, or 0 if there are none.
fn quantile(values: &[i64], share: f64) -> i64 {
    nearest(values, share).unwrap_or(0)
}

/// Returns the lower and the upper bound of the correction that the offset needs: whichever record of a call
/// encloses the other, the true correction makes it do so. If the lower bound is above the upper one, no
/// correction does so in nearly all calls.
pub(super) fn offset_bounds(attempt: &Attempt, found: &[Pair]) -> (i64, i64) {
    let (mut lows, mut highs) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
    for pair in found {
        let calls = attempt.lanes.get(pair.lane).and_then(|lane| lane.calls(pair));
        let Some((call, other)) = calls else { continue };
        let start = other.start.saturating_sub(attempt.line.apply(call.start));
        let end = other.end.saturating_sub(attempt.line.apply(call.end));
        lows.push(start.min(end));
        highs.push(start.max(end));
    }
    lows.sort_unstable();
    highs.sort_unstable();
    (quantile(&lows, 1.0 - OUTLIERS_RATIO), quantile(&highs, OUTLIERS_RATIO))
}

/// Measures how good an alignment is.
pub(super) fn quality(
    attempt: &Attempt,
    found: &[Pair],
    profile: &Side,
    recording: &Recording,
    room_ns: i64,
) -> Quality {
    let points = points(&attempt.lanes, found);
    let mut residuals: Vec<i64> = points
        .iter()
        .map(|(ts, offset)| offset.saturating_sub(attempt.line.offset_at(*ts)).saturating_abs())
        .collect();
    residuals.sort_unstable();
    // The run cannot have calls of a process of which it has no thread.
    let numbers = attempt.threads.iter().filter_map(|(a, _)| profile.threads.get(*a));
    let pids: Vec<u32> = numbers.map(|thread| thread.pid).collect();
    let own = profile.threads.iter().filter(|thread| pids.contains(&thread.pid));
    let matchable = own
        .flat_map(|thread| &thread.calls)
        .filter(|call| recording.span.contains(&attempt.line.apply(call.middle())))
        .count();
    let is_told =
        |ts: i64| recording.span.contains(&ts) && !recording.lost.iter().any(|lost| lost.contains(&ts));
    let outside = |from: usize, to: usize| {
        let times = attempt.times.get(from..to).unwrap_or_default().iter();
        times.filter(|ts| is_told(attempt.line.apply(**ts))).count()
    };
    let first = points.first().map_or(0, |(ts, _)| attempt.times.partition_point(|time| time < ts));
    let last = points.last().map_or(0, |(ts, _)| attempt.times.partition_point(|time| time <= ts));
    Quality {
        unmatched_end_count: outside(0, first).max(outside(last, attempt.times.len())) as u64,
        matchable_count: matchable.max(found.len()) as u64,
        matched_count: found.len() as u64,
        residual_median_ns: quantile(&residuals, 0.5),
        residual_p99_ns: quantile(&residuals, 0.99),
        residual_max_ns: residuals.last().copied().unwrap_or(0),
        nonlinearity_ns: line::nonlinearity_ns(&groups(&attempt.lanes, found), &attempt.line),
        room_ns,
    }
}

/// Returns the times of the parts that are checked, all of them within the recording.
fn parts(attempt: &Attempt, recording: &Recording) -> Vec<Range<i64>> {
    let inside = |ts: &i64| recording.span.contains(&attempt.line.apply(*ts));
    let times: Vec<i64> = attempt.times.iter().copied().filter(inside).collect();
    let count = (times.len() / PART_CALLS.0).clamp(1, PARTS);
    let size = times.len().div_ceil(count).max(1);
    let of = |part: &[i64]| {
        let last = part.get(part.len().min(PART_CALLS.1) - 1)?;
        Some(*part.first()?..last.saturating_add(1))
    };
    times.chunks(size).filter_map(of).collect()
}

/// Returns the number of calls in the parts whose two records lie within `width_ns` of one common distance.
/// That distance is searched for up to `reach_ns`.
fn score(
    attempt: &Attempt,
    line: Line,
    parts: &[Range<i64>],
    reach_ns: i64,
    width_ns: i64,
    functions: &Functions,
) -> usize {
    let mut by_ns = 0;
    let mut count = 0;
    for _ in 0..2 {
        let line = line.shifted(by_ns);
        let mut residuals: Vec<i64> = parts
            .iter()
            .flat_map(|part| points(&attempt.lanes, &pairs(&attempt.lanes, &line, part, reach_ns, functions)))
            .map(|(ts, offset)| offset.saturating_sub(line.offset_at(ts)))
            .filter(|residual| residual.saturating_add(by_ns).saturating_abs() <= reach_ns)
            .collect();
        residuals.sort_unstable();
        let Some((most, at)) = densest(&residuals, width_ns) else { break };
        count = count.max(most);
        by_ns = by_ns.saturating_add(at);
    }
    count
}

/// Checks whether an alignment holds. `others` are the distances of the other candidates' offsets from it in
/// nanoseconds.
///
/// # Errors
/// Returns a sentence that says why the alignment does not hold.
pub(super) fn check(
    attempt: &Attempt,
    quality: &Quality,
    others: &[i64],
    recording: &Recording,
    functions: &Functions,
) -> Result<(), String> {
    let Quality { matched_count, matchable_count, .. } = *quality;
    if matched_count < MIN_MATCHED_COUNT {
        return Err(format!(
            "only {matched_count} calls can be matched of {matchable_count}; {MIN_MATCHED_COUNT} are needed"
        ));
    }
    if (matched_count as f64) < MIN_MATCHED_RATIO * matchable_count as f64 {
        return Err(format!("only {matched_count} of {matchable_count} calls can be matched"));
    }
    let at_end = quality.unmatched_end_count;
    let missing = matchable_count.saturating_sub(matched_count).saturating_sub(at_end);
    let chance = ((missing + 1) as f64 / (matchable_count + 1) as f64).powi(at_end.min(64) as i32);
    if at_end >= MIN_END_COUNT && chance < MAX_END_CHANCE {
        return Err(format!(
            "the first or last {at_end} calls in a row cannot be matched, and of the rest only {missing}: a clock was set"
        ));
    }
    if quality.residual_median_ns > MAX_RESIDUAL_NS {
        return Err(format!(
            "the two records of a call are {} apart (median): too far to be of one call",
            Nanos(quality.residual_median_ns)
        ));
    }
    if quality.nonlinearity_ns > MAX_RESIDUAL_NS {
        return Err(format!(
            "the relation of the clocks is not a line: in some part of the profile calls are {} off it (median)",
            Nanos(quality.nonlinearity_ns)
        ));
    }
    if quality.room_ns < -MAX_CONFLICT_NS {
        return Err(format!(
            "in more than a few calls neither of the two records encloses the other, and they contradict each other by {}: they \
             are not of one call",
            Nanos(-quality.room_ns)
        ));
    }
    let width_ns = quality.residual_median_ns.saturating_mul(4).max(MIN_WIDTH_NS);
    let parts = parts(attempt, recording);
    for part in &parts {
        in_its_place(attempt, part, width_ns, recording)?;
    }
    let parts: Vec<Range<i64>> =
        parts.iter().step_by(parts.len().div_ceil(RIVAL_PARTS).max(1)).cloned().collect();
    let own = score(attempt, attempt.line, &parts, REACH_NS, width_ns, functions);
    if (own as u64) < MIN_MATCHED_COUNT / 2 {
        return Err(format!("only {own} calls are close enough to tell this alignment from others"));
    }
    let times = &attempt.times;
    let steps = (1..=RIVAL_CALLS).filter_map(|step| {
        let mut gaps: Vec<i64> = times
            .iter()
            .zip(times.get(step..)?)
            .step_by((times.len() / 4_096).max(1))
            .map(|(a, b)| b.saturating_sub(*a))
            .collect();
        median_high(&mut gaps)
    });
    let rivals = steps.flat_map(|step| [step, -step]).chain(others.iter().copied());
    for shift in rivals.filter(|shift| shift.saturating_abs() >= width_ns.saturating_mul(2)) {
        // The reach is limited, so that a rival does not find the alignment itself.
        let reach_ns = REACH_NS.min(shift.saturating_abs() / 2);
        let rival = score(attempt, attempt.line.shifted(shift), &parts, reach_ns, width_ns, functions);
        if rival as f64 > MAX_RIVAL_RATIO * own as f64 {
            return Err(format!(
                "shifted by {}, the profile would match {rival} calls closely where it matches {own} now: that may be \
                 chance, or a loop that repeats too evenly",
                Nanos(shift)
            ));
        }
    }
    Ok(())
}

/// Checks that a part of the profile fits nowhere else in its surroundings.
fn in_its_place(
    attempt: &Attempt,
    part: &Range<i64>,
    width_ns: i64,
    recording: &Recording,
) -> Result<(), String> {
    let found = differences(&attempt.lanes, &attempt.line, part, SURROUNDINGS_NS, PART_CALLS.1);
    let near = |limit: i64| found.partition_point(|difference| *difference < limit);
    let here = near(width_ns + 1) - near(-width_ns);
    let (most, at) = densest(&found, width_ns * 2).unwrap_or((0, 0));
    let first = attempt.times.partition_point(|ts| *ts < part.start);
    let calls = attempt.times.partition_point(|ts| *ts < part.end) - first;
    let when = || {
        let start = attempt.times.first().copied().unwrap_or(0);
        format!(
            "from {} to {} after the profile's first call",
            Nanos(part.start.saturating_sub(start)),
            Nanos(part.end.saturating_sub(start))
        )
    };
    let (start, end) = (attempt.line.apply(part.start), attempt.line.apply(part.end));
    let is_lossy = recording.lost.iter().any(|lost| lost.start < end && start < lost.end);
    let enough = MIN_PART_RATIO * calls as f64;
    if !is_lossy && (here as f64) < enough {
        return Err(format!(
            "{}, {here} of {calls} calls fit, and the run does not say that it lost some: a clock was set",
            when()
        ));
    }
    let is_elsewhere = most as f64 >= enough && at.saturating_abs() > width_ns * 2;
    if is_elsewhere && (here as f64) < MIN_PLACE_RATIO * most as f64 {
        return Err(format!(
            "{}, more calls fit {} further on than where the other parts would have them ({most} against {here}): a clock was set",
            when(),
            Nanos(at)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks an alignment without calls: if its figures suffice, only the calls themselves are missed.
    fn refused(quality: &Quality) -> Option<String> {
        let (side, functions) = (Side::default(), Functions::default());
        let attempt = Attempt::new(&side, &side, &functions, Vec::new());
        let recording = Recording { span: 0..i64::MAX, lost: Vec::new() };
        let why = check(&attempt, quality, &[], &recording, &functions).unwrap_err();
        (why != "only 0 calls are close enough to tell this alignment from others").then_some(why)
    }

    #[test]
    fn figures_are_refused_beyond_their_limits() {
        let good = Quality { matchable_count: 100, matched_count: 100, ..Quality::default() };
        let matched =
            |matched_count, matchable_count| Quality { matched_count, matchable_count, ..good.clone() };
        // So many calls in a row at an end, and of the others.
        let ended = |at_end, missing, matched_count| Quality {
            unmatched_end_count: at_end,
            matchable_count: matched_count + missing + at_end,
            matched_count,
            ..good.clone()
        };
        let apart = |residual_median_ns| Quality { residual_median_ns, ..good.clone() };
        let bent = |nonlinearity_ns| Quality { nonlinearity_ns, ..good.clone() };
        let roomy = |room_ns| Quality { room_ns, ..good.clone() };
        for (quality, expected) in [
            (good.clone(), None),
            (matched(32, 32), None),
            (matched(31, 31), Some("32 are needed")),
            (matched(50, 100), None),
            (matched(49, 100), Some("only 49 of 100 calls")),
            (ended(2, 0, 100), None),
            (ended(3, 0, 100), Some("the first or last 3 calls in a row")),
            // With a tenth of the calls missing, three in a row have a probability of one in a thousand.
            (ended(3, 99, 897), None),
            (ended(3, 99, 898), Some("of the rest only 99")),
            (apart(5_000), None),
            (apart(5_001), Some("5.00 µs apart (median): too far")),
            (bent(5_000), None),
            (bent(5_001), Some("not a line")),
            (roomy(-2_000), None),
            (roomy(-2_001), Some("contradict each other by 2.00 µs")),
        ] {
            let why = refused(&quality);
            match expected {
                None => assert_eq!(why, None, "{quality:?}"),
                Some(part) => {
                    assert!(why.as_ref().is_some_and(|why| why.contains(part)), "{why:?}: {quality:?}")
                }
            }
        }
    }
}
