//! Determines whether memory that a process allocated from the driver leaks: with cudaMalloc, cudaMallocAsync, cuMemAlloc or
//! cuMemCreate, from its own code or through a pool such as those of CuPy and XLA. The rule is that of PyTorch's blocks
//! ([`super::site`], [`super::account`]). Segments of PyTorch's caching allocator are left out, as its blocks tell more.
//!
//! ```text
//! first work                                                       last work; what is freed later is teardown
//! ├───┬───┬───┬───┬───┬───┬─── 40 windows of equal time ───┬───┬───┤
//! ├warm-up┤
//! ```
//! Marks divide the run if there are enough of them ([`super::epochs`]), otherwise windows of equal time do. Equal numbers of
//! allocations would not: a cache that has stopped growing allocates nothing more, and would seem to grow until the end.
//! Work is launches, or, if hardly any are on record, also copies, fills and allocations.
//!
//! A process is left out if its frees are not on record, or their addresses are not: nothing tells what it kept.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use futures::TryStreamExt;
use serde::Serialize;
use trace_schema::{Bytes, Class, Kind, Op, Run};

use super::{
    account::{self, Account, Named, Suspect},
    epochs::{self, Epochs, MIN_COUNT},
    measured::Verdict,
    site::{Place, Site},
    stacks::{self, Frames},
    trend::{Trend, trend},
};
use crate::{
    decode::Allocating,
    device::{
        driver::{LibraryId, Manner, Piece},
        input::{Ended, Replay},
    },
    input::is_torch,
    settings::SMALL_SEGMENT_BYTES,
    span::{Block, NO_SEGMENT, State},
};
use analyze_run::{
    columns::{Cell, integers, strings},
    coverage::is_version_of,
    error::AnalyzeError,
    events::Events,
    hash::HashMap,
    run_file::RunFile,
};

/// Functions that allocate device memory, and those that free what each kind of them allocated.
const PAIRS: [(&[&str], &[&str]); 3] = [
    (&["cudaMalloc", "cudaMallocPitch", "cuMemAlloc", "cuMemAllocPitch"], &["cudaFree", "cuMemFree"]),
    (
        &["cudaMallocAsync", "cudaMallocFromPoolAsync", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"],
        &["cudaFreeAsync", "cuMemFreeAsync", "cudaFree", "cuMemFree"],
    ),
    (&["cuMemCreate"], &["cuMemRelease"]),
];
/// The smallest number of launches that makes launches the work of a process: a graph or two that set things up do not.
const MIN_LAUNCHES: i64 = 100;
/// The smallest growth that is a leak: the driver takes device memory in pages of 2 MiB, so that less costs nothing.
const MIN_LEAK_BYTES: i64 = SMALL_SEGMENT_BYTES as i64;
/// The smallest number of allocations of a process that can leak by the rule of [`super::site`], which wants five epochs with
/// one.
pub const MIN_ALLOCATIONS: i64 = 5;

/// The growth of the memory that one process allocated from the driver.
#[derive(Clone, Debug, Serialize)]
pub struct DriverGrowth {
    /// The name of the run.
    pub run: String,
    /// The process.
    pub pid: u32,
    /// Whether it leaks: `leak`, `none`, or `inconclusive` if it seems to and events are missing.
    pub verdict: Verdict,
    /// The reasons for the verdict; may be empty.
    pub reasons: Vec<String>,
    /// The epochs over which the growth was measured.
    pub epochs: Epochs,
    /// The account of the growth.
    pub account: Account,
    /// The trend of the allocated bytes, from the end of the warm-up.
    pub live_trend: Option<Trend>,
    /// The sites with old allocations: leaks first, then by bytes. The last frame of a site is the library that made the
    /// allocations with their kind, as in `libcupy.so (plain)`.
    pub sites: Vec<Suspect>,
}

/// Returns the library of a site with the kind of its allocations, and the functions that called it, outermost first.
pub fn library_and_frames(site: &Suspect) -> (&str, Option<&str>) {
    let frames = site.old.frames.as_deref().unwrap_or_default();
    frames.rsplit_once(';').map_or((frames, None), |(frames, library)| (library, Some(frames)))
}

/// What a process did, in counts and times (ns, trace clock).
#[derive(Clone, Copy, Debug)]
struct Activity {
    launches_count: i64,
    /// The first and last launch.
    launched: Option<(i64, i64)>,
    /// The first and last call that is work.
    worked: (i64, i64),
    /// The number of frees, without those of address 0, which free nothing.
    frees_count: i64,
    /// The number of frees whose address is on record.
    known_frees_count: i64,
}

impl Activity {
    fn windows(&self) -> Option<Epochs> {
        let (from, to) = match self.launched {
            Some(launched) if self.launches_count >= MIN_LAUNCHES => launched,
            _ => self.worked,
        };
        Epochs::windows(from, to)
    }

    fn knows_frees(&self) -> bool {
        self.frees_count == 0 || self.known_frees_count > 0
    }
}

/// Returns names as a list of SQL literals.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

fn of_class(classes: &[Class]) -> impl Iterator<Item = &'static str> {
    Op::ALL.iter().filter(move |op| classes.contains(&op.class())).map(|op| op.name())
}

/// Returns the functions that allocate device memory.
pub fn allocating() -> impl Iterator<Item = &'static str> {
    PAIRS.iter().flat_map(|(allocs, _)| allocs.iter().copied())
}

/// Returns the processes whose allocations from the driver are to be judged, by run.
async fn processes(events: &dyn Events) -> Result<Allocating, AnalyzeError> {
    let query = format!(
        "SELECT run, pid, count(*) AS n FROM events WHERE kind = 'call' AND op IN ({}) AND (ret IS NULL OR ret = 0) AND addr > 0 \
         AND (op IN ({}) OR caller IS NULL OR NOT starts_with(caller, '{}')) GROUP BY run, pid HAVING count(*) >= {MIN_ALLOCATIONS}",
        list(allocating()),
        list(PAIRS[1].0.iter().copied()),
        crate::decode::TORCH_LIBRARY
    );
    let mut found = Allocating::new();
    let mut batches = events.select(&query);
    while let Some(batch) = batches.try_next().await? {
        let (runs, pids) = (strings(&batch, "run")?, integers(&batch, "pid")?);
        for row in 0..batch.num_rows() {
            let of_run = found.entry(runs.value(row).to_owned()).or_default();
            of_run.insert((pids.value(row) as u32, 0, false));
        }
    }
    Ok(found)
}

/// Reads what these processes did.
async fn activity(
    events: &dyn Events,
    processes: &Allocating,
) -> Result<BTreeMap<(String, u32), Activity>, AnalyzeError> {
    let pids: Vec<String> = processes.values().flatten().map(|(pid, ..)| pid.to_string()).collect();
    let frees = list(PAIRS.iter().flat_map(|(_, frees)| frees.iter().copied()));
    let launches = list(of_class(&[Class::Launch]));
    let work = list(of_class(&[Class::Launch, Class::Copy, Class::Set]).chain(allocating()));
    let query = format!(
        "SELECT run, pid, count(*) FILTER (WHERE op IN ({launches})) AS launches, \
         min(ts) FILTER (WHERE op IN ({launches})) AS first_launch, max(ts) FILTER (WHERE op IN ({launches})) AS last_launch, \
         min(ts) FILTER (WHERE op IN ({work})) AS first_work, max(ts) FILTER (WHERE op IN ({work})) AS last_work, \
         count(*) FILTER (WHERE op IN ({frees}) AND (addr IS NULL OR addr > 0)) AS frees, count(*) FILTER (WHERE op IN ({frees}) AND addr > 0) AS known_frees \
         FROM events WHERE kind = 'call' AND pid IN ({}) AND op IN ({work}, {frees}) GROUP BY run, pid",
        pids.join(", ")
    );
    let mut found = BTreeMap::new();
    let mut batches = events.select(&query);
    while let Some(batch) = batches.try_next().await? {
        let (runs, whole) = (strings(&batch, "run")?, |name| integers(&batch, name));
        let (pids, launches) = (whole("pid")?, whole("launches")?);
        let (first_launch, last_launch) = (whole("first_launch")?, whole("last_launch")?);
        let (first_work, last_work) = (whole("first_work")?, whole("last_work")?);
        let (frees, known_frees) = (whole("frees")?, whole("known_frees")?);
        for row in 0..batch.num_rows() {
            let Some(worked) = first_work.at(row).zip(last_work.at(row)) else { continue };
            let activity = Activity {
                launches_count: launches.value(row),
                launched: first_launch.at(row).zip(last_launch.at(row)),
                worked,
                frees_count: frees.value(row),
                known_frees_count: known_frees.value(row),
            };
            found.insert((runs.value(row).to_owned(), pids.value(row) as u32), activity);
        }
    }
    Ok(found)
}

/// The allocations of one process that outlived the end of an epoch, by site.
#[derive(Debug)]
struct Collected {
    epochs: Epochs,
    sites: HashMap<(LibraryId, Manner, Place), Site>,
}

impl Collected {
    fn new(epochs: Epochs) -> Self {
        Self { epochs, sites: HashMap::default() }
    }

    /// Adds an allocation that was freed at `end` (ns, trace clock), or never.
    fn add(&mut self, piece: &Piece, end: Option<i64>) {
        let last = self.epochs.count() + 1;
        let born = self.epochs.slot(piece.ts);
        let freed = end.map_or(last, |end| self.epochs.slot(end));
        if born >= freed {
            return;
        }
        let block = Block {
            addr: piece.addr,
            size_bytes: piece.size_bytes,
            requested_bytes: None,
            state: State::Active,
            ts: piece.ts,
            alloc_ts: piece.ts,
            tid: piece.tid,
            stack: piece.stack,
            stream: 0,
            segment: NO_SEGMENT,
        };
        let warm_up = self.epochs.warm_up_count();
        let site = self.sites.entry((piece.library, piece.manner, Place::of(&block)));
        site.or_insert_with(|| Site::new(last, warm_up)).add(&block, born, freed);
    }

    /// Judges what was collected. `frames` names stacks of the process, and `library` the libraries.
    fn judge(
        self,
        run: &str,
        pid: u32,
        frames: &Frames,
        library: impl Fn(LibraryId) -> String,
    ) -> DriverGrowth {
        let mut sites: BTreeMap<Named, Site> = BTreeMap::new();
        let mut live_bytes = vec![0_i64; self.epochs.bounds_ns.len()];
        for ((id, manner, place), site) in &self.sites {
            let called = place.stack.and_then(|stack| frames.get(&(run.to_owned(), pid, stack)));
            let called = called.map(|frames| format!("{frames};")).unwrap_or_default();
            let named = Named {
                frames: Some(format!("{called}{} ({})", library(*id), manner.name())),
                tid: Some(place.tid),
                stream: None,
                size_class: Some(place.size_class),
            };
            for (sum, bytes) in live_bytes.iter_mut().zip(site.live_bytes()) {
                *sum = sum.saturating_add(bytes);
            }
            sites.entry(named).and_modify(|sum| sum.merge(site)).or_insert_with(|| site.clone());
        }
        let warm_up = self.epochs.warm_up_count();
        let after_bytes = live_bytes.last().copied().unwrap_or_default();
        let (account, sites) = account::judge(&sites, warm_up, after_bytes);
        DriverGrowth {
            run: run.to_owned(),
            pid,
            verdict: Verdict::None,
            reasons: Vec::new(),
            live_trend: trend(live_bytes.get(warm_up..).unwrap_or_default()),
            epochs: self.epochs,
            account,
            sites,
        }
    }
}

/// Returns whether what allocates memory of each kind that a process has could be seen to free it.
fn probes_frees(run: &Run, growth: &DriverGrowth) -> bool {
    let is_probed = |frees: &[&str]| {
        let mut placed = run.probes.iter().filter(|probe| probe.error.is_none());
        placed.any(|probe| frees.iter().any(|free| is_version_of(&probe.symbol, free)))
    };
    let has = |manner: Manner| {
        let kind = format!("({})", manner.name());
        growth.sites.iter().any(|site| library_and_frames(site).0.ends_with(&kind))
    };
    let mut pairs = [Manner::Plain, Manner::Pool, Manner::Mapped].into_iter().zip(PAIRS);
    run.probes.is_empty() || pairs.all(|(manner, (_, frees))| !has(manner) || is_probed(frees))
}

/// Returns the verdict and its reasons.
fn decide(growth: &DriverGrowth, run: &Run) -> (Verdict, Vec<String>) {
    let leaks = growth.sites.iter().filter(|site| site.is_leak);
    let (count, rate) = leaks
        .fold((0, 0.0), |(count, rate), site| (count + site.old.blocks_count, rate + site.bytes_per_epoch));
    if growth.account.leaked_bytes < MIN_LEAK_BYTES || growth.epochs.count() < MIN_COUNT {
        return (Verdict::None, Vec::new());
    }
    let mut reasons = Vec::new();
    let of_memory = |probe: &str| {
        let mut ops = PAIRS.iter().flat_map(|(allocs, frees)| allocs.iter().chain(*frees));
        ops.any(|op| is_version_of(probe, op))
    };
    let lost_count: u64 = run.lost.iter().filter(|lost| of_memory(&lost.probe)).map(|lost| lost.count).sum();
    if lost_count > 0 {
        reasons.push(format!("{lost_count} calls that allocate or free memory were lost"));
    } else if !run.lost_is_counted {
        reasons.push("the source does not count the events it loses: a free may be missing".to_owned());
    }
    if run.stored.iter().any(|stored| stored.is_of(Kind::Call) && !stored.is_whole()) {
        reasons.push("the source stored only a part of the calls".to_owned());
    }
    if !reasons.is_empty() {
        return (Verdict::Inconclusive, reasons);
    }
    let (leaked, rate) = (Bytes(growth.account.leaked_bytes), Bytes(rate.round() as i64));
    let reason = format!(
        "{count} allocations with {leaked}, {rate} an epoch, were kept until the end of the last epoch"
    );
    (Verdict::Leak, vec![reason])
}

/// Analyzes what every process of some runs allocated from the driver, in order of run and process.
///
/// # Errors
/// Returns an error if the data cannot be read.
pub async fn run(events: &Arc<dyn Events>, files: &[RunFile]) -> Result<Vec<DriverGrowth>, AnalyzeError> {
    let processes = processes(&**events).await?;
    if processes.is_empty() {
        return Ok(Vec::new());
    }
    let marked = epochs::marked(&**events, &processes).await?;
    let mut collected: BTreeMap<(String, u32), Collected> = BTreeMap::new();
    for ((run, pid), activity) in activity(&**events, &processes).await? {
        let marks = marked.get(&run).and_then(|candidates| candidates.marked(pid));
        if let Some(epochs) = marks.or_else(|| activity.windows()).filter(|_| activity.knows_frees()) {
            collected.insert((run, pid), Collected::new(epochs));
        }
    }
    let mut replay = Replay::new(files);
    let mut batches = Replay::start(&**events);
    while let Some(batch) = batches.try_next().await? {
        replay.batch(&batch, |_, _| ())?;
        collect(&mut replay, &mut collected);
    }
    replay.finish();
    collect(&mut replay, &mut collected);
    let mut wanted = HashSet::new();
    for ((run, pid), of) in &collected {
        let stacks = of.sites.keys().filter_map(|(_, _, place)| place.stack);
        wanted.extend(stacks.map(|stack| (run.clone(), *pid, stack)));
    }
    let frames = stacks::frames(&**events, &wanted).await?;
    let mut found = Vec::new();
    for ((run, pid), of) in collected {
        let mut growth = of.judge(&run, pid, &frames, |id| replay.library(id).to_owned());
        let metadata = files.iter().find(|file| file.name == run).map(|file| &file.run);
        if metadata.is_some_and(|metadata| !probes_frees(metadata, &growth)) {
            continue;
        }
        // Rows without a file have no metadata, and nothing of them was lost.
        let counted = Run { lost_is_counted: true, ..Run::default() };
        (growth.verdict, growth.reasons) = decide(&growth, metadata.unwrap_or(&counted));
        found.push(growth);
    }
    Ok(found)
}

/// Moves the allocations that have ended from a replay to their processes.
fn collect(replay: &mut Replay, collected: &mut BTreeMap<(String, u32), Collected>) {
    for Ended { run, pid, piece, end, .. } in std::mem::take(&mut replay.ended) {
        if is_torch(replay.library(piece.library)) && piece.manner != Manner::Pool {
            continue;
        }
        if let Some(of) = collected.get_mut(&(replay.name(run).to_owned(), pid)) {
            of.add(&piece, end);
        }
    }
    replay.forget();
}

#[cfg(test)]
mod tests {
    use trace_schema::Lost;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn piece(ts: i64, size_bytes: u64) -> Piece {
        Piece {
            addr: ts as u64 + 1,
            size_bytes,
            manner: Manner::Pool,
            library: 0,
            ts,
            tid: 1,
            stack: Some(7),
        }
    }

    /// Judges allocations in the time from 0 to 3,999 ns, of which a window has 100 ns: each with its time, size in bytes and
    /// the time of its free.
    fn judged(allocations: impl Iterator<Item = (i64, u64, Option<i64>)>, run: &Run) -> DriverGrowth {
        let mut collected = Collected::new(Epochs::windows(0, 3_999).expect("windows"));
        allocations.for_each(|(ts, bytes, end)| collected.add(&piece(ts, bytes), end));
        let frames = Frames::from_iter([(("r".to_owned(), 1, 7), "main;step".to_owned())]);
        let mut growth = collected.judge("r", 1, &frames, |_| "libcupy.so".to_owned());
        (growth.verdict, growth.reasons) = decide(&growth, run);
        growth
    }

    fn counted() -> Run {
        Run { lost_is_counted: true, ..Run::default() }
    }

    #[test]
    fn an_allocation_of_each_window_that_is_never_freed_is_a_leak() {
        let churn = (0..400).map(|number| (number * 10, 64 * MIB, Some(number * 10 + 5)));
        let kept = (0..40).map(|window| (window * 100 + 50, 15 * MIB, None));
        let growth = judged(churn.chain(kept), &counted());
        assert_eq!(growth.verdict, Verdict::Leak, "{growth:?}");
        // Four windows are warm-up, and what the last window allocated may still be freed.
        assert_eq!(
            (growth.sites[0].old.blocks_count, growth.account.leaked_bytes),
            (35, 35 * 15 * MIB as i64)
        );
        assert_eq!(library_and_frames(&growth.sites[0]), ("libcupy.so (stream_ordered)", Some("main;step")));
        assert_eq!(growth.live_trend.map(|trend| trend.bytes_per_epoch), Some((15 * MIB) as f64));
    }

    #[test]
    fn a_cache_that_stops_growing_and_what_is_freed_at_the_exit_are_told_apart() {
        // Allocations of the first half of the time, kept until the end.
        let cache = || (0..20).map(|window| (window * 100 + 50, 15 * MIB, None));
        assert_eq!(judged(cache(), &counted()).verdict, Verdict::None);
        // A buffer that grows by being replaced.
        let replaced =
            (0..40).map(|window| (window * 100, (15 + window as u64) * MIB, Some(window * 100 + 110)));
        assert_eq!(judged(replaced, &counted()).verdict, Verdict::None);
        // What is freed after the last work was kept as long as the program worked.
        let teardown = (0..40).map(|window| (window * 100 + 50, 15 * MIB, Some(4_000)));
        assert_eq!(judged(teardown, &counted()).verdict, Verdict::Leak);
        let before = (0..40).map(|window| (window * 100 + 50, 15 * MIB, Some(3_999)));
        assert_eq!(judged(before, &counted()).verdict, Verdict::None);
    }

    #[test]
    fn less_than_a_page_of_the_driver_is_no_leak() {
        let kept = |bytes| judged((0..40).map(|window| (window * 100 + 50, bytes, None)), &counted()).verdict;
        // 35 of them are old.
        assert_eq!(kept(MIN_LEAK_BYTES as u64 / 35 + 1), Verdict::Leak);
        assert_eq!(kept(MIN_LEAK_BYTES as u64 / 35), Verdict::None);
    }

    #[test]
    fn lost_calls_leave_it_open() {
        let kept = || (0..40).map(|window| (window * 100 + 50, 15 * MIB, None));
        let lost = |probe: &str| {
            let lost = Lost { probe: probe.to_owned(), from_ns: 0, to_ns: 1, count: 3 };
            Run { lost: vec![lost], ..counted() }
        };
        let open = judged(kept(), &lost("cuMemFreeAsync_ptsz"));
        assert_eq!(open.verdict, Verdict::Inconclusive);
        assert!(open.reasons[0].starts_with("3 calls"), "{:?}", open.reasons);
        assert_eq!(judged(kept(), &lost("cudaLaunchKernel")).verdict, Verdict::Leak);
        assert_eq!(judged(kept(), &Run::default()).verdict, Verdict::Inconclusive);
    }

    #[test]
    fn frees_that_were_not_probed_tell_nothing() {
        let growth = judged((0..40).map(|window| (window * 100 + 50, 15 * MIB, None)), &counted());
        let probed = |symbol: &str| {
            let probe = trace_schema::AttachedProbe { symbol: symbol.to_owned(), ..Default::default() };
            Run { probes: vec![probe], ..counted() }
        };
        assert!(probes_frees(&counted(), &growth));
        assert!(probes_frees(&probed("cudaFreeAsync_v11020"), &growth));
        assert!(!probes_frees(&probed("cudaMallocAsync"), &growth));
    }

    #[test]
    fn launches_are_the_work_if_there_are_enough() {
        let activity = |launches_count| Activity {
            launches_count,
            launched: Some((100, 499)),
            worked: (0, 999),
            frees_count: 3,
            known_frees_count: 0,
        };
        let span = |launches_count| {
            let bounds_ns = activity(launches_count).windows().map(|epochs| epochs.bounds_ns);
            bounds_ns.and_then(|bounds_ns| Some((*bounds_ns.first()?, *bounds_ns.last()?)))
        };
        assert_eq!(span(MIN_LAUNCHES), Some((100, 500)));
        assert_eq!(span(MIN_LAUNCHES - 1), Some((0, 1_000)));
        assert!(!activity(1).knows_frees());
    }
}
