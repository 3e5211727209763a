//! The sweep: finds the rows of two sorted inputs that have equal keys and overlapping intervals.
//!
//! Both sides are sorted by (keys, start), or by start alone with the number of each row's keys (its
//! *group*). Of the two front rows, the sweep takes the one that starts first and pairs it with every row of
//! the other side that is still *active* in its group. The row then becomes active itself, unless the other
//! side's next row starts after its end:
//!
//! ```text
//! left    ├───── a ─────┤      ├─ c ─┤
//! right        ├── x ──┤    ├─────── y ───────┤
//!         ─────┬────────────┬──┬─────────────────► start
//!              x meets a    │  c meets y
//!                           y: a has ended, and leaves the active rows
//! ```
//!
//! Two rows match if each starts no later than the other ends. When the later row of a matching pair is
//! taken, the earlier one is active, because it ends no earlier than the later one starts. So no pair is
//! missed, whatever the intervals are. An interval that ends before it starts is never active (no later row
//! can match it), but it is still compared with the active rows, because it can lie, reversed, inside one of
//! them.
//!
//! Starts and ends are ordinals (the module `ordinal`), and ends are inclusive: open ends have been decreased
//! by one. A row is looked at only while it matches, or once when it leaves, so the work is linear in rows
//! and matches, except for reversed intervals.

use std::cmp::Ordering;

use arrow::{
    buffer::ScalarBuffer,
    row::{OwnedRow, Rows},
};

/// A row of a batch: the slot of the batch, and the index of the row in it.
pub(super) type Place = (usize, usize);

/// One batch of a side, ready to be swept.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The slot in which the batch is kept.
    pub(super) slot: usize,
    /// The start of each row.
    pub(super) starts: ScalarBuffer<i64>,
    /// The inclusive end of each row.
    pub(super) ends: ScalarBuffer<i64>,
    /// The end of each run of rows with equal keys.
    pub(super) runs: Vec<usize>,
    /// The keys of each run. `None` if the join has no equality keys, or if the rows are sorted by start
    /// alone.
    pub(super) keys: Option<Rows>,
    /// The number of each row's keys if the rows are sorted by start alone.
    pub(super) groups: Option<Vec<u32>>,
}

/// The last keys and the last start of a chunk.
pub(super) type Last = (Option<OwnedRow>, i64);

impl Chunk {
    /// Returns whether the rows are sorted and follow the last row of the chunk before. The sweep would
    /// silently miss pairs if an input were not sorted as required, so this is always checked.
    pub(super) fn is_sorted(&self, before: Option<&Last>) -> bool {
        let begins = [0].into_iter().chain(self.runs.iter().copied());
        let starts_are = begins.zip(&self.runs).all(|(from, to)| self.starts[from..*to].is_sorted());
        let continues = match (before, &self.keys) {
            (Some((Some(last), start)), Some(keys)) => match last.row().cmp(&keys.row(0)) {
                Ordering::Equal => *start <= self.starts[0],
                order => order == Ordering::Less,
            },
            (Some((_, start)), _) => *start <= self.starts[0],
            (None, _) => true,
        };
        starts_are && continues && self.keys.as_ref().is_none_or(|keys| keys.iter().is_sorted())
    }

    fn group(&self, row: usize) -> usize {
        self.groups.as_ref().map_or(0, |groups| groups[row] as usize)
    }

    /// Returns the keys and start that the next chunk must not precede.
    pub(super) fn last(&self) -> Option<Last> {
        let keys = self.keys.as_ref().map(|keys| keys.row(keys.num_rows() - 1).owned());
        Some((keys, *self.starts.last()?))
    }
}

/// The pairs found: the rows of the left side, and the rows of the right side at the same indices.
#[derive(Debug, Default)]
pub(super) struct Pairs(pub(super) [Vec<Place>; 2]);

impl Pairs {
    pub(super) fn len(&self) -> usize {
        self.0[0].len()
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(Vec::clear);
    }
}

/// The reason why the sweep stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// As many pairs as requested have been found.
    Full,
    /// The sweep needs the next batch of this side, or to be told that there is none.
    Needs(usize),
    /// There are no further pairs.
    Done,
}

/// A row that rows of the other side can still match.
#[derive(Clone, Copy, Debug)]
struct Active {
    start: i64,
    end: i64,
    slot: u32,
    row: u32,
}

/// The size of one active row in bytes.
pub(super) const ACTIVE_BYTES: usize = size_of::<Active>();

/// The number of active rows below which ended rows are not searched for.
const SMALL: usize = 1024;

/// The state of one side.
#[derive(Debug, Default)]
struct Side {
    chunk: Option<Chunk>,
    row: usize,
    run: usize,
    // A run has begun whose keys have not been compared with the current keys.
    is_new_run: bool,
    is_finished: bool,
    // The active rows of each group; there is one group if the rows are sorted by their keys.
    groups: Vec<Vec<Active>>,
    active_count: usize,
    // The number of active rows that the groups have room for.
    capacity: usize,
    // The number of active rows at which those that have ended are removed. Without this, the rows of a side
    // would accumulate if no row of the other side looks at them.
    purge_at: usize,
    // The number of active rows of each slot.
    live: Vec<usize>,
}

impl Side {
    fn front(&self) -> Option<(&Chunk, i64)> {
        let chunk = self.chunk.as_ref()?;
        Some((chunk, *chunk.starts.get(self.row)?))
    }

    fn run_end(&self) -> usize {
        self.chunk.as_ref().map_or(0, |chunk| chunk.runs.get(self.run).copied().unwrap_or(chunk.starts.len()))
    }

    fn move_to(&mut self, row: usize) {
        self.row = row;
        if row >= self.run_end() {
            self.run += 1;
            self.is_new_run = true;
        }
    }

    fn activate(&mut self, group: usize, one: Active) {
        if self.active_count >= self.purge_at.max(SMALL) {
            self.purge(one.start);
        }
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, Vec::new);
        }
        self.live[one.slot as usize] += 1;
        self.active_count += 1;
        let active = &mut self.groups[group];
        let before = active.capacity();
        active.push(one);
        self.capacity += active.capacity() - before;
    }

    /// Removes the rows that ended before `start`. All rows to come start at or after it.
    fn purge(&mut self, start: i64) {
        let live = &mut self.live;
        let mut count = 0;
        for active in self.groups.iter_mut().filter(|active| !active.is_empty()) {
            active.retain(|active| {
                let stays = active.end >= start;
                live[active.slot as usize] -= usize::from(!stays);
                stays
            });
            count += active.len();
        }
        self.active_count = count;
        self.purge_at = 2 * count.max(self.groups.len());
    }

    fn deactivate_all(&mut self) {
        self.groups.iter_mut().for_each(Vec::clear);
        self.live.fill(0);
        (self.active_count, self.purge_at) = (0, 0);
    }
}

/// The state of a sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    sides: [Side; 2],
    keys: Option<OwnedRow>,
    // The number of active rows that the front row has been compared with, where it continues after a full
    // batch of pairs.
    looked: usize,
}

impl Sweep {
    /// Adds the next batch of a side. Its slot must not be in use.
    pub(super) fn add(&mut self, side: usize, chunk: Chunk) {
        let side = &mut self.sides[side];
        if side.live.len() <= chunk.slot {
            side.live.resize(chunk.slot + 1, 0);
        }
        (side.row, side.run, side.is_new_run) = (0, 0, true);
        side.chunk = Some(chunk);
    }

    /// Declares that a side has no further batch.
    pub(super) fn finish(&mut self, side: usize) {
        self.sides[side].chunk = None;
        self.sides[side].is_finished = true;
    }

    /// Returns the number of rows of a side that can still match.
    pub(super) fn active(&self, side: usize) -> usize {
        self.sides[side].active_count
    }

    /// Returns the memory of the active rows in bytes, without the batches.
    pub(super) fn bytes(&self) -> usize {
        let of = |side: &Side| {
            side.capacity * ACTIVE_BYTES
                + side.groups.capacity() * size_of::<Vec<Active>>()
                + side.live.capacity() * 8
        };
        self.sides.iter().map(of).sum()
    }

    /// Returns whether a slot has rows that can still match or have not been swept.
    pub(super) fn uses(&self, side: usize, slot: usize) -> bool {
        let side = &self.sides[side];
        side.live.get(slot).is_some_and(|live| *live > 0)
            || side.chunk.as_ref().is_some_and(|chunk| chunk.slot == slot)
    }

    /// Returns the places of the active rows of a side.
    pub(super) fn places(&self, side: usize) -> Vec<Place> {
        let active = self.sides[side].groups.iter().flatten();
        active.map(|active| (active.slot as usize, active.row as usize)).collect()
    }

    /// Sets the new places of the active rows of a side, in the order of [`Self::places`].
    pub(super) fn moved(&mut self, side: usize, places: impl Iterator<Item = Place>) {
        let side = &mut self.sides[side];
        side.live.fill(0);
        for (active, (slot, row)) in side.groups.iter_mut().flatten().zip(places) {
            (active.slot, active.row) = (slot as u32, row as u32);
            if side.live.len() <= slot {
                side.live.resize(slot + 1, 0);
            }
            side.live[slot] += 1;
        }
    }

    /// Continues the sweep until there are `limit` pairs, a batch is needed, or the sweep is done.
    pub(super) fn advance(&mut self, pairs: &mut Pairs, limit: usize) -> Step {
        loop {
            for (number, side) in self.sides.iter().enumerate() {
                let other = &self.sides[1 - number];
                if other.is_finished && other.active_count == 0 {
                    return Step::Done;
                }
                if side.front().is_none() && !side.is_finished {
                    return Step::Needs(number);
                }
            }
            let order = match (self.sides[0].front(), self.sides[1].front()) {
                (None, None) => return Step::Done,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((left, _)), Some((right, _))) => match (&left.keys, &right.keys) {
                    (Some(a), Some(b)) => a.row(self.sides[0].run).cmp(&b.row(self.sides[1].run)),
                    _ => Ordering::Equal,
                },
            };
            let is_full = match order {
                Ordering::Less => self.alone(0, pairs, limit),
                Ordering::Greater => self.alone(1, pairs, limit),
                Ordering::Equal => self.together(pairs, limit),
            };
            if is_full {
                return Step::Full;
            }
        }
    }

    /// Deactivates all rows if the front row has new keys, because no active row can match them.
    fn meet_keys(&mut self, number: usize) {
        let side = &mut self.sides[number];
        if !std::mem::take(&mut side.is_new_run) {
            return;
        }
        let Some(keys) = side.chunk.as_ref().and_then(|chunk| chunk.keys.as_ref()) else {
            return;
        };
        let keys = keys.row(side.run);
        if self.keys.as_ref().is_none_or(|old| old.row() != keys) {
            self.keys = Some(keys.owned());
            self.sides.iter_mut().for_each(Side::deactivate_all);
        }
    }

    /// Sweeps a run of one side whose keys have no further row on the other side. Returns whether the pairs
    /// are full.
    fn alone(&mut self, number: usize, pairs: &mut Pairs, limit: usize) -> bool {
        self.meet_keys(number);
        let end = self.sides[number].run_end();
        while self.sides[number].row < end {
            if self.sides[1 - number].active_count == 0 {
                self.sides[number].move_to(end);
                break;
            }
            if self.take(number, false, pairs, limit) {
                return true;
            }
        }
        false
    }

    /// Sweeps two runs with equal keys until one of them ends. Returns whether the pairs are full.
    fn together(&mut self, pairs: &mut Pairs, limit: usize) -> bool {
        self.meet_keys(0);
        self.meet_keys(1);
        let ends = [self.sides[0].run_end(), self.sides[1].run_end()];
        while self.sides[0].row < ends[0] && self.sides[1].row < ends[1] {
            let (Some((_, left)), Some((_, right))) = (self.sides[0].front(), self.sides[1].front()) else {
                return false;
            };
            if self.take(usize::from(right < left), true, pairs, limit) {
                return true;
            }
        }
        false
    }

    /// Takes the front row of a side and pairs it with the active rows of the other side. Returns true if the
    /// pairs are full; the row is then still in front.
    fn take(&mut self, number: usize, activate: bool, pairs: &mut Pairs, limit: usize) -> bool {
        let [left, right] = &mut self.sides;
        let (side, other) = if number == 0 { (left, right) } else { (right, left) };
        let Some(chunk) = &side.chunk else { return false };
        let (slot, row) = (chunk.slot, side.row);
        let (start, end) = (chunk.starts[row], chunk.ends[row]);
        let group = chunk.group(row);
        if let Some(actives) = other.groups.get_mut(group) {
            let mut at = self.looked;
            while let Some(active) = actives.get(at).copied() {
                if active.end < start {
                    actives.swap_remove(at);
                    other.live[active.slot as usize] -= 1;
                    other.active_count -= 1;
                    continue;
                }
                if active.start <= end {
                    if pairs.len() >= limit {
                        self.looked = at;
                        return true;
                    }
                    pairs.0[number].push((slot, row));
                    pairs.0[1 - number].push((active.slot as usize, active.row as usize));
                }
                at += 1;
            }
        }
        self.looked = 0;
        // No row that the other side has yet to take starts before its front row.
        let can_match = || other.front().is_some_and(|(_, next)| next <= end);
        if activate && start <= end && can_match() {
            side.activate(group, Active { start, end, slot: slot as u32, row: row as u32 });
        }
        side.move_to(row + 1);
        false
    }
}

#[cfg(test)]
mod tests;
