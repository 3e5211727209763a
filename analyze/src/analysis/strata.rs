//! What a call usually takes: the yardstick that slow calls are measured with.
//!
//! A call's *own time* is its duration without what the scheduler, a throttled group or a stop took from it:
//! a machine under load does not move the yardstick. Medians of own time are taken over calls of one kind:
//! function × direction × nested or not × phase. Where those are fewer than [`MIN_CALLS`], phase, nesting and
//! direction are given up, in this order. A finer *stratum* within the kind, by size class and first call,
//! tells what such a call costs; it is used where it has enough calls.

use std::collections::HashMap;

use super::{
    blocker::{self, Blocker},
    quantile::{median_with_zeros, quantile},
};

/// Fewer calls allow no statement.
pub(crate) const MIN_CALLS: usize = 10;

/// What sets calls apart. Numbers stand for names; `None`: it does not apply, or was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) op: u32,
    pub(crate) direction: Option<u32>,
    pub(crate) nested: Option<bool>,
    pub(crate) phase: Option<u32>,
    /// Binary logarithm of the bytes.
    pub(crate) size_class: Option<u32>,
    pub(crate) first_call: bool,
}

impl Kind {
    /// The kind without what only explains a cost, at a level: 0 is the finest.
    fn at(self, level: usize) -> Self {
        Self {
            op: self.op,
            direction: self.direction.filter(|_| level < 3),
            nested: self.nested.filter(|_| level < 2),
            phase: self.phase.filter(|_| level < 1),
            size_class: None,
            first_call: false,
        }
    }
}

const LEVELS: usize = 4;

/// One call as the yardstick sees it, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) own: f64,
    /// Time in nested calls of another class.
    pub(crate) nested: f64,
    pub(crate) blocked: [f64; blocker::COUNT],
}

/// Samples of one kind. Zeros of what is mostly zero are not stored.
#[derive(Clone, Debug, Default)]
struct Samples {
    own: Vec<f64>,
    nested: Vec<f64>,
    blocked: [Vec<f64>; blocker::COUNT],
}

/// What is usual.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usual {
    pub(crate) calls_count: usize,
    /// Median of own time.
    pub(crate) own: f64,
    /// Median time in nested calls of another class.
    pub(crate) nested: f64,
    /// Median time blocked, by class.
    pub(crate) blocked: [f64; blocker::COUNT],
}

/// The yardsticks of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Baseline {
    /// Of its kind, as fine as there are calls for.
    pub(crate) kind: Usual,
    /// Median own time of calls of the same size class and first or not; `None`: too few.
    pub(crate) stratum_own: Option<f64>,
}

impl Baseline {
    /// What a call should take: no more than its kind, and no more than its stratum.
    pub(crate) fn expected(&self) -> f64 {
        self.stratum_own.map_or(self.kind.own, |own| own.min(self.kind.own))
    }
}

/// Collects samples and tells what is usual.
#[derive(Debug, Default)]
pub(crate) struct Strata {
    numbers: HashMap<Kind, u32>,
    kinds: Vec<(Kind, Samples)>,
}

impl Strata {
    /// Adds a call; the number of its kind.
    pub(crate) fn add(&mut self, kind: Kind, sample: &Sample) -> u32 {
        let next = self.kinds.len() as u32;
        let number = *self.numbers.entry(kind).or_insert(next);
        if number == next {
            self.kinds.push((kind, Samples::default()));
        }
        let samples = &mut self.kinds[number as usize].1;
        samples.own.push(sample.own);
        if sample.nested > 0.0 {
            samples.nested.push(sample.nested);
        }
        for (list, ns) in samples.blocked.iter_mut().zip(sample.blocked) {
            if ns > 0.0 {
                list.push(ns);
            }
        }
        number
    }

    /// The baseline of every kind, by its number.
    pub(crate) fn baselines(&self) -> Vec<Baseline> {
        let mut members: HashMap<(usize, Kind), Vec<usize>> = HashMap::new();
        for (number, (kind, _)) in self.kinds.iter().enumerate() {
            for level in 0..LEVELS {
                members.entry((level, kind.at(level))).or_default().push(number);
            }
        }
        let count = |key: &(usize, Kind)| {
            members.get(key).map_or(0, |of| of.iter().map(|number| self.kinds[*number].1.own.len()).sum())
        };
        let mut usual: HashMap<(usize, Kind), Usual> = HashMap::new();
        self.kinds
            .iter()
            .map(|(kind, samples)| {
                let level = (0..LEVELS).find(|level| count(&(*level, kind.at(*level))) >= MIN_CALLS);
                let level = level.unwrap_or(LEVELS - 1);
                let key = (level, kind.at(level));
                let of_kind = *usual
                    .entry(key)
                    .or_insert_with(|| self.usual(members.get(&key).map_or(&[][..], Vec::as_slice)));
                let enough = samples.own.len() >= MIN_CALLS;
                let stratum_own = enough.then(|| quantile(&mut samples.own.clone(), 0.5));
                Baseline { kind: of_kind, stratum_own }
            })
            .collect()
    }

    fn usual(&self, members: &[usize]) -> Usual {
        let all = |list: &dyn Fn(&Samples) -> &Vec<f64>| -> Vec<f64> {
            members.iter().flat_map(|number| list(&self.kinds[*number].1)).copied().collect()
        };
        let mut own = all(&|samples| &samples.own);
        let calls_count = own.len();
        Usual {
            calls_count,
            own: quantile(&mut own, 0.5),
            nested: median_with_zeros(&mut all(&|samples| &samples.nested), calls_count),
            blocked: Blocker::ALL.map(|blocker| {
                median_with_zeros(&mut all(&|samples| &samples.blocked[blocker as usize]), calls_count)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(phase: Option<u32>, size_class: Option<u32>) -> Kind {
        Kind { op: 1, direction: None, nested: Some(false), phase, size_class, first_call: false }
    }

    fn sample(own: f64) -> Sample {
        Sample { own, nested: 0.0, blocked: [0.0; blocker::COUNT] }
    }

    #[test]
    fn few_calls_are_measured_with_a_wider_kind() {
        let mut strata = Strata::default();
        for _ in 0..20 {
            strata.add(kind(Some(1), Some(3)), &sample(10.0));
        }
        let rare = strata.add(kind(Some(2), Some(3)), &sample(500.0));
        let baselines = strata.baselines();
        assert_eq!(baselines[rare as usize].kind.calls_count, 21, "the phase was given up");
        assert_eq!((baselines[0].kind.own, baselines[0].stratum_own), (10.0, Some(10.0)));
        assert_eq!(baselines[rare as usize].stratum_own, None);
    }

    #[test]
    fn small_copies_among_large_ones_have_their_own_measure() {
        let mut strata = Strata::default();
        let small = strata.add(kind(None, Some(3)), &sample(3.0));
        for _ in 0..20 {
            strata.add(kind(None, Some(3)), &sample(3.0));
            strata.add(kind(None, Some(24)), &sample(900.0));
            strata.add(kind(None, Some(24)), &sample(900.0));
        }
        let baselines = strata.baselines();
        assert_eq!(baselines[small as usize].kind.own, 900.0);
        assert_eq!(baselines[small as usize].expected(), 3.0);
    }
}
