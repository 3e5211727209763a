//! Divides the run of an allocator into epochs, over which its growth is judged.
//!
//! ```text
//!        start        end 1      end 2          end 3
//! ───────┼──────────────┼──────────┼──────────────┼─────── teardown belongs to no epoch
//! before │   epoch 1    │ epoch 2  │   epoch 3    │
//!           ├─ range ───┤ ├─ range ┤    ├─ range ─┤
//! ```
//! Epochs come from marks whose names differ only in numbers ("epoch 1", "epoch 2"). Among the families of
//! marks that are frequent enough, those of the process itself are preferred, then ranges over moments, and
//! then the family that covers the most time. If there are none, the run is cut where equal numbers of
//! allocations have been made. An epoch extends from one end to the next, so that nothing lies between
//! epochs. What follows the last end, such as what a program frees at its exit, is not judged. If there are
//! many epochs, several are joined into one. The memory of other allocators ([`super::driver`]) is divided by windows of equal
//! time where there are no marks.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use serde::Serialize;

use crate::decode::Allocating;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    events::Events,
};

/// The largest number of epochs; more are joined, to bound the cost of an analysis.
const MAX_COUNT: usize = 128;
/// The name that requests epochs of equal numbers of allocations, unless there are marks of that name.
const ALLOCATIONS_NAME: &str = "allocations";
/// The smallest number of allocations that makes an epoch.
const MIN_ALLOCATIONS: usize = 20;
/// One epoch in this many belongs to the warm-up.
const WARM_UP_ONE_IN: usize = 10;
/// The smallest number of epochs that can show a trend.
pub const MIN_COUNT: usize = 10;
/// The number of windows of equal time: a tenth is warm-up, and each third of the others has a dozen.
const WINDOWS: i64 = 40;

/// What the epochs were derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Ranges that the program marked.
    Ranges,
    /// Moments that the program marked.
    Moments,
    /// Equal numbers of allocations.
    Allocations,
    /// Windows of equal time.
    Windows,
}

/// The epochs of one allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Epochs {
    /// What the epochs were derived from.
    pub origin: Origin,
    /// The name of the marks, with # in the place of numbers; `None` for allocations.
    pub name: Option<String>,
    /// The number of ranges, moments or allocations that make one epoch.
    pub joined_count: usize,
    /// The start of the first epoch and the end of each, in ns of CLOCK_MONOTONIC. An event at a bound lies
    /// after it.
    pub bounds_ns: Vec<i64>,
}

impl Epochs {
    /// Returns the number of epochs.
    pub fn count(&self) -> usize {
        self.bounds_ns.len().saturating_sub(1)
    }

    /// Returns the number of warm-up epochs at the start, which are not judged because a program still
    /// allocates what it keeps.
    pub fn warm_up_count(&self) -> usize {
        self.count().div_ceil(WARM_UP_ONE_IN)
    }

    /// Returns the slot of a time: 0 before the first epoch, 1 and up for the number of an epoch, and one
    /// more than their count after the last.
    pub fn slot(&self, ts: i64) -> usize {
        self.bounds_ns.partition_point(|bound| *bound <= ts)
    }

    /// Describes what one epoch is, in words.
    pub fn label(&self) -> String {
        let joined = self.joined_count;
        match (self.origin, &self.name) {
            (Origin::Ranges, Some(name)) if joined == 1 => format!("ranges {name:?}"),
            (Origin::Ranges, Some(name)) => format!("{joined} ranges {name:?} each"),
            (Origin::Moments, Some(name)) if joined == 1 => format!("moments {name:?}"),
            (Origin::Moments, Some(name)) => format!("{joined} moments {name:?} each"),
            (Origin::Windows, _) => "windows of equal time".to_owned(),
            _ => format!("{joined} allocations each"),
        }
    }

    /// Returns the epochs of an allocator of which no allocation is on record: there are none.
    pub(super) fn none() -> Self {
        Self { origin: Origin::Allocations, name: None, joined_count: MIN_ALLOCATIONS, bounds_ns: Vec::new() }
    }

    /// Divides the time from `from` to `to`, both included (ns, trace clock); returns `None` if it is too short.
    pub(super) fn windows(from: i64, to: i64) -> Option<Self> {
        let span = i128::from(to) - i128::from(from) + 1;
        if span < i128::from(WINDOWS) {
            return None;
        }
        let bound =
            |number: i64| from.saturating_add((span * i128::from(number) / i128::from(WINDOWS)) as i64);
        let bounds_ns = (0..=WINDOWS).map(bound).collect();
        Some(Self { origin: Origin::Windows, name: None, joined_count: 1, bounds_ns })
    }

    fn of_marks(origin: Origin, name: &str, start: i64, mut ends: Vec<i64>) -> Self {
        ends.sort_unstable();
        let joined_count = ends.len().div_ceil(MAX_COUNT).max(1);
        let mut bounds_ns = vec![start];
        bounds_ns.extend(ends.chunks(joined_count).filter_map(<[i64]>::last).filter(|end| **end > start));
        bounds_ns.dedup();
        Self { origin, name: Some(name.to_owned()), joined_count, bounds_ns }
    }
}

/// Returns the name of a mark with its numbers replaced by #: "epoch 12" becomes "epoch #".
pub fn family(name: &str) -> String {
    let mut found = String::with_capacity(name.len());
    for c in name.chars() {
        if !c.is_ascii_digit() {
            found.push(c);
        } else if !found.ends_with('#') {
            found.push('#');
        }
    }
    found
}

/// The marks of one family.
#[derive(Clone, Debug, Default)]
struct Marks {
    start: Option<i64>,
    ends: Vec<i64>,
    total_ns: i64,
}

impl Marks {
    fn add(&mut self, start: i64, end: i64) {
        self.start = Some(self.start.map_or(start, |earlier| earlier.min(start)));
        self.ends.push(end);
        self.total_ns = self.total_ns.saturating_add(end.saturating_sub(start));
    }

    fn merge(&mut self, other: &Self) {
        self.start = [self.start, other.start].into_iter().flatten().min();
        self.ends.extend(&other.ends);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }
}

/// The times at which equal numbers of allocations had been made; the stride doubles when there are too many.
#[derive(Clone, Debug)]
struct Strides {
    start: i64,
    last: i64,
    seen: usize,
    stride: usize,
    ends: Vec<i64>,
}

impl Strides {
    fn new(start: i64) -> Self {
        Self { start, last: start, seen: 0, stride: MIN_ALLOCATIONS, ends: Vec::new() }
    }

    fn add(&mut self, ts: i64) {
        (self.seen, self.last) = (self.seen + 1, ts);
        if self.seen.is_multiple_of(self.stride) {
            // The end is exclusive, so it lies one ns after the allocation.
            self.ends.push(ts.saturating_add(1));
        }
        if self.ends.len() > MAX_COUNT {
            self.stride *= 2;
            self.ends = self.ends.iter().skip(1).step_by(2).copied().collect();
        }
    }

    /// Returns the epochs; the remaining allocations belong to the last one.
    fn epochs(&self) -> Epochs {
        let mut bounds_ns = vec![self.start];
        bounds_ns.extend(&self.ends);
        if let Some(end) = bounds_ns.last_mut().filter(|end| **end > self.start) {
            *end = self.last.saturating_add(1);
        }
        bounds_ns.dedup();
        Epochs { origin: Origin::Allocations, name: None, joined_count: self.stride, bounds_ns }
    }
}

/// A process, a device, and whether the allocator itself was probed: usage reports of a probed one add
/// nothing.
type Source = (u32, i32, bool);

/// What the epochs of one run can be derived from.
#[derive(Debug, Default)]
pub struct Candidates {
    marks: BTreeMap<(Origin, String), BTreeMap<u32, Marks>>,
    /// The processes and devices that allocated.
    sources: BTreeSet<Source>,
    /// The times of their allocations, which are read only where there are no marks.
    allocations: BTreeMap<Source, Strides>,
}

impl Candidates {
    /// Returns whether there are marks of that name, or it asks for allocations.
    pub fn has(&self, name: &str) -> bool {
        name == ALLOCATIONS_NAME || self.marks.keys().any(|(_, of)| *of == family(name))
    }

    /// Returns the processes and devices that allocated.
    pub fn allocators(&self) -> BTreeSet<(u32, i32)> {
        self.sources.iter().map(|(pid, device, _)| (*pid, *device)).collect()
    }

    /// Returns the epochs of an allocator. `name` selects a family of marks, or `allocations`; `None` selects
    /// the best one.
    pub fn epochs(&self, pid: u32, device: i32, name: Option<&str>) -> Option<Epochs> {
        match self.best_marks(pid, name) {
            Some((origin, family, marks)) => Some(Epochs::of_marks(origin, family, marks.start?, marks.ends)),
            None => {
                let of = |is_probed| self.allocations.get(&(pid, device, is_probed));
                of(true).or_else(|| of(false)).map(Strides::epochs)
            }
        }
    }

    /// Returns the epochs that marks make for a process; `None` if there are too few marks.
    pub(super) fn marked(&self, pid: u32) -> Option<Epochs> {
        let (origin, family, marks) = self.best_marks(pid, None)?;
        Some(Epochs::of_marks(origin, family, marks.start?, marks.ends))
    }

    /// Returns the marks that are the epochs of a process; `None` if its allocations are.
    fn best_marks(&self, pid: u32, name: Option<&str>) -> Option<(Origin, &str, Marks)> {
        let wanted = name.map(family);
        let least = if wanted.is_some() { 0 } else { MIN_COUNT };
        let mut found = Vec::new();
        for ((origin, family), by_process) in &self.marks {
            if wanted.as_ref().is_some_and(|wanted| wanted != family) {
                continue;
            }
            let own = by_process.get(&pid);
            let marks = own.cloned().unwrap_or_else(|| {
                let mut all = Marks::default();
                by_process.values().for_each(|marks| all.merge(marks));
                all
            });
            // Moments are bounds; the first one is the start of the first epoch.
            let is_ranges = *origin == Origin::Ranges;
            let epochs = marks.ends.len() - usize::from(!is_ranges);
            let last = marks.ends.iter().max().copied();
            let covered_ns = match (is_ranges, marks.start, last) {
                (false, Some(first), Some(last)) => last.saturating_sub(first),
                _ => marks.total_ns,
            };
            if epochs >= least {
                found.push((own.is_some(), is_ranges, covered_ns, family, marks));
            }
        }
        let best = found.into_iter().max_by(|a, b| (a.0, a.1, a.2, b.3).cmp(&(b.0, b.1, b.2, a.3)));
        let (_, is_ranges, _, family, marks) = best?;
        Some((if is_ranges { Origin::Ranges } else { Origin::Moments }, family.as_str(), marks))
    }

    fn add_mark(&mut self, pid: u32, name: &str, ts: i64, dur: Option<i64>, is_range: bool) {
        let (origin, end) = match (is_range, dur) {
            (true, Some(dur)) => (Origin::Ranges, ts.saturating_add(dur)),
            // The range was still open at the end of the run.
            (true, None) => return,
            (false, _) => (Origin::Moments, ts),
        };
        self.marks.entry((origin, family(name))).or_default().entry(pid).or_default().add(ts, end);
    }
}

const MARKS: &str = "SELECT run, pid, name, op, ts, dur FROM marks ORDER BY run, ts";

const ALLOCATIONS: &str = "SELECT run, pid, coalesce(device, 0) AS device, op, ts FROM events \
     WHERE kind = 'alloc' AND (op = 'alloc' OR (op = 'usage' AND size_bytes >= 0)) ORDER BY run, ts";

/// Reads what epochs can be derived from, by run, for what allocated. `name` is that of the epochs that are asked for.
pub(super) async fn candidates(
    events: &dyn Events,
    allocating: &Allocating,
    name: Option<&str>,
) -> Result<BTreeMap<String, Candidates>, AnalyzeError> {
    let mut found = marked(events, allocating).await?;
    let lacks_marks =
        |of_run: &Candidates| of_run.sources.iter().any(|(pid, ..)| of_run.best_marks(*pid, name).is_none());
    if found.values().any(lacks_marks) {
        add_allocations(events, &mut found).await?;
    }
    Ok(found)
}

/// Reads the marks that epochs can be derived from, by run, for what allocated.
pub(super) async fn marked(
    events: &dyn Events,
    allocating: &Allocating,
) -> Result<BTreeMap<String, Candidates>, AnalyzeError> {
    // Without an allocator there is nothing to divide.
    if allocating.is_empty() {
        return Ok(BTreeMap::new());
    }
    let of_run = |(run, sources): (&String, &BTreeSet<Source>)| {
        (run.clone(), Candidates { sources: sources.clone(), ..Candidates::default() })
    };
    let mut found: BTreeMap<String, Candidates> = allocating.iter().map(of_run).collect();
    let mut batches = events.select(MARKS);
    while let Some(batch) = batches.try_next().await? {
        let (runs, names, ops) = (strings(&batch, "run")?, strings(&batch, "name")?, strings(&batch, "op")?);
        let (pids, times, durs) =
            (integers(&batch, "pid")?, integers(&batch, "ts")?, integers(&batch, "dur")?);
        for row in 0..batch.num_rows() {
            let Some(of_run) = found.get_mut(runs.value(row)) else { continue };
            let pid = pids.at(row).unwrap_or_default() as u32;
            let name = names.at(row).unwrap_or_default();
            of_run.add_mark(pid, name, times.value(row), durs.at(row), ops.at(row) == Some("range"));
        }
    }
    Ok(found)
}

/// Reads the times of all allocations.
async fn add_allocations(
    events: &dyn Events,
    found: &mut BTreeMap<String, Candidates>,
) -> Result<(), AnalyzeError> {
    let mut batches = events.select(ALLOCATIONS);
    while let Some(batch) = batches.try_next().await? {
        let (runs, ops) = (strings(&batch, "run")?, strings(&batch, "op")?);
        let (pids, devices) = (integers(&batch, "pid")?, integers(&batch, "device")?);
        let times = integers(&batch, "ts")?;
        for row in 0..batch.num_rows() {
            let Some(of_run) = found.get_mut(runs.value(row)) else { continue };
            let source = (pids.value(row) as u32, devices.value(row) as i32, ops.value(row) == "alloc");
            let ts = times.value(row);
            of_run.allocations.entry(source).or_insert_with(|| Strides::new(ts)).add(ts);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_make_a_family() {
        assert_eq!(family("epoch 12"), "epoch #");
        assert_eq!(family("step 3 of 40"), "step # of #");
        assert_eq!(family(""), "");
    }

    #[test]
    fn ranges_that_cover_most_time_are_the_epochs() {
        let mut candidates = Candidates::default();
        for number in 0..20 {
            let ts = number * 100;
            candidates.add_mark(1, &format!("step {number}"), ts, Some(80), true);
            candidates.add_mark(1, &format!("copy {number}"), ts, Some(10), true);
            candidates.add_mark(1, &format!("done {number}"), ts + 90, None, false);
        }
        let epochs = candidates.epochs(1, 0, None).expect("epochs");
        assert_eq!((epochs.name.as_deref(), epochs.count(), epochs.joined_count), (Some("step #"), 20, 1));
        assert_eq!(epochs.bounds_ns[..3], [0, 80, 180]);
        assert_eq!([-1, 0, 79, 80, 1979, 1980].map(|ts| epochs.slot(ts)), [0, 1, 1, 2, 20, 21]);
        let asked = candidates.epochs(1, 0, Some("done 7")).expect("epochs");
        assert_eq!((asked.origin, asked.bounds_ns[0], asked.count()), (Origin::Moments, 90, 19));
    }

    #[test]
    fn one_epoch_in_ten_is_warm_up_and_more_than_128_are_joined() {
        let of = |count: i64| Epochs::of_marks(Origin::Moments, "m", 0, (1..=count).collect());
        for (count, warm_up) in [(0, 0), (1, 1), (10, 1), (11, 2), (40, 4)] {
            assert_eq!((of(count).count(), of(count).warm_up_count()), (count as usize, warm_up));
        }
        assert_eq!(
            [128, 129, 256].map(|count| (of(count).joined_count, of(count).count())),
            [(1, 128), (2, 65), (2, 128)]
        );
        // An end at the start or before it ends no epoch.
        assert_eq!(Epochs::of_marks(Origin::Ranges, "m", 5, vec![9, 5, 4, 9]).bounds_ns, [5, 9]);
    }

    #[test]
    fn too_many_are_joined() {
        let mut candidates = Candidates::default();
        (0..1_000).for_each(|number| candidates.add_mark(1, "step", number * 10, Some(10), true));
        let epochs = candidates.epochs(1, 0, None).expect("epochs");
        assert_eq!((epochs.joined_count, epochs.count(), epochs.bounds_ns.last()), (8, 125, Some(&10_000)));
    }

    #[test]
    fn without_marks_allocations_are_counted() {
        for n in [1_usize, 19, 20, 2_559, 100_000] {
            let mut strides = Strides::new(5);
            (0..n).for_each(|ts| strides.add(5 + ts as i64));
            let epochs = strides.epochs();
            assert!(epochs.count() <= MAX_COUNT && epochs.bounds_ns.is_sorted(), "{n}");
            if n >= MIN_ALLOCATIONS {
                assert_eq!(epochs.bounds_ns.last(), Some(&(5 + n as i64)), "{n}");
                assert_eq!(epochs.count(), n / epochs.joined_count, "{n}");
            }
        }
    }
}
