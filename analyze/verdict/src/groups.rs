//! The baseline that a call's duration is compared with, estimated from comparable calls.
//!
//! A call's *own time* is its duration without the time in which it was preempted, runnable, throttled or
//! stopped, so that load on the machine does not move the baseline. Medians of own time are taken over calls
//! of one kind: function × direction × nested or not × phase. If a kind has fewer than [`MIN_CALLS`] calls,
//! it is widened by dropping phase, nesting and direction, in this order. A finer *group* within the kind, by
//! size class and first call, gives the cost of just such a call; it is used if it has enough calls.

use std::collections::HashMap;

use crate::{
    blocker::{self, Blocker},
    multiset::{Multiset, quantile},
    thread_state::BlockedNs,
};

/// Minimum number of calls for a statement.
pub const MIN_CALLS: u64 = 10;

/// What distinguishes calls that are compared with one another. Functions, directions and phases are numbers
/// in `Names`; `None` means that a property does not apply, or was dropped to widen the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// Run.
    pub run: u32,
    /// Function.
    pub op: u32,
    /// Direction of a copy.
    pub direction: Option<u32>,
    /// True if the call is nested in another one.
    pub nested: Option<bool>,
    /// The innermost marked range that the call began in.
    pub phase: Option<u32>,
    /// Binary logarithm of the size in bytes, rounded down.
    pub size_class: Option<u32>,
    /// True if the call is the first launch of its kernel.
    pub first_call: bool,
}

impl Kind {
    /// Returns the kind without what only explains a cost (size class and first call), widened to `level`: 0
    /// is the finest.
    fn at(self, level: usize) -> Self {
        Self {
            run: self.run,
            op: self.op,
            direction: self.direction.filter(|_| level < 3),
            nested: self.nested.filter(|_| level < 2),
            phase: self.phase.filter(|_| level < 1),
            size_class: None,
            first_call: false,
        }
    }
}

/// Number of levels that a kind can be widened to.
const LEVELS: usize = 4;

/// One call as the baseline sees it. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Own time.
    pub own: i64,
    /// True if nothing was taken from the call, so that its own time is its duration.
    pub is_whole: bool,
    /// Time in nested calls of another class.
    pub nested: i64,
    /// Time blocked, by class; `None` if the call was never blocked.
    pub blocked: Option<&'a BlockedNs>,
}

/// Samples of one kind. Zeros are not stored where most values are zero.
#[derive(Clone, Debug, Default)]
struct Samples {
    /// Own times of calls from which nothing was taken (`whole`), and of the others (`rest`).
    whole: Multiset,
    rest: Multiset,
    nested: Multiset,
    /// Time blocked, by class; empty if no call was blocked.
    blocked: Vec<Multiset>,
}

impl Samples {
    fn count(&self) -> u64 {
        self.whole.count() + self.rest.count()
    }

    fn median(&self) -> f64 {
        quantile(&[&self.whole, &self.rest], 0, 0.5)
    }
}

/// The usual times of a kind of call, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usual {
    /// Number of calls that the medians are taken over.
    pub calls_count: u64,
    /// Median of own time.
    pub own: f64,
    /// Median of the time in nested calls of another class.
    pub nested: f64,
    /// Median of the time blocked, by class.
    pub blocked: [f64; blocker::COUNT],
}

/// The baseline of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Baseline {
    /// Usual times of the kind, which is as fine as the number of calls allows.
    pub kind: Usual,
    /// Median own time in nanoseconds of the calls of the same group (size class, first call); `None` if
    /// there are too few.
    pub group_own: Option<f64>,
}

impl Baseline {
    /// Returns the baseline in nanoseconds: the lower one of the medians of the kind and of the group.
    pub fn expected(&self) -> f64 {
        self.group_own.map_or(self.kind.own, |own| own.min(self.kind.own))
    }
}

/// Collects samples, and computes baselines.
#[derive(Debug, Default)]
pub struct Groups {
    numbers: HashMap<Kind, u32>,
    kinds: Vec<(Kind, Samples)>,
    /// Numbers of the kinds that become the same one at a level.
    members: HashMap<(usize, Kind), Vec<u32>>,
}

impl Groups {
    /// Returns the number of a kind, which is a new one if the kind was not known.
    pub fn number(&mut self, kind: Kind) -> u32 {
        let next = self.kinds.len() as u32;
        let number = *self.numbers.entry(kind).or_insert(next);
        if number == next {
            self.kinds.push((kind, Samples::default()));
            for level in 0..LEVELS {
                self.members.entry((level, kind.at(level))).or_default().push(number);
            }
        }
        number
    }

    /// Adds a call of a kind, and returns the number of the kind's calls so far.
    pub fn add(&mut self, number: u32, sample: &Sample<'_>) -> u64 {
        let samples = &mut self.kinds[number as usize].1;
        if sample.is_whole { &mut samples.whole } else { &mut samples.rest }.add(sample.own);
        if sample.nested > 0 {
            samples.nested.add(sample.nested);
        }
        let blocked = sample.blocked.into_iter().flatten().enumerate();
        for (class, ns) in blocked.filter(|(_, ns)| **ns > 0) {
            if samples.blocked.is_empty() {
                samples.blocked.resize_with(blocker::COUNT, Multiset::default);
            }
            samples.blocked[class].add(*ns);
        }
        samples.count()
    }

    /// Returns the durations of those calls of a kind from which nothing was taken.
    pub fn whole(&self, number: u32) -> &Multiset {
        &self.kinds[number as usize].1.whole
    }

    /// Returns every kind, in the order of their numbers.
    pub fn kinds(&self) -> impl ExactSizeIterator<Item = Kind> {
        self.kinds.iter().map(|(kind, _)| *kind)
    }

    /// Returns the sets of own times of some kinds.
    fn own(&self, members: &[u32]) -> Vec<&Multiset> {
        let samples = members.iter().map(|number| &self.kinds[*number as usize].1);
        samples.flat_map(|samples| [&samples.whole, &samples.rest]).collect()
    }

    /// Returns the baseline of a kind in nanoseconds by the calls seen so far; `None` if there are too few.
    pub fn expected_so_far(&mut self, number: u32) -> Option<f64> {
        let (kind, samples) = &self.kinds[number as usize];
        if samples.count() < MIN_CALLS {
            return None;
        }
        let of_kind = self.members.get(&(0, kind.at(0))).map_or(&[][..], Vec::as_slice);
        for member in of_kind {
            let samples = &mut self.kinds[*member as usize].1;
            samples.whole.count_fresh();
            samples.rest.count_fresh();
        }
        let samples = &self.kinds[number as usize].1;
        Some(samples.median().min(quantile(&self.own(of_kind), 0, 0.5)))
    }

    /// Returns the baseline of every kind, in the order of their numbers.
    pub fn baselines(&self) -> Vec<Baseline> {
        let members = |key: &(usize, Kind)| self.members.get(key).map_or(&[][..], Vec::as_slice);
        let count = |key: &(usize, Kind)| self.own(members(key)).iter().map(|own| own.count()).sum::<u64>();
        let mut usual: HashMap<(usize, Kind), Usual> = HashMap::new();
        self.kinds
            .iter()
            .map(|(kind, samples)| {
                let level = (0..LEVELS).find(|level| count(&(*level, kind.at(*level))) >= MIN_CALLS);
                let level = level.unwrap_or(LEVELS - 1);
                let key = (level, kind.at(level));
                let of_kind = *usual.entry(key).or_insert_with(|| self.usual(members(&key)));
                let enough = samples.count() >= MIN_CALLS;
                Baseline { kind: of_kind, group_own: enough.then(|| samples.median()) }
            })
            .collect()
    }

    /// Returns the usual times over some kinds.
    fn usual(&self, members: &[u32]) -> Usual {
        let own = self.own(members);
        let calls_count = own.iter().map(|own| own.count()).sum();
        let with_zeros = |sets: &[&Multiset]| {
            let others = sets.iter().map(|set| set.count()).sum::<u64>();
            quantile(sets, calls_count - others.min(calls_count), 0.5)
        };
        let samples = || members.iter().map(|number| &self.kinds[*number as usize].1);
        Usual {
            calls_count,
            own: quantile(&own, 0, 0.5),
            nested: with_zeros(&samples().map(|samples| &samples.nested).collect::<Vec<_>>()),
            blocked: Blocker::ALL.map(|blocker| {
                let of_class = samples().filter_map(|samples| samples.blocked.get(blocker as usize));
                with_zeros(&of_class.collect::<Vec<_>>())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(phase: Option<u32>, size_class: Option<u32>) -> Kind {
        Kind { run: 0, op: 1, direction: None, nested: Some(false), phase, size_class, first_call: false }
    }

    fn sample(own: i64) -> Sample<'static> {
        Sample { own, is_whole: own % 2 == 0, nested: 0, blocked: None }
    }

    fn add(groups: &mut Groups, kind: Kind, own: i64) -> u32 {
        let number = groups.number(kind);
        groups.add(number, &sample(own));
        number
    }

    #[test]
    fn few_calls_are_measured_with_a_wider_kind() {
        let mut groups = Groups::default();
        for _ in 0..20 {
            add(&mut groups, kind(Some(1), Some(3)), 10);
        }
        let rare = add(&mut groups, kind(Some(2), Some(3)), 500);
        let baselines = groups.baselines();
        assert_eq!(baselines[rare as usize].kind.calls_count, 21, "the phase was given up");
        assert_eq!((baselines[0].kind.own, baselines[0].group_own), (10.0, Some(10.0)));
        assert_eq!(baselines[rare as usize].group_own, None);
    }

    #[test]
    fn small_copies_among_large_ones_have_their_own_measure() {
        let mut groups = Groups::default();
        let small = add(&mut groups, kind(None, Some(3)), 3);
        for _ in 0..20 {
            add(&mut groups, kind(None, Some(3)), 3);
            add(&mut groups, kind(None, Some(24)), 900);
            add(&mut groups, kind(None, Some(24)), 900);
        }
        let baselines = groups.baselines();
        assert_eq!(baselines[small as usize].kind.own, 900.0);
        assert_eq!(baselines[small as usize].expected(), 3.0);
    }
}
