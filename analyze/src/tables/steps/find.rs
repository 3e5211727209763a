//! Finds the steps of a process in its marks, or in the sequence of the calls of the thread that drives the GPU.
//!
//! ```text
//! marks      ├─ step 1 ─┤   ├─ step 2 ─┤   ├─ step 3 ─┤     a step goes on until the next range of the name begins
//! calls      L  L S  L L L L S  L L L L S ────── L L L L S     L: launch, S: anchor
//! launches        │     4      │    4     │         4      │
//! steps           ├────────────┼──────────┼────────────────┤     as S synchronizes, it ends a step
//! ```
//! - **Marks**: ranges of one name on one thread, at least [`LEAST_STEPS`] and none inside another. Numbers in names do not
//!   count: `step 1` and `step 2` have one name. Of several names, one with [`MANY_STEPS`] ranges is preferred, then one of
//!   the driving thread, then the one whose ranges are longest in all, which is the outermost one.
//! - **Graphs**, **sequence**: an anchor is a function of which one call in every so many begins a step, or ends it if it
//!   synchronizes. Launches of graphs are tried first, then functions that synchronize, copy, fill, record events or
//!   communicate, and functions that launch kernels if they are a tenth of the launches or fewer. Between anchors there must
//!   be the same number of launches ([`tolerance`]): in at least four of five intervals, which have at least four of five
//!   launches from the first step on. The first step must begin in the first half of the launches. As more calls of the anchor
//!   in a step are more ways to find a regularity by chance, there must be [`LEAST_STEPS`] steps for each of them.
//! - Of several periods the shortest one is the step; of those up to half as long again, the one that leaves the fewest launches
//!   outside of steps. But a longer period with [`MANY_STEPS`] is the step if it leaves less than a quarter of the launches
//!   outside that the shorter one does: then the shorter one repeats within a step, as layers of a model do. Of several anchors
//!   with one period, the one with the fewest calls in a step is taken.
//! - An interval between anchors with another number of launches is no step, and neither is what comes before the first anchor
//!   and after the last.
//!
//! The period is searched in the first [`SEARCHED_CALLS`] calls. A loop whose every step consists of launches of kernels alone
//! has no anchor, so that its steps are not found.

use std::collections::BTreeMap;

use analyze_run::{
    coverage::GRAPH_LAUNCHES,
    hash::HashMap,
    quantiles::{interpolated, median_high},
    reading::Names,
};
use trace_schema::Class;

/// Least number of steps.
pub(in crate::tables) const LEAST_STEPS: usize = 3;
/// Number of steps from which a name of marks, or a longer period, is preferred.
const MANY_STEPS: usize = 10;
/// Number of calls in which a period is searched, which bounds the memory that this takes.
const SEARCHED_CALLS: usize = 1 << 20;
/// Largest number of calls of the anchor in a step.
const MOST_ANCHORS: usize = 32;
/// Least number of launches in a step for each call of an anchor that launches kernels itself.
const LAUNCHES_PER_LAUNCH: usize = 10;

/// What the steps were found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tables) enum FoundBy {
    /// Marked ranges.
    Marks,
    /// Launches of graphs.
    Graph,
    /// The sequence of calls.
    Sequence,
}

impl FoundBy {
    /// The name in tables.
    pub(in crate::tables) fn name(self) -> &'static str {
        match self {
            Self::Marks => "marks",
            Self::Graph => "graph",
            Self::Sequence => "sequence",
        }
    }
}

/// The steps of a process, in the order of time.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tables) struct Found {
    pub(in crate::tables) by: FoundBy,
    /// Name of the marked ranges, or function of the anchor.
    pub(in crate::tables) name: String,
    /// Start and end of each step in nanoseconds. Steps do not overlap.
    pub(in crate::tables) spans: Vec<(i64, i64)>,
}

/// A marked range over `[ts, end)`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::tables) struct Range<'a> {
    pub(in crate::tables) name: &'a str,
    pub(in crate::tables) tid: u32,
    /// True if the thread drives the GPU.
    pub(in crate::tables) is_driver: bool,
    pub(in crate::tables) ts: i64,
    pub(in crate::tables) end: i64,
}

/// Returns a name with `#` in place of its numbers.
fn without_numbers(name: &str) -> String {
    let mut found = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '0'..='9' if found.ends_with('#') => {}
            '0'..='9' => found.push('#'),
            _ => found.push(letter),
        }
    }
    found
}

/// Finds steps in the marked ranges of a process. `calls_count` is the number of calls of the driving thread, and
/// `calls_before` how many of them begin before a time.
pub(in crate::tables) fn by_marks<'a>(
    ranges: impl Iterator<Item = Range<'a>>,
    calls_count: usize,
    calls_before: impl Fn(i64) -> usize,
) -> Option<Found> {
    /// Ranges of names that differ in numbers alone: one of the names, whether there are others, and the spans.
    type Named<'n> = (&'n str, bool, Vec<(i64, i64)>);
    let mut named: BTreeMap<(bool, u32, String), Named<'a>> = BTreeMap::new();
    for range in ranges {
        let key = (range.is_driver, range.tid, without_numbers(range.name));
        let (name, differ, spans) = named.entry(key).or_insert((range.name, false, Vec::new()));
        *differ |= *name != range.name;
        spans.push((range.ts, range.end));
    }
    let mut best: Option<((bool, bool, i64), Found)> = None;
    for ((is_driver, _, pattern), (name, differ, mut spans)) in named {
        spans.sort_unstable();
        let starts: Vec<i64> = spans.iter().skip(1).map(|(ts, _)| *ts).collect();
        let overlap = spans.iter().zip(&starts).any(|((_, end), next)| end > next);
        let (Some((first, _)), Some((_, last))) = (spans.first().copied(), spans.last().copied()) else {
            continue;
        };
        let (before, until) = (calls_before(first), calls_before(last));
        let (inside, after_start) = (until.saturating_sub(before), calls_count.saturating_sub(before));
        let holds_calls = inside > 0 && 5 * inside >= 4 * after_start && 2 * before <= calls_count;
        if spans.len() < LEAST_STEPS || overlap || !holds_calls {
            continue;
        }
        let length_ns: i64 = spans.iter().map(|(ts, end)| end - ts).sum();
        let rank = (spans.len() >= MANY_STEPS, is_driver, length_ns);
        if best.as_ref().is_none_or(|(other, _)| rank > *other) {
            // A step lasts until the next one begins.
            spans.iter_mut().zip(starts).for_each(|((_, end), next)| *end = next);
            let name = if differ { pattern } else { name.to_owned() };
            best = Some((rank, Found { by: FoundBy::Marks, name, spans }));
        }
    }
    best.map(|(_, found)| found)
}

/// Returns by how many launches a step may differ from the typical one.
fn tolerance(launches_count: u32) -> u32 {
    if launches_count < 25 { 0 } else { launches_count.div_ceil(50) }
}

/// One call in `every` of a function as the border of steps.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    op: u32,
    every: usize,
    /// Number of calls of the function before the first step.
    first: usize,
    launches_count: u32,
    /// Number of launches that are in no step.
    outside_count: u32,
    steps_count: usize,
    /// Place of the function's class, the best one first.
    rank: u8,
}

/// Returns the place of a class among anchors, the best one first; `None`: its functions are no anchors.
fn rank_of(class: Class) -> Option<u8> {
    match class {
        Class::Sync => Some(0),
        Class::Copy => Some(1),
        Class::Set => Some(2),
        Class::Collective | Class::PointToPoint => Some(3),
        Class::Event => Some(4),
        Class::Launch => Some(5),
        _ => None,
    }
}

/// Returns the steps between each `every`th call of a function, if they are regular. `before` has the number of launches before
/// each call of the function, `all_count` the number of all launches.
fn regular(op: u32, rank: u8, every: usize, before: &[u32], all_count: u32) -> Option<Anchor> {
    let borders: Vec<u32> = before.iter().step_by(every).copied().collect();
    let counts: Vec<u32> = borders.iter().zip(borders.iter().skip(1)).map(|(one, next)| next - one).collect();
    // Warm-up is in the first half.
    let mut late: Vec<i64> = counts.iter().skip(counts.len() / 2).map(|count| i64::from(*count)).collect();
    let launches_count = u32::try_from(median_high(&mut late)?).ok().filter(|count| *count > 0)?;
    let is_step = |count: &&u32| count.abs_diff(launches_count) <= tolerance(launches_count);
    let first = counts.iter().position(|count| is_step(&count))?;
    let steps_count = counts.iter().filter(is_step).count();
    let inside: u32 = counts.iter().filter(is_step).sum();
    let begins = *borders.get(first)?;
    let is_regular = steps_count >= LEAST_STEPS * every
        && 5 * steps_count >= 4 * (counts.len() - first)
        && 5 * u64::from(inside) >= 4 * u64::from(all_count - begins)
        && begins <= all_count / 2;
    let outside_count = all_count - inside;
    let first = first * every;
    is_regular.then_some(Anchor { op, every, first, launches_count, outside_count, steps_count, rank })
}

/// Chooses among regular anchors.
fn choose(mut anchors: Vec<Anchor>) -> Option<Anchor> {
    let order = |anchor: &Anchor| (anchor.every, anchor.rank, anchor.outside_count, anchor.op);
    anchors.sort_by_key(|anchor| (anchor.launches_count, order(anchor)));
    let launches = |anchor: &Anchor| u64::from(anchor.launches_count);
    // One anchor more or less in a step may look regular, too, but leaves more outside.
    let best_from = |shortest: &Anchor| {
        let near = anchors.iter().filter(|anchor| {
            launches(anchor) >= launches(shortest) && 2 * launches(anchor) <= 3 * launches(shortest)
        });
        near.min_by_key(|anchor| (anchor.outside_count, order(anchor))).copied()
    };
    let mut chosen = best_from(anchors.first()?)?;
    for longer in &anchors {
        if longer.steps_count >= MANY_STEPS
            && 2 * launches(longer) > 3 * launches(&chosen)
            && u64::from(longer.outside_count) * 4 < u64::from(chosen.outside_count)
        {
            chosen = best_from(longer)?;
        }
    }
    let has_period = |anchor: &&Anchor| {
        anchor.launches_count.abs_diff(chosen.launches_count) <= tolerance(chosen.launches_count)
    };
    anchors.iter().filter(has_period).copied().min_by_key(order)
}

/// Finds steps in the top-level calls of a thread: start and end in nanoseconds, and the function, in the order of time.
pub(in crate::tables) fn by_calls<C>(calls: impl Fn() -> C, names: &Names) -> Option<Found>
where
    C: Iterator<Item = (i64, i64, u32)>,
{
    // The number of launches before each call of a function.
    let mut before: HashMap<u32, Vec<u32>> = HashMap::default();
    let mut all_count = 0;
    for (.., op) in calls().take(SEARCHED_CALLS) {
        let Some(class) = names.class(op) else { continue };
        if rank_of(class).is_some() {
            before.entry(op).or_default().push(all_count);
        }
        all_count += u32::from(class == Class::Launch);
    }
    let is_graph = |op: u32| names.op(op).is_some_and(|op| GRAPH_LAUNCHES.contains(&op));
    let find = |of_graphs: bool| {
        let mut found = Vec::new();
        for (op, before) in before.iter().filter(|(op, _)| is_graph(**op) == of_graphs) {
            let Some(class) = names.class(*op) else { continue };
            let Some(rank) = rank_of(class) else { continue };
            let most = MOST_ANCHORS.min(before.len() / LEAST_STEPS);
            let anchors = (1..=most).filter_map(|every| regular(*op, rank, every, before, all_count));
            let is_rare = |anchor: &Anchor| {
                of_graphs
                    || class != Class::Launch
                    || anchor.launches_count as usize >= LAUNCHES_PER_LAUNCH * anchor.every
            };
            found.extend(anchors.filter(is_rare));
        }
        choose(found)
    };
    let anchor = find(true).or_else(|| find(false))?;
    let ends_step = names.class(anchor.op) == Some(Class::Sync);
    let mut spans = Vec::new();
    let (mut anchors_count, mut launches_count) = (0_usize, 0_u32);
    // The last border, and the number of launches before it.
    let mut last: Option<(i64, u32)> = None;
    for (ts, end, op) in calls() {
        if op == anchor.op {
            let is_border =
                anchors_count >= anchor.first && (anchors_count - anchor.first).is_multiple_of(anchor.every);
            anchors_count += 1;
            if is_border {
                let border = if ends_step { end } else { ts };
                // The recording has no end of this call.
                if border == i64::MAX {
                    break;
                }
                if let Some((from, before)) = last {
                    let has_launches = launches_count.wrapping_sub(before).abs_diff(anchor.launches_count)
                        <= tolerance(anchor.launches_count);
                    if has_launches && from < border {
                        spans.push((from, border));
                    }
                }
                last = Some((border, launches_count));
            }
        }
        // Only differences count.
        launches_count = launches_count.wrapping_add(u32::from(names.class(op) == Some(Class::Launch)));
    }
    let by = if is_graph(anchor.op) { FoundBy::Graph } else { FoundBy::Sequence };
    Some(Found { by, name: names.name(anchor.op).to_owned(), spans })
}

/// Returns the number of steps at the beginning that are warm-up: the longest prefix, of at most half of the steps, whose last
/// step and lower median are longer than the steady state is. The steady state is the second half of the steps, and its limit
/// Tukey's fence: the third quartile and one and a half times the distance between the quartiles.
pub(in crate::tables) fn warm_up_count(spans: &[(i64, i64)]) -> usize {
    let half = spans.len() / 2;
    let dur = |(ts, end): &(i64, i64)| (end - ts) as f64;
    let mut steady: Vec<f64> = spans.iter().skip(half).map(dur).collect();
    steady.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (interpolated(&steady, 0.25), interpolated(&steady, 0.75)) else {
        return 0;
    };
    let limit = high + 1.5 * (high - low);
    let (mut warm_up, mut longer) = (0, 0);
    for (index, dur) in spans.iter().take(half).map(dur).enumerate() {
        longer += usize::from(dur > limit);
        if dur > limit && 2 * longer > index + 1 {
            warm_up = index + 1;
        }
    }
    warm_up
}

#[cfg(test)]
mod tests;
