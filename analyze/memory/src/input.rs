//! Reads the allocator events of some runs in order of time, and replays all of them.
//!
//! ```text
//! rows of events ──► the initial state             ──► replay ──► the final state
//!                    (a first pass, for snapshots                 (compared with the state
//!                    whose history is incomplete)                 that a snapshot recorded)
//!                    once for all replays: `prepared`
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, OnceLock},
};

use trace_schema::{AttachedProbe, Kind, Lost, Run};

pub use super::decode::{IpcCollect, Key, is_torch};
use crate::{
    allocator::Allocator,
    check::{self, Difference},
    decode::{COLUMNS, Decoder, Item, RecordedKinds},
    event::{Event, PoolId},
    fault::Fault,
    initial_state::{Seed, SnapshotState},
    knowledge::{Knowledge, SplitPolicy},
    prepared::Prepared,
    settings::Settings,
    span::{Block, Observer, Segment},
};
use analyze_run::{
    error::AnalyzeError,
    events::Events,
    reading::{self, Consumer, Names, Origin, Rows},
    run_file::RunFile,
};

/// The probes whose losses are losses of the allocator's own events (this one), or of usage reports and
/// driver calls (those below).
const EVENT_PROBE: &str = "record_trace";
const REPORT_PROBES: [&str; 5] = ["reportMemoryUsage", "cudaMalloc", "cudaFree", "cuMemMap", "cuMemUnmap"];
/// The probes of `empty_cache()`, of `ipc_collect()`, and of the runtime's and the driver's function that close handles.
const EMPTY_CACHE_PROBE: &str = "emptyCache";
/// The probes of the calls by which the allocator has memory from the driver.
const DRIVER_PROBES: [&str; 2] = ["cudaMalloc", "cuMemCreate"];
const IPC_COLLECT_PROBE: &str = "CudaIPCCollect";
const CLOSE_HANDLE_PROBE: &str = "IpcCloseMemHandle";

/// Receives what a replay does, in order of time. Every method does nothing by default.
pub trait Listener: Send {
    /// Called before the rows of a run are read, with the run's number and name.
    fn run(&mut self, _run: u32, _name: &str) {}
    /// Called when an allocator appears at `ts` (ns) that already held memory before its first event.
    fn began(&mut self, _key: Key, _allocator: &Allocator, _ts: i64) {}
    /// Whether the listener reads `Allocator::pools`, which the replay otherwise does not keep.
    const WANTS_POOLS: bool = false;

    /// Called before an event is replayed.
    fn before(&mut self, _key: Key, _allocator: &Allocator, _event: &Event) {}
    /// Called after an event was replayed.
    fn after(&mut self, _key: Key, _allocator: &Allocator, _event: &Event) {}
    /// Called when a thread calls `empty_cache()`, which asks all allocators of its process to release what
    /// they can.
    fn empty_cache(&mut self, _run: u32, _pid: u32, _tid: u32, _ts: i64, _replay: &Replay) {}
    /// Called when a thread calls `ipc_collect()`. `is_whole` says whether all events of the allocator within the call are
    /// on record.
    fn ipc_collect(&mut self, _run: u32, _pid: u32, _call: &IpcCollect, _is_whole: bool, _replay: &Replay) {}
    /// Called when a thread has closed the CUDA IPC handle of the memory at `addr`; `is_driver` says whether by a call of
    /// the driver, which may be part of one of the runtime.
    fn handle_closed(&mut self, _run: u32, _pid: u32, _tid: u32, _ts: i64, _addr: u64, _is_driver: bool) {}
    /// Called when the device had no room for memory that the allocator of a thread wanted.
    fn refused(&mut self, _run: u32, _pid: u32, _tid: u32) {}
    /// Called when the replay has passed the requested instant with this number.
    fn instant(&mut self, _run: u32, _number: usize, _replay: &Replay) {}
    /// Called when a block leaves its state; see [`Observer::block`].
    fn block(&mut self, _key: Key, _block: &Block, _segment: Option<&Segment>, _end: Option<i64>) {}
    /// Called when a segment changes its extent or is released; see [`Observer::segment`].
    fn segment(&mut self, _key: Key, _segment: &Segment, _end: Option<i64>) {}
    /// Called once after the last event.
    fn end(&mut self) {}
    /// Called after some rows have been read, and after the last ones with `all` set.
    ///
    /// # Errors
    /// Returns an error if the results cannot be passed on; this ends the replay.
    fn flush(&mut self, _replay: &Replay, _all: bool) -> Result<(), AnalyzeError> {
        Ok(())
    }
}

/// Passes what one allocator reports to a listener.
struct AllocatorObserver<'a, L> {
    key: Key,
    listener: &'a mut L,
}

impl<L: Listener> Observer for AllocatorObserver<'_, L> {
    fn block(&mut self, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
        self.listener.block(self.key, block, segment, end);
    }

    fn segment(&mut self, segment: &Segment, end: Option<i64>) {
        self.listener.segment(self.key, segment, end);
    }
}

/// What the replay needs to know about a run.
#[derive(Clone, Debug, Default)]
struct RunFacts {
    joined_running: bool,
    /// Whether calls of `emptyCache`, of `ipc_collect()` and of the functions that close handles are recorded, and none
    /// was lost.
    records_empty_cache: bool,
    /// Whether calls that reserve memory are recorded, and none was lost.
    records_refusals: bool,
    records_ipc_collect: bool,
    records_closed_handles: bool,
    settings: HashMap<u32, Settings>,
    /// Losses of the allocator's own events, and losses of usage reports and driver calls, each in order of
    /// time.
    lost: [Vec<Lost>; 2],
}

impl RunFacts {
    fn of(run: &Run) -> Self {
        let of_process = |process: &trace_schema::ProcessInfo| {
            (process.pid, Settings::of_environment(&process.environment, &process.torch_version))
        };
        let lost = |names: &[&str]| {
            let is_meant = |lost: &&Lost| names.iter().any(|name| lost.probe.contains(name));
            run.lost.iter().filter(is_meant).cloned().collect::<Vec<Lost>>()
        };
        let is_recorded = |symbol: &str| {
            let is_placed = |probe: &AttachedProbe| probe.error.is_none() && probe.symbol.contains(symbol);
            run.probes.iter().any(is_placed) && lost(&[symbol]).is_empty()
        };
        // What a source did not store is as lost as what a recorder dropped.
        let unstored = run.stored.iter().filter(|stored| stored.is_of(Kind::Alloc) && !stored.is_whole());
        let unstored: Vec<Lost> = unstored
            .map(|stored| Lost {
                probe: stored.kind.clone(),
                from_ns: stored.from_ns,
                to_ns: stored.to_ns,
                count: stored.made_count.map_or(1, |made| made.saturating_sub(stored.stored_count)),
            })
            .collect();
        let is_stored = unstored.is_empty();
        let [events, reports] = [&[EVENT_PROBE][..], &REPORT_PROBES].map(|names| {
            let mut all = [lost(names), unstored.clone()].concat();
            all.sort_by_key(|lost| lost.from_ns);
            all
        });
        Self {
            joined_running: run.joined_running,
            records_empty_cache: is_recorded(EMPTY_CACHE_PROBE) && is_stored,
            records_refusals: DRIVER_PROBES.into_iter().all(is_recorded) && is_stored,
            records_ipc_collect: is_recorded(IPC_COLLECT_PROBE) && is_stored,
            records_closed_handles: is_recorded(CLOSE_HANDLE_PROBE),
            settings: run.processes.iter().map(of_process).collect(),
            lost: [events, reports],
        }
    }
}

/// Returns how many of the events are missing in a run from which an allocator is rebuilt: its own, or usage reports and
/// driver calls if its state `is_inferred`.
pub fn lost_count(run: &Run, is_inferred: bool) -> u64 {
    RunFacts::of(run).lost[usize::from(is_inferred)].iter().map(|lost| lost.count).sum()
}

/// The replayed state of all allocators.
#[derive(Debug, Default)]
pub struct Replay {
    pub(super) names: Vec<String>,
    facts: Vec<RunFacts>,
    pub(super) recorded_kinds: HashMap<(u32, u32), RecordedKinds>,
    allocators: BTreeMap<Key, Allocator>,
    seeds: BTreeMap<Key, Seed>,
    split_policies: BTreeMap<Key, BTreeMap<PoolId, SplitPolicy>>,
    snapshot: BTreeMap<Key, SnapshotState>,
    differences: BTreeMap<Key, Vec<Difference>>,
    /// The requested instants (ns) by run, in order of time; below, how many of them have passed.
    instants: Vec<Vec<i64>>,
    passed: Vec<usize>,
    /// The number of losses of the current run that have been applied, by kind as in [`RunFacts`].
    lost_applied: [usize; 2],
    pub(super) current: u32,
}

/// The events to replay.
#[derive(Clone)]
pub struct Input {
    events: Arc<dyn Events>,
    pub(super) files: Vec<RunFile>,
    /// The metadata of the runs, in the order of their numbers; a table without files may have some.
    runs: Vec<(String, Run)>,
    /// What every replay begins with, once it is known.
    pub(super) prepared: Arc<OnceLock<Arc<Prepared>>>,
}

impl Input {
    /// Creates an input from the `events` table of a session and the files that the table is read from. The events must not
    /// change as long as it is used.
    pub fn new(events: Arc<dyn Events>, files: &[RunFile]) -> Self {
        let runs = files.iter().map(|file| (file.name.clone(), file.run.clone())).collect();
        Self { events, files: files.to_vec(), runs, prepared: Arc::default() }
    }

    /// Replaces the metadata of the runs, so that runs without files can be included.
    pub fn with_runs(self, runs: &[(String, Run)]) -> Self {
        // What is prepared has the numbers of the runs.
        let are_numbered_alike = self.runs.iter().map(|(name, _)| name).eq(runs.iter().map(|(name, _)| name));
        let prepared = if are_numbered_alike { Arc::clone(&self.prepared) } else { Arc::default() };
        Self { runs: runs.to_vec(), prepared, ..self }
    }

    /// Returns the table `events`.
    pub(super) fn events(&self) -> &Arc<dyn Events> {
        &self.events
    }

    /// Returns the metadata of the runs, in the order of their numbers.
    pub(super) fn runs(&self) -> &[(String, Run)] {
        &self.runs
    }

    /// Replays all events. `instants` lists, for each run, the times (ns, sorted) at which
    /// [`Listener::instant`] is called.
    ///
    /// # Errors
    /// Returns an error if the events cannot be read or the listener fails.
    pub async fn replay<L: Listener + 'static>(
        &self,
        instants: Vec<Vec<i64>>,
        listener: L,
    ) -> Result<(Replay, L), AnalyzeError> {
        self.replay_rows(instants, listener, false).await
    }

    /// Replays events as [`Self::replay`] does, but only until all requested instants have passed.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Self::replay`].
    pub async fn replay_until<L: Listener + 'static>(
        &self,
        instants: Vec<Vec<i64>>,
        listener: L,
    ) -> Result<(Replay, L), AnalyzeError> {
        self.replay_rows(instants, listener, true).await
    }

    async fn replay_rows<L: Listener + 'static>(
        &self,
        instants: Vec<Vec<i64>>,
        listener: L,
        is_partial: bool,
    ) -> Result<(Replay, L), AnalyzeError> {
        let prepared = self.prepared().await?;
        let replay = Replay {
            instants,
            names: prepared.names.clone(),
            recorded_kinds: prepared.recorded_kinds.clone(),
            seeds: prepared.seeds.clone(),
            split_policies: prepared.split_policies.clone(),
            ..self.begin()
        };
        if replay.recorded_kinds.is_empty() {
            return Ok((replay, listener));
        }
        let decoder = Decoder::new(replay.recorded_kinds.clone());
        let feed = self.read(Feed { decoder, replay, listener, is_partial }).await?;
        Ok((feed.replay, feed.listener))
    }

    /// Returns a replay before its first row, which knows the runs.
    pub(super) fn begin(&self) -> Replay {
        let mut replay = Replay::default();
        for (name, _) in &self.runs {
            replay.number(name);
        }
        replay.facts = self.runs.iter().map(|(_, run)| RunFacts::of(run)).collect();
        replay
    }

    pub(super) async fn read<C: Consumer + 'static>(&self, consumer: C) -> Result<C, AnalyzeError> {
        let origin = Origin::of(&self.files, Arc::clone(&self.events));
        reading::read_columns(origin, COLUMNS.to_vec(), consumer).await
    }
}

impl Replay {
    /// Returns the name of a run, or an empty string if there is no such run.
    pub fn name(&self, run: u32) -> &str {
        self.names.get(run as usize).map_or("", String::as_str)
    }

    /// Returns every allocator, in order of its key.
    pub fn allocators(&self) -> impl Iterator<Item = (Key, &Allocator)> {
        self.allocators.iter().map(|(key, allocator)| (*key, allocator))
    }

    /// Returns which kinds of rows a process has.
    pub fn recorded_kinds(&self, run: u32, pid: u32) -> RecordedKinds {
        self.recorded_kinds.get(&(run, pid)).copied().unwrap_or_default()
    }

    /// Returns the differences between the recorded final state and the replayed one.
    pub fn differences(&self, key: Key) -> &[Difference] {
        self.differences.get(&key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(place) = self.names.iter().position(|known| known == name) {
            return place as u32;
        }
        self.names.push(name.to_owned());
        self.names.len() as u32 - 1
    }

    pub(super) fn settings(&self, key: Key) -> Settings {
        let facts = self.facts.get(key.run as usize);
        facts.and_then(|facts| facts.settings.get(&key.pid)).cloned().unwrap_or_default()
    }

    /// Notifies the listener of the instants of a run before `ts`.
    fn pass(&mut self, run: u32, ts: i64, listener: &mut impl Listener) {
        let place = run as usize;
        self.passed.resize(self.passed.len().max(place + 1), 0);
        while let Some(at) = self.instants.get(place).and_then(|of| of.get(self.passed[place])).copied() {
            if at >= ts {
                break;
            }
            self.lose(run, at, listener);
            listener.instant(run, self.passed[place], self);
            self.passed[place] += 1;
        }
    }

    /// Applies the losses that began until `ts` to the allocators of a run.
    fn lose(&mut self, run: u32, ts: i64, listener: &mut impl Listener) {
        let Some(facts) = self.facts.get(run as usize) else { return };
        for (kind, list) in facts.lost.iter().enumerate() {
            while let Some(lost) = list.get(self.lost_applied[kind]).filter(|lost| lost.from_ns <= ts) {
                self.lost_applied[kind] += 1;
                let of_run = self.allocators.iter_mut().filter(|(key, _)| key.run == run);
                for (key, allocator) in of_run {
                    let recorded_kinds =
                        self.recorded_kinds.get(&(run, key.pid)).copied().unwrap_or_default();
                    if recorded_kinds.events == (kind == 0) {
                        let mut observer = AllocatorObserver { key: *key, listener: &mut *listener };
                        allocator.lose(lost.from_ns, lost.to_ns, lost.count, &mut observer);
                    }
                }
            }
        }
    }

    /// Creates an allocator whose first event, or recorded final state, is at `ts`.
    fn begin<L: Listener>(&mut self, key: Key, ts: i64, listener: &mut L) {
        let settings = self.settings(key);
        let facts = self.facts.get(key.run as usize);
        let recorded_kinds = self.recorded_kinds(key.run, key.pid);
        let split_policies = self.split_policies.get(&key).cloned().unwrap_or_default();
        // A table without files tells by its rows which calls are recorded.
        let mut knowledge = Knowledge {
            split_policies,
            wants_pools: L::WANTS_POOLS,
            begins_late: facts.is_some_and(|facts| facts.joined_running),
            records_empty_cache: facts.map_or(recorded_kinds.empty_cache, |facts| facts.records_empty_cache),
            records_refusals: facts.is_some_and(|facts| facts.records_refusals),
            records_ipc_collect: facts.map_or(recorded_kinds.ipc_collect, |facts| facts.records_ipc_collect),
            records_closed_handles: facts
                .map_or(recorded_kinds.closed_handles, |facts| facts.records_closed_handles),
            records_requests: recorded_kinds.events,
            ..Knowledge::default()
        };
        let allocator = match self.seeds.get(&key) {
            Some(seed) => Allocator::seeded(settings, knowledge, seed),
            None => {
                knowledge.is_partial = knowledge.begins_late;
                knowledge.has_blocks = recorded_kinds.events || recorded_kinds.usage;
                knowledge.has_segments =
                    recorded_kinds.events || recorded_kinds.state || recorded_kinds.calls;
                let lost = facts.map_or(&[][..], |facts| &facts.lost[usize::from(!recorded_kinds.events)]);
                for lost in lost.iter().filter(|lost| lost.from_ns <= ts) {
                    knowledge.is_partial = true;
                    knowledge.lost_count += lost.count;
                    knowledge.lost_until_ts = knowledge.lost_until_ts.max(lost.to_ns);
                }
                Allocator::new(settings, knowledge)
            }
        };
        if self.seeds.get(&key).is_some_and(|seed| !seed.is_empty()) {
            listener.began(key, &allocator, ts);
        }
        self.allocators.insert(key, allocator);
    }

    /// Returns whether no event of a process's allocators was lost in `[ts, end_ts]` (ns).
    fn is_whole(&self, run: u32, pid: u32, ts: i64, end_ts: i64) -> bool {
        let has_events = self.recorded_kinds(run, pid).events;
        let lost = self.facts.get(run as usize).map(|facts| &facts.lost[usize::from(!has_events)]);
        lost.is_none_or(|lost| lost.iter().all(|lost| lost.from_ns > end_ts || lost.to_ns < ts))
    }

    fn apply(&mut self, key: Key, event: &Event, listener: &mut impl Listener) {
        if !self.allocators.contains_key(&key) {
            self.begin(key, event.ts, listener);
        }
        if let Some(allocator) = self.allocators.get_mut(&key) {
            // An impossible event is a fault and does not reach the listener.
            let is_possible = event.is_possible();
            if is_possible {
                listener.before(key, allocator, event);
            }
            allocator.apply(event, &mut AllocatorObserver { key, listener });
            if is_possible {
                listener.after(key, allocator, event);
            }
        }
    }

    /// Compares the final states, passes the remaining instants, and reports everything that still exists.
    fn finish(&mut self, listener: &mut impl Listener) {
        for (key, snapshot) in std::mem::take(&mut self.snapshot) {
            let Some(allocator) = self.allocators.get_mut(&key) else { continue };
            let found = check::differences(allocator, &snapshot);
            let segments = found.iter().filter(|difference| difference.is_of_segment).count();
            allocator.add_faults(Fault::EndSegment, segments as u64);
            allocator.add_faults(Fault::EndBlock, (found.len() - segments) as u64);
            self.differences.insert(key, found);
        }
        self.pass(self.current, i64::MAX, listener);
        self.lose(self.current, i64::MAX, listener);
        for (key, allocator) in &self.allocators {
            allocator.finish(&mut AllocatorObserver { key: *key, listener });
        }
        listener.end();
    }
}

/// The second pass: replays the rows as they are read.
struct Feed<L> {
    decoder: Decoder,
    replay: Replay,
    listener: L,
    /// Whether nothing matters that comes after the requested instants.
    is_partial: bool,
}

impl<L: Listener> Consumer for Feed<L> {
    fn names(&mut self) -> &mut Names {
        &mut self.decoder.names
    }

    fn run(&mut self, name: &str) -> Result<(), AnalyzeError> {
        let run = self.replay.number(name);
        if run != self.replay.current {
            self.replay.pass(self.replay.current, i64::MAX, &mut self.listener);
            self.replay.lose(self.replay.current, i64::MAX, &mut self.listener);
        }
        self.listener.run(run, name);
        self.replay.current = run;
        self.replay.lost_applied = [0; 2];
        Ok(())
    }

    fn rows(&mut self, rows: &Rows, range: Range<usize>) -> Result<(), AnalyzeError> {
        let Self { decoder, replay, listener, .. } = self;
        for row in range {
            let Some((key, item)) = decoder.item(rows, row, replay.current) else { continue };
            let ts = rows.ts.value(row);
            replay.pass(key.run, ts, listener);
            replay.lose(key.run, ts, listener);
            match item {
                Item::Event(event) => replay.apply(key, &event, listener),
                Item::EmptyCache { ts, tid } => listener.empty_cache(key.run, key.pid, tid, ts, replay),
                Item::IpcCollect(call) => {
                    let is_whole = replay.is_whole(key.run, key.pid, ts, call.end_ts.unwrap_or(i64::MAX));
                    listener.ipc_collect(key.run, key.pid, &call, is_whole, replay);
                }
                Item::HandleClosed { tid, addr, is_driver } => {
                    listener.handle_closed(key.run, key.pid, tid, ts, addr, is_driver);
                }
                Item::Refused { tid } => listener.refused(key.run, key.pid, tid),
                Item::Segment(segment) => {
                    if !replay.allocators.contains_key(&key) {
                        replay.begin(key, ts, listener);
                    }
                    replay.snapshot.entry(key).or_default().segments.insert(segment.addr, segment);
                }
                Item::Block(block) => {
                    replay.snapshot.entry(key).or_default().blocks.insert(block.addr, block);
                }
            }
        }
        self.listener.flush(&self.replay, false)
    }

    fn is_done(&self) -> bool {
        let Replay { instants, passed, .. } = &self.replay;
        let passed = |run: usize| passed.get(run).copied().unwrap_or_default();
        self.is_partial && instants.iter().enumerate().all(|(run, of)| passed(run) >= of.len())
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.replay.finish(&mut self.listener);
        self.listener.flush(&self.replay, true)
    }
}

#[cfg(test)]
mod tests {
    use trace_schema::Stored;

    use super::*;

    #[test]
    fn events_that_are_not_stored_count_as_lost() {
        let stored = |kind: Kind, made_count| Stored {
            kind: kind.name().to_owned(),
            made_count,
            stored_count: 5,
            ..Stored::default()
        };
        let missing =
            |kind, made| lost_count(&Run { stored: vec![stored(kind, made)], ..Run::default() }, false);
        assert_eq!(missing(Kind::Alloc, Some(9)), 4);
        assert_eq!(missing(Kind::Alloc, None), 1, "at least one, for all that is known");
        assert_eq!(missing(Kind::Alloc, Some(5)) + missing(Kind::Call, Some(9)), 0);
        let lost = Lost { probe: "12record_traceE".to_owned(), from_ns: 3, to_ns: 4, count: 7 };
        let run = Run { lost: vec![lost], stored: vec![stored(Kind::Alloc, Some(9))], ..Run::default() };
        assert_eq!((lost_count(&run, false), lost_count(&run, true)), (11, 4));
        assert_eq!(RunFacts::of(&run).lost[0][0].probe, "alloc", "in order of time");
    }
}
