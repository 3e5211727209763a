//! Collects the blocks that outlive the end of an epoch, by site, from a replay, in memory that does not grow
//! with the length of the run.
//!
//! A block lives from its allocation until the program frees it. A block that does not outlive the end of its
//! epoch is dropped at once.

use super::{
    epochs::Epochs,
    site::{Amount, Place, Site},
};
use crate::{
    allocator::Allocator,
    event::{Action, Event},
    fault::Faults,
    input::{Key, Listener},
    span::{Block, Segment, State},
    totals::Totals,
};
use analyze_run::hash::HashMap;

/// What was collected for one allocator.
#[derive(Debug)]
pub struct Heard {
    /// Its epochs.
    pub epochs: Epochs,
    /// The blocks that outlived the end of an epoch, by where they were allocated.
    pub sites: HashMap<Place, Site>,
    /// The allocator's totals at each epoch bound that has passed.
    pub totals: Vec<Totals>,
    /// The blocks that are live at the end of the run, by where they were allocated.
    pub live: HashMap<Place, Amount>,
    /// The number of requests that failed.
    pub failed_count: u64,
    /// The totals after the last event.
    now: Totals,
    /// The faults found until the last bound.
    pub faults: Faults,
}

impl Heard {
    fn new(epochs: Epochs) -> Self {
        Self {
            epochs,
            sites: HashMap::default(),
            totals: Vec::new(),
            live: HashMap::default(),
            failed_count: 0,
            now: Totals::default(),
            faults: Faults::new(),
        }
    }

    fn pass(&mut self, ts: i64) {
        while self.epochs.bounds_ns.get(self.totals.len()).is_some_and(|bound| *bound <= ts) {
            self.totals.push(self.now);
        }
    }
}

/// A listener that collects survivors for all allocators.
#[derive(Debug, Default)]
pub struct Survivors {
    epochs: HashMap<Key, Epochs>,
    /// What was collected, by allocator.
    pub heard: HashMap<Key, Heard>,
}

impl Survivors {
    /// Creates a listener. Of an allocator without epochs it collects what is live at the end, and only that.
    pub fn new(epochs: HashMap<Key, Epochs>) -> Self {
        Self { epochs, heard: HashMap::default() }
    }

    fn of(&mut self, key: Key) -> Option<&mut Heard> {
        if !self.heard.contains_key(&key) {
            let epochs = self.epochs.remove(&key)?;
            self.heard.insert(key, Heard::new(epochs));
        }
        self.heard.get_mut(&key)
    }

    /// Passes the remaining bounds, after the last event.
    pub fn finish(&mut self) {
        self.heard.values_mut().for_each(|heard| heard.pass(i64::MAX));
    }
}

impl Listener for Survivors {
    fn block(&mut self, key: Key, block: &Block, _segment: Option<&Segment>, end: Option<i64>) {
        if block.state != State::Active {
            return;
        }
        if end.is_none() && !self.epochs.contains_key(&key) {
            self.heard.entry(key).or_insert_with(|| Heard::new(Epochs::none()));
        }
        let Some(heard) = self.of(key) else { return };
        if end.is_none() {
            heard.live.entry(Place::of(block)).or_default().add(Amount::one(block.size_bytes));
        }
        if heard.epochs.bounds_ns.is_empty() {
            return;
        }
        let last = heard.epochs.count() + 1;
        let warm_up = heard.epochs.warm_up_count();
        let born = heard.epochs.slot(block.alloc_ts);
        let freed = end.map_or(last, |end| heard.epochs.slot(end));
        if born < freed {
            let site = heard.sites.entry(Place::of(block)).or_insert_with(|| Site::new(last, warm_up));
            site.add(block, born, freed);
        }
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        let Some(heard) = self.of(key) else { return };
        heard.pass(event.ts);
        heard.now = *allocator.totals();
        heard.failed_count += u64::from(event.action == Action::Oom);
        let is_judged = heard.totals.len() < heard.epochs.bounds_ns.len();
        if is_judged && !allocator.faults().is_empty() {
            heard.faults.clone_from(allocator.faults());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{leaks::epochs::Origin, span::NO_SEGMENT};

    const KEY: Key = Key { run: 0, pid: 1, device: 0 };

    /// Returns what is collected from blocks of the given size, state, and times of allocation and end, with
    /// epochs that end at 10 and 20.
    fn heard(blocks: &[(u64, State, i64, Option<i64>)]) -> Heard {
        let epochs =
            Epochs { origin: Origin::Moments, name: None, joined_count: 1, bounds_ns: vec![0, 10, 20] };
        let mut survivors = Survivors::new([(KEY, epochs)].into_iter().collect());
        for (size_bytes, state, alloc_ts, end) in blocks.iter().copied() {
            let block = Block {
                addr: 4096,
                size_bytes,
                requested_bytes: None,
                state,
                ts: alloc_ts,
                alloc_ts,
                tid: 1,
                stack: None,
                stream: 0,
                segment: NO_SEGMENT,
            };
            survivors.block(KEY, &block, None, end);
        }
        survivors.heard.remove(&KEY).unwrap()
    }

    #[test]
    fn blocks_that_outlive_the_end_of_no_epoch_are_dropped() {
        let heard = heard(&[
            (64, State::Active, 1, Some(9)),
            (64, State::Active, 20, Some(30)),
            (64, State::PendingFree, 1, None),
        ]);
        assert!(heard.sites.is_empty() && heard.live.is_empty(), "{heard:?}");
    }

    #[test]
    fn blocks_that_outlive_the_end_of_an_epoch_are_counted_from_there_on() {
        let heard = heard(&[
            (64, State::Active, 9, Some(10)),
            (65, State::Active, 19, Some(20)),
            (66, State::Active, 10, None),
            (67, State::Active, 20, None),
        ]);
        let sites: Vec<&Site> = heard.sites.values().collect();
        let [site] = &sites[..] else { panic!("{sites:?}") };
        // At the start, at the end of the first epoch, and at the end of the second.
        assert_eq!(site.live_bytes(), [0, 64, 65 + 66]);
        let live: i64 = heard.live.values().map(|amount| amount.bytes).sum();
        assert_eq!(live, 66 + 67, "at the end of the run");
    }
}
