//! Tests of what an alternative makes of releases on record, in small programs.

use super::*;
use crate::knowledge::Knowledge;

const MIB: u64 = 1 << 20;
const KEY: Key = Key { run: 0, pid: 1, device: 0 };
/// A pool that the program made, and another one.
const POOL: PoolId = (0, 5);
const OTHER: PoolId = (0, 6);

/// An action, the address and size in MiB, and the pool.
type Given = (Action, u64, u64, PoolId);

/// A segment with one block.
fn used(addr: u64, size: u64, pool: PoolId) -> [Given; 2] {
    [(Action::SegmentAlloc, addr, size, pool), (Action::Alloc, addr, size, pool)]
}

/// The free of a block.
fn freed(addr: u64, size: u64, pool: PoolId) -> [Given; 2] {
    [(Action::FreeRequested, addr, size, pool), (Action::FreeCompleted, addr, size, pool)]
}

/// The release of a segment.
fn released(addr: u64, size: u64, pool: PoolId) -> [Given; 1] {
    [(Action::SegmentFree, addr, size, pool)]
}

fn feed(settings: &Settings, events: &[Event], listener: &mut impl Listener) {
    let mut allocator = Allocator::new(settings.clone(), Knowledge::default());
    for event in events {
        listener.before(KEY, &allocator, event);
        allocator.apply(event, &mut ());
        listener.after(KEY, &allocator, event);
    }
    listener.end();
}

/// Replays a program as recorded by a version of PyTorch, with changes.
fn replayed(version: &str, changes: Changes, program: &[&[Given]]) -> Case {
    let settings = Settings::parse("", version);
    let events = program.concat();
    let events = (0..).zip(&events).map(|(ts, (action, addr, size, pool))| Event {
        ts,
        action: *action,
        addr: addr * MIB,
        size_bytes: size * MIB,
        stream: 0,
        pool: *pool,
        tid: 1,
        stack: None,
        is_of_empty_cache: false,
    });
    let events: Vec<Event> = events.collect();
    let mut limits = BTreeMap::<Key, Limits>::new();
    feed(&settings, &events, &mut limits);
    let default = vec![Alternative { settings: None, changes }];
    let mut cases = Cases { default, limits, ..Cases::default() };
    feed(&settings, &events, &mut cases);
    cases.cases.remove(&KEY).expect("an allocator")
}

/// Returns the least and the most MiB that an alternative has reserved at the end.
fn end_mib(case: &Case) -> (u64, u64) {
    let end = case.asked[0].replays.range(|served| served.counts().reserved_bytes / MIB);
    (end.min, end.max)
}

fn without_calls() -> Changes {
    Changes { no_empty_cache: true, ..Changes::default() }
}

#[test]
fn a_call_after_the_last_event_releases_memory() {
    let program = [&used(1, 30, DEFAULT_POOL)[..], &freed(1, 30, DEFAULT_POOL)];
    let end = |empty_cache_ts: Vec<i64>| {
        end_mib(&replayed("2.11.0", Changes { empty_cache_ts, ..Changes::default() }, &program))
    };
    assert_eq!(end(Vec::new()), (30, 30));
    assert_eq!(end(vec![1]), (30, 30), "nothing is free yet");
    assert_eq!(end(vec![1, 40]), (0, 0));
    assert_eq!(end(vec![3]), (0, 0), "right after the last event, too");
}

#[test]
fn the_destructor_of_a_pool_releases_it_and_the_program_may_not_call_empty_cache() {
    let [first, second] = [used(100, 20, POOL), used(200, 30, POOL)];
    let of_default = [used(300, 40, DEFAULT_POOL), freed(300, 40, DEFAULT_POOL)].concat();
    let (free, release) = (freed(100, 20, POOL), released(100, 20, POOL));
    // Something was unused all the time since the last request to the pool: it was not destroyed before.
    let program = [&first[..], &free, &second, &of_default, &release];
    assert_eq!(end_mib(&replayed("2.11.0", Changes::default(), &program)), (70, 70));
    assert_eq!(end_mib(&replayed("2.11.0", without_calls(), &program)), (70, 70));
    // Nothing was unused right after the last request: the pool may have been destroyed then, and released by a call
    // while the program allocated from another pool.
    let program = [&first[..], &second, &free, &of_default, &release];
    assert_eq!(end_mib(&replayed("2.11.0", Changes::default(), &program)), (70, 70));
    assert_eq!(end_mib(&replayed("2.11.0", without_calls(), &program)), (70, 90));
}

#[test]
fn a_call_while_a_program_allocates_from_a_pool_releases_destroyed_pools_only() {
    let pools = [used(100, 20, POOL), used(200, 30, POOL), used(300, 10, OTHER)].concat();
    let of_default = [used(400, 40, DEFAULT_POOL), freed(400, 40, DEFAULT_POOL)].concat();
    let destroyed = [&freed(100, 20, POOL)[..], &released(100, 20, POOL)].concat();
    // The pool is released again, and unused memory of the default pool is not.
    let called = [&freed(200, 30, POOL)[..], &released(200, 30, POOL)].concat();
    let program = [&pools[..], &of_default, &destroyed, &called];
    let case = replayed("2.11.0", Changes::default(), &program);
    assert_eq!((end_mib(&case), case.difference_bytes), ((50, 50), 0));
    // Without the call, the pool keeps what was freed after it was destroyed.
    assert_eq!(end_mib(&replayed("2.11.0", without_calls(), &program)), (80, 100));
}

/// An expandable segment has unused pages where a segment of 40 MiB has a block in use, and the destructor releases them.
#[test]
fn a_pool_may_be_destroyed_while_nothing_of_it_is_unused_on_record() {
    let end = |conf: &str, may_be_destroyed: bool| {
        let mut replays = Ensemble::new(Served::new(Settings::parse(conf, "2.11.0"), None, None), None);
        let events = [(Action::Alloc, 100, 20), (Action::Alloc, 120, 10), (Action::FreeCompleted, 100, 20)];
        events.iter().for_each(|(action, addr, size)| replays.event(&event_of(*action, *addr, *size)));
        if may_be_destroyed {
            replays.may_destroy(POOL);
        }
        replays.catch_up();
        let end = replays.range(|served| served.counts().reserved_bytes / MIB);
        (end.min, end.max)
    };
    assert_eq!(end("expandable_segments:True", false), (40, 40));
    assert_eq!(end("expandable_segments:True", true), (20, 40));
}

fn event_of(action: Action, addr: u64, size: u64) -> Event {
    Event {
        ts: 0,
        action,
        addr: addr * MIB,
        size_bytes: size * MIB,
        stream: 0,
        pool: POOL,
        tid: 1,
        stack: None,
        is_of_empty_cache: false,
    }
}

/// Two segments have a free block of 11 MiB each. The one that was reserved first has the higher address.
#[test]
fn the_control_tells_whether_older_segments_are_preferred() {
    let segment = |addr: u64| {
        let block = |at| (Action::Alloc, at, 9, DEFAULT_POOL);
        [(Action::SegmentAlloc, addr, 20, DEFAULT_POOL), block(addr), block(addr + 9)]
    };
    let program = [
        &segment(800)[..],
        &segment(100),
        &freed(809, 9, DEFAULT_POOL),
        &freed(109, 9, DEFAULT_POOL),
        &[(Action::Alloc, 809, 9, DEFAULT_POOL)],
        &freed(100, 9, DEFAULT_POOL),
        &released(100, 20, DEFAULT_POOL),
        &used(500, 50, DEFAULT_POOL),
    ];
    for (version, is_exact) in [("2.12.0", false), ("2.13.0", true), ("", true)] {
        let case = replayed(version, Changes::default(), &program);
        let found = (case.equal_count == case.requests_count, case.difference_bytes);
        assert_eq!(found, (is_exact, if is_exact { 0 } else { 20 * MIB }), "{version}");
    }
}

/// With steps of a half, requests above 32 MiB get 48 MiB, which the device has no room for.
#[test]
fn what_a_failed_request_asked_for_is_open_where_it_was_rounded() {
    let outcomes = |text: &str, least_mib: u64| {
        let served = Served::new(Settings::parse(text, "2.11.0"), Some(40 * MIB), None);
        let mut replays = Ensemble::new(served, None);
        replays.failed(&event_of(Action::Oom, 0, 48), least_mib * MIB + 1);
        replays.catch_up();
        let served_count = replays.all().filter(|served| served.ended.is_some()).count();
        (served_count > 0, served_count == replays.all().count())
    };
    assert_eq!(outcomes("", 32), (true, false));
    assert_eq!(outcomes("", 40), (false, false));
    assert_eq!(outcomes("roundup_power2_divisions:2", 32), (false, false), "it is rounded again");
}
