//! Classifies the growth of an allocator.
//!
//! | verdict | condition; the first that holds applies |
//! |---|---|
//! | `inconclusive` | events are missing, or there are too few epochs |
//! | `leak` | a site leaks ([`super::site`]) |
//! | `inconclusive` | recording began while the process ran: its reserved bytes are not known |
//! | `one-off growth` | the live bytes grew since the warm-up, and sites that do not leak hold old blocks |
//! | `inconclusive` | the live bytes increase, though in blocks that are replaced |
//! | `fragmentation` | only the reserved bytes increase, mostly in free memory that active blocks hold |
//! | `caching` | only the reserved bytes increase, mostly in reclaimable memory; or half of them are free |
//! | `none` | otherwise |
//!
//! A quantity increases if its trend does ([`super::trend`]) and its median over the last third of the epochs
//! after the warm-up is larger than over the first third. A difference of less than 2 MiB (the allocator's
//! smallest segment) or of less than a hundredth of the reserved bytes does not count. A leak needs no such
//! minimum: each of its blocks was recorded.

use analyze_run::quantiles::median_low;
use trace_schema::{Bytes, Kind, Run};

use super::{
    epochs::{MIN_COUNT, Origin},
    measured::{Growth, Point, Verdict},
};
use crate::{fault::Faults, settings::SMALL_SEGMENT_BYTES};

/// Parts of the names of probes whose losses are losses of the allocator's events.
const ALLOCATOR_PROBES: [&str; 2] = ["CachingAllocator", "reportMemoryUsage"];

/// Returns the reasons for which the data are incomplete, in words.
fn missing(growth: &Growth, faults: &Faults, run: &Run) -> Vec<String> {
    let mut reasons = Vec::new();
    // Where allocations divide the run, those that are missing move the end of the last epoch, too.
    let end = match growth.epochs.origin {
        Origin::Allocations => i64::MAX,
        _ => growth.epochs.bounds_ns.last().copied().unwrap_or_default(),
    };
    let of_allocator = |probe: &str| ALLOCATOR_PROBES.iter().any(|name| probe.contains(name));
    let lost = run.lost.iter().filter(|lost| of_allocator(&lost.probe) && lost.from_ns < end);
    let lost_count: u64 = lost.map(|lost| lost.count).sum();
    if lost_count > 0 {
        reasons.push(format!("{lost_count} events of the allocator were lost"));
    } else if !run.lost_is_counted {
        reasons.push("the source does not count the events it loses: a free may be missing".to_owned());
    }
    let is_meant = |kind: &str| kind == Kind::Alloc.name() || kind == Kind::Mark.name();
    for stored in run.stored.iter().filter(|stored| is_meant(&stored.kind) && !stored.is_whole()) {
        reasons.push(format!("the source stored only a part of the rows of kind {}", stored.kind));
    }
    reasons.extend(faults.iter().map(|(fault, count)| format!("{count} × {}", fault.name())));
    if growth.account.not_attributed_bytes != 0 {
        let bytes = Bytes(growth.account.not_attributed_bytes);
        reasons.push(format!("{bytes} of what is live are in no block on record"));
    }
    if growth.epochs_count < MIN_COUNT {
        reasons.push(format!(
            "{} epochs are too few to show a trend: {MIN_COUNT} are needed",
            growth.epochs_count
        ));
    }
    reasons
}

fn median(values: impl Iterator<Item = i64>) -> i64 {
    median_low(&mut values.collect::<Vec<_>>()).unwrap_or_default()
}

/// Returns the difference between the median over the last third of the points and that over the first third.
fn change(points: &[Point], get: fn(&Point) -> i64) -> i64 {
    let third = points.len() / 3;
    median(points[points.len() - third..].iter().map(get)) - median(points[..third].iter().map(get))
}

/// Returns the verdict and its reasons.
pub(super) fn decide(growth: &Growth, faults: &Faults, run: &Run) -> (Verdict, Vec<String>) {
    let missing = missing(growth, faults, run);
    if !missing.is_empty() {
        return (Verdict::Inconclusive, missing);
    }
    let leaks = growth.sites.iter().filter(|site| site.is_leak);
    let rate: f64 = leaks.clone().map(|site| site.bytes_per_epoch).sum();
    if leaks.clone().count() > 0 {
        let (account, rate) = (growth.account, Bytes(rate.round() as i64));
        let count: u64 = leaks.map(|site| site.old.blocks_count).sum();
        return (
            Verdict::Leak,
            vec![format!(
                "{count} blocks with {}, {rate} an epoch, were kept until the end of the last epoch",
                Bytes(account.leaked_bytes)
            )],
        );
    }
    if run.joined_running {
        let reason = "recording began while the process ran: what it reserved before is not known";
        return (Verdict::Inconclusive, vec![reason.to_owned()]);
    }
    let points = &growth.points[growth.warm_up_count.min(growth.points.len())..];
    let reserved_bytes = points.iter().map(|point| point.reserved_bytes).max().unwrap_or_default();
    let least = (reserved_bytes / 100).max(SMALL_SEGMENT_BYTES as i64);
    let live = change(points, |point| point.live_bytes);
    let is_live_up = growth.live_trend.is_some_and(|trend| trend.is_up()) && live > least;
    let once = growth.account.kept_once_bytes;
    if once >= least && growth.account.after_bytes - growth.account.before_bytes >= least {
        return (
            Verdict::OneOffGrowth,
            vec![format!("{} were kept by sites that do not go on keeping", Bytes(once))],
        );
    }
    if is_live_up {
        return (
            Verdict::Inconclusive,
            vec![format!("what is live grew by {}, though in blocks that are replaced", Bytes(live))],
        );
    }
    let reserved = change(points, |point| point.reserved_bytes);
    let pinned = change(points, |point| point.pinned_bytes);
    let releasable = change(points, |point| point.releasable_bytes);
    let is_reserved_up = growth.reserved_trend.is_some_and(|trend| trend.is_up()) && reserved > least;
    let parts = format!(
        "what is reserved grew by {}: {} pinned, {} releasable",
        Bytes(reserved),
        Bytes(pinned),
        Bytes(releasable)
    );
    if is_reserved_up && pinned > releasable {
        return (Verdict::Fragmentation, vec![parts]);
    }
    if is_reserved_up && releasable > 0 {
        return (Verdict::Caching, vec![parts]);
    }
    let last_third = &points[points.len() - points.len() / 3..];
    let free = median(last_third.iter().map(|point| point.pinned_bytes + point.releasable_bytes));
    let held = median(last_third.iter().map(|point| point.reserved_bytes));
    if free >= least && free * 2 >= held {
        let reason = format!("{} of {} reserved are free", Bytes(free), Bytes(held));
        return (Verdict::Caching, vec![reason]);
    }
    (Verdict::None, Vec::new())
}

#[cfg(test)]
mod tests {
    use trace_schema::{Lost, Stored};

    use super::*;
    use crate::{
        fault::Fault,
        leaks::{
            account::Account,
            epochs::Epochs,
            trend::{Trend, trend},
        },
    };

    const MIB: i64 = 1 << 20;

    /// Returns growth over forty epochs, of which four are warm-up, with the given live, releasable and
    /// pinned MiB at the end of each.
    fn growth(of: impl Fn(i64) -> (i64, i64, i64)) -> Growth {
        let point = |epoch| {
            let (live, releasable, pinned) = of(epoch);
            Point {
                ts_ns: epoch,
                live_bytes: live * MIB,
                pending_bytes: 0,
                reserved_bytes: (live + releasable + pinned) * MIB,
                releasable_bytes: releasable * MIB,
                pinned_bytes: pinned * MIB,
                unknown_bytes: 0,
                survived_count: 0,
                survived_bytes: 0,
            }
        };
        let points: Vec<Point> = (0..=40).map(point).collect();
        let trend_of = |get: fn(&Point) -> i64| trend(&points[4..].iter().map(get).collect::<Vec<_>>());
        Growth {
            run: "r".to_owned(),
            pid: 1,
            device: 0,
            verdict: Verdict::None,
            reasons: Vec::new(),
            epochs: Epochs {
                origin: Origin::Allocations,
                name: None,
                joined_count: 20,
                bounds_ns: points.iter().map(|point| point.ts_ns).collect(),
            },
            epochs_count: 40,
            warm_up_count: 4,
            account: Account {
                before_bytes: points[4].live_bytes,
                after_bytes: points[40].live_bytes,
                ..Account::default()
            },
            live_trend: trend_of(|point| point.live_bytes),
            reserved_trend: trend_of(|point| point.reserved_bytes),
            sites: Vec::new(),
            ages: Vec::new(),
            sizes: Vec::new(),
            points,
            end_bytes: 0,
            live_sites: Vec::new(),
            failed_count: 0,
        }
    }

    fn counted() -> Run {
        Run { lost_is_counted: true, ..Run::default() }
    }

    fn verdict(of: impl Fn(i64) -> (i64, i64, i64)) -> Verdict {
        decide(&growth(of), &Faults::new(), &counted()).0
    }

    #[test]
    fn what_grows_is_told_apart() {
        assert_eq!(verdict(|_| (100, 10, 10)), Verdict::None);
        assert_eq!(verdict(|epoch| (100, 10, epoch)), Verdict::Fragmentation);
        assert_eq!(verdict(|epoch| (100, epoch, 10)), Verdict::Caching);
        assert_eq!(verdict(|_| (100, 300, 10)), Verdict::Caching);
        // The values rise and fall, and end where they began.
        assert_eq!(verdict(|epoch| (100 + epoch % 9, 10, 10)), Verdict::None);
        // The growth is in blocks that are replaced by larger ones: none of them is old.
        assert_eq!(verdict(|epoch| (100 + epoch, 10, 10)), Verdict::Inconclusive);
    }

    #[test]
    fn growth_that_was_kept_once_is_named_so() {
        let mut once = growth(|epoch| if epoch < 10 { (100, 10, 10) } else { (160, 10, 10) });
        once.account.kept_once_bytes = 60 * MIB;
        assert_eq!(decide(&once, &Faults::new(), &counted()).0, Verdict::OneOffGrowth);
        // As much was freed: nothing has grown.
        let mut exchanged = growth(|_| (100, 10, 10));
        exchanged.account.kept_once_bytes = 60 * MIB;
        assert_eq!(decide(&exchanged, &Faults::new(), &counted()).0, Verdict::None);
    }

    /// Returns growth of which only the last third of the epochs differs: by what `change` does to their ends.
    fn risen(of: (i64, i64, i64), change: impl Fn(&mut Point)) -> Growth {
        let up = Trend { bytes_per_epoch: 1.0, low_bytes_per_epoch: 1.0, high_bytes_per_epoch: 1.0 };
        let mut growth = Growth { live_trend: Some(up), reserved_trend: Some(up), ..growth(|_| of) };
        growth.points[29..].iter_mut().for_each(change);
        growth
    }

    /// The least growth that counts is 2 MiB, or a hundredth of what is reserved if that is more.
    #[test]
    fn growth_counts_above_its_least_amount() {
        let verdict = |growth: &Growth| decide(growth, &Faults::new(), &counted()).0;
        let grow = |point: &mut Point, bytes: [i64; 4]| {
            point.reserved_bytes += bytes[0];
            point.pinned_bytes += bytes[1];
            point.releasable_bytes += bytes[2];
            point.live_bytes += bytes[3];
        };
        let least = 2 * MIB;
        let more = least + 1;
        for (bytes, expected) in [
            ([least, least, 0, 0], Verdict::None),
            ([more, more, 0, 0], Verdict::Fragmentation),
            ([least, 0, least, 0], Verdict::None),
            ([more, 0, more, 0], Verdict::Caching),
            ([2 * more, more, more, 0], Verdict::Caching),
            ([2 * more, more + 1, more - 1, 0], Verdict::Fragmentation),
            ([more, 0, 0, 0], Verdict::None),
            ([least, 0, 0, least], Verdict::None),
            ([more, 0, 0, more], Verdict::Inconclusive),
            ([0, -more, 0, more], Verdict::Inconclusive),
        ] {
            let growth = risen((100, 10, 10), |point| grow(point, bytes));
            assert_eq!(verdict(&growth), expected, "{bytes:?}");
            // Without a trend, nothing grows.
            assert_eq!(
                verdict(&Growth { live_trend: None, reserved_trend: None, ..growth }),
                Verdict::None,
                "{bytes:?}"
            );
        }
        for (bytes, expected) in [(12 * MIB, Verdict::None), (12 * MIB + 1, Verdict::Fragmentation)] {
            let mut growth = risen((900, 50, 50), |point| grow(point, [bytes, bytes, 0, 0]));
            // Most is reserved at one time in the middle.
            growth.points[20].reserved_bytes = 1_200 * MIB;
            assert_eq!(verdict(&growth), expected, "{bytes}");
        }
    }

    #[test]
    fn what_was_kept_once_and_what_is_free_count_from_the_least_amount_on() {
        let verdict = |growth: &Growth| decide(growth, &Faults::new(), &counted()).0;
        let least = 2 * MIB;
        for (kept, grown, expected) in [
            (least, least, Verdict::OneOffGrowth),
            (least - 1, least, Verdict::None),
            (least, least - 1, Verdict::None),
        ] {
            let mut once = growth(|_| (100, 10, 10));
            once.account.kept_once_bytes = kept;
            once.account.after_bytes = once.account.before_bytes + grown;
            assert_eq!(verdict(&once), expected, "{kept} {grown}");
        }
        for (of, more, expected) in [
            ((100, 90, 10), 0, Verdict::Caching),
            ((100, 90, 10), 1, Verdict::None),
            ((2, 1, 1), 0, Verdict::Caching),
            ((1, 1, 0), 0, Verdict::None),
        ] {
            let mut half = growth(|_| of);
            half.points.iter_mut().for_each(|point| point.reserved_bytes += more);
            assert_eq!(verdict(&half), expected, "{of:?} {more}");
        }
    }

    #[test]
    fn missing_events_allow_no_verdict() {
        let flat = growth(|_| (100, 10, 10));
        let reason = |growth: &Growth, faults: &Faults, run: &Run| match decide(growth, faults, run) {
            (Verdict::Inconclusive, reasons) => reasons.join("; "),
            (verdict, _) => verdict.name().to_owned(),
        };
        let lost = |probe: &str, from_ns| Run {
            lost: vec![Lost { probe: probe.to_owned(), from_ns, to_ns: from_ns + 1, count: 3 }],
            ..counted()
        };
        let none = Faults::new();
        let allocator = "DeviceCachingAllocator12record_trace";
        assert_eq!(reason(&flat, &none, &lost(allocator, 39)), "3 events of the allocator were lost");
        // The loss is after the last epoch, whose end no missing event can move, or is of other events.
        assert_eq!(reason(&flat, &none, &lost(allocator, 40)), "3 events of the allocator were lost");
        let mut marked = growth(|_| (100, 10, 10));
        marked.epochs.origin = Origin::Ranges;
        assert_eq!(reason(&marked, &none, &lost(allocator, 40)), "none");
        let stored = |kind: Kind, made| Run {
            stored: vec![Stored {
                kind: kind.name().to_owned(),
                made_count: Some(made),
                stored_count: 4,
                ..Stored::default()
            }],
            ..counted()
        };
        assert!(
            reason(&marked, &none, &stored(Kind::Mark, 5)).contains("only a part of the rows of kind mark")
        );
        assert!(reason(&marked, &none, &stored(Kind::Alloc, 5)).contains("only a part"));
        assert_eq!(reason(&marked, &none, &stored(Kind::Mark, 4)), "none");
        assert_eq!(reason(&marked, &none, &stored(Kind::OffCpu, 5)), "none");
        assert_eq!(reason(&flat, &none, &lost("off_cpu", 1)), "none");
        assert!(reason(&flat, &none, &Run::default()).contains("does not count"));
        assert!(reason(&flat, &Faults::from([(Fault::FreeMissed, 2)]), &counted()).starts_with("2 × "));
        let joined = Run { joined_running: true, ..counted() };
        assert!(reason(&flat, &none, &joined).contains("while the process ran"));
        let few = Growth { epochs_count: MIN_COUNT - 1, ..growth(|_| (100, 10, 10)) };
        assert!(reason(&few, &none, &counted()).contains("too few"));
        let enough = Growth { epochs_count: MIN_COUNT, ..growth(|_| (100, 10, 10)) };
        assert_eq!(reason(&enough, &none, &counted()), "none");
        for not_attributed_bytes in [512, -512] {
            let mut missing = growth(|_| (100, 10, 10));
            missing.account.not_attributed_bytes = not_attributed_bytes;
            assert!(reason(&missing, &none, &counted()).contains("in no block on record"));
        }
    }
}
