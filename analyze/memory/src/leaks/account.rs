//! The account of growth: every block that is alive at the end of the last epoch, put down to a site.
//!
//! ```text
//! live at the end = live at the end of the warm-up − given back since + leaked + kept once + young
//! ```
//! *Leaked* and *kept once* are old blocks ([`super::site`]), of sites that leak and of others; *young* ones are not
//! older than what their site still gives back: nobody can tell yet. Blocks are put down to the finest site first; what
//! no such site leaks is looked at again by call stack (without one: by thread and stream), whatever its size.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    site::{Amount, Example, Judged, Site},
    trend::Trend,
};

/// What tells sites apart once stacks have names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) frames: Option<String>,
    pub(super) tid: Option<u32>,
    pub(super) stream: Option<u64>,
    /// Exponent of a power of two.
    pub(super) size_class: Option<u32>,
}

impl Named {
    /// The same whatever its size; and wherever it was, if the stack has a name.
    fn coarse(&self) -> Self {
        let of_place = self.frames.is_none();
        Self {
            frames: self.frames.clone(),
            tid: self.tid.filter(|_| of_place),
            stream: self.stream.filter(|_| of_place),
            size_class: None,
        }
    }
}

/// The account of growth.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Account {
    /// At the end of the warm-up.
    pub before_bytes: i64,
    pub given_back_bytes: i64,
    pub leaked_bytes: i64,
    pub kept_once_bytes: i64,
    pub young_bytes: i64,
    /// At the end of the last epoch.
    pub after_bytes: i64,
    /// Of what the allocator had handed out then, what is in no block above: 0, or events are missing.
    pub not_attributed_bytes: i64,
}

/// A site with old blocks.
#[derive(Clone, Debug, Serialize)]
pub struct Suspect {
    pub is_leak: bool,
    /// Functions, outermost first, separated by semicolons, without the allocator's own; `None`: no stack was taken, or
    /// no frame of it has a name.
    pub frames: Option<String>,
    /// `None`: of several.
    pub tid: Option<u32>,
    pub stream: Option<u64>,
    /// Old blocks.
    pub blocks_count: u64,
    pub blocks_bytes: i64,
    pub smallest_bytes: u64,
    pub largest_bytes: u64,
    /// Old bytes by the epochs that could have made some.
    pub bytes_per_epoch: f64,
    /// Of all old bytes.
    pub share_ratio: f64,
    /// Epochs in which an old block was handed out, of those that could have made one.
    pub generations_count: usize,
    pub possible_count: usize,
    pub first_epoch: usize,
    pub last_epoch: usize,
    /// Age after which hardly anything was given back.
    pub horizon_epochs: usize,
    /// Given back at an age of one epoch or more.
    pub freed_count: u64,
    /// Alive, but not older than the horizon.
    pub young_count: u64,
    pub young_bytes: i64,
    /// Of all that the site holds at the ends of epochs.
    pub trend: Option<Trend>,
    /// Old blocks, of the first epochs that made one.
    pub examples: Vec<Example>,
}

/// Sites that are parts of a coarser one.
type Parts<'a> = Vec<(&'a Named, Judged)>;

/// The account, and the sites with old blocks.
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
    suspects.sort_by_key(|site| (!site.is_leak, -site.blocks_bytes, site.examples.first().copied()));
    (account, suspects)
}

fn suspect(named: Named, judged: Judged, old_bytes: i64) -> Suspect {
    let old = judged.old;
    Suspect {
        is_leak: judged.is_leak,
        frames: named.frames,
        tid: named.tid,
        stream: named.stream,
        blocks_count: old.count,
        blocks_bytes: old.bytes,
        smallest_bytes: old.smallest_bytes,
        largest_bytes: old.largest_bytes,
        bytes_per_epoch: old.bytes as f64 / judged.possible_count.max(1) as f64,
        share_ratio: if old_bytes > 0 { old.bytes as f64 / old_bytes as f64 } else { 0.0 },
        generations_count: judged.generations_count,
        possible_count: judged.possible_count,
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
