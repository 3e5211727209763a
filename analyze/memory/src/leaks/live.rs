//! Lists what is live at the end of the run by call stack. A record that allows no verdict, as a snapshot of
//! memory, still has this.

use std::collections::BTreeMap;

use super::{
    account::{LiveSite, Named},
    site::Amount,
};

/// Returns the sites of live blocks, those with most bytes first.
pub(super) fn sites(live: impl Iterator<Item = (Named, Amount)>) -> Vec<LiveSite> {
    let mut sums: BTreeMap<Named, Amount> = BTreeMap::new();
    for (named, amount) in live {
        sums.entry(named.coarse()).or_default().add(amount);
    }
    let mut sites: Vec<LiveSite> =
        sums.into_iter().map(|(named, amount)| LiveSite::new(named, amount)).collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.blocks_bytes));
    sites
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_told_apart_by_code_and_without_it_by_thread_and_stream() {
        let named = |frames: Option<&str>, tid, size_class| Named {
            frames: frames.map(str::to_owned),
            tid: Some(tid),
            stream: Some(0),
            size_class: Some(size_class),
        };
        let of = |named: Named, bytes: &[u64]| {
            let amounts: Vec<Amount> = bytes.iter().map(|bytes| Amount::one(*bytes)).collect();
            (named, amounts.iter().collect::<Amount>())
        };
        let live = [
            of(named(Some("main;load"), 1, 9), &[512, 700]),
            of(named(None, 1, 9), &[600]),
            of(named(None, 2, 10), &[1024, 1500]),
            of(named(Some("main;load"), 2, 12), &[4096]),
        ];
        let found = sites(live.into_iter());
        let shown: Vec<_> =
            found.iter().map(|site| (site.frames.as_deref(), site.tid, site.blocks_count)).collect();
        assert_eq!(shown, [(Some("main;load"), None, 3), (None, Some(2), 2), (None, Some(1), 1)]);
        let first = &found[0];
        assert_eq!((first.blocks_bytes, first.smallest_bytes, first.largest_bytes), (5308, 512, 4096));
    }
}
