//! The accounts of any workload: the policy serves it, its decisions become events, and their replay has the same blocks.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::{
    allocator::Allocator,
    decode::Key,
    event::{Action, Event},
    input::Listener,
    knowledge::Knowledge,
    span::State,
    what_if::{limits::Limits, record::Cases},
};
use analyze_run::address_ranges::Ranges;

/// What a program does next; which block it frees is a number modulo those that it holds.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc {
        bytes: u64,
        stream: u64,
    },
    Free {
        which: usize,
    },
    /// Frees a block that other streams still use.
    FreeRequested {
        which: usize,
    },
    EmptyCache,
}

/// Sizes at the bounds of the allocator's rules.
const SIZES: [u64; 14] = [
    1,
    512,
    513,
    300_000,
    MIB,
    MIB + 1,
    3 * MIB,
    9 * MIB,
    10 * MIB - 1,
    10 * MIB,
    19 * MIB,
    21 * MIB,
    22 * MIB,
    45 * MIB,
];

fn steps(has_pending: bool) -> impl Strategy<Value = Vec<Step>> {
    let alloc = (select(SIZES.to_vec()), 0..2_u64).prop_map(|(bytes, stream)| Step::Alloc { bytes, stream });
    let free = (0..64_usize, any::<bool>()).prop_map(move |(which, is_requested)| {
        match is_requested && has_pending {
            true => Step::FreeRequested { which },
            false => Step::Free { which },
        }
    });
    vec(prop_oneof![6 => alloc, 5 => free, 1 => Just(Step::EmptyCache)], 0..40)
}

/// A block that the program holds, or whose free is not complete: its address, the requested size and the stream.
#[derive(Clone, Copy, Debug)]
struct Held {
    addr: u64,
    bytes: u64,
    stream: u64,
}

/// A program on the policy, and the events that a recorder would have seen.
struct Workload {
    policy: Policy,
    live: Vec<Held>,
    pending: Vec<Held>,
    events: Vec<Event>,
}

/// Reserved ranges: start, end, space.
fn reserved(policy: &Policy) -> Vec<(u64, u64, usize)> {
    let mut ranges: Vec<(u64, u64, usize)> = Vec::new();
    for (addr, block) in policy.blocks.iter().filter(|(_, block)| block.is != Use::Unmapped) {
        match ranges.last_mut().filter(|(_, end, space)| (*end, *space) == (*addr, block.space)) {
            Some((_, end, _)) => *end += block.size_bytes,
            None => ranges.push((*addr, addr + block.size_bytes, block.space)),
        }
    }
    ranges
}

/// Returns the parts of some ranges that are in none of others: start, size, space.
fn without(ranges: &[(u64, u64, usize)], others: &[(u64, u64, usize)]) -> Vec<(u64, u64, usize)> {
    let mut set = Ranges::default();
    others.iter().for_each(|(start, end, _)| set.insert(*start, end - start));
    let missing = |(start, end, space): &(u64, u64, usize)| {
        set.missing(*start, end - start)
            .into_iter()
            .map(|(start, bytes)| (start, bytes, *space))
            .collect::<Vec<_>>()
    };
    ranges.iter().flat_map(missing).collect()
}

impl Workload {
    fn event(&mut self, action: Action, addr: u64, size_bytes: u64, stream: u64) {
        let (ts, pool) = (self.events.len() as i64, DEFAULT_POOL);
        let event = Event {
            ts,
            action,
            addr,
            size_bytes,
            stream,
            pool,
            tid: 0,
            stack: None,
            is_of_empty_cache: false,
        };
        self.events.push(event);
    }

    /// Records what the policy did to segments since `before`, and the frees that it completed for that.
    fn record(&mut self, before: &Policy) {
        let held = std::mem::take(&mut self.pending).into_iter();
        let (completed, pending): (Vec<Held>, Vec<Held>) =
            held.partition(|held| !self.policy.pending.contains(&held.addr));
        self.pending = pending;
        for Held { addr, bytes, stream } in completed {
            self.event(Action::FreeCompleted, addr, bytes, stream);
        }
        let (old, new) = (reserved(before), reserved(&self.policy));
        for (ranges, actions) in [
            (without(&old, &new), [Action::SegmentFree, Action::SegmentUnmap]),
            (without(&new, &old), [Action::SegmentAlloc, Action::SegmentMap]),
        ] {
            for (addr, bytes, space) in ranges {
                let Space { stream, page_bytes, .. } = self.policy.spaces[space];
                self.event(actions[usize::from(page_bytes.is_some())], addr, bytes, stream);
            }
        }
    }

    fn take(&mut self, step: Step) {
        let before = self.policy.clone();
        match step {
            Step::Alloc { bytes, stream } => {
                let found = self.policy.alloc(bytes, stream, DEFAULT_POOL);
                self.record(&before);
                match found {
                    Some(addr) => {
                        self.event(Action::Alloc, addr, bytes, stream);
                        self.live.push(Held { addr, bytes, stream });
                    }
                    None => {
                        let Policy { capacity_bytes, limit_bytes, counts, .. } = &self.policy;
                        let free_bytes =
                            capacity_bytes.min(limit_bytes).saturating_sub(counts.reserved_bytes);
                        self.event(Action::Oom, free_bytes, bytes, stream);
                    }
                }
                is_best_fit(&before, &self.policy, bytes, stream, found);
            }
            Step::Free { which } | Step::FreeRequested { which } if !self.live.is_empty() => {
                let Held { addr, bytes, stream } = self.live.swap_remove(which % self.live.len());
                self.event(Action::FreeRequested, addr, bytes, stream);
                if matches!(step, Step::FreeRequested { .. }) {
                    self.policy.free_requested(addr);
                    self.pending.push(Held { addr, bytes, stream });
                } else {
                    self.policy.free_completed(addr);
                    self.event(Action::FreeCompleted, addr, bytes, stream);
                }
            }
            Step::EmptyCache => {
                self.policy.empty_cache();
                self.record(&before);
            }
            Step::Free { .. } | Step::FreeRequested { .. } => (),
        }
    }
}

/// Checks by looking at every block: the smallest free one that may serve a request did, and otherwise none did.
fn is_best_fit(before: &Policy, after: &Policy, bytes: u64, stream: u64, found: Option<u64>) {
    let Settings { max_split_bytes, max_rounding_bytes, expandable_segments, .. } = before.settings;
    let size = before.settings.round(bytes);
    let fits = |(_, block): &(&u64, &Block)| {
        let space = before.spaces[block.space];
        let is_of = (space.class, space.stream) == ((DEFAULT_POOL, size <= MIB), stream);
        block.is == Use::Free && is_of && block.size_bytes >= size
    };
    let fitting = before.blocks.iter().filter(fits).map(|(addr, block)| (block.size_bytes, *addr));
    let serves = |(block, _): &(u64, u64)| match size < max_split_bytes {
        true => *block < max_split_bytes,
        false => *block < size + max_rounding_bytes,
    };
    let is_reserved = after.counts.asked_count > before.counts.asked_count;
    if !expandable_segments {
        match fitting.min().filter(serves) {
            Some((_, addr)) => assert!(found == Some(addr) && !is_reserved, "{found:?}, not {addr}"),
            None => assert_eq!(found.is_some(), is_reserved),
        }
    } else if found.is_some() && after.counts.retries_count == before.counts.retries_count {
        // Which of several is taken depends on how far each can grow.
        let fitting: Vec<(u64, u64)> = fitting.collect();
        assert!(is_reserved || !fitting.is_empty(), "{found:?}");
        assert!(!is_reserved || fitting.is_empty() || !fitting.iter().all(serves), "{found:?}");
    }
}

/// Checks the policy's accounts, by counting, and that its lists have what its blocks are.
fn is_consistent(policy: &Policy) {
    let sum = |is_meant: &dyn Fn(Use) -> bool| -> u64 {
        policy.blocks.values().filter(|block| is_meant(block.is)).map(|block| block.size_bytes).sum()
    };
    let Counts { reserved_bytes, allocated_bytes, active_bytes, peak_reserved_bytes, .. } = policy.counts;
    assert_eq!(reserved_bytes, sum(&|is| is != Use::Unmapped));
    assert_eq!(allocated_bytes, sum(&|is| is == Use::Active));
    assert_eq!(active_bytes, sum(&|is| matches!(is, Use::Active | Use::Pending)));
    assert!(allocated_bytes <= active_bytes && active_bytes <= reserved_bytes);
    assert!(reserved_bytes <= peak_reserved_bytes && peak_reserved_bytes <= policy.capacity_bytes);
    // An expandable segment may grow by more than the segment that the limit is compared with.
    assert!(peak_reserved_bytes <= policy.limit_bytes || policy.settings.expandable_segments);
    // Blocks do not overlap, tile their space, and are merged with neighbours of their kind.
    for (pair, next) in policy.blocks.iter().zip(policy.blocks.iter().skip(1)) {
        let ((addr, block), (after, other)) = (pair, next);
        assert!(addr + block.size_bytes <= *after, "{addr:x}");
        let is_same = block.space == other.space;
        assert!(!is_same || addr + block.size_bytes == *after, "a gap at {after:x}");
        assert!(
            !is_same || block.is != other.is || !matches!(block.is, Use::Free | Use::Unmapped),
            "{after:x}"
        );
    }
    let listed = |is: Use| -> BTreeSet<u64> {
        policy.blocks.iter().filter(|(_, block)| block.is == is).map(|(addr, _)| *addr).collect()
    };
    let free: BTreeSet<u64> = policy.free.values().flatten().map(|(.., addr)| *addr).collect();
    let unmapped: BTreeSet<u64> = policy.unmapped.values().flatten().map(|(_, addr)| *addr).collect();
    assert_eq!(
        (free, unmapped, policy.pending.clone()),
        (listed(Use::Free), listed(Use::Unmapped), listed(Use::Pending))
    );
}

/// Checks that the replay of the events has the policy's blocks, and knows what `empty_cache()` would release.
fn is_replayed(allocator: &Allocator, policy: &Policy) {
    let state = |is: Use| match is {
        Use::Unmapped => None,
        Use::Free => Some(State::Inactive),
        Use::Active => Some(State::Active),
        Use::Pending => Some(State::PendingFree),
    };
    let expected =
        policy.blocks.iter().filter_map(|(addr, block)| Some((*addr, block.size_bytes, state(block.is)?)));
    let found = allocator.blocks().map(|block| (block.addr, block.size_bytes, block.state));
    assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let totals = allocator.totals();
    let counts = policy.counts;
    assert_eq!(
        [totals.reserved_bytes, totals.active_bytes, totals.allocated_bytes],
        [counts.reserved_bytes, counts.active_bytes, counts.allocated_bytes].map(|bytes| bytes as i64)
    );
    assert_eq!((totals.unknown_bytes, allocator.faults().len()), (0, 0), "{:?}", allocator.faults());
    if policy.pending.is_empty() {
        let mut emptied = policy.clone();
        emptied.empty_cache();
        assert_eq!(totals.releasable_bytes as u64, counts.reserved_bytes - emptied.counts.reserved_bytes);
        assert_eq!(totals.releasable_bytes > 0, policy.can_release(Scope::All));
        assert_eq!(
            (emptied.counts.active_bytes, emptied.can_release(Scope::All)),
            (counts.active_bytes, false)
        );
    }
}

const SETTINGS: [&str; 8] = [
    "",
    "roundup_power2_divisions:4",
    "large_segment_size_mb:40",
    "expandable_segments:True",
    "max_split_size_mb:21",
    "max_split_size_mb:21,max_non_split_rounding_mb:22",
    "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5",
    "expandable_segments:True,max_split_size_mb:21,per_process_memory_fraction:0.5",
];

fn workload(text: &str, capacity_mib: Option<u64>) -> Workload {
    let policy = Policy::new(settings(text), capacity_mib.map(|mib| mib * MIB), Some(200 * MIB));
    Workload { policy, live: Vec::new(), pending: Vec::new(), events: Vec::new() }
}

const KEY: Key = Key { run: 0, pid: 1, device: 0 };

/// Replays events as a listener hears them.
fn feed(events: &[Event], settings: &Settings, listener: &mut impl Listener) {
    let mut allocator = Allocator::new(settings.clone(), Knowledge::default());
    for event in events {
        listener.before(KEY, &allocator, event);
        allocator.apply(event, &mut ());
        listener.after(KEY, &allocator, event);
    }
    listener.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// What is live is what was allocated and not freed, and nothing that is in use is ever released.
    #[test]
    fn every_byte_is_accounted_for(
        text in select(SETTINGS.to_vec()), capacity_mib in option::of(30..200_u64), steps in steps(true)
    ) {
        let mut workload = workload(text, capacity_mib);
        let mut allocator = Allocator::new(workload.policy.settings.clone(), Knowledge::default());
        let mut replayed = 0;
        for step in steps {
            workload.take(step);
            let Workload { policy, live, pending, events } = &workload;
            is_consistent(policy);
            events[replayed..].iter().for_each(|event| allocator.apply(event, &mut ()));
            replayed = events.len();
            is_replayed(&allocator, policy);
            for (held, is) in live.iter().map(|held| (held, Use::Active)).chain(pending.iter().map(|held| (held, Use::Pending))) {
                let block = policy.blocks.get(&held.addr).filter(|block| block.is == is);
                prop_assert!(block.is_some_and(|block| block.size_bytes >= held.bytes), "{:?}", held);
            }
            let count = policy.blocks.values().filter(|block| matches!(block.is, Use::Active | Use::Pending)).count();
            prop_assert_eq!(count, live.len() + pending.len());
            let requested: u64 = live.iter().chain(pending).map(|held| held.bytes).sum();
            prop_assert_eq!(allocator.totals().requested_bytes as u64, requested);
        }
        // Segments may lie anywhere: nothing else depends on it.
        let mut shuffled = workload.policy.clone();
        let moved = shuffled.shuffle(Random::nth(1, 2));
        is_consistent(&shuffled);
        prop_assert_eq!((shuffled.counts, moved.len()), (workload.policy.counts, workload.policy.blocks.len()));
        for (addr, block) in &workload.policy.blocks {
            let there = shuffled.blocks[&moved[addr]];
            prop_assert_eq!((there.size_bytes, there.is, there.space), (block.size_bytes, block.is, block.space));
        }
    }

    /// With the settings that a process had, what-if reserves what the process did, after every request.
    #[test]
    fn the_control_reserves_what_was_recorded(
        text in select(SETTINGS[..4].to_vec()), capacity_mib in option::of(30..200_u64), steps in steps(false)
    ) {
        // An expandable segment may have grown in part when the device turns out to be full.
        let mut workload = workload(text, capacity_mib.filter(|_| !text.starts_with("expandable")));
        steps.into_iter().for_each(|step| workload.take(step));
        let Workload { policy, events, .. } = &workload;
        let mut limits: BTreeMap<Key, Limits> = BTreeMap::new();
        feed(events, &policy.settings, &mut limits);
        let mut cases = Cases { limits, ..Cases::default() };
        feed(events, &policy.settings, &mut cases);
        let Some(case) = cases.cases.get(&KEY) else {
            prop_assert!(events.is_empty());
            return Ok(());
        };
        prop_assert!(case.control.ended.is_none(), "{:?}", case.control.ended);
        prop_assert_eq!((case.difference_bytes, case.equal_count), (0, case.requests_count));
        let (found, expected) = (case.control.counts(), policy.counts);
        prop_assert_eq!(found.reserved_bytes, expected.reserved_bytes);
        prop_assert_eq!(found.peak_reserved_bytes, expected.peak_reserved_bytes);
        prop_assert_eq!(case.peak_reserved_bytes, expected.peak_reserved_bytes);
    }
}
