//! How far the medians of a kind of call may lie from those on record, if rows of some of its calls are missing.
//!
//! ```text
//! rows of the scheduler are missing    own time on record - time on CPU  ≤  own time       ≤  own time on record
//!                                      time blocked on record            ≤  time blocked   ≤  time blocked on record + time on CPU
//! nested calls are missing             nested time on record             ≤  nested time    ≤  duration
//! ```
//! What is on record of such a call is one end of its interval; this module keeps the other one. A median never decreases
//! when a value increases, so that the median over the other ends bounds the one that a whole record would have. With
//! `u` of `n` calls affected it lies at most `u / 2` places from the median of the others, however long the calls were.

use crate::{
    blocker::{self, Blocker},
    sample::Sample,
    thread_state::BlockedNs,
};
use analyze_run::multiset::{Counted, Multiset, counted, counted_of, merged, quantiles};

/// The calls of one kind of which rows may be missing. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Partial {
    /// Own times on record, and the least that they may be.
    own: [Multiset; 2],
    /// Times on CPU of calls that were never blocked on record.
    running: Multiset,
    /// Time blocked by class, and time on CPU, of the other calls.
    blocked: Vec<(BlockedNs, i64)>,
    /// Times in nested calls of another class on record, and the most that they may be.
    nested: [Multiset; 2],
}

/// What the medians of a kind may be at the other end of their intervals, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The least median of own time.
    pub own_least: f64,
    /// The least median of own time of the calls of the same group; `None` if there are too few.
    pub group_own_least: Option<f64>,
    /// The greatest median of time in nested calls of another class.
    pub nested_most: f64,
    /// The greatest median of time blocked, by class.
    pub blocked_most: [f64; blocker::COUNT],
}

/// Returns the median of the values of some sets, of which there are `count` with zeros that are not stored, once the
/// values `minus` among them are replaced by `plus`.
fn median(sets: &[&Multiset], count: u64, minus: Counted, plus: Counted) -> f64 {
    let stored = sets.iter().map(|set| set.count()).sum::<u64>();
    let zeros = vec![(0.0, count.saturating_sub(stored))];
    let [median] = quantiles(&merged(zeros, counted_of(sets)), &minus, &plus, [0.5]);
    median
}

impl Partial {
    /// Adds a call.
    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        if sample.missing.switches {
            self.own[0].add(sample.own);
            self.own[1].add(sample.own - sample.on_cpu);
            match sample.blocked.filter(|blocked| blocked.iter().any(|ns| *ns > 0)) {
                Some(blocked) => self.blocked.push((*blocked, sample.on_cpu)),
                None => self.running.add(sample.on_cpu),
            }
        }
        if sample.missing.nested {
            self.nested[0].add(sample.nested);
            self.nested[1].add(sample.dur);
        }
    }

    /// Returns the least median of own time, given all own times on record.
    pub(super) fn own_least(all: &[&Multiset], partial: &[&Self]) -> f64 {
        let [minus, plus] = [0, 1].map(|end| {
            let sets: Vec<&Multiset> = partial.iter().map(|of| &of.own[end]).collect();
            counted_of(&sets)
        });
        median(all, 0, minus, plus)
    }

    /// Returns the greatest median of nested time, given all nested times on record that are not zero, and the number of
    /// calls.
    pub(super) fn nested_most(all: &[&Multiset], count: u64, partial: &[&Self]) -> f64 {
        let [minus, plus] = [0, 1].map(|end| {
            let sets: Vec<&Multiset> = partial.iter().map(|of| &of.nested[end]).collect();
            counted_of(&sets)
        });
        median(all, count, minus, plus)
    }

    /// Returns the greatest median of the time blocked in a class, given all such times on record that are not zero, and
    /// the number of calls.
    pub(super) fn blocked_most(blocker: Blocker, all: &[&Multiset], count: u64, partial: &[&Self]) -> f64 {
        let class = blocker as usize;
        let running: Vec<&Multiset> = partial.iter().map(|of| &of.running).collect();
        let blocked = || partial.iter().flat_map(|of| &of.blocked);
        let zeros = running.iter().map(|set| set.count()).sum::<u64>();
        let on_record = counted(blocked().map(|(by_class, _)| by_class[class] as f64).collect());
        let most = counted(blocked().map(|(by_class, on_cpu)| (by_class[class] + on_cpu) as f64).collect());
        median(all, count, merged(vec![(0.0, zeros)], on_record), merged(counted_of(&running), most))
    }
}
