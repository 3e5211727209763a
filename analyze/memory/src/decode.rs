//! Decodes rows of `events` into what the replay consumes.
//!
//! If the allocator itself was probed (`alloc`, `segment_alloc`, …), the replay uses only its own events. If
//! a process has only reports to the profiler (`usage`), the reports tell which blocks are allocated, and the
//! calls of cudaMalloc and cuMemMap by PyTorch's own library tell where the segments are; pending frees and
//! streams are then not known. With neither, the calls still tell the segments, but nothing about their
//! content.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures::TryStreamExt;

use super::{
    event::{Action, Event},
    settings::SMALL_SEGMENT_BYTES,
    span::{BEFORE, Block, NO_SEGMENT, Segment, State},
};
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
    events::Events,
    reading::{Kind, Names, Rows},
};

/// The prefix of the name of PyTorch's CUDA library.
pub(super) const TORCH_LIBRARY: &str = "libc10_cuda";

/// Functions that allocate device memory at an address of their own.
pub const DRIVER_ALLOCATIONS: [&str; 8] = [
    "cudaMalloc",
    "cudaMallocPitch",
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
];

/// Returns whether a library is the one that contains PyTorch's caching allocator.
pub fn is_torch(library: &str) -> bool {
    library.starts_with(TORCH_LIBRARY)
}

/// The value that cudaMalloc, cuMemCreate and cuMemMap return when the device has no room.
const OUT_OF_MEMORY: i32 = 2;

/// The prefixes of the names of PyTorch's libraries in which the allocator itself has `ipc_collect()` called: for a request that
/// found no free block. Programs call it through another library.
const COLLECTS_FOR_REQUESTS: [&str; 3] = ["libtorch_cuda", TORCH_LIBRARY, "libtorch.so"];

/// Returns whether a frame of a call stack belongs to a call of `torch.cuda.empty_cache()`, in Python or in C++.
fn is_empty_cache(frame: &str) -> bool {
    frame.starts_with("empty_cache (") && frame.contains("memory.py")
        || frame.contains("NativeCachingAllocator") && frame.contains("emptyCache")
}

/// The columns that the decoder reads.
pub(super) const COLUMNS: [&str; 17] = [
    "ts",
    "dur",
    "kind",
    "op",
    "pid",
    "tid",
    "size_bytes",
    "detail",
    "addr",
    "device",
    "stream",
    "caller",
    "ret",
    "pool_owner",
    "pool_id",
    "stack",
    "value",
];

/// Identifies one allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The number of the run: its position in the list of runs.
    pub run: u32,
    /// The process.
    pub pid: u32,
    /// The device, by CUDA's index.
    pub device: i32,
}

/// Which kinds of rows a process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedKinds {
    /// Events of the allocator itself.
    pub events: bool,
    /// Usage reports to the profiler.
    pub usage: bool,
    /// The final state that a snapshot recorded.
    pub state: bool,
    /// Events in private pools that the program made itself.
    pub users_pools: bool,
    /// Calls of `emptyCache`.
    pub empty_cache: bool,
    /// Calls of `ipc_collect()`.
    pub ipc_collect: bool,
    /// Calls that close CUDA IPC handles.
    pub closed_handles: bool,
    /// PyTorch's calls of the driver or runtime that reserve memory.
    pub calls: bool,
}

/// The processes and devices with allocations on record, by run, each with whether they are events of the allocator itself
/// rather than usage reports.
pub(super) type Allocating = BTreeMap<String, BTreeSet<(u32, i32, bool)>>;

/// What a query tells of the rows before they are replayed.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Which kinds of rows each process has, by run and process; processes without any are left out.
    pub(super) kinds: HashMap<(String, u32), RecordedKinds>,
    pub(super) allocating: Allocating,
    /// The processes with calls of cudaMalloc by any library.
    pub(super) with_driver_calls: BTreeSet<u32>,
}

/// Queries which kinds of rows each process has.
pub(super) async fn recorded(events: &dyn Events) -> Result<Recorded, AnalyzeError> {
    let of_others = DRIVER_ALLOCATIONS.map(|op| format!("'{op}'")).join(", ");
    let query = format!(
        "SELECT run, pid, coalesce(device, 0) AS device, op, count(*) FILTER (WHERE pool_owner IS NULL AND pool_id IS NOT NULL) AS pooled, \
         count(*) FILTER (WHERE size_bytes >= 0) AS sized, count(*) FILTER (WHERE starts_with(caller, '{TORCH_LIBRARY}')) AS of_torch \
         FROM events WHERE (kind = 'alloc' \
         AND op IN ('alloc', 'segment_alloc', 'segment_map', 'usage', 'state_segment', 'empty_cache', 'ipc_collect')) \
         OR (kind = 'call' AND op IN ('cudaIpcCloseMemHandle', 'cuIpcCloseMemHandle', 'cudaMalloc', 'cuMemMap', {of_others})) \
         GROUP BY run, pid, coalesce(device, 0), op"
    );
    let mut found = Recorded::default();
    let mut batches = events.select(&query);
    while let Some(batch) = batches.try_next().await? {
        let (runs, pids) = (strings(&batch, "run")?, integers(&batch, "pid")?);
        let (ops, devices) = (strings(&batch, "op")?, integers(&batch, "device")?);
        let (pooled, sized) = (integers(&batch, "pooled")?, integers(&batch, "sized")?);
        let of_torch = integers(&batch, "of_torch")?;
        for row in 0..batch.num_rows() {
            let (run, pid) = (runs.value(row), pids.value(row) as u32);
            if DRIVER_ALLOCATIONS.contains(&ops.value(row)) {
                found.with_driver_calls.insert(pid);
                // PyTorch's allocator reserves with this one only.
                if ops.value(row) != "cudaMalloc" {
                    continue;
                }
            }
            // Calls of other libraries tell nothing about the allocator.
            if matches!(ops.value(row), "cudaMalloc" | "cuMemMap") && of_torch.value(row) == 0 {
                continue;
            }
            let kinds = found.kinds.entry((run.to_owned(), pid)).or_default();
            kinds.users_pools |= pooled.value(row) > 0 && ops.value(row) != "state_segment";
            match ops.value(row) {
                "usage" => kinds.usage = true,
                "state_segment" => kinds.state = true,
                "empty_cache" => kinds.empty_cache = true,
                "ipc_collect" => kinds.ipc_collect = true,
                "cudaIpcCloseMemHandle" | "cuIpcCloseMemHandle" => kinds.closed_handles = true,
                "cudaMalloc" | "cuMemMap" => kinds.calls = true,
                _ => kinds.events = true,
            }
            // A negative usage report is a free.
            let is_probed = ops.value(row) == "alloc";
            if is_probed || ops.value(row) == "usage" && sized.value(row) > 0 {
                let device = devices.value(row) as i32;
                found.allocating.entry(run.to_owned()).or_default().insert((pid, device, is_probed));
            }
        }
    }
    Ok(found)
}

/// The meaning of an `op`.
#[derive(Clone, Copy, Debug)]
enum Word {
    Event(Action),
    Usage,
    Call(Action),
    StateSegment,
    StateBlock,
    EmptyCache,
    IpcCollect,
    /// A CUDA IPC handle is closed; whether by the driver's function.
    CloseHandle(bool),
    /// cuMemCreate, of which only failures matter.
    Create,
    Nothing,
}

impl Word {
    fn of(op: &str) -> Self {
        match op {
            "usage" => Self::Usage,
            "state_segment" => Self::StateSegment,
            "state_block" => Self::StateBlock,
            // Earlier versions of `capture` recorded a call.
            "empty_cache" | "emptyCache" => Self::EmptyCache,
            "ipc_collect" => Self::IpcCollect,
            "cudaIpcCloseMemHandle" => Self::CloseHandle(false),
            "cuIpcCloseMemHandle" => Self::CloseHandle(true),
            "cuMemCreate" => Self::Create,
            "cudaMalloc" => Self::Call(Action::SegmentAlloc),
            "cudaFree" => Self::Call(Action::SegmentFree),
            "cuMemMap" => Self::Call(Action::SegmentMap),
            "cuMemUnmap" => Self::Call(Action::SegmentUnmap),
            other => Action::from_op(other).map_or(Self::Nothing, Self::Event),
        }
    }
}

/// A call of `ipc_collect()`: it frees the blocks that were sent to other processes and are no longer used there.
#[derive(Clone, Copy, Debug)]
pub struct IpcCollect {
    /// The calling thread.
    pub tid: u32,
    /// The time at which it was called (ns, trace clock).
    pub ts: i64,
    /// The time at which it returned; `None` if recording ended within the call.
    pub end_ts: Option<i64>,
    /// Whether the allocator called it for a request that found no free block, and not the program.
    pub is_for_request: bool,
}

/// The content of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Event(Event),
    /// A segment of the recorded final state; below, a block of it.
    Segment(Segment),
    Block(Block),
    /// A thread called `empty_cache()`, which asks all allocators of its process to release what they can.
    EmptyCache {
        ts: i64,
        tid: u32,
    },
    /// A call of `ipc_collect()`.
    IpcCollect(IpcCollect),
    /// A thread closed the CUDA IPC handle of the memory at this address; whether by a call of the driver.
    HandleClosed {
        tid: u32,
        addr: u64,
        is_driver: bool,
    },
    /// A call by which the allocator of a thread wanted memory of the driver, and the device had no room.
    Refused {
        tid: u32,
    },
}

/// Decodes rows.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    pub(super) names: Names,
    words: Vec<Word>,
    recorded_kinds: HashMap<(u32, u32), RecordedKinds>,
    /// The call stacks with a frame of `empty_cache()`, by run, process and number.
    emptying: HashSet<(u32, u32, u32)>,
}

impl Decoder {
    /// Creates a decoder for processes, by run and pid, that have these kinds of rows.
    pub(super) fn new(recorded_kinds: HashMap<(u32, u32), RecordedKinds>) -> Self {
        Self { recorded_kinds, ..Self::default() }
    }

    /// Returns which kinds of rows a process has.
    pub(super) fn recorded_kinds(&self, run: u32, pid: u32) -> RecordedKinds {
        self.recorded_kinds.get(&(run, pid)).copied().unwrap_or_default()
    }

    fn word(&mut self, number: u32) -> Word {
        let number = number as usize;
        while self.words.len() <= number {
            self.words.push(Word::of(self.names.name(self.words.len() as u32)));
        }
        self.words[number]
    }

    fn is_of_torch(&self, rows: &Rows, row: usize) -> bool {
        is_torch(rows.caller.at(row).map_or("", |caller| self.names.name(caller)))
    }

    /// Notes a call stack with a frame of `empty_cache()`. A snapshot spells a stack out before the first event
    /// that has it.
    fn stack(&mut self, rows: &Rows, row: usize, run: u32) {
        let (Some(stack), Some(frames)) = (rows.stack.at(row), rows.detail.text(row)) else { return };
        if frames.split(';').any(is_empty_cache) {
            self.emptying.insert((run, rows.pid.at(row).unwrap_or_default(), stack));
        }
    }

    /// Decodes a row; returns `None` if the replay does not use it.
    pub(super) fn item(&mut self, rows: &Rows, row: usize, run: u32) -> Option<(Key, Item)> {
        let kind = rows.kind(row);
        if kind == Kind::Other {
            self.stack(rows, row, run);
        }
        if !matches!(kind, Kind::Alloc | Kind::Call) {
            return None;
        }
        let word = self.word(rows.op.at(row)?);
        let pid = rows.pid.at(row).unwrap_or_default();
        let size = rows.size_bytes.at(row).unwrap_or_default();
        let action = match (kind, word) {
            (Kind::Alloc, Word::Event(action)) => action,
            (Kind::Alloc, Word::Usage) if !self.recorded_kinds(run, pid).events => {
                match rows.size_bytes.at(row)? < 0 {
                    true => Action::UsageFree,
                    false => Action::UsageAlloc,
                }
            }
            (Kind::Alloc, Word::StateSegment | Word::StateBlock) => {
                let key = Key { run, pid, device: rows.device.at(row).unwrap_or_default() };
                return Some((key, state(rows, row, matches!(word, Word::StateSegment))?));
            }
            (_, Word::EmptyCache) => {
                let (ts, tid) = (rows.ts.value(row), rows.tid.at(row).unwrap_or_default());
                return Some((Key { run, pid, device: 0 }, Item::EmptyCache { ts, tid }));
            }
            (Kind::Alloc, Word::IpcCollect) => {
                let (ts, tid) = (rows.ts.value(row), rows.tid.at(row).unwrap_or_default());
                let end_ts = rows.dur.at(row).map(|dur| ts.saturating_add(dur));
                let caller = rows.caller.at(row).map_or("", |caller| self.names.name(caller));
                let is_for_request = COLLECTS_FOR_REQUESTS.iter().any(|library| caller.starts_with(library));
                let call = IpcCollect { tid, ts, end_ts, is_for_request };
                return Some((Key { run, pid, device: 0 }, Item::IpcCollect(call)));
            }
            // A handle is closed if the call succeeded; of one that never returned it is not known.
            (Kind::Call, Word::CloseHandle(is_driver)) => {
                let tid = rows.tid.at(row).unwrap_or_default();
                let item = Item::HandleClosed { tid, addr: rows.addr.at(row)?, is_driver };
                return (rows.ret.at(row) == Some(0)).then_some((Key { run, pid, device: 0 }, item));
            }
            (Kind::Call, Word::Call(_) | Word::Create) if rows.ret.at(row) == Some(OUT_OF_MEMORY) => {
                let tid = rows.tid.at(row).unwrap_or_default();
                let item = (Key { run, pid, device: 0 }, Item::Refused { tid });
                return self.is_of_torch(rows, row).then_some(item);
            }
            (Kind::Call, Word::Call(action)) if !self.recorded_kinds(run, pid).events => {
                if !self.is_of_torch(rows, row) || rows.ret.at(row).is_some_and(|ret| ret != 0) {
                    return None;
                }
                action
            }
            _ => return None,
        };
        let stack = rows.stack.at(row);
        let is_emptying = |stack: u32| self.emptying.contains(&(run, pid, stack));
        let event = Event {
            ts: rows.ts.value(row),
            action,
            addr: rows.addr.at(row)?,
            size_bytes: size.unsigned_abs(),
            stream: rows.stream.at(row).unwrap_or_default(),
            pool: (rows.pool_owner.at(row).unwrap_or_default(), rows.pool_id.at(row).unwrap_or_default()),
            tid: rows.tid.at(row).unwrap_or_default(),
            stack,
            is_of_empty_cache: matches!(action, Action::SegmentFree | Action::SegmentUnmap)
                && stack.is_some_and(is_emptying),
        };
        Some((Key { run, pid, device: rows.device.at(row).unwrap_or_default() }, Item::Event(event)))
    }
}

/// Decodes a row of the recorded final state.
fn state(rows: &Rows, row: usize, is_segment: bool) -> Option<Item> {
    let addr = rows.addr.at(row)?;
    let detail = rows.detail.text(row).unwrap_or_default();
    let stream = rows.stream.at(row).unwrap_or_default();
    let stack = rows.stack.at(row);
    if is_segment {
        let size_bytes = u64::try_from(rows.size_bytes.at(row)?).ok()?;
        let mut words = detail.split(',');
        return Some(Item::Segment(Segment {
            addr,
            size_bytes,
            stream,
            pool: (rows.pool_owner.at(row).unwrap_or_default(), rows.pool_id.at(row).unwrap_or_default()),
            is_expandable: words.clone().any(|word| word == "expandable"),
            is_small: words.next().map_or(size_bytes <= SMALL_SEGMENT_BYTES, |word| word == "small"),
            ts: BEFORE,
            alloc_ts: BEFORE,
            tid: 0,
            stack,
            page_bytes: 0,
            is_stale: false,
        }));
    }
    let state = [State::Active, State::PendingFree].into_iter().find(|state| state.name() == detail);
    let requested = rows.size_bytes.at(row).and_then(|bytes| u64::try_from(bytes).ok());
    Some(Item::Block(Block {
        addr,
        size_bytes: u64::try_from(rows.value.at(row)?).ok()?,
        requested_bytes: if state.is_some() { requested } else { Some(0) },
        state: state.unwrap_or(State::Inactive),
        ts: BEFORE,
        alloc_ts: BEFORE,
        tid: 0,
        stack: stack.filter(|_| state.is_some()),
        stream,
        segment: NO_SEGMENT,
    }))
}
