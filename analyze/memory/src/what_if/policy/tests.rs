//! Tests of the allocator's decisions: each at its boundary, and the accounts of any workload.

use super::{super::private_pools::Scope, *};

mod properties;

const MIB: u64 = 1 << 20;

/// The class of large blocks of the default pool.
const LARGE: Class = COLLECTED;

fn settings(text: &str) -> Settings {
    let settings = Settings::parse(text, "");
    assert!(settings.refused.is_empty() && settings.not_simulated.is_empty(), "{text}: {settings:?}");
    settings
}

/// Returns an allocator whose large free blocks of the default stream have these sizes, each a whole segment.
fn with_free(text: &str, capacity_bytes: Option<u64>, sizes: &[u64]) -> Policy {
    let mut policy = Policy::new(settings(text), capacity_bytes, None);
    sizes.iter().for_each(|bytes| add_free(&mut policy, 0, *bytes));
    policy
}

fn add_free(policy: &mut Policy, stream: u64, size_bytes: u64) {
    let (addr, space) = policy.space(LARGE, stream, size_bytes, None);
    policy.insert_free(addr, Block { size_bytes, is: Use::Free, space, free_since: 0 });
    policy.counts.reserved_bytes += size_bytes;
}

fn alloc(policy: &mut Policy, bytes: u64) -> Option<u64> {
    policy.alloc(bytes, 0, DEFAULT_POOL)
}

/// Allocates a block that is free again afterwards.
fn use_once(policy: &mut Policy, bytes: u64) {
    let addr = alloc(policy, bytes).expect("memory");
    policy.free_completed(addr);
}

#[test]
fn a_block_that_is_too_large_to_be_split_serves_only_requests_of_about_its_size() {
    const SPLIT: &str = "max_split_size_mb:21";
    for (text, size, block, serves) in [
        // A request below the limit gets no block from the limit on.
        (SPLIT, 20 * MIB, 21 * MIB - 512, true),
        (SPLIT, 20 * MIB, 21 * MIB, false),
        (SPLIT, 21 * MIB - 512, 21 * MIB - 512, true),
        (SPLIT, 21 * MIB - 512, 21 * MIB, false),
        // Any other request gets a block that is less than 20 MiB larger, or than what is set.
        (SPLIT, 21 * MIB, 21 * MIB, true),
        (SPLIT, 21 * MIB, 41 * MIB - 512, true),
        (SPLIT, 21 * MIB, 41 * MIB, false),
        ("max_split_size_mb:21,max_non_split_rounding_mb:22", 21 * MIB, 43 * MIB - 512, true),
        ("max_split_size_mb:21,max_non_split_rounding_mb:22", 21 * MIB, 43 * MIB, false),
        ("", 20 * MIB, 1 << 40, true),
        ("", 20 * MIB, 20 * MIB - 512, false),
    ] {
        let policy = with_free(text, None, &[block]);
        assert_eq!(policy.best_fit(LARGE, 0, size).is_some(), serves, "{text} {size} {block}");
        assert_eq!(policy.best_fit(LARGE, 1, size), None, "it is of another stream");
        assert_eq!(policy.best_fit((DEFAULT_POOL, true), 0, size), None, "it is of another size class");
    }
    // Of several that fit, the smallest is taken, and of these the one at the lowest address.
    let policy = with_free("", None, &[30 * MIB, 22 * MIB, 22 * MIB, 20 * MIB]);
    assert_eq!(policy.best_fit(LARGE, 0, 21 * MIB), Some(policy.spaces[1].addr));
}

#[test]
fn a_remainder_is_split_off_if_it_can_serve_others() {
    for (text, block, bytes, taken) in [
        ("", 4 * MIB, 3 * MIB - 512, 3 * MIB - 512),
        ("", 4 * MIB, 3 * MIB, 4 * MIB),
        ("max_split_size_mb:21", 40 * MIB, 21 * MIB, 40 * MIB),
        ("max_split_size_mb:21", 20 * MIB, 10 * MIB, 10 * MIB),
    ] {
        let mut policy = with_free(text, None, &[block]);
        alloc(&mut policy, bytes).expect("memory");
        assert_eq!(policy.counts.allocated_bytes, taken, "{text} {block} {bytes}");
        assert_eq!((policy.counts.reserved_bytes, policy.counts.asked_count), (block, 0));
    }
    let mut policy = with_free("", None, &[20 * MIB]);
    policy.keep_whole(DEFAULT_POOL);
    alloc(&mut policy, 10 * MIB).expect("memory");
    assert_eq!(policy.counts.allocated_bytes, 20 * MIB, "a pool that does not split");
    // A small block is split to the last 512 bytes.
    let mut policy = Policy::new(settings(""), None, None);
    alloc(&mut policy, MIB).expect("memory");
    assert_eq!((policy.counts.allocated_bytes, policy.counts.reserved_bytes), (MIB, 2 * MIB));
    alloc(&mut policy, MIB - 512).expect("memory");
    alloc(&mut policy, 1).expect("memory");
    assert_eq!((policy.counts.allocated_bytes, policy.counts.reserved_bytes), (2 * MIB, 2 * MIB));
    alloc(&mut policy, 1).expect("memory");
    assert_eq!((policy.counts.reserved_bytes, policy.counts.asked_count), (4 * MIB, 2));
}

#[test]
fn memory_is_reserved_up_to_the_limit_of_the_process_and_of_the_device() {
    let half = settings("per_process_memory_fraction:0.5");
    for (mut policy, limit) in [
        (Policy::new(half.clone(), None, Some(80 * MIB)), Some(40 * MIB)),
        (Policy::new(Settings::default(), Some(40 * MIB), Some(80 * MIB)), None),
    ] {
        assert_eq!(policy.limit_bytes(), limit);
        let first = alloc(&mut policy, 20 * MIB).expect("memory");
        alloc(&mut policy, 20 * MIB).expect("just as much as there is");
        assert_eq!((alloc(&mut policy, 1), policy.counts.retries_count), (None, 1));
        // What is unused is released for a request.
        policy.free_completed(first);
        alloc(&mut policy, 1).expect("memory");
        let Counts { reserved_bytes, peak_reserved_bytes, given_back_count, retries_count, .. } =
            policy.counts;
        assert_eq!((reserved_bytes, peak_reserved_bytes), (22 * MIB, 40 * MIB));
        assert_eq!((given_back_count, retries_count), (1, 2));
    }
    assert_eq!(Policy::new(half, None, None).limit_bytes(), None, "the device is not known");
}

#[test]
fn segments_that_were_unused_for_at_least_the_average_are_released_above_the_threshold() {
    // Segments of 20, 22 and 24 MiB have been unused for so many requests, and the next one needs 26 MiB.
    for (threshold, ages, reserved, released) in [
        (66, [3, 2, 1], 66 + 26, 0),
        (65, [3, 2, 1], 24 + 26, 2),
        (24, [3, 2, 1], 24 + 26, 2),
        (23, [3, 2, 1], 26, 3),
        (46, [9, 2, 1], 46 + 26, 1),
        (45, [9, 2, 1], 24 + 26, 2),
        (65, [2, 2, 2], 26, 3),
    ] {
        let mut policy = with_free("", None, &[20 * MIB, 22 * MIB, 24 * MIB]);
        policy.collects_over_bytes = Some(threshold * MIB);
        policy.requests_count = 10;
        for (block, age) in policy.blocks.values_mut().zip(ages) {
            block.free_since = 11 - age;
        }
        alloc(&mut policy, 26 * MIB).expect("memory");
        let Counts { reserved_bytes, given_back_count, .. } = policy.counts;
        assert_eq!((reserved_bytes, given_back_count), (reserved * MIB, released), "{threshold} {ages:?}");
    }
}

#[test]
fn only_whole_segments_of_large_blocks_are_released_early() {
    let collecting = |device_mib: u64| {
        let text = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5";
        Policy::new(settings(text), None, Some(device_mib * MIB))
    };
    // Requests for small blocks do not count as time: the first two are as old as the average, or older.
    let mut policy = collecting(240);
    assert_eq!((policy.limit_bytes(), policy.collects_over_bytes), (Some(120 * MIB), Some(60 * MIB)));
    use_once(&mut policy, 20 * MIB);
    (0..9).for_each(|_| use_once(&mut policy, 1));
    use_once(&mut policy, 22 * MIB);
    use_once(&mut policy, 24 * MIB);
    alloc(&mut policy, 26 * MIB).expect("memory");
    assert_eq!((policy.counts.reserved_bytes, policy.counts.given_back_count), ((24 + 2 + 26) * MIB, 2));
    // Of one that is partly in use, nothing is released.
    let mut policy = collecting(160);
    let first = alloc(&mut policy, 9 * MIB).expect("memory");
    alloc(&mut policy, 9 * MIB).expect("memory");
    policy.free_completed(first);
    alloc(&mut policy, 30 * MIB).expect("memory");
    alloc(&mut policy, 28 * MIB).expect("memory");
    assert_eq!((policy.counts.reserved_bytes, policy.counts.given_back_count), (78 * MIB, 0));
}

#[test]
fn large_blocks_are_released_for_a_request_before_everything_is() {
    const SPLIT: &str = "max_split_size_mb:21";
    for (text, capacity, free, request, reserved, released, retries) in [
        // The smallest block that is large enough, though too large to serve the request.
        (SPLIT, 110, vec![50, 52], 25, 52 + 26, 1, 0),
        // Several that are together: the largest first, and no more than are needed.
        (SPLIT, 66, vec![21, 22, 22], 44, 21 + 44, 2, 0),
        (SPLIT, 90, vec![22, 24], 46, 46, 2, 0),
        // They are not enough, and those that could be split do not count.
        (SPLIT, 66, vec![20, 22], 46, 46, 2, 1),
        (SPLIT, 60, vec![22], 40, 40, 1, 1),
        // Without the setting, everything is.
        ("", 60, vec![22, 24], 40, 40, 2, 1),
    ] {
        let sizes: Vec<u64> = free.iter().map(|mib| mib * MIB).collect();
        let mut policy = with_free(text, Some(capacity * MIB), &sizes);
        alloc(&mut policy, request * MIB).expect("memory");
        let Counts { reserved_bytes, given_back_count, retries_count, .. } = policy.counts;
        assert_eq!(
            (reserved_bytes, given_back_count, retries_count),
            (reserved * MIB, released, retries),
            "{free:?}"
        );
    }
    // Those of another stream are released with everything else.
    for (stream, of) in [(0, 1), (1, 0)] {
        let mut policy = with_free(SPLIT, Some(60 * MIB), &[]);
        add_free(&mut policy, of, 50 * MIB);
        policy.alloc(25 * MIB, stream, DEFAULT_POOL).expect("memory");
        assert_eq!((policy.counts.reserved_bytes, policy.counts.retries_count), (26 * MIB, 1));
    }
}

#[test]
fn an_expandable_segment_grows_and_shrinks_by_pages() {
    let mut policy = Policy::new(settings("expandable_segments:True"), None, None);
    let first = alloc(&mut policy, 5 * MIB).expect("memory");
    let second = alloc(&mut policy, 15 * MIB).expect("memory");
    assert_eq!((second - first, policy.counts.reserved_bytes), (5 * MIB, 20 * MIB));
    let third = alloc(&mut policy, 5 * MIB).expect("memory");
    assert_eq!((third - first, policy.counts.reserved_bytes), (20 * MIB, 40 * MIB));
    // Whole pages are released: that of the first two blocks.
    policy.free_completed(first);
    policy.empty_cache();
    assert_eq!((policy.counts.reserved_bytes, policy.effect(Scope::All).released_count), (40 * MIB, 0));
    policy.free_completed(second);
    assert_eq!(policy.effect(Scope::All).released_count, 1);
    policy.empty_cache();
    assert_eq!((policy.counts.reserved_bytes, policy.effect(Scope::All).released_count), (20 * MIB, 0));
    // It does not fit into the page at the beginning, and goes on from the free end of the last one.
    let long = alloc(&mut policy, 30 * MIB).expect("memory");
    assert_eq!((long - first, policy.counts.reserved_bytes), (25 * MIB, 40 * MIB));
    // Small blocks have an address range and pages of their own.
    let small = alloc(&mut policy, 1).expect("memory");
    assert!(small > long + DEVICE_BYTES && policy.counts.reserved_bytes == 42 * MIB);
    for addr in [third, long, small] {
        policy.free_completed(addr);
    }
    policy.empty_cache();
    assert_eq!((policy.counts.reserved_bytes, policy.blocks.len()), (0, 0));
}

#[test]
fn a_free_block_that_can_grow_counts_as_large_as_it_can_become() {
    let mut policy = Policy::new(settings("expandable_segments:True"), None, None);
    let first = alloc(&mut policy, 6 * MIB).expect("memory");
    alloc(&mut policy, 9 * MIB).expect("memory");
    // 6 MiB between blocks in use, and 5 MiB with addresses behind them.
    policy.free_completed(first);
    assert_eq!(alloc(&mut policy, 4 * MIB), Some(first));
    assert_eq!(alloc(&mut policy, 5 * MIB), Some(first + 15 * MIB));
}

#[test]
fn whole_pages_lie_within_a_range() {
    for (offset, bytes, expected) in
        [(0, 20, 0..20), (0, 19, 0..0), (1, 20, 20..20), (20, 20, 20..40), (5, 35, 20..40), (5, 34, 20..20)]
    {
        assert_eq!(whole_pages(offset, bytes, 20), expected, "{offset} {bytes}");
    }
    assert!(whole_pages(5, 10, 20).is_empty());
}

#[test]
fn unused_memory_of_a_private_pool_is_released_once_the_pool_is_destroyed() {
    const POOL: PoolId = (1, 0);
    let mut policy = Policy::new(Settings::default(), None, None);
    let addr = policy.alloc(20 * MIB, 0, POOL).expect("memory");
    policy.free_completed(addr);
    assert!(!policy.can_release(Scope::All) && policy.best_fit(LARGE, 0, MIB).is_none());
    policy.empty_cache();
    assert_eq!(policy.counts.reserved_bytes, 20 * MIB);
    policy.destroy_pool(POOL);
    policy.destroy_pool(POOL);
    assert!(
        [Scope::All, Scope::Destroyed, Scope::Pool(POOL)].into_iter().all(|scope| policy.can_release(scope))
    );
    assert!(!policy.has_releasable_by_default());
    policy.empty_cache();
    assert_eq!((policy.counts.reserved_bytes, policy.can_release(Scope::All)), (0, false));
}

#[test]
fn blocks_of_one_size_in_several_segments_are_a_tie_if_the_choice_matters() {
    let tie = |policy: &Policy, bytes| policy.has_tie(bytes, 0, DEFAULT_POOL);
    // Whole segments can stand for each other, unless their age matters.
    let mut policy = with_free("", None, &[22 * MIB, 22 * MIB, 24 * MIB]);
    assert!(!tie(&policy, 21 * MIB) && !tie(&policy, 23 * MIB) && !tie(&policy, 25 * MIB));
    policy.collects_over_bytes = Some(0);
    assert!(tie(&policy, 21 * MIB) && !tie(&policy, 23 * MIB));
    // Two segments with 9 MiB in use, 9 MiB that are free, and a rest each.
    let mut policy = Policy::new(Settings::default(), None, None);
    let blocks: Vec<u64> = (0..4).map(|_| alloc(&mut policy, 9 * MIB).expect("memory")).collect();
    policy.free_completed(blocks[0]);
    assert!(!tie(&policy, 8 * MIB), "there is only one");
    policy.free_completed(blocks[2]);
    assert!(tie(&policy, 8 * MIB) && tie(&policy, 9 * MIB) && !tie(&policy, 9 * MIB + 512));
}

#[test]
fn a_block_that_other_streams_use_is_active_until_they_are_done() {
    let mut policy = Policy::new(Settings::default(), None, None);
    let addr = alloc(&mut policy, 20 * MIB).expect("memory");
    let bytes = |policy: &Policy| (policy.counts.allocated_bytes / MIB, policy.counts.active_bytes / MIB);
    assert_eq!(bytes(&policy), (20, 20));
    policy.free_requested(addr);
    policy.free_requested(addr);
    assert_eq!((bytes(&policy), policy.can_release(Scope::All)), ((0, 20), true));
    policy.free_completed(addr);
    policy.free_completed(addr);
    assert_eq!((bytes(&policy), policy.can_release(Scope::All)), ((0, 0), true));
    assert_eq!(alloc(&mut policy, 20 * MIB), Some(addr));
}

#[test]
fn a_segment_that_was_recorded_has_its_address_if_nothing_is_there() {
    let mut policy = Policy::new(Settings::default(), None, None);
    policy.see(4096, 22 * MIB);
    policy.see(8192, 20 * MIB);
    assert_eq!(alloc(&mut policy, 20 * MIB), Some(8192), "the one of that size");
    policy.see(8192 + 20 * MIB - 1, 20 * MIB);
    let other = alloc(&mut policy, 20 * MIB).expect("memory");
    assert!(other >= FIRST_ADDR, "something is there: {other:x}");
    policy.see(8192 + 20 * MIB, 20 * MIB);
    assert_eq!(alloc(&mut policy, 20 * MIB), Some(8192 + 20 * MIB));
    policy.see(1 << 40, 30 * MIB);
    alloc(&mut policy, 1).expect("memory");
    assert!(
        alloc(&mut policy, 30 * MIB).is_some_and(|addr| addr >= FIRST_ADDR),
        "it was for the request before"
    );
}

#[test]
fn a_request_to_a_private_pool_releases_nothing_before_pytorch_2_13_and_for_cuda_graphs() {
    for (version, pool, is_served, is_open) in [
        ("2.12.0", (0, 7), false, false),
        ("2.13.0", (0, 7), true, true),
        ("", (0, 7), true, true),
        ("2.13.0", (7, 0), false, false),
        ("2.12.0", DEFAULT_POOL, true, false),
    ] {
        let mut policy = Policy::new(Settings::parse("", version), Some(60 * MIB), None);
        use_once(&mut policy, 40 * MIB);
        assert_eq!(policy.is_release_open(30 * MIB, 0, pool), is_open, "{version} {pool:?}");
        assert!(!policy.is_release_open(20 * MIB, 0, pool), "there is room");
        assert_eq!(policy.alloc(30 * MIB, 0, pool).is_some(), is_served, "{version} {pool:?}");
        assert_eq!(policy.counts.given_back_count, u64::from(is_served && pool != DEFAULT_POOL));
    }
}

#[test]
fn each_release_is_for_its_pools() {
    const POOLS: [PoolId; 2] = [(1, 0), (2, 0)];
    let unused = || {
        let mut policy = Policy::new(Settings::default(), None, None);
        for (pool, bytes) in POOLS.into_iter().chain([DEFAULT_POOL]).zip([20 * MIB, 40 * MIB, 80 * MIB]) {
            let addr = policy.alloc(bytes, 0, pool).expect("memory");
            policy.free_completed(addr);
        }
        policy.destroy_pool(POOLS[0]);
        policy
    };
    for (scope, expected) in [
        (Scope::All, 40),
        (Scope::Destroyed, 40 + 80),
        (Scope::Pool(POOLS[0]), 40 + 80),
        (Scope::Pool(POOLS[1]), 20 + 80),
    ] {
        let mut policy = unused();
        assert!(policy.can_release(scope));
        policy.release_scope(scope);
        assert_eq!(policy.counts.reserved_bytes, expected * MIB, "{scope:?}");
        assert!(!policy.can_release(scope));
    }
    let policy = unused();
    let count = |scope, pool| policy.effect_once_destroyed(scope, pool).released_count;
    assert_eq!((count(Scope::All, POOLS[1]), count(Scope::All, POOLS[0])), (3, 2));
    assert_eq!((count(Scope::Destroyed, POOLS[1]), count(Scope::Pool(POOLS[0]), POOLS[1])), (2, 1));
}

#[test]
fn older_segments_are_preferred_since_pytorch_2_13() {
    for (version, prefers_older, has_tie) in
        [("2.12.0", false, true), ("2.13.0", true, false), ("", false, true)]
    {
        let mut policy = Policy::new(Settings::parse("", version), None, None);
        let mut blocks = Vec::new();
        for start in [90, 30] {
            policy.see(start * MIB, 20 * MIB);
            blocks.extend((0..2).map(|_| alloc(&mut policy, 9 * MIB).expect("memory")));
        }
        assert_eq!(blocks, [90, 99, 30, 39].map(|start| start * MIB));
        policy.free_completed(blocks[1]);
        policy.free_completed(blocks[3]);
        assert_eq!(policy.has_tie(9 * MIB, 0, DEFAULT_POOL), has_tie, "{version}");
        let expected = if prefers_older { blocks[1] } else { blocks[3] };
        assert_eq!(alloc(&mut policy, 9 * MIB), Some(expected), "{version}");
    }
}
