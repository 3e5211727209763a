//! The epochs over which growth is judged: one set for each allocator.
//!
//! ```text
//!        start        end 1      end 2          end 3
//! ───────┼──────────────┼──────────┼──────────────┼─────── teardown is no epoch
//! before │   epoch 1    │ epoch 2  │   epoch 3    │
//!           ├─ range ───┤ ├─ range ┤    ├─ range ─┤
//! ```
//! They come from marks whose names differ by numbers only ("epoch 1", "epoch 2"): of those that are frequent enough, the
//! ranges that cover most time, of the process itself if it marked any; else moments; else the run is cut where equal
//! numbers of allocations have been made. An epoch reaches from one end to the next, so that nothing lies between them.
//! What follows the last end, such as what a program gives back as it ends, is not judged. Many are joined.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use serde::Serialize;

use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    events::Events,
};

/// More are joined, so that an answer's cost is bounded.
const MAX_COUNT: usize = 128;
/// What is asked for by this name, if there are no such marks: equal numbers of allocations.
const ALLOCATIONS_NAME: &str = "allocations";
/// Fewer allocations make no epoch.
const MIN_ALLOCATIONS: usize = 20;
/// One epoch in so many is warm-up.
const WARM_UP_ONE_IN: usize = 10;
/// Fewer epochs show no trend.
pub const MIN_COUNT: usize = 10;

/// Where epochs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Ranges that the workload marked.
    Ranges,
    /// Moments that it marked.
    Moments,
    /// Equal numbers of allocations.
    Allocations,
}

/// The epochs of one allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Epochs {
    pub origin: Origin,
    /// The name of the marks, with # for numbers.
    pub name: Option<String>,
    /// Ranges, moments or allocations that make one epoch.
    pub joined_count: usize,
    /// CLOCK_MONOTONIC: the beginning of the first, then the end of each. An event at that time lies after it.
    pub bounds_ns: Vec<i64>,
}

impl Epochs {
    /// How many.
    pub fn count(&self) -> usize {
        self.bounds_ns.len().saturating_sub(1)
    }

    /// The first ones, which are not judged: a program still makes what it keeps.
    pub fn warm_up_count(&self) -> usize {
        self.count().div_ceil(WARM_UP_ONE_IN)
    }

    /// 0: before the first; 1 and up: the number of an epoch; one more than their count: after the last.
    pub fn slot(&self, ts: i64) -> usize {
        self.bounds_ns.partition_point(|bound| *bound <= ts)
    }

    /// What an epoch is, in words.
    pub fn label(&self) -> String {
        let joined = self.joined_count;
        match (self.origin, &self.name) {
            (Origin::Ranges, Some(name)) if joined == 1 => format!("ranges {name:?}"),
            (Origin::Ranges, Some(name)) => format!("{joined} ranges {name:?} each"),
            (Origin::Moments, Some(name)) if joined == 1 => format!("moments {name:?}"),
            (Origin::Moments, Some(name)) => format!("{joined} moments {name:?} each"),
            _ => format!("{joined} allocations each"),
        }
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

/// A name without its numbers: "epoch 12" is "epoch #".
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

/// Marks of one family.
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

/// Times at which equal numbers of allocations had been made, of however many.
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
            // So that the allocation itself lies before the end.
            self.ends.push(ts.saturating_add(1));
        }
        if self.ends.len() > MAX_COUNT {
            self.stride *= 2;
            self.ends = self.ends.iter().skip(1).step_by(2).copied().collect();
        }
    }

    /// The rest belongs to the last one.
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

/// Process, device, and whether the allocator itself was probed: reports of one that was tell nothing new.
type Source = (u32, i32, bool);

/// What the epochs of one run can be made of.
#[derive(Debug, Default)]
pub struct Candidates {
    marks: BTreeMap<(Origin, String), BTreeMap<u32, Marks>>,
    allocations: BTreeMap<Source, Strides>,
}

impl Candidates {
    /// Whether there are epochs of that name.
    pub fn has(&self, name: &str) -> bool {
        name == ALLOCATIONS_NAME || self.marks.keys().any(|(_, of)| *of == family(name))
    }

    /// Processes and devices that allocated.
    pub fn allocators(&self) -> BTreeSet<(u32, i32)> {
        self.allocations.keys().map(|(pid, device, _)| (*pid, *device)).collect()
    }

    /// The epochs of an allocator. `name`: of these marks, or `allocations`.
    pub fn epochs(&self, pid: u32, device: i32, name: Option<&str>) -> Option<Epochs> {
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
            // Moments are bounds, the first one of the first epoch.
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
        match best {
            Some((_, is_ranges, _, family, marks)) => {
                let origin = if is_ranges { Origin::Ranges } else { Origin::Moments };
                Some(Epochs::of_marks(origin, family, marks.start?, marks.ends))
            }
            None => {
                let of = |is_probed| self.allocations.get(&(pid, device, is_probed));
                of(true).or_else(|| of(false)).map(Strides::epochs)
            }
        }
    }

    fn add_mark(&mut self, pid: u32, name: &str, ts: i64, dur: Option<i64>, is_range: bool) {
        let (origin, end) = match (is_range, dur) {
            (true, Some(dur)) => (Origin::Ranges, ts.saturating_add(dur)),
            // It was open at the end of the run.
            (true, None) => return,
            (false, _) => (Origin::Moments, ts),
        };
        self.marks.entry((origin, family(name))).or_default().entry(pid).or_default().add(ts, end);
    }
}

const MARKS: &str = "SELECT run, pid, name, op, ts, dur FROM marks ORDER BY run, ts";

const ALLOCATIONS: &str = "SELECT run, pid, coalesce(device, 0) AS device, op, ts FROM events \
     WHERE kind = 'alloc' AND (op = 'alloc' OR (op = 'usage' AND size_bytes >= 0)) ORDER BY run, ts";

/// Reads what epochs can be made of, by run.
///
/// # Errors
/// If the data cannot be read.
pub async fn candidates(events: &dyn Events) -> Result<BTreeMap<String, Candidates>, AnalyzeError> {
    let mut found: BTreeMap<String, Candidates> = BTreeMap::new();
    let mut batches = events.select(ALLOCATIONS);
    while let Some(batch) = batches.try_next().await? {
        let (runs, ops) = (strings(&batch, "run")?, strings(&batch, "op")?);
        let (pids, devices) = (integers(&batch, "pid")?, integers(&batch, "device")?);
        let times = integers(&batch, "ts")?;
        for row in 0..batch.num_rows() {
            let name = runs.value(row);
            if !found.contains_key(name) {
                found.insert(name.to_owned(), Candidates::default());
            }
            let Some(of_run) = found.get_mut(name) else { continue };
            let source = (pids.value(row) as u32, devices.value(row) as i32, ops.value(row) == "alloc");
            let ts = times.value(row);
            of_run.allocations.entry(source).or_insert_with(|| Strides::new(ts)).add(ts);
        }
    }
    let mut batches = events.select(MARKS);
    while let Some(batch) = batches.try_next().await? {
        let (runs, names, ops) = (strings(&batch, "run")?, strings(&batch, "name")?, strings(&batch, "op")?);
        let (pids, times, durs) =
            (integers(&batch, "pid")?, integers(&batch, "ts")?, integers(&batch, "dur")?);
        for row in 0..batch.num_rows() {
            // Without an allocator there is nothing to divide.
            let Some(of_run) = found.get_mut(runs.value(row)) else { continue };
            let pid = pids.at(row).unwrap_or_default() as u32;
            let name = names.at(row).unwrap_or_default();
            of_run.add_mark(pid, name, times.value(row), durs.at(row), ops.at(row) == Some("range"));
        }
    }
    Ok(found)
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
