//! Tests of the sweep on literal and on random rows.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, UInt32Array},
    datatypes::DataType,
    row::{RowConverter, SortField},
};
use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// How rows with equal keys are found.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    NoKeys,
    Sorted,
    Numbered,
}

/// A row: its keys, start and inclusive end.
type Row = (u32, i64, i64);

/// Rows with short, long and reversed intervals.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let length = prop_oneof![6 => 0..9_i64, 1 => -6..0_i64, 1 => 30..60_i64];
    vec((0..3_u32, 0..40_i64, length).prop_map(|(key, start, length)| (key, start, start + length)), 0..30)
}

/// Cuts sorted rows into chunks of these sizes.
fn chunks(rows: &[Row], mode: Mode, sizes: &[usize]) -> VecDeque<(Chunk, Vec<Row>)> {
    let converter = RowConverter::new(vec![SortField::new(DataType::UInt32)]).unwrap();
    let mut sizes = sizes.iter().cycle();
    let (mut rest, mut found) = (rows, VecDeque::new());
    while !rest.is_empty() {
        let (rows, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        rest = after;
        let runs: Vec<&[Row]> = match mode {
            Mode::Sorted => rows.chunk_by(|a, b| a.0 == b.0).collect(),
            _ => vec![rows],
        };
        let firsts: ArrayRef = Arc::new(runs.iter().map(|run| Some(run[0].0)).collect::<UInt32Array>());
        let ends = runs.iter().scan(0, |end, run| {
            *end += run.len();
            Some(*end)
        });
        let chunk = Chunk {
            slot: 0,
            starts: rows.iter().map(|row| row.1).collect(),
            ends: rows.iter().map(|row| row.2).collect(),
            runs: ends.collect(),
            keys: (mode == Mode::Sorted).then(|| converter.convert_columns(&[firsts]).unwrap()),
            groups: (mode == Mode::Numbered).then(|| rows.iter().map(|row| row.0).collect()),
        };
        found.push_back((chunk, rows.to_vec()));
    }
    found
}

proptest! {
    /// Whatever the chunks, the number of pairs at once, and the times at which the active rows are copied together: the
    /// pairs are those of two nested loops, and no pair is of a slot that was not in use.
    #[test]
    fn pairs_are_those_of_two_nested_loops(
        sides in [rows(), rows()],
        mode in select(vec![Mode::NoKeys, Mode::Sorted, Mode::Numbered]),
        sizes in vec(1..7_usize, 1..4),
        limit in 1..5_usize,
        compacts in vec(any::<bool>(), 1..6),
    ) {
        let sides = sides.map(|mut rows| {
            rows.sort_unstable_by_key(|row| (if mode == Mode::Sorted { row.0 } else { 0 }, row.1));
            rows
        });
        let mut expected = Vec::new();
        for left in &sides[0] {
            let is_pair = |right: &&Row| {
                let has_keys = mode == Mode::NoKeys || left.0 == right.0;
                has_keys && left.1 <= right.2 && right.1 <= left.2
            };
            expected.extend(sides[1].iter().filter(is_pair).map(|right| (*left, *right)));
        }
        let mut waiting = sides.map(|rows| chunks(&rows, mode, &sizes));
        let mut last: [Option<Last>; 2] = [None, None];
        let mut held: [HashMap<usize, Vec<Row>>; 2] = Default::default();
        let (mut sweep, mut pairs, mut found) = (Sweep::default(), Pairs::default(), Vec::new());
        let (mut slots, mut compacts) = (0.., compacts.iter().cycle());
        loop {
            let step = sweep.advance(&mut pairs, limit);
            prop_assert!(pairs.len() <= limit);
            for (left, right) in pairs.0[0].iter().zip(&pairs.0[1]) {
                found.push((held[0][&left.0][left.1], held[1][&right.0][right.1]));
            }
            pairs.clear();
            for (side, held) in held.iter_mut().enumerate() {
                held.retain(|slot, _| sweep.uses(side, *slot));
            }
            let side = match step {
                Step::Done => break,
                Step::Full => continue,
                Step::Needs(side) => side,
            };
            if compacts.next() == Some(&true) {
                for (side, held) in held.iter_mut().enumerate() {
                    let places = sweep.places(side);
                    prop_assert_eq!(places.len(), sweep.active(side));
                    let slot = slots.next().unwrap();
                    sweep.moved(side, (0..places.len()).map(|row| (slot, row)));
                    let rows = places.iter().map(|(slot, row)| held[slot][*row]).collect();
                    held.insert(slot, rows);
                }
            }
            match waiting[side].pop_front() {
                Some((chunk, rows)) => {
                    prop_assert!(chunk.is_sorted(last[side].as_ref()));
                    last[side] = chunk.last();
                    let slot = slots.next().unwrap();
                    held[side].insert(slot, rows);
                    sweep.add(side, Chunk { slot, ..chunk });
                }
                None => sweep.finish(side),
            }
        }
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
    }
}

/// Sweeps one batch per side, without keys.
fn sweep(left: &[(i64, i64)], right: &[(i64, i64)], limit: usize) -> (Vec<(usize, usize)>, usize) {
    let mut sweep = Sweep::default();
    for (side, rows) in [left, right].into_iter().enumerate() {
        let starts = rows.iter().map(|row| row.0).collect();
        let ends = rows.iter().map(|row| row.1).collect();
        sweep.add(side, Chunk { slot: 0, starts, ends, runs: vec![rows.len()], keys: None, groups: None });
    }
    let (mut pairs, mut found, mut most) = (Pairs::default(), Vec::new(), 0);
    loop {
        let step = sweep.advance(&mut pairs, limit);
        most = most.max(sweep.active(0)).max(sweep.active(1));
        found.extend(pairs.0[0].iter().zip(&pairs.0[1]).map(|(left, right)| (left.1, right.1)));
        pairs.clear();
        match step {
            Step::Done => break,
            Step::Full => (),
            Step::Needs(side) => sweep.finish(side),
        }
    }
    found.sort_unstable();
    (found, most)
}

#[test]
fn pairs_the_timeline_of_the_module() {
    // The intervals are a and c, and x and y, with inclusive ends.
    let (left, right) = ([(0, 14), (20, 26)], [(5, 12), (14, 40)]);
    for limit in [1, 2, 100] {
        assert_eq!(sweep(&left, &right, limit).0, [(0, 0), (0, 1), (1, 1)]);
    }
}

#[test]
fn a_chunk_out_of_order_is_noticed() {
    let chunk = |starts: Vec<i64>| {
        let (runs, ends) = (vec![starts.len()], starts.clone().into());
        Chunk { slot: 0, starts: starts.into(), ends, runs, keys: None, groups: None }
    };
    let last = chunk(vec![1, 2]).last();
    assert!(chunk(vec![2, 2, 3]).is_sorted(last.as_ref()));
    assert!(!chunk(vec![1, 2]).is_sorted(last.as_ref()));
    assert!(!chunk(vec![3, 2]).is_sorted(None));
    // Within equal keys, starts rise; keys rise, too, within a chunk and from one to the next.
    let keyed = |rows: &[Row]| chunks(rows, Mode::Sorted, &[9]).remove(0).map(|(chunk, _)| chunk).unwrap();
    let last = keyed(&[(0, 7, 7), (1, 5, 5)]).last();
    for (rows, expected) in [
        (vec![(1, 5, 5), (2, 1, 1)], true),
        (vec![(2, 1, 1)], true),
        (vec![(1, 4, 4)], false),
        (vec![(0, 9, 9)], false),
        (vec![(1, 6, 6), (1, 5, 5)], false),
        (vec![(2, 6, 6), (1, 6, 6)], false),
    ] {
        assert_eq!(keyed(&rows).is_sorted(last.as_ref()), expected, "{rows:?}");
    }
}

#[test]
fn a_turned_around_interval_matches_what_it_lies_in() {
    assert_eq!(sweep(&[(6, 4)], &[(0, 3), (1, 9), (5, 9)], 9).0, [(0, 1)]);
}

#[test]
fn rows_meet_within_their_groups_and_leave_all_of_them() {
    // There are two rounds of 20,000 groups. Each round has one row per group; one row in three is long,
    // the others are points.
    let rows = 40_000;
    let chunk = |offset: i64| {
        let starts: Vec<i64> = (0..rows).map(|row| 4 * row + offset).collect();
        let ends = starts.iter().map(|start| if start / 4 % 3 == 0 { start + 9 } else { *start });
        let groups = (0..rows).map(|row| (row % 20_000) as u32).collect();
        let (ends, runs) = (ends.collect(), vec![rows as usize]);
        Chunk { slot: 0, ends, starts: starts.into(), runs, keys: None, groups: Some(groups) }
    };
    let mut sweep = Sweep::default();
    (0..2).for_each(|side| sweep.add(side, chunk(side as i64)));
    let mut pairs = Pairs::default();
    let (mut found, mut most) = (0, 0);
    loop {
        let step = sweep.advance(&mut pairs, 100);
        most = most.max(sweep.active(0)).max(sweep.active(1));
        // The rows of a group are 80,000 apart, except for the pair that starts almost at the same time.
        assert!(pairs.0[0].iter().zip(&pairs.0[1]).all(|(left, right)| left.1 == right.1 && left.1 % 3 == 0));
        found += pairs.len();
        pairs.clear();
        match step {
            Step::Done => break,
            Step::Full => (),
            Step::Needs(side) => sweep.finish(side),
        }
    }
    assert_eq!(found as i64, (rows + 2) / 3);
    assert!(most <= 2 * 20_000, "{most} rows were active at once");
}

#[test]
fn rows_that_have_ended_do_not_pile_up() {
    let short: Vec<_> = (0..50_000).map(|start| (start, start)).collect();
    let (pairs, most) = sweep(&short, &[(0, 0), (49_999, 49_999)], 10);
    assert_eq!(pairs, [(0, 0), (49_999, 1)]);
    assert!(most <= SMALL, "{most} rows were active at once");
}
