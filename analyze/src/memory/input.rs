//! The allocators' events of some runs, in order of time, and the replay of all of them.
//!
//! A process whose allocator itself was probed (`alloc`, `segment_alloc`, …) is replayed from that. Of a process
//! with reports to the profiler only (`usage`), the reports say which blocks are handed out, and cudaMalloc and
//! cuMemMap by PyTorch's own library say where segments are; what is in use by other streams, and the streams,
//! are not known then.

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow::{
    array::{AsArray, Int64Array, RecordBatch, StringArray, UInt64Array},
    compute::cast,
    datatypes::{DataType, UInt64Type},
};
use datafusion::{execution::SendableRecordBatchStream, prelude::SessionContext};
use futures::StreamExt;
use trace_schema::Run;

use super::{
    allocator::Allocator,
    event::{Action, Event},
    settings::Settings,
    span::{Block, Observer, Segment},
};
use crate::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
};

/// PyTorch's library.
const TORCH_LIBRARY: &str = "libc10_cuda";

/// Whether a library is the one of PyTorch's allocator.
pub(crate) fn is_torch(library: &str) -> bool {
    library.starts_with(TORCH_LIBRARY)
}

/// Rows that the replay reads.
const EVENTS: &str = "SELECT run, pid, tid, ts, kind, op, ret, addr, size_bytes, stream, device, caller, pool_owner, pool_id, stack \
     FROM events WHERE kind = 'alloc' \
     OR (kind = 'call' AND op IN ('cudaMalloc', 'cudaFree', 'cuMemMap', 'cuMemUnmap')) ORDER BY run, ts";

/// One allocator: run (its place in the list of runs), process, device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) run: u32,
    pub(crate) pid: u32,
    pub(crate) device: i32,
}

/// A row that may be an allocator's event.
struct Note<'a> {
    run: u32,
    pid: u32,
    tid: u32,
    ts: i64,
    kind: &'a str,
    op: &'a str,
    caller: &'a str,
    addr: Option<u64>,
    size_bytes: Option<i64>,
    device: Option<i32>,
    stack: Option<u32>,
    succeeded: bool,
}

impl Note<'_> {
    /// Whether PyTorch's allocator made the call.
    fn is_of_torch(&self) -> bool {
        is_torch(self.caller)
    }
}

/// Hears what happens, in order.
pub(crate) trait Listener {
    /// Whether it asks allocators for their pools.
    const WANTS_POOLS: bool = false;

    /// An event is about to be replayed.
    fn before(&mut self, _key: Key, _allocator: &Allocator, _event: &Event) {}
    /// An event has been replayed.
    fn after(&mut self, _key: Key, _allocator: &Allocator, _event: &Event) {}
    /// A thread asked all allocators of its process to give back what they can.
    fn empty_cache(&mut self, _run: u32, _pid: u32, _tid: u32, _ts: i64, _replay: &Replay) {}
    /// Time passed one of the instants asked for.
    fn instant(&mut self, _run: u32, _number: usize, _replay: &Replay) {}
    /// See [`Observer::block`].
    fn block(&mut self, _key: Key, _block: &Block, _segment: Option<&Segment>, _end: Option<i64>) {}
    /// See [`Observer::segment`].
    fn segment(&mut self, _key: Key, _segment: &Segment, _end: Option<i64>) {}
    /// That was all.
    fn end(&mut self) {}
}

struct Of<'a, L> {
    key: Key,
    listener: &'a mut L,
}

impl<L: Listener> Observer for Of<'_, L> {
    fn block(&mut self, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
        self.listener.block(self.key, block, segment, end);
    }

    fn segment(&mut self, segment: &Segment, end: Option<i64>) {
        self.listener.segment(self.key, segment, end);
    }
}

/// What the replay needs to know of a run.
#[derive(Clone, Debug, Default)]
struct Origin {
    joined_running: bool,
    settings: HashMap<u32, Settings>,
}

/// All allocators.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    names: Vec<String>,
    origins: Vec<Origin>,
    /// Processes whose allocator was probed itself.
    probed: HashSet<(u32, u32)>,
    allocators: BTreeMap<Key, Allocator>,
    /// Instants by run, in order of time, and how many have passed.
    instants: Vec<Vec<i64>>,
    passed: Vec<usize>,
    current: Option<u32>,
}

impl Replay {
    /// Of these runs. `instants`: by run, times at which [`Listener::instant`] is to be called.
    pub(crate) fn new(runs: &[(String, Run)], instants: Vec<Vec<i64>>) -> Self {
        let origin = |run: &Run| Origin {
            joined_running: run.joined_running,
            settings: run
                .processes
                .iter()
                .map(|process| {
                    (process.pid, Settings::of_environment(&process.environment, &process.torch_version))
                })
                .collect(),
        };
        Self {
            names: runs.iter().map(|(name, _)| name.clone()).collect(),
            origins: runs.iter().map(|(_, run)| origin(run)).collect(),
            passed: vec![0; runs.len()],
            instants,
            ..Self::default()
        }
    }

    /// The name of a run.
    pub(crate) fn name(&self, run: u32) -> &str {
        self.names.get(run as usize).map_or("", String::as_str)
    }

    /// Every allocator.
    pub(crate) fn allocators(&self) -> impl Iterator<Item = (Key, &Allocator)> {
        self.allocators.iter().map(|(key, allocator)| (*key, allocator))
    }

    /// Whether a process's allocator was probed itself, and not only its reports to the profiler.
    pub(crate) fn is_probed(&self, run: u32, pid: u32) -> bool {
        self.probed.contains(&(run, pid))
    }

    /// Reads `events` and replays them.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) async fn run(
        &mut self,
        context: &SessionContext,
        listener: &mut impl Listener,
    ) -> Result<(), AnalyzeError> {
        let mut batches = self.start(context).await?;
        while let Some(batch) = batches.next().await {
            self.batch(&batch?, listener)?;
        }
        self.finish(listener);
        Ok(())
    }

    /// The rows that are to be replayed, by [`Self::batch`] and at last [`Self::finish`].
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) async fn start(
        &mut self,
        context: &SessionContext,
    ) -> Result<SendableRecordBatchStream, AnalyzeError> {
        let probed = "SELECT DISTINCT run, pid FROM events WHERE kind = 'alloc' AND op IN ('alloc', 'segment_alloc', 'segment_map')";
        for batch in context.sql(probed).await?.collect().await? {
            let (runs, pids) = (strings(&batch, "run")?, integers(&batch, "pid")?);
            for row in 0..batch.num_rows() {
                let run = self.number(runs.value(row));
                self.probed.insert((run, pids.value(row) as u32));
            }
        }
        Ok(context.sql(EVENTS).await?.execute_stream().await?)
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(place) = self.names.iter().position(|known| known == name) {
            return place as u32;
        }
        self.names.push(name.to_owned());
        self.origins.push(Origin::default());
        self.instants.push(Vec::new());
        self.passed.push(0);
        self.names.len() as u32 - 1
    }

    /// Tells of the instants that are left, and of everything that is still there.
    pub(crate) fn finish(&mut self, listener: &mut impl Listener) {
        if let Some(run) = self.current {
            self.pass(run, i64::MAX, listener);
        }
        for (key, allocator) in &self.allocators {
            allocator.finish(&mut Of { key: *key, listener });
        }
        listener.end();
    }

    /// Calls for the instants of a run before `ts`.
    fn pass(&mut self, run: u32, ts: i64, listener: &mut impl Listener) {
        let place = run as usize;
        while self.instants.get(place).and_then(|of| of.get(self.passed[place])).is_some_and(|at| *at < ts) {
            listener.instant(run, self.passed[place], self);
            self.passed[place] += 1;
        }
    }

    /// Replays some rows.
    ///
    /// # Errors
    /// If a column is missing or cannot be read, or if there can be no such memory.
    pub(crate) fn batch(
        &mut self,
        batch: &RecordBatch,
        listener: &mut impl Listener,
    ) -> Result<(), AnalyzeError> {
        let rows = Rows::new(batch)?;
        for row in 0..batch.num_rows() {
            let name = rows.run.value(row);
            let run = match self.current {
                Some(run) if self.names[run as usize] == name => run,
                earlier => {
                    if let Some(earlier) = earlier {
                        self.pass(earlier, i64::MAX, listener);
                    }
                    let run = self.number(name);
                    self.current = Some(run);
                    run
                }
            };
            self.pass(run, rows.ts.value(row), listener);
            let note = rows.note(row, run);
            if (note.kind, note.op) == ("alloc", "empty_cache") {
                listener.empty_cache(run, note.pid, note.tid, note.ts, self);
                continue;
            }
            if let Some((key, event)) = self.event(&note, &rows, row) {
                if !event.is_possible() {
                    return Err(AnalyzeError::Damaged(format!(
                        "events of run {name}: {} at {} ns has {} bytes at {:#x}, which no device has",
                        event.action.name(),
                        event.ts,
                        event.size_bytes,
                        event.addr
                    )));
                }
                self.apply(key, &event, listener);
            }
        }
        Ok(())
    }

    fn apply<L: Listener>(&mut self, key: Key, event: &Event, listener: &mut L) {
        let origin = self.origins.get(key.run as usize);
        let allocator = self.allocators.entry(key).or_insert_with(|| {
            let settings = origin.and_then(|origin| origin.settings.get(&key.pid)).cloned();
            let joined_running = origin.is_some_and(|origin| origin.joined_running);
            let allocator = Allocator::new(settings.unwrap_or_default(), joined_running);
            if L::WANTS_POOLS { allocator.with_pools() } else { allocator }
        });
        listener.before(key, allocator, event);
        allocator.apply(event, &mut Of { key, listener });
        listener.after(key, allocator, event);
    }

    /// The allocator's event that a row is, if it is one.
    fn event(&self, note: &Note<'_>, rows: &Rows, row: usize) -> Option<(Key, Event)> {
        let is_probed = self.is_probed(note.run, note.pid);
        let action = match (note.kind, note.op) {
            ("alloc", "usage") if !is_probed => {
                if note.size_bytes? < 0 {
                    Action::UsageFree
                } else {
                    Action::UsageAlloc
                }
            }
            ("alloc", op) => Action::from_op(op)?,
            ("call", op) if !is_probed && note.is_of_torch() && note.succeeded => match op {
                "cudaMalloc" => Action::SegmentAlloc,
                "cudaFree" => Action::SegmentFree,
                "cuMemMap" => Action::SegmentMap,
                "cuMemUnmap" => Action::SegmentUnmap,
                _ => return None,
            },
            _ => return None,
        };
        let device = note.device.unwrap_or_default();
        Some((
            Key { run: note.run, pid: note.pid, device },
            Event {
                ts: note.ts,
                action,
                addr: note.addr?,
                size_bytes: note.size_bytes.unwrap_or_default().unsigned_abs(),
                stream: rows.stream.at(row).unwrap_or_default(),
                pool: (rows.pool_owner.at(row).unwrap_or_default(), rows.pool_id.at(row).unwrap_or_default()),
                tid: note.tid,
                stack: note.stack,
            },
        ))
    }
}

/// The columns of a batch.
struct Rows {
    run: StringArray,
    pid: Int64Array,
    tid: Int64Array,
    ts: Int64Array,
    kind: StringArray,
    op: StringArray,
    ret: Int64Array,
    addr: UInt64Array,
    size_bytes: Int64Array,
    stream: UInt64Array,
    device: Int64Array,
    caller: StringArray,
    pool_owner: UInt64Array,
    pool_id: UInt64Array,
    stack: Int64Array,
}

impl Rows {
    fn new(batch: &RecordBatch) -> Result<Self, AnalyzeError> {
        let whole = |name| integers(batch, name);
        let unsigned = |name: &str| -> Result<UInt64Array, AnalyzeError> {
            let column = batch
                .column_by_name(name)
                .ok_or_else(|| AnalyzeError::Internal(format!("a query has no column {name}")))?;
            let column = cast(column, &DataType::UInt64)
                .map_err(|error| AnalyzeError::Damaged(format!("column {name}: {error}")))?;
            Ok(column.as_primitive::<UInt64Type>().clone())
        };
        Ok(Self {
            run: strings(batch, "run")?,
            pid: whole("pid")?,
            tid: whole("tid")?,
            ts: whole("ts")?,
            kind: strings(batch, "kind")?,
            op: strings(batch, "op")?,
            ret: whole("ret")?,
            addr: unsigned("addr")?,
            size_bytes: whole("size_bytes")?,
            stream: unsigned("stream")?,
            device: whole("device")?,
            caller: strings(batch, "caller")?,
            pool_owner: unsigned("pool_owner")?,
            pool_id: unsigned("pool_id")?,
            stack: whole("stack")?,
        })
    }

    fn note(&self, row: usize, run: u32) -> Note<'_> {
        let ts = self.ts.value(row);
        Note {
            run,
            pid: self.pid.at(row).unwrap_or_default() as u32,
            tid: self.tid.at(row).unwrap_or_default() as u32,
            ts,
            kind: self.kind.at(row).unwrap_or_default(),
            op: self.op.at(row).unwrap_or_default(),
            caller: self.caller.at(row).unwrap_or_default(),
            addr: self.addr.at(row),
            size_bytes: self.size_bytes.at(row),
            device: self.device.at(row).map(|device| device as i32),
            stack: self.stack.at(row).map(|stack| stack as u32),
            succeeded: self.ret.at(row).is_none_or(|ret| ret == 0),
        }
    }
}
