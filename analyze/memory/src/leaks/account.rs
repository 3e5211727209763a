//! Attributes growth to sites: every block that is live at the end of the last epoch is counted exactly once.
//!
//! ```text
//! live at the end = live at the end of the warm-up − freed since + leaked + kept once + young
//! ```
//! *Leaked* and *kept once* are old blocks ([`super::site`]): the former of sites that leak, the latter of
//! all other sites (one-off retention). *Young* blocks are not older than what their site still frees, so it
//! is not known yet whether they are kept. Blocks are attributed to the finest site first; those of fine
//! sites that do not leak are examined again by call stack (without a stack: by thread and stream), whatever
//! their size.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    site::{Amount, Example, Judged, Site},
    trend::Trend,
};

/// Identifies a site after its stack has been named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) frames: Option<String>,
    pub(super) tid: Option<u32>,
    pub(super) stream: Option<u64>,
    /// The exponent of the power of two that the block sizes belong to.
    pub(super) size_class: Option<u32>,
}

impl Named {
    /// Returns the coarser site that includes all sizes, and, if the stack has a name, all threads and
    /// streams.
    pub(super) fn coarse(&self) -> Self {
        let of_place = self.frames.is_none();
        Self {
            frames: self.frames.clone(),
            tid: self.tid.filter(|_| of_place),
            stream: self.stream.filter(|_| of_place),
            size_class: None,
        }
    }
}

/// The account of an allocator's growth, in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Account {
    /// Live at the end of the warm-up.
    pub before_bytes: i64,
    /// The part of [`Self::before_bytes`] that was freed since.
    pub given_back_bytes: i64,
    /// Live at the end in old blocks of sites that leak.
    pub leaked_bytes: i64,
    /// Live at the end in old blocks of sites that do not leak.
    pub kept_once_bytes: i64,
    /// Live at the end in blocks from after the warm-up that are not old.
    pub young_bytes: i64,
    /// Live at the end of the last epoch: the sum of the above.
    pub after_bytes: i64,
    /// What the allocator's totals count as allocated at the end but no block above contains: 0, unless
    /// events are missing.
    pub not_attributed_bytes: i64,
}

/// Blocks that were allocated by the same code, or, without a named call stack, by the same thread on the same stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveSite {
    /// The functions of the call stack, outermost first, separated by semicolons, without the allocator's
    /// own; `None` if no stack was taken, or no frame of it has a name.
    pub frames: Option<String>,
    /// The allocating thread; `None` if there may be several.
    pub tid: Option<u32>,
    /// The CUDA stream; `None` if there may be several.
    pub stream: Option<u64>,
    /// The number of blocks.
    pub blocks_count: u64,
    /// The bytes in these blocks.
    pub blocks_bytes: i64,
    /// The size of the smallest of them in bytes.
    pub smallest_bytes: u64,
    /// The size of the largest of them in bytes.
    pub largest_bytes: u64,
}

impl LiveSite {
    pub(super) fn new(named: Named, amount: Amount) -> Self {
        Self {
            frames: named.frames,
            tid: named.tid,
            stream: named.stream,
            blocks_count: amount.count,
            blocks_bytes: amount.bytes,
            smallest_bytes: amount.smallest_bytes,
            largest_bytes: amount.largest_bytes,
        }
    }
}

/// A site with old blocks.
#[derive(Clone, Debug, Serialize)]
pub struct Suspect {
    /// Whether the site leaks.
    pub is_leak: bool,
    /// The old blocks.
    #[serde(flatten)]
    pub old: LiveSite,
    /// The bytes in old blocks per epoch that could have made some.
    pub bytes_per_epoch: f64,
    /// The site's share (0 to 1) of the bytes in old blocks of all sites.
    pub share_ratio: f64,
    /// The number of epochs in which an old block was allocated.
    pub generations_count: usize,
    /// The number of epochs that could have made an old block.
    pub possible_count: usize,
    /// The largest number of these epochs in a row that made none.
    pub longest_gap_count: usize,
    /// The first epoch in which an old block was allocated.
    pub first_epoch: usize,
    /// The last epoch in which an old block was allocated.
    pub last_epoch: usize,
    /// The age in epochs after which the site frees hardly any block.
    pub horizon_epochs: usize,
    /// The number of blocks freed at an age of one epoch or more.
    pub freed_count: u64,
    /// The number of live blocks from after the warm-up that are not older than the horizon.
    pub young_count: u64,
    /// The bytes in these blocks.
    pub young_bytes: i64,
    /// The trend of the site's live bytes at the ends of epochs; `None` if there are fewer than three values.
    pub trend: Option<Trend>,
    /// Old blocks, one from each of the first epochs that made one.
    pub examples: Vec<Example>,
}

/// The fine sites that a coarser one consists of.
type Parts<'a> = Vec<(&'a Named, Judged)>;

/// Returns the account and the sites with old blocks, leaks first, then by bytes.
pub(super) fn judge(
    sites: &BTreeMap<Named, Site>,
    warm_up: usize,
    live_bytes: i64,
) -> (Account, Vec<Suspect>) {
    let mut account = Account::default();
    let (mut leaks, mut rest) = (Vec::new(), Vec::new());
    let mut coarse: BTreeMap<Named, (Site, Parts<'_>)> = BTreeMap::new();
    for (named, site) in sites {
        let before = site.live_bytes().get(warm_up).copied().unwrap_or_default();
        account.before_bytes += before;
        account.given_back_bytes += before - site.early().bytes;
        account.after_bytes += site.early().bytes;
        let judged = site.judge();
        if judged.is_leak {
            leaks.push((named.clone(), judged));
        } else {
            let whole = coarse.entry(named.coarse());
            let (_, parts) =
                whole.and_modify(|(sum, _)| sum.merge(site)).or_insert_with(|| (site.clone(), Vec::new()));
            parts.push((named, judged));
        }
    }
    for (named, (site, parts)) in coarse {
        let judged = site.judge();
        if judged.is_leak {
            leaks.push((named, judged));
        } else {
            rest.extend(parts.into_iter().map(|(named, judged)| (named.clone(), judged)));
        }
    }
    let bytes = |of: &[(Named, Judged)], get: fn(&Judged) -> Amount| -> i64 {
        of.iter().map(|(_, judged)| get(judged).bytes).sum()
    };
    account.leaked_bytes = bytes(&leaks, |judged| judged.old);
    account.kept_once_bytes = bytes(&rest, |judged| judged.old);
    account.young_bytes = bytes(&leaks, |judged| judged.young) + bytes(&rest, |judged| judged.young);
    account.after_bytes += account.leaked_bytes + account.kept_once_bytes + account.young_bytes;
    account.not_attributed_bytes = live_bytes - account.after_bytes;
    let old_bytes = account.leaked_bytes + account.kept_once_bytes;
    let mut suspects: Vec<Suspect> = leaks
        .into_iter()
        .chain(rest)
        .filter(|(_, judged)| judged.old.count > 0)
        .map(|(named, judged)| suspect(named, judged, old_bytes))
        .collect();
    suspects.sort_by_key(|site| (!site.is_leak, -site.old.blocks_bytes, site.examples.first().copied()));
    (account, suspects)
}

fn suspect(named: Named, judged: Judged, old_bytes: i64) -> Suspect {
    let old = judged.old;
    Suspect {
        is_leak: judged.is_leak,
        old: LiveSite::new(named, old),
        bytes_per_epoch: old.bytes as f64 / judged.possible_count.max(1) as f64,
        share_ratio: if old_bytes > 0 { old.bytes as f64 / old_bytes as f64 } else { 0.0 },
        generations_count: judged.generations_count,
        possible_count: judged.possible_count,
        longest_gap_count: judged.longest_gap_count,
        first_epoch: judged.first_epoch,
        last_epoch: judged.last_epoch,
        horizon_epochs: judged.horizon_epochs,
        freed_count: judged.freed_count,
        young_count: judged.young.count,
        young_bytes: judged.young.bytes,
        trend: judged.trend,
        examples: judged.examples,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;
    use crate::span::{Block, NO_SEGMENT, State};

    const EPOCHS: usize = 40;
    const WARM_UP: usize = 4;

    fn named(frames: Option<&str>, tid: u32, size_class: u32) -> Named {
        let frames = frames.map(str::to_owned);
        Named { frames, tid: Some(tid), stream: Some(0), size_class: Some(size_class) }
    }

    fn block(addr: u64, size_bytes: u64) -> Block {
        Block {
            addr,
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

    /// Collects blocks, each with the slots in which it was allocated and freed; one that is not freed is live at the end.
    fn sites(blocks: &[(Named, u64, usize, Option<usize>)]) -> BTreeMap<Named, Site> {
        let mut sites = BTreeMap::new();
        for (addr, (named, bytes, born, freed)) in (0..).zip(blocks) {
            let site = sites.entry(named.clone()).or_insert_with(|| Site::new(EPOCHS + 1, WARM_UP));
            site.add(&block(addr, *bytes), *born, freed.unwrap_or(EPOCHS + 1));
        }
        sites
    }

    proptest! {
        /// Every block that is live at the end is early, leaked, kept once or young, and counted once.
        #[test]
        fn every_live_byte_is_attributed_once(
            blocks in vec((0..2_u32, 0..3_u32, 1..3_u64, 0..=EPOCHS, option::of(1..EPOCHS)), 0..60),
            is_stacked: bool,
            more in -3..3_i64,
        ) {
            let blocks: Vec<_> = blocks
                .into_iter()
                .map(|(tid, size_class, bytes, born, lived)| {
                    let freed = lived.map(|lived| born + lived).filter(|freed| *freed <= EPOCHS);
                    (named(is_stacked.then_some("main;load"), tid, size_class), bytes, born, freed)
                })
                .collect();
            let sum = |is_meant: &dyn Fn(usize, Option<usize>) -> bool| -> i64 {
                let meant = blocks.iter().filter(|(_, _, born, freed)| is_meant(*born, *freed));
                meant.map(|(_, bytes, ..)| *bytes as i64).sum()
            };
            let after = sum(&|_, freed| freed.is_none());
            let (account, suspects) = judge(&sites(&blocks), WARM_UP, after + more);
            prop_assert_eq!((account.after_bytes, account.not_attributed_bytes), (after, more));
            let is_before = |born, freed: Option<usize>| born <= WARM_UP && freed.is_none_or(|freed| freed > WARM_UP);
            prop_assert_eq!(account.before_bytes, sum(&is_before));
            prop_assert_eq!(account.given_back_bytes, sum(&|born, freed| is_before(born, freed) && freed.is_some()));
            let recent = account.leaked_bytes + account.kept_once_bytes + account.young_bytes;
            prop_assert_eq!(recent, sum(&|born, freed| born > WARM_UP && freed.is_none()));
            let old = |is_leak: bool| -> i64 {
                suspects.iter().filter(|site| site.is_leak == is_leak).map(|site| site.old.blocks_bytes).sum()
            };
            prop_assert_eq!((old(true), old(false)), (account.leaked_bytes, account.kept_once_bytes));
            let share: f64 = suspects.iter().map(|site| site.share_ratio).sum();
            prop_assert!((share - if suspects.is_empty() { 0.0 } else { 1.0 }).abs() < 1e-9, "{}", share);
        }
    }

    /// Two threads keep a block in turns: neither makes one often enough, but the code that both run does.
    #[test]
    fn a_leak_of_several_threads_is_one_of_their_code() {
        let blocks = |frames: Option<&str>| -> Vec<_> {
            let kept = [6, 12, 18, 24, 30, 36].into_iter().enumerate();
            kept.map(|(number, born)| (named(frames, number as u32 % 2, 9), 1_000, born, None)).collect()
        };
        let (account, suspects) = judge(&sites(&blocks(Some("main;load"))), WARM_UP, 6_000);
        assert_eq!((account.leaked_bytes, account.kept_once_bytes), (6_000, 0));
        let [leak] = &suspects[..] else { panic!("{suspects:?}") };
        assert_eq!(
            (leak.is_leak, leak.old.tid, leak.old.blocks_count, leak.share_ratio),
            (true, None, 6, 1.0)
        );
        assert_eq!(leak.bytes_per_epoch, 6_000.0 / 35.0);
        // Without a stack, what threads do is not one thing.
        let (account, suspects) = judge(&sites(&blocks(None)), WARM_UP, 6_000);
        assert_eq!((account.leaked_bytes, account.kept_once_bytes), (0, 6_000));
        assert!(suspects.len() == 2 && suspects.iter().all(|site| !site.is_leak && site.share_ratio == 0.5));
    }
}
