//! A site: blocks of one size class allocated by the same code, thread and stream; and whether it leaks.
//!
//! ```text
//! ends of epochs   W  .  .  .  .  .  .  .  .  .  .  N      h = 3: blocks freed here have that age or less
//! freed              ────────
//! freed                       ─────
//! old              ────────────────────────────────        live at the end, older than h: kept for good
//! old                    ──────────────────────────
//! young                                      ──────        live at the end: may still be freed
//! ```
//! The *age* of a block is the number of ends of epochs that it has outlived. The *horizon* of a site is the
//! smallest age after which it has freed at most a tenth of the blocks that got older: a cache of twelve
//! entries has a horizon of twelve, and a list that is only appended to has the smallest, one. Blocks that
//! are live at the end, older than the horizon and allocated after the warm-up are *old*. A site leaks if it
//! keeps making old blocks, in at least five epochs and in each third of those that could have made one; if
//! its live bytes increase ([`trend`]); and if they grew by at least half of the bytes in old blocks, instead
//! of older blocks being freed as fast. One-off growth, a warm-up and a full cache make old blocks in few
//! epochs or in none.

use super::trend::{Trend, trend};
use crate::span::Block;

/// A site frees at most one in this many of the blocks that get older than its horizon.
const GIVEN_BACK_ONE_IN: u64 = 10;
/// The smallest number of epochs in which a leak has made an old block.
const MIN_GENERATIONS: usize = 5;
/// The number of example blocks of a site.
const EXAMPLES: usize = 3;

/// Where a block was allocated, as far as its row tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The number of the allocation's call stack, if one was taken.
    pub stack: Option<u32>,
    /// The exponent of the largest power of two that is not larger than the block's size in bytes.
    pub size_class: u32,
    /// The thread that allocated the block.
    pub tid: u32,
    /// The CUDA stream; 0 is the default stream.
    pub stream: u64,
}

impl Place {
    /// Returns the place of a block.
    pub fn of(block: &Block) -> Self {
        let size_class = block.size_bytes.checked_ilog2().unwrap_or_default();
        Self { stack: block.stack, size_class, tid: block.tid, stream: block.stream }
    }
}

/// The number and sizes of some blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of blocks.
    pub count: u64,
    /// The sum of their sizes in bytes.
    pub bytes: i64,
    /// The size of the smallest block in bytes; 0 if there is none.
    pub smallest_bytes: u64,
    /// The size of the largest block in bytes; 0 if there is none.
    pub largest_bytes: u64,
}

impl Amount {
    /// Returns the amount of one block.
    pub(super) fn one(bytes: u64) -> Self {
        Self { count: 1, bytes: bytes as i64, smallest_bytes: bytes, largest_bytes: bytes }
    }

    /// Adds other blocks.
    pub fn add(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        self.smallest_bytes = match self.count {
            0 => other.smallest_bytes,
            _ => self.smallest_bytes.min(other.smallest_bytes),
        };
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl<'a> FromIterator<&'a Amount> for Amount {
    fn from_iter<I: IntoIterator<Item = &'a Self>>(amounts: I) -> Self {
        let mut sum = Self::default();
        amounts.into_iter().for_each(|amount| sum.add(*amount));
        sum
    }
}

/// A block that is live at the end of the last epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Example {
    /// The time at which it was allocated (ns, trace clock).
    pub alloc_ts_ns: i64,
    /// Its address.
    pub addr: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// The blocks of one site that outlived the end of an epoch. Slots are those of
/// [`super::epochs::Epochs::slot`].
#[derive(Clone, Debug)]
pub struct Site {
    /// The last slot of the warm-up.
    warm_up: usize,
    /// The change of the site's live bytes at each bound, since the bound before.
    change_bytes: Vec<i64>,
    /// The blocks that are live at the last bound, by the slot in which they were allocated.
    alive: Vec<Amount>,
    /// One of these blocks for each slot.
    examples: Vec<Option<Example>>,
    /// The number of freed blocks by age; blocks from before the first epoch count the ends since its start.
    freed_count: Vec<u64>,
}

/// The findings about a site.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The smallest age in epochs after which the site frees at most a tenth of its blocks.
    pub horizon_epochs: usize,
    /// Blocks that are live at the end, allocated after the warm-up, and older than the horizon.
    pub old: Amount,
    /// Blocks that are live at the end, allocated after the warm-up, and not older than the horizon.
    pub young: Amount,
    /// The number of epochs in which an old block was allocated.
    pub generations_count: usize,
    /// The first of these epochs; 0 if there is none.
    pub first_epoch: usize,
    /// The last of these epochs; 0 if there is none.
    pub last_epoch: usize,
    /// The number of epochs that could have made an old block.
    pub possible_count: usize,
    /// The largest number of these epochs in a row that made none.
    pub longest_gap_count: usize,
    /// The number of blocks freed at an age of one epoch or more.
    pub freed_count: u64,
    /// The trend of the site's live bytes at the ends of epochs, from the end of the warm-up.
    pub trend: Option<Trend>,
    /// Old blocks, one from each of the first epochs that made one.
    pub examples: Vec<Example>,
    /// Whether the site leaks.
    pub is_leak: bool,
}

impl Site {
    /// Creates an empty site. `last` is the slot after the last bound, and `warm_up` the last slot of the
    /// warm-up.
    pub fn new(last: usize, warm_up: usize) -> Self {
        Self {
            warm_up,
            change_bytes: vec![0; last],
            alive: vec![Amount::default(); last],
            examples: vec![None; last],
            freed_count: vec![0; last + 1],
        }
    }

    /// Adds a block that was allocated in slot `born` and freed in slot `freed`, which must be larger.
    pub fn add(&mut self, block: &Block, born: usize, freed: usize) {
        let size = block.size_bytes as i64;
        self.change_bytes[born] = self.change_bytes[born].saturating_add(size);
        if let Some(change) = self.change_bytes.get_mut(freed) {
            *change = change.saturating_sub(size);
            self.freed_count[freed - born] += 1;
            return;
        }
        self.alive[born].add(Amount::one(block.size_bytes));
        let example = Example { alloc_ts_ns: block.alloc_ts, addr: block.addr, size_bytes: block.size_bytes };
        let first = self.examples[born].get_or_insert(example);
        *first = (*first).min(example);
    }

    /// Adds the blocks of another site with the same epochs.
    pub fn merge(&mut self, other: &Self) {
        for (change, more) in self.change_bytes.iter_mut().zip(&other.change_bytes) {
            *change = change.saturating_add(*more);
        }
        self.alive.iter_mut().zip(&other.alive).for_each(|(amount, more)| amount.add(*more));
        for (example, more) in self.examples.iter_mut().zip(&other.examples) {
            *example = [*example, *more].into_iter().flatten().min();
        }
        self.freed_count.iter_mut().zip(&other.freed_count).for_each(|(count, more)| *count += more);
    }

    /// Returns the site's live bytes at each bound.
    pub fn live_bytes(&self) -> Vec<i64> {
        let mut live = 0_i64;
        let sum = |change: &i64| {
            live = live.saturating_add(*change);
            live
        };
        self.change_bytes.iter().map(sum).collect()
    }

    /// Returns the blocks that are live at the end, by the slot in which they were allocated.
    pub fn alive(&self) -> &[Amount] {
        &self.alive
    }

    /// Returns the blocks allocated after the warm-up that are live at the end, by age, from 1 up.
    pub fn recent_by_age(&self) -> impl Iterator<Item = (usize, Amount)> {
        let recent = self.alive.iter().skip(self.warm_up + 1);
        recent.rev().enumerate().map(|(after, amount)| (after + 1, *amount))
    }

    /// Returns the blocks that are live at the end and were allocated before the end of the warm-up.
    pub fn early(&self) -> Amount {
        self.alive.iter().take(self.warm_up + 1).collect()
    }

    /// Returns the smallest age after which hardly any block is freed.
    fn horizon(&self) -> usize {
        let ages = self.freed_count.len();
        let is_beyond = |age: &usize| {
            let freed: u64 = self.freed_count[age + 1..].iter().sum();
            let alive = self.recent_by_age().filter(|(of, _)| of > age);
            freed * GIVEN_BACK_ONE_IN <= freed + alive.map(|(_, amount)| amount.count).sum::<u64>()
        };
        (1..ages).find(is_beyond).unwrap_or(ages)
    }

    /// Classifies the site's blocks, and decides whether it leaks.
    pub fn judge(&self) -> Judged {
        let horizon = self.horizon();
        let first = (self.warm_up + 1).min(self.alive.len());
        // A block allocated in the last epoch has age 1.
        let end = self.alive.len().saturating_sub(horizon).max(first);
        let old_by_epoch = &self.alive[first..end];
        let possible_count = old_by_epoch.len();
        let generations: Vec<usize> = (first..end).filter(|slot| self.alive[*slot].count > 0).collect();
        let in_third = |third| generations.iter().any(|slot| (slot - first) * 3 / possible_count == third);
        let is_steady = generations.len() >= MIN_GENERATIONS && (0..3).all(in_third);
        let old: Amount = old_by_epoch.iter().collect();
        let live = self.live_bytes();
        let judged = live.get(self.warm_up..).unwrap_or_default();
        let trend = trend(judged);
        let growth = judged.first().zip(judged.last()).map_or(0, |(from, to)| to.saturating_sub(*from));
        let is_growing = growth >= old.bytes / 2 && trend.is_some_and(|trend| trend.is_up());
        Judged {
            horizon_epochs: horizon,
            old,
            young: self.alive[end..].iter().collect(),
            generations_count: generations.len(),
            first_epoch: generations.first().copied().unwrap_or_default(),
            last_epoch: generations.last().copied().unwrap_or_default(),
            possible_count,
            longest_gap_count: longest_gap(&generations, first, end),
            freed_count: self.freed_count.iter().sum(),
            trend,
            examples: generations.iter().filter_map(|slot| self.examples[*slot]).take(EXAMPLES).collect(),
            is_leak: is_steady && is_growing,
        }
    }
}

/// Returns the largest distance between neighbours of some slots in `[first, end)`, from its ends on.
fn longest_gap(slots: &[usize], first: usize, end: usize) -> usize {
    let from = std::iter::once(first).chain(slots.iter().map(|slot| slot + 1));
    let to = slots.iter().copied().chain([end]);
    from.zip(to).map(|(from, to)| to.saturating_sub(from)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{NO_SEGMENT, State};
    use analyze_run::random::Random;

    const EPOCHS: usize = 40;
    const WARM_UP: usize = 4;

    fn block(size_bytes: u64) -> Block {
        Block {
            addr: 4096,
            size_bytes,
            requested_bytes: None,
            state: State::Active,
            ts: 0,
            alloc_ts: 0,
            tid: 1,
            stack: None,
            stream: 0,
            segment: NO_SEGMENT,
        }
    }

    /// Returns a site of blocks of 1000 bytes, each given by the slots in which it was allocated and freed.
    fn site(blocks: impl IntoIterator<Item = (usize, usize)>) -> Site {
        let mut site = Site::new(EPOCHS + 1, WARM_UP);
        for (born, freed) in blocks {
            site.add(&block(1000), born, freed.min(EPOCHS + 1));
        }
        site
    }

    const NEVER: usize = usize::MAX;

    #[test]
    fn what_is_only_appended_to_leaks() {
        let judged = site((1..=EPOCHS).map(|epoch| (epoch, NEVER))).judge();
        assert!(judged.is_leak);
        assert_eq!((judged.horizon_epochs, judged.old.count, judged.young.count), (1, 35, 1));
        assert_eq!((judged.generations_count, judged.first_epoch, judged.last_epoch), (35, 5, 39));
        assert_eq!(judged.longest_gap_count, 0);
        let seldom = site((1..=EPOCHS).step_by(7).map(|epoch| (epoch, NEVER))).judge();
        assert_eq!((seldom.generations_count, seldom.longest_gap_count), (5, 6));
        assert_eq!(judged.trend.map(|trend| trend.bytes_per_epoch), Some(1000.0));
    }

    #[test]
    fn what_is_used_again_does_not() {
        let cache = site((1..=EPOCHS).map(|epoch| (epoch, epoch + 12))).judge();
        assert_eq!(
            (cache.is_leak, cache.horizon_epochs, cache.old.count, cache.young.count),
            (false, 12, 0, 12)
        );
        let sawtooth = site((1..=EPOCHS).map(|epoch| (epoch, epoch / 9 * 9 + 9))).judge();
        assert_eq!((sawtooth.is_leak, sawtooth.old.count), (false, 0));
    }

    #[test]
    fn a_leak_among_blocks_that_are_used_again_is_found() {
        let cache = (1..=EPOCHS).map(|epoch| (epoch, epoch + 12));
        let leak = (1..=EPOCHS).filter(|epoch| epoch % 2 == 0).map(|epoch| (epoch, NEVER));
        let judged = site(cache.chain(leak)).judge();
        assert_eq!((judged.is_leak, judged.horizon_epochs, judged.old.count), (true, 12, 12));
    }

    #[test]
    fn a_leak_that_gives_back_now_and_then_is_one() {
        let judged = site((1..=EPOCHS).map(|epoch| (epoch, if epoch == 7 { 35 } else { NEVER }))).judge();
        assert!(judged.is_leak && judged.horizon_epochs == 1);
    }

    #[test]
    fn growth_that_ends_is_no_leak() {
        let once = site((0..20).map(|_| (12, NEVER))).judge();
        assert_eq!((once.is_leak, once.generations_count, once.old.count), (false, 1, 20));
        let warm_up = site((0..=WARM_UP).map(|epoch| (epoch, NEVER))).judge();
        assert_eq!((warm_up.is_leak, warm_up.old.count), (false, 0));
        let filling = site((1..=20).map(|epoch| (epoch, NEVER))).judge();
        assert!(!filling.is_leak);
    }

    #[test]
    fn a_leak_makes_old_blocks_in_five_epochs_and_in_each_third_of_them() {
        // The thirds of the 35 epochs that could have made one begin with epochs 5, 17 and 29.
        for (epochs, is_leak) in [
            (vec![6, 12, 18, 24, 30], true),
            (vec![6, 18, 24, 30], false),
            (vec![16, 17, 20, 24, 29], true),
            (vec![10, 14, 20, 24, 28], false),
            (vec![10, 14, 29, 33, 37], false),
            (vec![17, 20, 24, 29, 33], false),
        ] {
            let judged = site(epochs.iter().map(|epoch| (*epoch, NEVER))).judge();
            assert!(judged.trend.is_some_and(|trend| trend.is_up()) && judged.possible_count == 35);
            assert_eq!(judged.is_leak, is_leak, "{epochs:?}");
        }
    }

    #[test]
    fn a_leak_grows_by_half_of_its_old_blocks() {
        // 35 old blocks have 35,000 bytes. One from before the warm-up is freed after it.
        for (early_bytes, is_leak) in [(18_500, true), (18_501, false)] {
            let mut site = site((5..=EPOCHS).map(|epoch| (epoch, NEVER)));
            site.add(&block(early_bytes), 0, 5);
            let judged = site.judge();
            assert_eq!((judged.old.bytes, judged.horizon_epochs), (35_000, 1));
            assert_eq!(judged.is_leak, is_leak, "{early_bytes}");
        }
    }

    #[test]
    fn beyond_the_horizon_one_in_ten_blocks_is_freed_at_most() {
        for (kept, horizon) in [(9, 1), (8, 2)] {
            let blocks = (0..kept).map(|_| (10, NEVER)).chain([(10, 12)]);
            assert_eq!(site(blocks).judge().horizon_epochs, horizon, "{kept}");
        }
    }

    #[test]
    fn nothing_is_nothing() {
        let nothing = site([]).judge();
        assert_eq!(
            (nothing.is_leak, nothing.old, nothing.young),
            (false, Amount::default(), Amount::default())
        );
        // There are fewer epochs than the warm-up has.
        let judged = Site::new(1, 4).judge();
        assert!(!judged.is_leak && judged.possible_count == 0);
    }

    /// Blocks are freed at random, as many as are allocated, however long they live: no site leaks, and at most 2 in 1,000
    /// are taken for one that does (6 of 500 have a probability below 0.1 % then).
    #[test]
    fn random_lifetimes_in_balance_are_no_leak() {
        let mut random = Random(7);
        for mean_epochs in [2, 5, 10, 20, 40] {
            let mut leaks = 0;
            for _ in 0..500 {
                let site = site((0..=EPOCHS).flat_map(|epoch| {
                    let count = if epoch == 0 { mean_epochs } else { 1 };
                    let mut freed =
                        || (epoch + 1..=EPOCHS).find(|_| random.below(mean_epochs) == 0).unwrap_or(NEVER);
                    (0..count).map(|_| (epoch, freed())).collect::<Vec<_>>()
                }));
                leaks += usize::from(site.judge().is_leak);
            }
            assert!(leaks < 6, "{leaks} of 500 that live for {mean_epochs} epochs on average");
        }
    }

    /// Every live block is old, young or early, so its bytes are counted exactly once.
    #[test]
    fn the_parts_sum_to_what_is_alive() {
        let mut random = Random(1);
        for _ in 0..200 {
            let count = random.below(200);
            let mut block = |_| {
                let born = random.below(EPOCHS + 1);
                (born, born + 1 + random.below(2 * EPOCHS))
            };
            let blocks: Vec<_> = (0..count).map(&mut block).collect();
            let site = site(blocks);
            let judged = site.judge();
            let live = site.live_bytes();
            let parts = judged.old.bytes + judged.young.bytes + site.early().bytes;
            assert_eq!(live.last(), Some(&parts));
            let recent: i64 = site.recent_by_age().map(|(_, amount)| amount.bytes).sum();
            assert_eq!(recent, judged.old.bytes + judged.young.bytes);
        }
    }
}
