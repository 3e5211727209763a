//! Compares replays of incomplete histories with the replay of the whole: events of the oracle's workloads
//! are removed at the start, as by a ring that was full, or somewhere else, as by a buffer that overflowed.
//! Whatever the replay claims to know must be true.

use crate::{
    allocator::Allocator,
    event::{Action, Event},
    initial_state::{InitialState, SnapshotState},
    knowledge::Knowledge,
    oracle::{Workload, folder, workloads},
    settings::Settings,
    span::{BEFORE, State},
};
use analyze_run::random::Random;

/// What was compared.
#[derive(Debug, Default)]
struct Count {
    states: u64,
    exact_states: u64,
    bytes: u64,
    unknown_bytes: u64,
}

/// Checks that everything that `found` claims to know is true in `truth`: every byte of the blocks, and the
/// segments only if no events were lost.
fn compare(found: &Allocator, truth: &Allocator, count: &mut Count) -> Result<(), String> {
    let mut unknown = 0;
    for block in found.blocks() {
        if block.state == State::Unknown {
            unknown += block.size_bytes;
            continue;
        }
        let mut at = block.addr;
        for other in truth.blocks_within(block.addr, block.size_bytes) {
            let is_start = !block.is_active() || other.addr == block.addr;
            let is_asked = !block.is_active() || other.requested_bytes == block.requested_bytes;
            if other.state != block.state || other.addr > at || !is_start || !is_asked {
                return Err(format!("{block:x?} is {other:x?}"));
            }
            at = other.end();
        }
        if at < block.end() {
            return Err(format!("{block:x?} ends at {at:x}"));
        }
    }
    let about = |allocator: &Allocator| -> Vec<_> {
        let about = |s: &super::span::Segment| (s.addr, s.size_bytes, s.stream, s.is_small, s.is_expandable);
        allocator.segments().map(about).collect()
    };
    if found.knowledge().lost_count == 0 {
        if about(found) != about(truth) {
            return Err(format!("segments {:x?}, are {:x?}", about(found), about(truth)));
        }
        let blocks = |allocator: &Allocator| -> Vec<_> {
            allocator.blocks().map(|block| (block.addr, block.size_bytes, block.state)).collect()
        };
        let (blocks_found, blocks_there) = (blocks(found), blocks(truth));
        if unknown == 0 && blocks_found != blocks_there {
            return Err(format!("blocks {blocks_found:x?}, are {blocks_there:x?}"));
        }
        count.exact_states += u64::from(unknown == 0);
    }
    count.states += 1;
    count.bytes += found.blocks().map(|block| block.size_bytes).sum::<u64>();
    count.unknown_bytes += unknown;
    Ok(())
}

/// Returns the state as a snapshot would record it.
fn held(allocator: &Allocator) -> SnapshotState {
    let mut held = SnapshotState::default();
    for segment in allocator.segments() {
        let segment = super::span::Segment { ts: BEFORE, alloc_ts: BEFORE, ..*segment };
        held.segments.insert(segment.addr, segment);
    }
    held.blocks = allocator.blocks().map(|block| (block.addr, *block)).collect();
    held
}

/// Cuts off the start of a history, and compares states up to its end.
fn cut(workload: &Workload, random: &mut Random, count: &mut Count) -> Result<(), String> {
    let events = &workload.events;
    let end = 1 + random.below(events.len());
    let start = random.below(end);
    let mut truth = Allocator::new(workload.settings.clone(), Knowledge::default());
    events[..start].iter().for_each(|event| truth.apply(event, &mut ()));
    let mut initial_state = InitialState::new(workload.settings.clone());
    let mut last = truth.clone();
    for event in &events[start..end] {
        initial_state.event(event);
        last.apply(event, &mut ());
    }
    let seed = initial_state.finish(&held(&last));
    if seed.contradictions_count > 0 {
        return Err(format!("{} contradictions", seed.contradictions_count));
    }
    let mut found = Allocator::seeded(workload.settings.clone(), Knowledge::default(), &seed);
    compare(&found, &truth, count)?;
    for (number, event) in events[start..end].iter().enumerate() {
        truth.apply(event, &mut ());
        found.apply(event, &mut ());
        if number % 7 == 0 || start + number + 1 == end {
            compare(&found, &truth, count).map_err(|what| format!("{start}..{end} at {number}: {what}"))?;
        }
    }
    match found.faults().is_empty() && super::check::differences(&found, &held(&last)).is_empty() {
        true => Ok(()),
        false => Err(format!("{start}..{end}: {:?}", found.faults())),
    }
}

#[test]
fn what_was_there_before_a_history_is_computed_from_its_end() {
    let mut count = Count::default();
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut different = Vec::new();
    let rounds = if std::env::var_os("INQUEST_ORACLE").is_some() { 4 } else { 12 };
    for (path, workload) in workloads(&folder()) {
        for _ in 0..rounds {
            if let Err(what) = cut(&workload, &mut random, &mut count) {
                different.push(format!("{}: {what}", path.display()));
            }
        }
    }
    println!("{count:?}; {} differ", different.len());
    assert!(different.is_empty(), "{}", different[..different.len().min(5)].join("\n"));
    assert!(count.exact_states > 100 && count.exact_states * 2 > count.states, "{count:?}");
}

/// Removes stretches of events; returns the remaining events, and the loss intervals `[from, to)` as a
/// recorder would report them.
fn thin(events: &[Event], random: &mut Random) -> (Vec<Event>, Vec<(i64, i64)>) {
    let mut left = Vec::new();
    let mut lost = Vec::new();
    let mut at = 0;
    while at < events.len() {
        let until = (at + 1 + random.below(120)).min(events.len());
        left.extend_from_slice(&events[at..until]);
        let gap = (until + 1 + random.below(12)).min(events.len());
        if until < gap {
            // A recorder knows between which readings of a counter events were lost, not exactly when.
            lost.push((
                events[until].ts - random.below(5) as i64,
                events[gap - 1].ts + 1 + random.below(5) as i64,
            ));
        }
        at = gap;
    }
    (left, lost)
}

#[test]
fn what_is_known_in_spite_of_lost_events_is_true() {
    let mut count = Count::default();
    let mut random = Random(0xfeed_0000_1234_5679);
    let mut different = Vec::new();
    for (path, workload) in workloads(&folder()) {
        let (left, lost) = thin(&workload.events, &mut random);
        let mut told = lost.iter().peekable();
        let mut left = left.iter().peekable();
        let mut truth = Allocator::new(workload.settings.clone(), Knowledge::default());
        let mut found = truth.clone();
        for (number, event) in workload.events.iter().enumerate() {
            truth.apply(event, &mut ());
            while let Some((from, to)) = told.next_if(|(from, _)| *from <= event.ts) {
                found.lose(*from, *to, 1, &mut ());
            }
            if left.next_if(|next| next.ts == event.ts).is_some() {
                found.apply(event, &mut ());
            }
            if number % 5 == 0
                && let Err(what) = compare(&found, &truth, &mut count)
            {
                different.push(format!("{} at {number}: {what}", path.display()));
                break;
            }
        }
    }
    println!("{count:?}; {} differ", different.len());
    assert!(different.is_empty(), "{}", different[..different.len().min(5)].join("\n"));
    assert!(count.unknown_bytes < count.bytes, "{count:?}");
}

/// Checks that blocks tile their segments, and that the totals are the sums of the blocks.
fn check_tiling(allocator: &Allocator) {
    for segment in allocator.segments() {
        let mut at = segment.addr;
        for block in allocator.blocks_in(segment) {
            assert_eq!(block.addr, at);
            at = block.end();
        }
        assert_eq!(at, segment.end());
    }
    let active = allocator.blocks().filter(|block| block.state == State::Active);
    let allocated: u64 = active.map(|block| block.size_bytes).sum();
    assert_eq!(allocator.totals().allocated_bytes, allocated as i64);
}

#[test]
fn losses_that_nobody_told_and_other_settings_never_break_the_replay() {
    let mut random = Random(0x0bad_cafe_1234_5679);
    let (mut replays, mut noticed) = (0, 0);
    for (_, workload) in workloads(&folder()) {
        let (mut left, _) = thin(&workload.events, &mut random);
        let other = ["", "roundup_power2_divisions:8", "max_split_size_mb:21", "expandable_segments:True"];
        let settings = Settings::parse(other[random.below(other.len())], "");
        for event in &mut left {
            if random.below(200) == 0 {
                event.size_bytes = [0, 1, u64::MAX, event.size_bytes * 2][random.below(4)];
            }
            if random.below(200) == 0 {
                event.addr = [0, u64::MAX, u64::MAX - 512, event.addr + 512][random.below(4)];
            }
        }
        let mut allocator = Allocator::new(settings.clone(), Knowledge::default());
        let mut initial_state = InitialState::new(settings.clone());
        for event in &left {
            allocator.apply(event, &mut ());
            initial_state.event(event);
        }
        check_tiling(&allocator);
        noticed += u64::from(!allocator.faults().is_empty());
        let seed = initial_state.finish(&held(&allocator));
        let mut seeded = Allocator::seeded(settings, Knowledge::default(), &seed);
        check_tiling(&seeded);
        left.iter().for_each(|event| seeded.apply(event, &mut ()));
        check_tiling(&seeded);
        replays += 1;
    }
    // Some workloads are too short to lose anything.
    assert!(noticed * 4 > replays * 3, "{noticed} of {replays}");
}

#[test]
fn faults_name_their_cause() {
    let event = |ts, action, addr, size_bytes| Event {
        ts,
        action,
        addr,
        size_bytes,
        stream: 0,
        pool: super::totals::DEFAULT_POOL,
        tid: 0,
        stack: None,
        is_of_empty_cache: false,
    };
    // With four steps between powers of two 1200 bytes are 1536, and here 1280: 512 bytes are left.
    let mut allocator = Allocator::new(Settings::default(), Knowledge::default());
    for event in [
        event(1, Action::SegmentAlloc, 0x20_0000, 2 << 20),
        event(2, Action::Alloc, 0x20_0000, 2100),
        event(3, Action::Alloc, 0x20_0000 + 3072, 512),
    ] {
        allocator.apply(&event, &mut ());
    }
    let faults: Vec<_> = allocator.faults().keys().map(|fault| fault.name()).collect();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].contains("settings: they are others"), "{faults:?}");
}
