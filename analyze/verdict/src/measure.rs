//! What one reading learns of all calls, before any is classified: baselines of each kind of call, the cost
//! of copies, the tasks that took the CPU from calls in the whole run, and the calls that may be slow.
//!
//! Whether a call is slow is known only at the end. Calls that took longer than half of the limit by the
//! calls seen so far are kept as *candidates* (64 bytes each). The longest of the others is noted; if even
//! one of them turns out to be slow at the end, the run is read once more with the final limits (`classify`).

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use rayon::prelude::*;
use trace_schema::Class;

use crate::{
    call::Call,
    copy_cost::Points,
    groups::{Groups, Kind},
    missing::Missing,
    off_cpu_totals::Totals,
    params::Params,
    sample::Sample,
    schedule::{Schedule, ThreadKey},
    time_split::Parts,
    walk::Walker,
};
use analyze_run::{coverage::Coverage, hash::HashMap, multiset::Multiset};

/// Number of calls of a kind before its first limit is set; until then, all of them are kept.
const FIRST_CALLS: u64 = 4096;
/// Number of candidates above which those below the current limit of their kind are dropped.
const MANY_CANDIDATES: usize = 1 << 20;
/// Share of the current limit for a slow call above which a call is kept.
const MARGIN_RATIO: f64 = 0.5;

/// A call that may be slow.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The number of the call's thread in the schedule.
    slot: u32,
    /// The number of the call's kind in [`Groups`].
    pub kind: u32,
    /// Start in nanoseconds.
    pub ts: i64,
    /// Duration in nanoseconds.
    pub dur: i64,
    /// Size in bytes, if the call has one.
    pub size: Option<i64>,
    /// Time in nested calls in nanoseconds, if the longest of them is of another class; otherwise 0.
    pub nested_ns: i64,
    /// Function of the longest nested call, or [`NONE`].
    child: u32,
    /// Number of calls that this one is nested in; 0 for a top-level call.
    pub depth: u32,
}

impl Candidate {
    /// Returns the number of the call's thread in the schedule.
    pub fn slot(&self) -> usize {
        self.slot as usize
    }

    /// Returns the run, process and thread of the call.
    pub fn thread(&self, schedule: &Schedule) -> ThreadKey {
        schedule.key(self.slot())
    }

    /// Returns the end in nanoseconds.
    pub fn end(&self) -> i64 {
        self.ts.saturating_add(self.dur)
    }

    /// Returns the function of the longest nested call, if there is one.
    pub fn child(&self) -> Option<u32> {
        some(self.child)
    }
}

/// The calls of one function in one run.
#[derive(Debug, Default)]
pub struct Function {
    /// Numbers of the function's kinds.
    kinds: Vec<u32>,
    /// Durations in nanoseconds of calls from which something was taken; those of the others are stored with
    /// their kinds.
    rest: Multiset,
    /// Durations in nanoseconds of calls that the scheduler delayed.
    pub disturbed: Multiset,
    /// Durations in nanoseconds that these calls would have had without the delay.
    pub undisturbed: Multiset,
    /// Number of calls that were still open at the end of the recording.
    pub censored_count: usize,
}

impl Function {
    /// Returns the durations of all calls that returned.
    pub fn durations<'a>(&'a self, groups: &'a Groups) -> Vec<&'a Multiset> {
        self.kinds.iter().map(|kind| groups.whole(*kind)).chain([&self.rest]).collect()
    }
}

/// The number that stands for "none" where the number of a name or of [`Parts`] is stored.
const NONE: u32 = u32::MAX;

fn some(number: u32) -> Option<u32> {
    (number != NONE).then_some(number)
}

/// The fields of a final call that are needed here. They fill one cache line, because all calls are passed
/// from one thread to another.
#[derive(Debug)]
#[repr(align(64))]
struct FinalCall {
    ts: i64,
    /// Duration in nanoseconds; negative if the call was not seen to end.
    dur: i64,
    /// Size in bytes; `i64::MIN` if the call has none.
    size: i64,
    nested_ns: i64,
    slot: u32,
    op: u32,
    direction: u32,
    phase: u32,
    child: u32,
    depth: u32,
    /// Index in [`Batch::parts`]; [`NONE`] if the call was running all the time.
    parts: u32,
    class: Option<Class>,
    is_first: bool,
    missing: Missing,
}

const _: () = assert!(size_of::<FinalCall>() == 64);

/// Final calls of one run, in the order in which they became final.
#[derive(Debug, Default)]
pub(super) struct Batch {
    run: u32,
    calls: Vec<FinalCall>,
    parts: Vec<Parts>,
}

impl Batch {
    pub(super) fn with_capacity(calls_count: usize) -> Self {
        Self { calls: Vec::with_capacity(calls_count), ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.parts.clear();
    }

    /// Returns whether the next call may be one of this run.
    #[inline]
    pub(super) fn takes(&mut self, run: u32) -> bool {
        if self.calls.is_empty() {
            self.run = run;
        }
        self.run == run
    }

    #[inline]
    pub(super) fn add(&mut self, call: &Call, parts: Option<&Parts>, missing: Missing, schedule: &Schedule) {
        let names = &schedule.names;
        let class = names.class(call.op);
        let nested_ns = match call.child {
            Some((child, _)) if names.class(child) != class => call.child_ns,
            _ => 0,
        };
        let number = match parts.filter(|parts| Some(parts.on_cpu) != call.dur) {
            Some(parts) => {
                self.parts.push(*parts);
                self.parts.len() as u32 - 1
            }
            None => NONE,
        };
        self.calls.push(FinalCall {
            ts: call.ts,
            dur: call.dur.unwrap_or(-1),
            size: call.size.unwrap_or(i64::MIN),
            nested_ns,
            slot: call.slot as u32,
            op: call.op,
            direction: call.direction.unwrap_or(NONE),
            phase: call.phase.unwrap_or(NONE),
            child: call.child.map_or(NONE, |(child, _)| child),
            depth: call.depth,
            parts: number,
            class,
            is_first: call.is_first,
            missing,
        });
    }
}

/// A top-level call that was off CPU for some of its time. What it waited for is determined once the schedule
/// is complete.
#[derive(Clone, Copy, Debug)]
struct Waited {
    ts: i64,
    end: i64,
    slot: u32,
    is_sync: bool,
}

/// What belongs to a kind of call.
#[derive(Clone, Copy, Debug)]
struct KindLimit {
    function: usize,
    points: Option<usize>,
    /// Calls that took no longer than this many nanoseconds are not candidates.
    limit_ns: f64,
    /// The number of calls at which the limit is set again.
    next_count: u64,
    /// Duration in nanoseconds of the longest call that was not kept.
    longest_ns: i64,
}

/// Run, function and direction, for which the cost of copies is fitted.
pub type LineKey = (u32, u32, Option<u32>);

/// Measurements of all calls; see the module.
pub struct Measure {
    params: Params,
    /// Limits in nanoseconds above which calls are slow, by kind, if they are known from an earlier reading.
    known: Option<HashMap<Kind, f64>>,
    /// Runs whose recording began after their processes did: no launch in them is known to be the first of
    /// its kernel.
    joined: HashSet<u32>,
    /// What the runs recorded of their threads and calls.
    pub coverage: Arc<Coverage>,
    /// Names of the runs' own threads: run and thread ID to the number of the name in `Names`.
    pub thread_names: HashMap<(u32, u32), u32>,
    /// The samples that baselines are computed from.
    pub groups: Groups,
    kinds: Vec<KindLimit>,
    recent: Vec<Option<(Kind, u32)>>,
    /// Index in `of_functions`, by run and function.
    pub functions: BTreeMap<(u32, u32), usize>,
    /// The calls of each function.
    pub of_functions: Vec<Function>,
    /// Index in `points`, by run, function and direction.
    pub lines: BTreeMap<LineKey, usize>,
    /// Points that the costs of copies are fitted to.
    pub points: Vec<Points>,
    /// The calls that may be slow.
    pub candidates: Vec<Candidate>,
    many: usize,
    waited: Vec<Waited>,
    /// Runs with off-CPU time for which the source records no reason.
    pub with_unknown: HashSet<u32>,
    /// Runs in which the first launch of a kernel was seen.
    pub with_first: HashSet<u32>,
}

/// Number of places in [`Measure::recent`].
const RECENT: usize = 1024;

/// Returns the time in nanoseconds that the scheduler, throttling or a stop took from a call. Off-CPU time
/// without a recorded reason counts, too, unless the call synchronizes.
pub fn taken(class: Option<Class>, parts: &Parts) -> i64 {
    let unknown = if class == Some(Class::Sync) { 0 } else { parts.unknown };
    parts.preempted + parts.runnable + parts.throttled + parts.stopped + unknown
}

/// Returns whether calls of this class copy or set a number of bytes.
pub fn is_sized(class: Option<Class>) -> bool {
    matches!(class, Some(Class::Copy | Class::Set))
}

impl Measure {
    /// Makes an empty measurement. `joined` are the runs whose recording began after their processes did;
    /// `known` are the limits in nanoseconds above which calls of each kind are slow, from an earlier
    /// reading; `coverage` is what the runs recorded.
    pub fn new(
        params: Params,
        joined: HashSet<u32>,
        thread_names: HashMap<(u32, u32), u32>,
        known: Option<HashMap<Kind, f64>>,
        coverage: Coverage,
    ) -> Self {
        Self {
            params,
            known,
            coverage: Arc::new(coverage),
            joined,
            thread_names,
            groups: Groups::default(),
            kinds: Vec::new(),
            recent: vec![None; RECENT],
            functions: BTreeMap::new(),
            of_functions: Vec::new(),
            lines: BTreeMap::new(),
            points: Vec::new(),
            candidates: Vec::new(),
            many: MANY_CANDIDATES,
            waited: Vec::new(),
            with_unknown: HashSet::new(),
            with_first: HashSet::new(),
        }
    }

    /// Returns the duration in nanoseconds of the longest call of each kind that was not kept, in the order
    /// of the kinds' numbers; `i64::MIN` if all were kept.
    pub fn longest_let_go(&self) -> impl Iterator<Item = i64> {
        self.kinds.iter().map(|of| of.longest_ns)
    }

    /// Returns the index of a function, which is a new one if the function was not known.
    fn function(&mut self, run: u32, op: u32) -> usize {
        let next = self.of_functions.len();
        let index = *self.functions.entry((run, op)).or_insert(next);
        if index == next {
            self.of_functions.push(Function::default());
        }
        index
    }

    /// Returns the number of a kind, which is a new one if the kind was not known.
    fn kind(&mut self, kind: Kind, is_sized: bool) -> u32 {
        let words = [kind.op, kind.direction.map_or(7, |d| d + 11), kind.phase.map_or(5, |p| p + 13)];
        let words =
            words.into_iter().chain([kind.size_class.unwrap_or(99), u32::from(kind.nested == Some(true))]);
        let hash = words.fold(kind.run, |hash, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9));
        let place = (hash >> 20) as usize % RECENT;
        if let Some((_, number)) = self.recent[place].filter(|(of, _)| *of == kind) {
            return number;
        }
        let number = self.groups.number(kind);
        if number as usize == self.kinds.len() {
            let function = self.function(kind.run, kind.op);
            self.of_functions[function].kinds.push(number);
            let points = is_sized.then(|| {
                let next = self.points.len();
                let index = *self.lines.entry((kind.run, kind.op, kind.direction)).or_insert(next);
                if index == next {
                    self.points.push(Points::default());
                }
                index
            });
            let limit_ns = self.known.as_ref().map_or(0.0, |known| {
                // The limit is lowered a little, so that a call that is barely slow is not lost to rounding.
                known.get(&kind).copied().unwrap_or(0.0) * 0.999
            });
            let next_count = if self.known.is_some() { u64::MAX } else { FIRST_CALLS };
            self.kinds.push(KindLimit { function, points, limit_ns, next_count, longest_ns: i64::MIN });
        }
        self.recent[place] = Some((kind, number));
        number
    }

    /// Sets the limit of a kind by the calls seen so far.
    fn tighten(&mut self, number: u32) {
        if let Some(expected) = self.groups.expected_so_far(number) {
            self.kinds[number as usize].limit_ns = MARGIN_RATIO * self.params.limit_ns(expected);
        }
    }

    /// Drops candidates that are below the current limits.
    fn let_go(&mut self) {
        let kinds = &mut self.kinds;
        self.candidates.retain(|candidate| {
            let of = &mut kinds[candidate.kind as usize];
            let is_kept = candidate.dur as f64 > of.limit_ns;
            if !is_kept {
                of.longest_ns = of.longest_ns.max(candidate.dur);
            }
            is_kept
        });
    }

    fn add_candidate(&mut self, candidate: Candidate) {
        self.candidates.push(candidate);
        if self.candidates.len() < self.many {
            return;
        }
        self.let_go();
        if self.candidates.len() * 2 > self.many && self.known.is_none() {
            (0..self.kinds.len() as u32).for_each(|number| self.tighten(number));
            self.let_go();
        }
        self.many = MANY_CANDIDATES.max(self.candidates.len() * 2);
    }

    /// Measures the next calls.
    pub(super) fn add(&mut self, batch: &Batch) {
        for call in &batch.calls {
            self.add_call(batch.run, call, batch.parts.get(call.parts as usize));
        }
    }

    fn add_call(&mut self, run: u32, call: &FinalCall, parts: Option<&Parts>) {
        if call.is_first {
            self.with_first.insert(run);
        }
        if call.dur < 0 {
            let function = self.function(run, call.op);
            self.of_functions[function].censored_count += 1;
            return;
        }
        self.finished(run, call, parts);
        if call.depth == 0 && parts.is_some() {
            self.waited.push(Waited {
                ts: call.ts,
                end: call.ts.saturating_add(call.dur),
                slot: call.slot,
                is_sync: call.class == Some(Class::Sync),
            });
        }
    }

    fn finished(&mut self, run: u32, call: &FinalCall, parts: Option<&Parts>) {
        let (class, dur) = (call.class, call.dur);
        let call_size = (call.size != i64::MIN).then_some(call.size);
        let is_sized = is_sized(class);
        let size = call_size.filter(|_| is_sized);
        let number = self.kind(
            Kind {
                run,
                op: call.op,
                direction: some(call.direction),
                nested: Some(call.depth > 0),
                phase: some(call.phase),
                size_class: size.and_then(|size| u64::try_from(size).ok()?.checked_ilog2()),
                first_call: call.is_first && !self.joined.contains(&run),
            },
            is_sized,
        );
        let taken = parts.map_or(0, |parts| taken(class, parts));
        let blocked = parts.map(|parts| &parts.blocked);
        let sample = Sample {
            dur,
            on_cpu: parts.map_or(dur, |parts| parts.on_cpu),
            own: dur - taken,
            is_whole: taken == 0,
            nested: call.nested_ns,
            blocked,
            missing: call.missing,
        };
        let count = self.groups.add(number, &sample);
        if count == self.kinds[number as usize].next_count {
            self.tighten(number);
            self.kinds[number as usize].next_count *= 2;
        }
        let of = &mut self.kinds[number as usize];
        let function = &mut self.of_functions[of.function];
        if taken != 0 {
            function.rest.add(dur);
        }
        let undisturbed = parts.map_or(dur, |parts| dur - (taken - parts.throttled - parts.stopped));
        if undisturbed != dur {
            function.disturbed.add(dur);
            function.undisturbed.add(undisturbed);
        }
        if let (Some(points), Some(size)) = (of.points, size) {
            self.points[points].add(size as f64, sample.on_cpu as f64, call.missing.switches);
        }
        if parts.is_some_and(|parts| parts.unknown > 0) {
            self.with_unknown.insert(run);
        }
        if dur as f64 > of.limit_ns {
            self.add_candidate(Candidate {
                slot: call.slot,
                kind: number,
                ts: call.ts,
                dur,
                size: call_size,
                nested_ns: call.nested_ns,
                child: call.child,
                depth: call.depth,
            });
        } else {
            of.longest_ns = of.longest_ns.max(dur);
        }
    }

    /// Returns, for each run, the sums over what its top-level calls waited for.
    pub fn totals(&mut self, schedule: &Schedule) -> HashMap<u32, Totals> {
        let waited = std::mem::take(&mut self.waited);
        let none = || (Walker::new(schedule), HashMap::<u32, Totals>::default());
        let added = waited.par_iter().fold(none, |(mut walker, mut totals), call| {
            let (slot, time) = (call.slot as usize, (call.ts, call.end));
            let of_run: &mut Totals = totals.entry(schedule.key(slot).0).or_default();
            of_run.add_call(&mut walker, &self.thread_names, call.is_sync, slot, time);
            (walker, totals)
        });
        let totals = added.map(|(_, totals)| totals);
        totals.reduce(HashMap::default, |mut all, more| {
            for (run, totals) in more {
                all.entry(run).or_default().merge(totals);
            }
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns calls of one function with these durations.
    fn batch(schedule: &mut Schedule, durs: impl IntoIterator<Item = i64>) -> Batch {
        let (run, op) = (schedule.names.number("r"), schedule.names.number("cudaFree"));
        let slot = schedule.slot((run, 1, 1));
        let mut batch = Batch::default();
        assert!(batch.takes(run));
        for (ts, dur) in (0..).zip(durs) {
            let call = Call {
                slot,
                ts,
                dur: Some(dur),
                op,
                size: None,
                direction: None,
                phase: None,
                is_first: false,
                depth: 0,
                parent: None,
                child: None,
                child_ns: 0,
                children_end: i64::MIN,
                extra: None,
            };
            batch.add(&call, None, Missing::default(), schedule);
        }
        batch
    }

    fn measure(known: Option<HashMap<Kind, f64>>) -> Measure {
        Measure::new(Params::default(), HashSet::new(), HashMap::default(), known, Coverage::default())
    }

    /// Returns the durations of the candidates, and of the longest of the other calls.
    fn kept(measure: &Measure) -> (Vec<i64>, Vec<i64>) {
        (measure.candidates.iter().map(|call| call.dur).collect(), measure.longest_let_go().collect())
    }

    #[test]
    fn calls_above_half_of_the_limit_so_far_are_kept() {
        let (mut schedule, mut measure) = (Schedule::default(), measure(None));
        let usual = vec![100; FIRST_CALLS as usize - 1];
        measure.add(&batch(&mut schedule, usual.clone()));
        assert_eq!(kept(&measure), (usual.clone(), vec![i64::MIN]), "there is no limit yet");
        measure.add(&batch(&mut schedule, [100, 150, 151]));
        assert_eq!(kept(&measure), ([usual, vec![151]].concat(), vec![150]));
    }

    #[test]
    fn too_many_candidates_are_dropped_by_the_limit_so_far() {
        let (mut schedule, mut measure) = (Schedule::default(), measure(None));
        measure.many = 12;
        let usual = vec![100; 11];
        measure.add(&batch(&mut schedule, usual.clone()));
        assert_eq!(kept(&measure).0, usual);
        measure.add(&batch(&mut schedule, [1_000]));
        assert_eq!(kept(&measure), (vec![1_000], vec![100]));
        assert_eq!(measure.many, MANY_CANDIDATES);
    }

    /// A call of a kind that was not known when the limits were made is kept.
    #[test]
    fn known_limits_are_lowered_a_little() {
        let mut schedule = Schedule::default();
        let calls = batch(&mut schedule, [998, 999, 1_000]);
        let (run, op) = (schedule.names.number("r"), schedule.names.number("cudaFree"));
        let (direction, phase, size_class) = (None, None, None);
        let kind = Kind { run, op, direction, nested: Some(false), phase, size_class, first_call: false };
        for (kind, expected) in [
            (kind, (vec![1_000], vec![999])),
            (Kind { first_call: true, ..kind }, (vec![998, 999, 1_000], vec![i64::MIN])),
        ] {
            let mut measure = measure(Some([(kind, 1_000.0)].into_iter().collect()));
            measure.add(&calls);
            assert_eq!(kept(&measure), expected);
        }
    }

    #[test]
    fn what_was_taken_from_a_call_is_not_its_own_time() {
        let parts = Parts {
            on_cpu: 32,
            preempted: 1,
            runnable: 2,
            throttled: 4,
            stopped: 8,
            unknown: 16,
            blocked: [64; crate::blocker::COUNT],
            ..Parts::default()
        };
        let of = |class| taken(class, &parts);
        assert_eq!([of(Some(Class::Launch)), of(Some(Class::Sync)), of(None)], [31, 15, 31]);
        let sized = [Some(Class::Copy), Some(Class::Set), Some(Class::Alloc), None].map(is_sized);
        assert_eq!(sized, [true, true, false, false]);
    }
}
