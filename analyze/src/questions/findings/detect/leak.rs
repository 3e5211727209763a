//! Memory that is kept epoch after epoch: of PyTorch's allocator, and of every other one by what it allocated from the driver.
//!
//! A leak of a loop is made in most epochs, or evenly in every few of them by code that runs as seldom, such as what registers
//! a hook, and that never frees any of it. What else the rule of [`analyze_memory::leaks::site`] finds in fewer than half of the
//! possible epochs, where the program marks none, is a program that fills and empties its memory in its own rhythm, and is no
//! finding.

use trace_schema::{Bytes, Counted, Nanos};

use crate::questions::findings::{
    facts::{Detector, Facts},
    finding::{Finding, Rank},
    ledger::Ledger,
    records::GpuMemory,
};
use analyze_memory::leaks::{
    account::Suspect,
    driver::{DriverGrowth, library_and_frames},
    epochs::{Epochs, Origin},
    growth::Growth,
    measured::Verdict,
    trend::Trend,
};
use analyze_run::symbols;

pub(super) const DETECTOR: Detector = Detector {
    kinds: &[
        ("leak", "Memory of PyTorch's allocator is kept epoch after epoch."),
        (
            "driver-leak",
            "Memory that was allocated from the driver by another allocator is kept epoch after epoch.",
        ),
    ],
    detect,
};

/// Number of functions that name a site.
const FRAMES: usize = 2;
/// Smallest number of times that a pool grows after the warm-up which may not stop to.
const LEAST_GROWTHS: usize = 3;
/// Smallest number of leaking sites that are taken for a graph or a collection of several tensors, not for one tensor.
const MANY_SITES: usize = 3;

fn detect<'a>(facts: &Facts<'a>, _: &mut [Ledger<'a>]) -> Vec<Finding> {
    let gpus = &facts.records.gpu_memory;
    let is_worker = |pid: u32| {
        let mut threads = facts.info.provenance.threads.iter().filter(|thread| thread.pid == pid);
        threads.any(|thread| thread.tid == pid && thread.comm.starts_with(WORKER))
    };
    let growths = facts.memory.map_or(&[][..], |memory| memory.growth.as_slice());
    let torch = growths.iter().filter_map(|growth| of_torch(growth, gpus, is_worker(growth.pid)));
    let driver = facts.records.driver_growth.iter().filter_map(|growth| of_driver(growth, gpus));
    let mut found: Vec<Finding> = torch.chain(driver).collect();
    if facts.memory.is_none() {
        // The section is that of PyTorch's memory.
        found.iter_mut().flat_map(|finding| &mut finding.evidence).for_each(|evidence| evidence.section = "");
    }
    found
}

/// Name of the main thread of a worker process of PyTorch's `DataLoader`.
const WORKER: &str = "pt_data_worker";

/// Returns the sites that leak, if they do so in enough epochs.
fn leaking<'a>(sites: &'a [Suspect], epochs: &Epochs) -> Vec<&'a Suspect> {
    let is_marked = matches!(epochs.origin, Origin::Ranges | Origin::Moments);
    // No time without a leak is twice as long as they usually are.
    let is_even = |site: &Suspect| {
        site.freed_count == 0
            && site.longest_gap_count * site.generations_count <= 2 * (site.possible_count - site.generations_count)
    };
    let is_regular =
        |site: &&Suspect| is_marked || site.generations_count * 2 >= site.possible_count || is_even(site);
    sites.iter().filter(|site| site.is_leak).filter(is_regular).collect()
}

/// Returns the functions that name a site: those of Python, if there are some, or else the innermost ones.
fn name(frames: &str) -> String {
    let python: Vec<&str> = frames.split(';').filter(|frame| frame.contains(".py")).collect();
    match python.is_empty() {
        true => symbols::innermost(frames, FRAMES),
        false => python.iter().rev().take(FRAMES).copied().collect::<Vec<_>>().join(" < "),
    }
}

fn of_torch(growth: &Growth, gpus: &GpuMemory, is_worker: bool) -> Option<Finding> {
    let sites = leaking(&growth.sites, &growth.epochs);
    if growth.verdict != Verdict::Leak {
        return None;
    }
    let site = sites.first()?;
    let (bytes, count) = amount(&sites);
    let place = site.old.frames.as_deref().map(name).filter(|name| !name.is_empty());
    let by = place.map_or_else(String::new, |name| format!(", most of them allocated by {name},"));
    let title =
        format!("PyTorch's memory leaks: {} with {bytes}{by} were kept to the end.", Counted(count, "block"));
    let (source, to_do) = source(&sites, is_worker);
    let pid = i64::from(growth.pid);
    let sql = format!("SELECT * FROM leak_sites WHERE pid = {pid} AND is_leak ORDER BY blocks_bytes DESC");
    let last = growth.points.last();
    // What is reserved and not allocated serves requests before the device's free memory does.
    let cached_bytes = last.map_or(0, |last| last.reserved_bytes.saturating_sub(last.live_bytes));
    let mut finding = Finding::new("leak", Rank::Leak, Some(pid), title)
        .holds(growth.account.leaked_bytes)
        .shown_by(sizes(&sites, &growth.epochs), sql, "memory")
        .shown_by(source, "", "memory")
        .to_do(to_do);
    finding =
        with_forecast(finding, gpus, &growth.epochs, growth.warm_up_count, growth.live_trend, cached_bytes);
    let is_marked = matches!(growth.epochs.origin, Origin::Ranges | Origin::Moments);
    if growth.failed_count > 0 && !is_marked {
        return Some(finding.inconclusive(
            "memory ran out and the program marks no epochs: filling up on purpose and leaking look alike",
        ));
    }
    Some(finding)
}

fn of_driver(growth: &DriverGrowth, gpus: &GpuMemory) -> Option<Finding> {
    let sites = leaking(&growth.sites, &growth.epochs);
    let is_open = match growth.verdict {
        Verdict::Leak => false,
        Verdict::Inconclusive => true,
        _ => return growing_pool(growth),
    };
    let site = sites.first()?;
    let (bytes, count) = amount(&sites);
    let (library, frames) = library_and_frames(site);
    // A call through ctypes comes from the library that makes foreign calls.
    let library = if library.starts_with("libffi") { "Python (ctypes)" } else { library };
    let place = frames.map(name).filter(|name| !name.is_empty());
    let by = place.map_or_else(String::new, |name| format!(" for {name}"));
    let leaks = if is_open { "may leak" } else { "leaks" };
    let title = format!(
        "GPU memory {leaks}: {} with {bytes}, which {library} took from the driver{by}, were kept to the end.",
        Counted(count, "allocation")
    );
    let pid = i64::from(growth.pid);
    let bounds = &growth.epochs.bounds_ns;
    let from_ns = bounds.get(growth.epochs.warm_up_count()).copied().unwrap_or_default();
    let to_ns = bounds.last().copied().unwrap_or_default();
    let sql = format!(
        "SELECT library, allocation_type, count(*), sum(size_bytes) FROM driver_allocations WHERE pid = {pid} \
         AND ts >= {from_ns} AND ts < {to_ns} AND (dur IS NULL OR ts + dur >= {to_ns}) GROUP BY library, allocation_type"
    );
    let (kind, to_do) = match pool(library) {
        Some((pool, to_do)) => (format!("{library} is the pool of {pool}"), to_do),
        None => (
            "each allocation is one call of the driver".to_owned(),
            "Free what these calls allocate, or allocate it once; `capture --stacks` records which code makes them.",
        ),
    };
    let finding = Finding::new("driver-leak", Rank::Leak, Some(pid), title)
        .holds(growth.account.leaked_bytes)
        .shown_by(sizes(&sites, &growth.epochs), sql, "memory")
        .shown_by(kind, "", "memory")
        .to_do(to_do);
    let warm_up = growth.epochs.warm_up_count();
    let mut finding = with_forecast(finding, gpus, &growth.epochs, warm_up, growth.live_trend, 0);
    if pool(library).is_some() {
        finding.open =
            "blocks within the pool are not on record: arrays that are kept and a pool that fragments look alike"
                .to_owned();
    }
    // Only what is sure comes before the costs.
    Some(match is_open {
        true => Finding { rank: Rank::Cost, ..finding.inconclusive(growth.reasons.join("; ")) },
        false => finding,
    })
}

/// Finds a pool that grew again and again, until late, and released nothing: a pool that doubles its size takes memory so seldom
/// that no single site leaks. Whether its blocks are kept or only fragment it is not on record.
fn growing_pool(growth: &DriverGrowth) -> Option<Finding> {
    let (library, _) = library_and_frames(growth.sites.first()?);
    let (name, to_do) = pool(library)?;
    let of_pool = || growth.sites.iter().filter(|site| library_and_frames(site).0 == library);
    let times: usize = of_pool().map(|site| site.generations_count).sum();
    let last = of_pool().map(|site| site.last_epoch).max()?;
    let is_growing = times >= LEAST_GROWTHS
        // A pool that doubles for blocks which are kept evenly grows in the second half of any run.
        && last * 2 >= growth.epochs.count()
        && growth.sites.iter().all(|site| site.freed_count == 0)
        && growth.live_trend.is_some_and(|trend| trend.is_up());
    if !is_growing {
        return None;
    }
    let grown_bytes = of_pool().map(|site| site.old.blocks_bytes).fold(0, i64::saturating_add);
    let title = format!(
        "GPU memory may leak: the pool of {name} grew {} by {} after the warm-up, and released nothing.",
        Counted(times, "time"),
        Bytes(grown_bytes)
    );
    let pid = i64::from(growth.pid);
    let sql = format!("SELECT * FROM driver_allocations WHERE pid = {pid} ORDER BY ts");
    let shown = format!("the last time in epoch {last} of {} ({})", growth.epochs.count(), growth.epochs.label());
    Some(
        Finding::new("driver-leak", Rank::Cost, Some(pid), title)
            .holds(grown_bytes)
            .shown_by(shown, sql, "memory")
            .to_do(to_do)
            .inconclusive("blocks within the pool are not on record: arrays that are kept, and a pool that fragments or has not reached its size yet, look alike"),
    )
}

/// Returns the framework that allocates through a library in blocks that it divides further, and what to do.
fn pool(library: &str) -> Option<(&'static str, &'static str)> {
    let library = library.to_ascii_lowercase();
    // CuPy's extension modules carry no name of their own but this.
    if library.contains("cupy") || library.starts_with("runtime.cpython") {
        let to_do = "Drop arrays that lists or caches keep; cupy.get_default_memory_pool().used_bytes() tells what is still referenced.";
        return Some(("CuPy", to_do));
    }
    let is_xla = ["xla", "pjrt", "jax"].iter().any(|name| library.contains(name));
    let to_do = "Drop arrays that lists or caches keep; jax.live_arrays() lists what is still referenced.";
    is_xla.then_some(("XLA", to_do))
}

/// Returns the bytes and the number of allocations that sites have leaked.
fn amount(sites: &[&Suspect]) -> (Bytes, u64) {
    let bytes = sites.iter().map(|site| site.old.blocks_bytes).sum();
    (Bytes(bytes), sites.iter().map(|site| site.old.blocks_count).sum())
}

/// Describes in how many epochs sites leaked, and how fast.
fn sizes(sites: &[&Suspect], epochs: &Epochs) -> String {
    let rate: f64 = sites.iter().map(|site| site.bytes_per_epoch).sum();
    let most = sites.iter().max_by_key(|site| site.generations_count);
    let (made, possible) = most.map_or((0, 0), |site| (site.generations_count, site.possible_count));
    let count = Counted(sites.len(), "site");
    let (rate, label) = (Bytes(rate.round() as i64), epochs.label());
    format!("{count} kept {rate} an epoch, in {made} of {} ({label})", Counted(possible, "epoch"))
}

/// Tells by what the sites are, as far as the record does, which of the usual sources of a leak it is, and its remedy.
fn source(sites: &[&Suspect], is_worker: bool) -> (String, &'static str) {
    let stacks: Vec<&str> = sites.iter().filter_map(|site| site.old.frames.as_deref()).collect();
    let any = |is_meant: fn(&str) -> bool| stacks.iter().flat_map(|frames| frames.split(';')).any(is_meant);
    if is_worker || any(|frame| frame.contains("_worker_loop")) {
        return (
            "the process is a worker of a DataLoader".to_owned(),
            "Return CPU tensors from the Dataset and move them in the main process; do not keep batches in the Dataset object.",
        );
    }
    if any(|frame| {
        frame.to_ascii_lowercase().contains("hook")
            || frame.contains("inner") && frame.contains("nn/modules/module.py")
    }) {
        return (
            "the memory is allocated in a hook".to_owned(),
            "Keep the handle of each hook and call handle.remove(); store output.detach() in hooks, and clear the store every step.",
        );
    }
    if any(|frame| frame.contains("autograd") && frame.contains("Engine")) {
        return (
            "the memory is allocated during backward()".to_owned(),
            "Drop the graph of the backward pass: no create_graph=True or retain_graph=True that is not needed, and zero_grad(set_to_none=True).",
        );
    }
    let stack = match stacks.is_empty() {
        true => " (no call stack is on record: `capture --stacks` with `python -X perf` names the code)",
        false => "",
    };
    if sites.len() >= MANY_SITES {
        return (
            format!(
                "{} leak together: a graph that is kept for want of detach() or no_grad(), or a collection of several tensors, which the record does not tell apart{stack}",
                Counted(sites.len(), "site")
            ),
            "Store loss.item() or output.detach(), not tensors with their graph; evaluate under torch.no_grad().",
        );
    }
    (
        format!(
            "one kind of tensor is kept: a list that grows, or a global cache without a bound, which the record does not tell apart{stack}"
        ),
        "Keep tensors in no list or cache that outlives the step: bound it, or store .item() or .detach().cpu() instead.",
    )
}

/// Adds when memory runs out: the free memory, and `cached_bytes` besides, divided by the growth.
fn with_forecast(
    finding: Finding,
    gpus: &GpuMemory,
    epochs: &Epochs,
    warm_up_count: usize,
    growth: Option<Trend>,
    cached_bytes: i64,
) -> Finding {
    let bounds = epochs.bounds_ns.get(warm_up_count..).unwrap_or_default();
    let (Some(first), Some(last), Some(growth)) = (bounds.first(), bounds.last(), growth) else {
        return finding;
    };
    let free_bytes = finding.pid.and_then(|pid| gpus.free_bytes(pid, *last));
    let Some(free_bytes) = free_bytes.map(|free| free.saturating_add(cached_bytes)) else { return finding };
    let epoch_ns = last.saturating_sub(*first) as f64 / bounds.len().saturating_sub(1).max(1) as f64;
    let Some((mid, margin)) = forecast(free_bytes, growth) else { return finding };
    let time = |epochs: f64| Nanos((epochs * epoch_ns).round() as i64);
    let (mid_ns, margin_ns) = (time(mid), time(margin));
    let when = match epochs.origin {
        Origin::Windows => format!("in {mid_ns} ± {margin_ns}"),
        _ => format!("in {mid:.0} ± {margin:.0} epochs ({}), about {mid_ns} ± {margin_ns}", epochs.label()),
    };
    let text = format!(
        "if it goes on, out of memory {when} after the last epoch: {} were free for it, and it grew by {} an epoch (95 % interval {} to {})",
        Bytes(free_bytes),
        Bytes(growth.bytes_per_epoch.round() as i64),
        Bytes(growth.low_bytes_per_epoch.round() as i64),
        Bytes(growth.high_bytes_per_epoch.round() as i64)
    );
    finding.shown_by(text, "SELECT * FROM memory_use ORDER BY ts", "memory")
}

/// Returns after how many epochs memory runs out, and the larger distance to an end of the interval that the growth's own
/// 95 % interval gives; `None` if the interval has no upper end.
fn forecast(free_bytes: i64, growth: Trend) -> Option<(f64, f64)> {
    let after = |rate: f64| free_bytes.max(0) as f64 / rate;
    growth.is_up().then(|| {
        let mid = after(growth.bytes_per_epoch);
        let (early, late) = (after(growth.high_bytes_per_epoch), after(growth.low_bytes_per_epoch));
        (mid, (mid - early).max(late - mid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use analyze_memory::leaks::account::{Account, LiveSite};

    fn site(frames: Option<&str>, generations_count: usize) -> Suspect {
        Suspect {
            is_leak: true,
            old: LiveSite {
                frames: frames.map(str::to_owned),
                tid: Some(7),
                stream: None,
                blocks_count: 35,
                blocks_bytes: 70 << 20,
                smallest_bytes: 2 << 20,
                largest_bytes: 2 << 20,
            },
            bytes_per_epoch: (2 << 20) as f64,
            share_ratio: 1.0,
            generations_count,
            longest_gap_count: 4,
            possible_count: 35,
            first_epoch: 5,
            last_epoch: 39,
            horizon_epochs: 1,
            freed_count: 0,
            young_count: 1,
            young_bytes: 2 << 20,
            trend: None,
            examples: Vec::new(),
        }
    }

    fn epochs(origin: Origin) -> Epochs {
        Epochs { origin, name: None, joined_count: 20, bounds_ns: (0..=40).map(|epoch| epoch * 10).collect() }
    }

    fn trend() -> Trend {
        Trend { bytes_per_epoch: 2.0, low_bytes_per_epoch: 1.0, high_bytes_per_epoch: 4.0 }
    }

    fn growth(origin: Origin, sites: Vec<Suspect>) -> Growth {
        Growth {
            run: "r".to_owned(),
            pid: 7,
            device: 0,
            verdict: Verdict::Leak,
            reasons: Vec::new(),
            epochs: epochs(origin),
            epochs_count: 40,
            warm_up_count: 4,
            account: Account { leaked_bytes: 70 << 20, ..Account::default() },
            live_trend: Some(trend()),
            reserved_trend: None,
            sites,
            ages: Vec::new(),
            sizes: Vec::new(),
            points: Vec::new(),
            end_bytes: 0,
            live_sites: Vec::new(),
            failed_count: 0,
        }
    }

    fn of_driver_with(verdict: Verdict, library: &str) -> Option<Finding> {
        let growth = DriverGrowth {
            run: "r".to_owned(),
            pid: 7,
            verdict,
            reasons: vec!["3 calls were lost".to_owned()],
            epochs: epochs(Origin::Windows),
            account: Account { leaked_bytes: 70 << 20, ..Account::default() },
            live_trend: Some(trend()),
            sites: vec![site(Some(library), 35)],
        };
        of_driver(&growth, &GpuMemory::of_test(&[(0, 60)]))
    }

    #[test]
    fn a_leak_has_its_site_and_a_forecast_with_the_interval_of_its_growth() {
        let gpus = GpuMemory::of_test(&[(0, 20), (399, 60), (500, 99)]);
        let leak = growth(Origin::Allocations, vec![site(Some("main;py::step:/train.py;at::empty"), 35)]);
        let found = of_torch(&leak, &gpus, false).expect("a leak");
        assert!(
            found.title.contains("35 blocks with 70.0 MiB") && found.title.contains("py::step:/train.py")
        );
        // 40 bytes were free at the end of the last epoch: 10 to 40 epochs of 10 ns.
        let forecast = &found.evidence[2].text;
        assert!(
            forecast.contains("in 20 ± 20 epochs (20 allocations each), about 200 ns ± 200 ns"),
            "{forecast}"
        );
        assert_eq!(found.rank, Rank::Leak);
        // With two GPUs nothing says which one the process uses.
        let blind = of_torch(&leak, &GpuMemory::default(), false).expect("a leak");
        assert_eq!(blind.evidence.len(), 2);
    }

    #[test]
    fn what_is_kept_in_few_epochs_is_a_leak_only_where_the_program_marks_them() {
        let gpus = GpuMemory::default();
        let found =
            |origin, generations| of_torch(&growth(origin, vec![site(None, generations)]), &gpus, false);
        assert!(found(Origin::Allocations, 17).is_none());
        assert!(found(Origin::Allocations, 18).is_some());
        assert!(found(Origin::Ranges, 17).is_some());
        let other = Growth { verdict: Verdict::Caching, ..growth(Origin::Ranges, vec![site(None, 35)]) };
        assert!(of_torch(&other, &gpus, false).is_none());
        let full = Growth { failed_count: 1, ..growth(Origin::Allocations, vec![site(None, 35)]) };
        let full = of_torch(&full, &gpus, false).expect("a finding");
        assert!(full.open.contains("on purpose"), "{}", full.open);
    }

    #[test]
    fn sources_are_told_apart_as_far_as_the_record_does() {
        let of = |frames: &[Option<&str>], is_worker| {
            let sites: Vec<Suspect> = frames.iter().map(|frames| site(*frames, 35)).collect();
            source(&sites.iter().collect::<Vec<_>>(), is_worker).0
        };
        assert!(of(&[None], true).contains("worker of a DataLoader"));
        assert!(of(&[Some("py::_worker_loop:/worker.py;at::empty")], false).contains("worker"));
        assert!(of(&[Some("py::save_hook:/train.py;at::empty")], false).contains("hook"));
        assert!(
            of(&[Some("_ZN5torch8autograd6Engine17evaluate_functionEv;at::mm")], false).contains("backward")
        );
        let graph = of(&[Some("main;at::mm"); 3], false);
        assert!(graph.contains("detach") && graph.contains("does not tell apart"), "{graph}");
        let list = of(&[None; 2], false);
        assert!(list.contains("a list that grows") && list.contains("no call stack"), "{list}");
    }

    #[test]
    fn a_pool_leaves_open_what_is_in_it_and_lost_calls_leave_all_open() {
        let plain = of_driver_with(Verdict::Leak, "main;a.out (plain)").expect("a leak");
        assert!(plain.title.contains("a.out (plain) took from the driver for main"), "{}", plain.title);
        assert!(plain.open.is_empty());
        assert!(plain.evidence[2].text.contains("in 200 ns ± 200 ns"), "{:?}", plain.evidence);
        let pool = of_driver_with(Verdict::Leak, "libcupy.so (plain)").expect("a leak");
        assert!(pool.open.contains("pool") && pool.to_do.contains("cupy"), "{pool:?}");
        let open = of_driver_with(Verdict::Inconclusive, "a.out (plain)").expect("a finding");
        assert_eq!((open.rank, open.open.as_str()), (Rank::Cost, "3 calls were lost"));
        assert!(of_driver_with(Verdict::None, "a.out (plain)").is_none());
    }
}
