//! The baseline that a call's duration is compared with, estimated from comparable calls.
//!
//! A call's *own time* is its duration without the time in which it was preempted, runnable, throttled or
//! stopped, so that load on the machine does not move the baseline. Medians of own time are taken over calls
//! of one kind: function × direction × nested or not × phase. If a kind has fewer than [`MIN_CALLS`] calls,
//! it is widened by dropping phase, nesting and direction, in this order. A finer *group* within the kind, by
//! size class and first call, gives the cost of just such a call; it is used if it has enough calls.
//!
//! Own time that is not on record to the full is too long, never too short, so that a baseline is never below the one that a
//! whole record would give, and no call is slow that would not be slow by that one. How far other medians may be off is
//! in `partial`.

use std::collections::HashMap;

use crate::{
    blocker::{self, Blocker},
    partial::{Bounds, Partial},
    sample::Sample,
};
use analyze_run::multiset::{Multiset, quantile};

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

/// Samples of one kind. Zeros are not stored where most values are zero.
#[derive(Clone, Debug, Default)]
struct Samples {
    /// Own times of calls from which nothing was taken (`whole`), and of the others (`rest`).
    whole: Multiset,
    rest: Multiset,
    nested: Multiset,
    /// Time blocked, by class; empty if no call was blocked.
    blocked: Vec<Multiset>,
    /// The calls of which rows may be missing; `None` if there is no such call.
    partial: Option<Box<Partial>>,
}

impl Samples {
    fn count(&self) -> u64 {
        self.whole.count() + self.rest.count()
    }

    fn median(&self) -> f64 {
        quantile(&[&self.whole, &self.rest], 0, 0.5)
    }
}

/// The usual times of a kind of call by what is on record, in nanoseconds.
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
    /// What the medians may be if rows are missing of some of the calls; `None` if none are.
    pub bounds: Option<Bounds>,
}

impl Baseline {
    /// Returns the baseline in nanoseconds: the lower one of the medians of the kind and of the group.
    pub fn expected(&self) -> f64 {
        self.group_own.map_or(self.kind.own, |own| own.min(self.kind.own))
    }

    /// Returns the least that the baseline may be, in nanoseconds, if rows are missing.
    pub fn expected_least(&self) -> f64 {
        let Some(Bounds { own_least, group_own_least, .. }) = self.bounds else { return self.expected() };
        group_own_least.map_or(own_least, |own| own.min(own_least))
    }

    /// Returns the least that the median own time of the group may be, in nanoseconds; `None` if there are too few calls.
    pub fn group_own_least(&self) -> Option<f64> {
        self.bounds.map_or(self.group_own, |bounds| bounds.group_own_least)
    }

    /// Returns the greatest that the medians of the time blocked may be, by class, in nanoseconds.
    pub fn blocked_most(&self) -> [f64; blocker::COUNT] {
        self.bounds.map_or(self.kind.blocked, |bounds| bounds.blocked_most)
    }

    /// Returns the greatest that the median of the time in nested calls may be, in nanoseconds.
    pub fn nested_most(&self) -> f64 {
        self.bounds.map_or(self.kind.nested, |bounds| bounds.nested_most)
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
        if sample.missing.is_any() {
            samples.partial.get_or_insert_default().add(sample);
        }
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
        let mut usual: HashMap<(usize, Kind), (Usual, Option<Bounds>)> = HashMap::new();
        self.kinds
            .iter()
            .map(|(kind, samples)| {
                let level = (0..LEVELS).find(|level| count(&(*level, kind.at(*level))) >= MIN_CALLS);
                let level = level.unwrap_or(LEVELS - 1);
                let key = (level, kind.at(level));
                let (of_kind, bounds) = *usual.entry(key).or_insert_with(|| self.usual(members(&key)));
                let enough = samples.count() >= MIN_CALLS;
                let least = || match &samples.partial {
                    Some(partial) => Partial::own_least(&[&samples.whole, &samples.rest], &[&**partial]),
                    None => samples.median(),
                };
                Baseline {
                    kind: of_kind,
                    group_own: enough.then(|| samples.median()),
                    bounds: bounds.map(|of_kind| Bounds { group_own_least: enough.then(least), ..of_kind }),
                }
            })
            .collect()
    }

    /// Returns the usual times over some kinds, and their bounds if rows are missing of some of their calls.
    fn usual(&self, members: &[u32]) -> (Usual, Option<Bounds>) {
        let own = self.own(members);
        let calls_count = own.iter().map(|own| own.count()).sum();
        let with_zeros = |sets: &[&Multiset]| {
            let others = sets.iter().map(|set| set.count()).sum::<u64>();
            quantile(sets, calls_count - others, 0.5)
        };
        let samples = || members.iter().map(|number| &self.kinds[*number as usize].1);
        let nested: Vec<&Multiset> = samples().map(|samples| &samples.nested).collect();
        let blocked = Blocker::ALL.map(|blocker| {
            let of_class = samples().filter_map(|samples| samples.blocked.get(blocker as usize));
            of_class.collect::<Vec<_>>()
        });
        let usual = Usual {
            calls_count,
            own: quantile(&own, 0, 0.5),
            nested: with_zeros(&nested),
            blocked: std::array::from_fn(|class| with_zeros(&blocked[class])),
        };
        let partial: Vec<&Partial> = samples().filter_map(|samples| samples.partial.as_deref()).collect();
        let bounds = (!partial.is_empty()).then(|| Bounds {
            own_least: Partial::own_least(&own, &partial),
            group_own_least: None,
            nested_most: Partial::nested_most(&nested, calls_count, &partial),
            blocked_most: Blocker::ALL.map(|blocker| {
                Partial::blocked_most(blocker, &blocked[blocker as usize], calls_count, &partial)
            }),
        });
        (usual, bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{missing::Missing, thread_state::BlockedNs};
    use analyze_run::random::Random;

    fn kind(phase: Option<u32>, size_class: Option<u32>) -> Kind {
        Kind { run: 0, op: 1, direction: None, nested: Some(false), phase, size_class, first_call: false }
    }

    fn sample(own: i64) -> Sample<'static> {
        let (dur, missing) = (own, Missing::default());
        Sample { dur, on_cpu: own, own, is_whole: own % 2 == 0, nested: 0, blocked: None, missing }
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

    #[test]
    fn a_kind_gives_up_its_phase_first_then_its_nesting_then_its_direction() {
        let kind = |direction, nested, phase| Kind {
            direction: Some(direction),
            nested: Some(nested),
            ..kind(Some(phase), None)
        };
        // Nine calls, and so many others that differ in one property.
        let (own, others) =
            (kind(1, false, 1), [(kind(1, false, 2), 1), (kind(1, true, 1), 5), (kind(2, false, 1), 7)]);
        for (with, expected) in [
            (vec![0], 10),
            (vec![1], 14),
            (vec![2], 16),
            (vec![0, 1, 2], 10),
            (vec![1, 2], 14),
            // There are no others: it is as it is.
            (vec![], 9),
        ] {
            let mut groups = Groups::default();
            let number = (0..9).map(|_| add(&mut groups, own, 4)).max().unwrap();
            for (kind, count) in with.iter().map(|other| others[*other]) {
                for _ in 0..count {
                    add(&mut groups, kind, 4);
                }
            }
            let baseline = groups.baselines()[number as usize];
            assert_eq!((baseline.kind.calls_count, baseline.group_own), (expected, None), "{with:?}");
            assert_eq!(groups.expected_so_far(number), None);
            add(&mut groups, own, 4);
            assert_eq!(groups.baselines()[number as usize].group_own, Some(4.0), "ten calls are enough");
            assert_eq!(groups.expected_so_far(number), Some(4.0));
        }
    }

    #[test]
    fn medians_count_the_calls_without_nested_and_blocked_time() {
        for (with, expected) in [(4, 0.0), (5, 3.5), (6, 7.0)] {
            let mut groups = Groups::default();
            let number = groups.number(kind(None, None));
            let mut blocked = [0; blocker::COUNT];
            blocked[2] = 7;
            for call in 0..10 {
                let has = call < with;
                let nested = if has { 7 } else { 0 };
                groups.add(number, &Sample { nested, blocked: has.then_some(&blocked), ..sample(20) });
            }
            let usual = groups.baselines()[0].kind;
            assert_eq!(
                (usual.nested, usual.blocked[2], usual.blocked[1]),
                (expected, expected, 0.0),
                "{with}"
            );
        }
    }

    #[test]
    fn bounds_are_the_medians_of_the_other_ends() {
        let bounds = |blocked: Option<&BlockedNs>| {
            let mut groups = Groups::default();
            let number = groups.number(kind(None, None));
            for call in 0..10 {
                let is_missing = call < 5;
                let missing = Missing { switches: is_missing, nested: is_missing };
                let blocked = blocked.filter(|_| is_missing);
                groups.add(number, &Sample { on_cpu: 60, missing, blocked, ..sample(100) });
            }
            groups.baselines()[0]
        };
        let running = bounds(None);
        assert_eq!(
            (running.expected(), running.expected_least(), running.group_own_least()),
            (100.0, 70.0, Some(70.0))
        );
        assert_eq!((running.nested_most(), running.blocked_most()), (50.0, [30.0; blocker::COUNT]));
        let mut blocked = [0; blocker::COUNT];
        blocked[0] = 20;
        assert_eq!(bounds(Some(&blocked)).blocked_most()[..2], [40.0, 30.0]);
    }

    /// Hides what some calls were blocked for, as if rows of the scheduler were missing, and compares the bounds with the
    /// medians that everything on record has.
    #[test]
    fn bounds_contain_the_medians_of_a_whole_record() {
        let mut random = Random(5);
        for round in 0..300 {
            let (mut whole, mut part) = (Groups::default(), Groups::default());
            let calls_count = 10 + random.below(40);
            let share = random.unit();
            let kind = kind(None, None);
            let mut hidden_count = 0;
            for _ in 0..calls_count {
                let on_cpu = random.below(50) as i64;
                let mut blocked = [0; blocker::COUNT];
                blocked[random.below(2)] = random.below(100) as i64;
                let (taken, nested) = (random.below(30) as i64, random.below(40) as i64);
                let dur = on_cpu + taken + blocked.iter().sum::<i64>();
                let sample = Sample {
                    dur,
                    on_cpu,
                    own: dur - taken,
                    is_whole: taken == 0,
                    nested: nested.min(dur),
                    blocked: Some(&blocked),
                    missing: Missing::default(),
                };
                let number = whole.number(kind);
                whole.add(number, &sample);
                let missing = Missing { switches: random.unit() < share, nested: random.unit() < share };
                let mut less = blocked;
                let mut seen = Sample { missing, ..sample };
                if missing.switches {
                    // A part of each state is not on record, and seems to be time on CPU.
                    let gone = random.below(taken as usize + 1) as i64;
                    for ns in &mut less {
                        *ns = random.below(*ns as usize + 1) as i64;
                    }
                    let awake = blocked.iter().sum::<i64>() - less.iter().sum::<i64>();
                    seen = Sample {
                        on_cpu: on_cpu + gone + awake,
                        own: seen.own + gone,
                        is_whole: taken == gone,
                        blocked: Some(&less),
                        ..seen
                    };
                }
                if missing.nested {
                    seen.nested = random.below(seen.nested as usize + 1) as i64;
                }
                hidden_count += usize::from(missing.is_any());
                let number = part.number(kind);
                part.add(number, &seen);
            }
            let (whole, part) = (whole.baselines()[0], part.baselines()[0]);
            assert_eq!(part.bounds.is_some(), hidden_count > 0);
            assert_eq!((whole.bounds, whole.expected_least()), (None, whole.expected()));
            assert!(part.expected_least() <= whole.expected() && whole.expected() <= part.expected());
            assert!(part.kind.nested <= whole.kind.nested && whole.kind.nested <= part.nested_most());
            for (class, usual) in whole.kind.blocked.into_iter().enumerate() {
                let most = part.blocked_most()[class];
                assert!(part.kind.blocked[class] <= usual && usual <= most, "{round}: {usual} {most}");
            }
        }
    }
}
