//! Replays requests in every way that the record leaves open: other orders of the segments' addresses, and other
//! calls of `empty_cache()`. What all of them reserve is known; otherwise the range of what they reserve is.
//!
//! ```text
//! requests ─► one replay ─┬─► as the record suggests                          ─┐
//!  until a decision is    ├─► other addresses, every open release             ─┼─► the range of the outcomes
//!  not on record          ├─► other addresses, no open release                ─┤
//!                         └─► other addresses, each open release by chance  … ─┘
//! ```

use analyze_run::random::Random;
use rayon::iter::{IntoParallelRefMutIterator as _, ParallelIterator as _};

use super::{limits::is_request, private_pools::Scope, served::Served};
use crate::event::{Event, PoolId};

/// The number of replays once a decision is not on record.
const MEMBERS: usize = 64;
/// The probabilities with which members make a likely and a possible release, in turn.
const RATIOS: [(f64, f64); 12] = [
    (1.0, 0.0),
    (0.0, 0.0),
    (1.0, 1.0),
    (0.5, 0.0),
    (1.0, 0.2),
    (0.0, 0.01),
    (1.0, 0.05),
    (0.2, 0.0),
    (1.0, 0.01),
    (0.5, 0.1),
    (0.0, 0.1),
    (0.8, 0.01),
];
/// The probabilities with which members destroy a private pool when it may have been destroyed, in turn. Their number has no
/// divisor in common with that of [`RATIOS`].
const DESTROY_RATIOS: [f64; 5] = [0.0, 1.0, 0.3, 0.05, 0.0];
/// The blocks in all members at most: allocators with more have fewer members, but [`MIN_MEMBERS`] to begin with
/// and [`FEWEST_MEMBERS`] in the end.
const MAX_BLOCKS: usize = 2_000_000;
/// The smallest number of members, unless they have too many blocks.
const MIN_MEMBERS: usize = 8;
/// The smallest number of members that have too many blocks: the first one, and those with the lowest and the
/// highest peak.
const FEWEST_MEMBERS: usize = 3;
/// After these many steps of all members, half of the members are left out of what follows.
const MAX_STEPS: usize = 1 << 20;
/// The number of steps that each member takes before the next one takes them.
const CHUNK_STEPS: usize = 1 << 12;

/// Something that happens to every member.
#[derive(Clone, Copy, Debug)]
enum Step {
    Event(Event),
    /// A request that failed on record, and the smallest size in bytes that it can have had.
    Failed(Event, u64),
    Release(Scope, Release),
    MayDestroy(PoolId),
    ReleaseOfPool(PoolId, Causes),
}

/// What may have been released when memory of a private pool was released on record: the likely answer, and two others;
/// `None` means that nothing would be released now.
pub(super) type Causes = [Option<Scope>; 3];

/// One way in which the requests may have been served.
#[derive(Debug)]
struct Member {
    served: Served,
    random: Random,
    likely_ratio: f64,
    possible_ratio: f64,
    destroy_ratio: f64,
    /// 0 takes failed requests for as large as they can have been, 1 for any possible size.
    size_ratio: f64,
}

impl Member {
    fn step(&mut self, step: &Step) {
        if self.served.ended.is_some() {
            return;
        }
        match *step {
            Step::Event(event) => self.served.event(&event),
            Step::Failed(event, least_bytes) => {
                let more_bytes = event.size_bytes.saturating_sub(least_bytes);
                // As many members take either end of the range as a size within it.
                let ratio = (2.0 * self.random.unit() - 0.5).clamp(0.0, 1.0);
                let less_bytes = (more_bytes as f64 * ratio * self.size_ratio) as u64;
                let size_bytes = event.size_bytes.saturating_sub(less_bytes.min(more_bytes));
                self.served.event(&Event { size_bytes, ..event });
            }
            Step::MayDestroy(pool) => {
                if !self.served.policy.is_destroyed(pool) && self.random.unit() < self.destroy_ratio {
                    self.served.release(Scope::Pool(pool));
                }
            }
            Step::ReleaseOfPool(pool, causes) => {
                let was_destroyed = self.served.policy.is_destroyed(pool);
                self.served.policy.destroy_pool(pool);
                let [likely, others @ ..] = causes;
                // A pool is destroyed once.
                let is_possible = !was_destroyed || likely != Some(Scope::Pool(pool));
                let cause = match is_possible && self.random.unit() < self.likely_ratio {
                    true => likely,
                    false => others[self.random.below(others.len())],
                };
                cause.into_iter().for_each(|scope| self.served.release(scope));
            }
            Step::Release(scope, Release::Certain) => self.served.release(scope),
            Step::Release(scope, release) => {
                let ratio = if release == Release::Likely { self.likely_ratio } else { self.possible_ratio };
                if self.served.policy.can_release(scope) && self.random.unit() < ratio {
                    self.served.release(scope);
                }
            }
        }
    }

    fn peak_bytes(&self) -> u64 {
        self.served.counts().peak_reserved_bytes
    }
}

/// The requests of one allocator, served under one set of settings in every way that is open.
#[derive(Debug)]
pub struct Ensemble {
    /// The device's room in bytes, if releases on record were made because it was full.
    room: Option<Range<u64>>,
    /// The first one is the replay that the record suggests: segments have their recorded addresses, and memory
    /// is released when it was.
    members: Vec<Member>,
    /// The steps that the members have not taken yet; a single member takes them at once.
    steps: Vec<Step>,
    /// The number of steps of all members since half of them were left out.
    steps_count: usize,
}

/// Whether memory was released at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The program released unused memory.
    Certain,
    /// Memory was released on record, but perhaps only because the device was full.
    Likely,
    /// The program may have called `empty_cache()` when nothing was unused.
    Possible,
}

/// The least and the greatest of some values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<T> {
    /// The least value.
    pub min: T,
    /// The greatest value.
    pub max: T,
}

impl<T: Copy + PartialEq> Range<T> {
    /// Returns the value if there is only one.
    pub fn single(&self) -> Option<T> {
        (self.min == self.max).then_some(self.min)
    }
}

impl Ensemble {
    /// Begins with one replay. `room` is how many bytes the device had room for, if releases on record were
    /// made because it was full.
    pub fn new(served: Served, room: Option<Range<u64>>) -> Self {
        let random = Random::nth(0, 0);
        let (likely_ratio, possible_ratio, destroy_ratio, size_ratio) = (1.0, 0.0, 0.0, 0.0);
        let first = Member { served, random, likely_ratio, possible_ratio, destroy_ratio, size_ratio };
        Self { room, members: vec![first], steps: Vec::new(), steps_count: 0 }
    }

    /// Returns every replay; the first one is the one that the record suggests.
    pub fn all(&self) -> impl Iterator<Item = &Served> {
        self.members.iter().map(|member| &member.served)
    }

    /// Returns the range of a value over all replays.
    pub fn range<T: Copy + Ord>(&self, value: impl Fn(&Served) -> T) -> Range<T> {
        let first = value(&self.members[0].served);
        self.all().map(value).fold(Range { min: first, max: first }, |range, value| Range {
            min: range.min.min(value),
            max: range.max.max(value),
        })
    }

    /// Returns whether the record leaves open what happens next.
    fn is_open(&self, step: &Step) -> bool {
        let served = &self.members[0].served;
        served.ended.is_none()
            && match step {
                Step::Release(scope, release) => {
                    *release != Release::Certain && served.policy.can_release(*scope)
                }
                Step::MayDestroy(pool) => {
                    !served.policy.is_destroyed(*pool) && served.policy.can_release(Scope::Pool(*pool))
                }
                Step::ReleaseOfPool(pool, causes) => {
                    let effect = |scope| served.policy.effect_once_destroyed(scope, *pool);
                    let effects = causes.map(|scope| scope.map(effect).unwrap_or_default());
                    effects.iter().any(|effect| *effect != effects[0])
                }
                Step::Event(event) if is_request(event) => {
                    let is_full =
                        |room: Range<u64>| served.policy.needs_more_than(room.min, event.size_bytes);
                    self.room.is_some_and(is_full)
                        || served.policy.has_tie(event.size_bytes, event.stream, event.pool)
                        || served.policy.is_release_open(event.size_bytes, event.stream, event.pool)
                }
                Step::Failed(event, least_bytes) => {
                    let round = |bytes| served.policy.settings.round(bytes);
                    round(*least_bytes) != round(event.size_bytes)
                }
                Step::Event(_) => false,
            }
    }

    fn fork(&mut self) {
        let first = &self.members[0].served;
        let count = (MAX_BLOCKS / first.policy.blocks.len().max(1)).clamp(MIN_MEMBERS, MEMBERS);
        let others = (0..count).map(|number| {
            let mut served = first.clone();
            served.shuffle(Random::nth(1, number as u64));
            let mut random = Random::nth(2, number as u64);
            let (likely_ratio, possible_ratio) = RATIOS[number % RATIOS.len()];
            let destroy_ratio = DESTROY_RATIOS[number % DESTROY_RATIOS.len()];
            served.policy.releases_in_pools &= random.unit() < 0.5;
            // Where no likely release is made, the device was full.
            if let Some(Range { min, max }) = self.room.filter(|_| likely_ratio == 0.0) {
                let share = (max.saturating_sub(min) as f64 * random.unit()) as u64;
                served.policy.set_capacity(min.saturating_add(share));
            }
            Member { served, random, likely_ratio, possible_ratio, destroy_ratio, size_ratio: 1.0 }
        });
        let others: Vec<Member> = others.collect();
        self.members.extend(others);
    }

    fn take(&mut self, step: Step) {
        if self.members.len() == 1 && self.is_open(&step) {
            self.fork();
        }
        match &mut self.members[..] {
            [only] => only.step(&step),
            _ => self.steps.push(step),
        }
        if self.steps.len() >= CHUNK_STEPS {
            self.catch_up();
        }
    }

    /// Takes the steps that have not been taken.
    pub(super) fn catch_up(&mut self) {
        let steps = std::mem::take(&mut self.steps);
        self.members.par_iter_mut().for_each(|member| steps.iter().for_each(|step| member.step(step)));
        self.steps_count += steps.len() * self.members.len();
        if self.steps_count > MAX_STEPS {
            self.steps_count = 0;
            self.thin(2 * MIN_MEMBERS);
        }
        if self.members.iter().map(|member| member.served.policy.blocks.len()).sum::<usize>() > MAX_BLOCKS {
            self.thin(FEWEST_MEMBERS + 1);
        }
    }

    /// Leaves out half of the members, if there are so many, so that long runs end and large ones fit into
    /// memory, but neither the first one nor one with the lowest and one with the highest peak.
    fn thin(&mut self, least_count: usize) {
        if self.members.len() < least_count {
            return;
        }
        let peaks = || self.members.iter().map(Member::peak_bytes).enumerate();
        let lowest = peaks().min_by_key(|(_, peak)| *peak);
        let highest = peaks().max_by_key(|(_, peak)| *peak);
        let kept: Vec<usize> = [lowest, highest].into_iter().flatten().map(|(number, _)| number).collect();
        let mut number = 0;
        self.members.retain(|_| {
            number += 1;
            number % 2 == 1 || kept.contains(&(number - 1))
        });
    }

    /// Replays the next event.
    pub(super) fn event(&mut self, event: &Event) {
        self.take(Step::Event(*event));
    }

    /// Replays a request that failed on record, which has at least `least_bytes` and at most the event's.
    pub(super) fn failed(&mut self, event: &Event, least_bytes: u64) {
        self.take(Step::Failed(*event, least_bytes));
    }

    /// Follows a time at which a private pool may have been destroyed.
    pub(super) fn may_destroy(&mut self, pool: PoolId) {
        self.take(Step::MayDestroy(pool));
    }

    /// Follows a release of memory of a private pool, which shows that the pool has been destroyed.
    pub(super) fn release_of_pool(&mut self, pool: PoolId, causes: Causes) {
        self.take(Step::ReleaseOfPool(pool, causes));
    }

    /// Releases what is unused.
    pub(super) fn release(&mut self, scope: Scope, release: Release) {
        self.take(Step::Release(scope, release));
    }
}
