//! Events that contradict the replayed state: what is counted, and what the replay makes of them. (What events that
//! contradict nothing make is compared with PyTorch's allocator in `oracle`, and with the policy of what-if.)

use super::*;
use crate::totals::DEFAULT_POOL;

const MIB: u64 = 1 << 20;

/// Where the first segment is.
const SEG: u64 = 1 << 40;

type Given = (Action, u64, u64);

const S: Given = (Action::SegmentAlloc, SEG, 20 * MIB);

fn replay(events: &[Given], knowledge: Knowledge) -> Allocator {
    let mut allocator = Allocator::new(Settings::default(), knowledge);
    for (ts, (action, addr, size_bytes)) in (0..).zip(events.iter().copied()) {
        let (stream, pool, tid, stack, is_of_empty_cache) = (0, DEFAULT_POOL, 0, None, false);
        let event = Event { ts, action, addr, size_bytes, stream, pool, tid, stack, is_of_empty_cache };
        allocator.apply(&event, &mut ());
    }
    allocator
}

fn alloc(addr: u64, bytes: u64) -> Given {
    (Action::Alloc, addr, bytes)
}

fn free_requested(addr: u64, bytes: u64) -> Given {
    (Action::FreeRequested, addr, bytes)
}

fn free_completed(addr: u64, bytes: u64) -> Given {
    (Action::FreeCompleted, addr, bytes)
}

/// Reserved, allocated, active and unknown bytes.
fn sums(allocator: &Allocator) -> [u64; 4] {
    let totals = allocator.totals();
    [totals.reserved_bytes, totals.allocated_bytes, totals.active_bytes, totals.unknown_bytes]
        .map(|b| b as u64)
}

#[test]
fn contradictions_are_counted_and_the_events_believed() {
    const TOO_MUCH: u64 = MAX_BYTES + 1;
    let last = u64::MAX - 2 * MAX_BYTES;
    for (events, fault, expected) in [
        // A block where another one is active.
        (
            vec![S, alloc(SEG, 5 * MIB), alloc(SEG, 6 * MIB)],
            Some(Fault::FreeMissed),
            [20, 6, 6, 0].map(|m| m * MIB),
        ),
        // Blocks that begin later than free memory does.
        (vec![S, alloc(SEG + 8 * MIB, 4 * MIB)], Some(Fault::AllocMissed), [20, 4, 4, 8].map(|m| m * MIB)),
        (
            vec![S, alloc(SEG, 3 * MIB), alloc(SEG + 4 * MIB, 3 * MIB)],
            Some(Fault::OtherRounding),
            [20, 6, 6, 1].map(|m| m * MIB),
        ),
        (
            vec![S, alloc(SEG, 3 * MIB), alloc(SEG + 4 * MIB + 512, 3 * MIB)],
            Some(Fault::AllocMissed),
            [20 * MIB, 6 * MIB, 6 * MIB, MIB + 512],
        ),
        // Frees of what is not active; a free that was requested may be completed twice.
        (vec![S, free_requested(SEG, 5 * MIB)], Some(Fault::UnknownFree), [20 * MIB, 0, 0, 0]),
        (
            vec![S, alloc(SEG, 5 * MIB), free_completed(SEG, 5 * MIB)],
            Some(Fault::UnknownFree),
            [20 * MIB, 0, 0, 0],
        ),
        (
            vec![
                S,
                alloc(SEG, 5 * MIB),
                free_requested(SEG, 5 * MIB),
                free_completed(SEG, 5 * MIB),
                free_completed(SEG, 5 * MIB),
            ],
            None,
            [20 * MIB, 0, 0, 0],
        ),
        (vec![free_requested(SEG, 5 * MIB)], Some(Fault::UnknownFree), [0; 4]),
        (vec![free_completed(SEG, 5 * MIB)], None, [0; 4]),
        (
            vec![S, (Action::UsageAlloc, SEG, 5 * MIB), (Action::UsageFree, SEG, 5 * MIB)],
            None,
            [20 * MIB, 0, 0, 0],
        ),
        (
            vec![S, alloc(SEG, 5 * MIB), free_requested(SEG, 6 * MIB)],
            Some(Fault::OtherSize),
            [20, 0, 5, 0].map(|m| m * MIB),
        ),
        // Blocks without enough memory, or without any.
        (
            vec![S, alloc(SEG, 15 * MIB), alloc(SEG + 15 * MIB, 6 * MIB)],
            Some(Fault::TooSmall),
            [20, 20, 20, 0].map(|m| m * MIB),
        ),
        (
            vec![S, alloc(SEG, 15 * MIB), alloc(SEG + 15 * MIB, 5 * MIB)],
            None,
            [20, 20, 20, 0].map(|m| m * MIB),
        ),
        (vec![alloc(SEG, 5 * MIB)], Some(Fault::NoSegment), [0, 5, 5, 0].map(|m| m * MIB)),
        (vec![S, alloc(SEG + 20 * MIB, 5 * MIB)], Some(Fault::NoSegment), [20, 5, 5, 0].map(|m| m * MIB)),
        // Segments.
        (vec![S, S], Some(Fault::SegmentFreeMissed), [20 * MIB, 0, 0, 0]),
        (
            vec![S, (Action::SegmentAlloc, SEG + 20 * MIB - 1, 20 * MIB)],
            Some(Fault::SegmentFreeMissed),
            [20 * MIB, 0, 0, 0],
        ),
        (vec![S, (Action::SegmentAlloc, SEG + 20 * MIB, 20 * MIB)], None, [40 * MIB, 0, 0, 0]),
        (vec![(Action::SegmentFree, SEG, 0)], Some(Fault::UnknownSegment), [0; 4]),
        (vec![S, alloc(SEG, 5 * MIB), (Action::SegmentFree, SEG, 0)], Some(Fault::SegmentInUse), [0; 4]),
        (vec![S, (Action::SegmentFree, SEG, 0)], None, [0; 4]),
        (
            vec![
                (Action::SegmentMap, SEG, 20 * MIB),
                alloc(SEG, 5 * MIB),
                (Action::SegmentUnmap, SEG, 20 * MIB),
            ],
            Some(Fault::SegmentInUse),
            [0; 4],
        ),
        // Sizes and addresses that no device has.
        (vec![(Action::SegmentAlloc, SEG, 0)], Some(Fault::NoSize), [0; 4]),
        (vec![(Action::SegmentMap, SEG, 0)], Some(Fault::NoSize), [0; 4]),
        (vec![alloc(SEG, TOO_MUCH)], Some(Fault::NoSize), [0; 4]),
        (vec![alloc(last + 1, 512)], Some(Fault::NoSize), [0; 4]),
        (vec![alloc(SEG, MAX_BYTES)], Some(Fault::NoSegment), [0, MAX_BYTES, MAX_BYTES, 0]),
        (vec![alloc(last, 512)], Some(Fault::NoSegment), [0, 512, 512, 0]),
    ] {
        let allocator = replay(&events, Knowledge::default());
        let faults: Faults = fault.into_iter().map(|fault| (fault, 1)).collect();
        assert_eq!((allocator.faults(), sums(&allocator)), (&faults, expected), "{events:x?}");
        // What missing events explain is no contradiction.
        let is_explained =
            matches!(fault, Some(Fault::NoSegment | Fault::UnknownSegment | Fault::SegmentFreeMissed))
                || events == [free_requested(SEG, 5 * MIB)];
        let partial = replay(&events, Knowledge { is_partial: true, ..Knowledge::default() });
        assert_eq!(partial.faults().is_empty(), is_explained || fault.is_none(), "{events:x?}");
        assert_eq!(sums(&partial), expected, "{events:x?}");
    }
}

/// Pages in the middle of a range of an expandable segment are released: two ranges remain.
#[test]
fn ranges_of_pages_split_and_join() {
    let map = |page: u64, count: u64| (Action::SegmentMap, SEG + page * 20 * MIB, count * 20 * MIB);
    let unmap = |page: u64, count: u64| (Action::SegmentUnmap, SEG + page * 20 * MIB, count * 20 * MIB);
    let extents = |events: &[Given]| -> Vec<(u64, u64)> {
        let allocator = replay(events, Knowledge::default());
        assert_eq!(allocator.faults(), &Faults::new());
        let pages = |segment: &Segment| ((segment.addr - SEG) / (20 * MIB), segment.size_bytes / (20 * MIB));
        let free: Vec<_> = allocator.blocks().map(|block| (block.addr, block.size_bytes)).collect();
        let there: Vec<_> = allocator.segments().map(|segment| (segment.addr, segment.size_bytes)).collect();
        assert_eq!(free, there, "one free block in each");
        allocator.segments().map(pages).collect()
    };
    assert_eq!(extents(&[map(0, 1), map(1, 1)]), [(0, 2)]);
    assert_eq!(extents(&[map(0, 1), map(2, 1)]), [(0, 1), (2, 1)]);
    assert_eq!(extents(&[map(0, 1), map(2, 1), map(1, 1)]), [(0, 3)]);
    assert_eq!(extents(&[map(0, 3), unmap(1, 1)]), [(0, 1), (2, 1)]);
    assert_eq!(extents(&[map(0, 3), unmap(0, 1)]), [(1, 2)]);
    assert_eq!(extents(&[map(0, 3), unmap(2, 1)]), [(0, 2)]);
    assert_eq!(extents(&[map(0, 3), unmap(0, 3)]), []);
}
