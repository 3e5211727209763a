//! Reads the rows of `events` that tell what devices' memory is used for, in order of time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow::array::RecordBatch;
use futures::TryStreamExt;

use super::{
    driver::{Call, LibraryId, Move, OPS, Piece},
    ledger::{Account, Devices, Line, Part, Sums},
    pauses::{Moved, Pause, Pauses},
};
use crate::input::is_torch;
use analyze_run::{
    columns::{Cell, integers, strings},
    error::AnalyzeError,
    events::{Batches, Events},
    run_file::RunFile,
};

const ADDRESS_FREE: &str = "cuMemAddressFree";

/// An allocation of a process that has ended, or that still existed at the end of the run.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The number of the run.
    pub run: u32,
    /// The process.
    pub pid: u32,
    /// The device that the process uses, if it is known.
    pub device: Option<i32>,
    /// The allocation.
    pub piece: Piece,
    /// The time at which it ended (ns, trace clock); `None` if it still existed at the end of the run.
    pub end: Option<i64>,
}

/// The state of a device at a requested time: the best reading, and the calls between that reading and the
/// requested time.
#[derive(Clone, Debug)]
pub struct Instant {
    /// The account of the reading.
    pub account: Account,
    /// The change of the allocated bytes of each process and library from the reading to the requested time.
    pub changes: BTreeMap<(u32, LibraryId), i64>,
}

/// The devices of some runs, replayed one run after another.
#[derive(Debug, Default)]
pub struct Replay {
    names: Vec<String>,
    recorded: HashMap<String, BTreeSet<u32>>,
    /// The runs whose processes ran before recording began.
    joined: BTreeSet<String>,
    libraries: Vec<String>,
    library_ids: HashMap<String, LibraryId>,
    run: Option<u32>,
    devices: Devices,
    pauses: Pauses,
    /// The bytes that a process had allocated before a thread of it created the memory that it is about to
    /// map.
    before_created: HashMap<(u32, u32), i64>,
    /// Allocations that have ended, until [`Self::forget`] is called.
    pub ended: Vec<Ended>,
    /// Completed accounts with the number of their run, until [`Self::forget`] is called.
    pub accounts: Vec<(u32, Account)>,
    /// Completed pauses and resumes with the number of their run, until [`Self::forget`] is called.
    pub paused: Vec<(u32, Pause)>,
}

impl Replay {
    /// Creates a replay of these runs.
    pub fn new(files: &[RunFile]) -> Self {
        let pids = |file: &RunFile| file.run.processes.iter().map(|process| process.pid).collect();
        Self {
            recorded: files.iter().map(|file| (file.name.clone(), pids(file))).collect(),
            joined: files
                .iter()
                .filter(|file| file.run.joined_running)
                .map(|file| file.name.clone())
                .collect(),
            ..Self::default()
        }
    }

    /// Returns the name of a run, or an empty string if there is no such run.
    pub fn name(&self, run: u32) -> &str {
        self.names.get(run as usize).map_or("", String::as_str)
    }

    /// Returns the name of a library, or an empty string if there is no such library.
    pub fn library(&self, id: LibraryId) -> &str {
        self.libraries.get(id as usize).map_or("", String::as_str)
    }

    /// Returns the part that a line belongs to; [`Part::Allocator`] if its library is PyTorch's.
    pub fn part(&self, line: &Line) -> Part {
        match line.library {
            Some(library) if is_torch(self.library(library)) => Part::Allocator,
            _ => line.part,
        }
    }

    /// Drops everything that is complete.
    pub fn forget(&mut self) {
        self.ended.clear();
        self.accounts.clear();
        self.paused.clear();
    }

    /// Starts reading the rows, in order of run and time. The caller passes them to [`Self::batch`] and then
    /// calls [`Self::finish`].
    pub fn start(events: &dyn Events) -> Batches {
        let ops = OPS
            .iter()
            .chain(&[ADDRESS_FREE, "cudaMemGetInfo", "cuMemGetInfo"])
            .map(|op| format!("'{op}'"))
            .collect::<Vec<_>>()
            .join(", ");
        let query = format!(
            "SELECT run, pid, tid, ts, dur, kind, op, ret, addr, src_addr, size_bytes, device, caller, value, stack FROM events WHERE \
             (kind = 'call' AND op IN ({ops})) OR (kind = 'process' AND (op = 'exit' AND tid = pid OR op = 'exec')) \
             OR (kind = 'sample' AND op IN ('memory_used_bytes', 'memory_reserved_bytes', 'memory_total_bytes', 'process_memory_bytes')) ORDER BY run, ts"
        );
        events.select(&query)
    }

    fn library_id(&mut self, name: &str) -> LibraryId {
        if let Some(id) = self.library_ids.get(name) {
            return *id;
        }
        let id = self.libraries.len() as LibraryId;
        self.libraries.push(name.to_owned());
        self.library_ids.insert(name.to_owned(), id);
        id
    }

    fn next_run(&mut self, name: &str) -> u32 {
        self.finish();
        self.names.push(name.to_owned());
        let run = self.names.len() as u32 - 1;
        self.run = Some(run);
        let recorded = self.recorded.get(name).cloned().unwrap_or_default();
        self.devices = Devices::new(recorded).joined(self.joined.contains(name));
        run
    }

    /// Replays a batch of rows; `passed` is called before each row with its time.
    ///
    /// # Errors
    /// Returns an error if a column is missing or has the wrong type.
    pub fn batch(
        &mut self,
        batch: &RecordBatch,
        mut passed: impl FnMut(&mut Self, i64),
    ) -> Result<(), AnalyzeError> {
        let (run, kind, op, caller) = (
            strings(batch, "run")?,
            strings(batch, "kind")?,
            strings(batch, "op")?,
            strings(batch, "caller")?,
        );
        let whole = |name| integers(batch, name);
        let (pid, tid, ts, dur) = (whole("pid")?, whole("tid")?, whole("ts")?, whole("dur")?);
        let (ret, size, device, value) =
            (whole("ret")?, whole("size_bytes")?, whole("device")?, whole("value")?);
        let (addr, handle, stack) = (whole("addr")?, whole("src_addr")?, whole("stack")?);
        for row in 0..batch.num_rows() {
            let name = run.value(row);
            let number = match self.run {
                Some(number) if self.names[number as usize] == name => number,
                _ => self.next_run(name),
            };
            let at = ts.value(row);
            passed(self, at);
            let pid = pid.at(row).unwrap_or_default() as u32;
            match kind.value(row) {
                "sample" => {
                    let device = device.at(row).unwrap_or_default() as i32;
                    let bytes = value.at(row).unwrap_or_default();
                    match op.value(row) {
                        "memory_used_bytes" => {
                            let accounts = self.devices.used(device, at, bytes);
                            self.accounts.extend(accounts.into_iter().map(|account| (number, account)));
                        }
                        "memory_reserved_bytes" => self.devices.reserved(device, bytes),
                        "memory_total_bytes" => self.devices.total(device, bytes),
                        _ => self.devices.of_process(device, pid, bytes),
                    }
                }
                "process" if op.value(row) == "exec" => self.devices.started(pid),
                "process" => self.exit(number, pid, at),
                // A failed call did nothing; a call that never returned may have had an effect.
                _ if ret.at(row).is_some_and(|ret| ret != 0) => (),
                _ if op.value(row).ends_with("MemGetInfo") => {
                    let tid = tid.at(row).unwrap_or_default() as u32;
                    if let Some(free_bytes) = size.at(row) {
                        self.devices.asked(pid, tid, at, free_bytes);
                    }
                }
                _ => {
                    let library = self.library_id(caller.at(row).unwrap_or("(not known)"));
                    let call = Call {
                        op: op.value(row),
                        ts: at,
                        tid: tid.at(row).unwrap_or_default() as u32,
                        addr: addr.at(row).unwrap_or_default() as u64,
                        handle: handle.at(row).unwrap_or_default() as u64,
                        size_bytes: size.at(row).unwrap_or_default().max(0) as u64,
                        library,
                        stack: stack.at(row).map(|stack| stack as u32),
                    };
                    self.call(number, pid, &call, dur.at(row).unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    fn call(&mut self, run: u32, pid: u32, call: &Call<'_>, dur: i64) {
        if call.op == ADDRESS_FREE {
            self.pauses.given_up(pid, call.addr, call.size_bytes);
            return;
        }
        let device = self.devices.device_of(pid);
        let process = self.devices.processes.entry(pid).or_default();
        let before_bytes = process.total_bytes();
        if call.op == "cuMemCreate" {
            self.before_created.insert((pid, call.tid), before_bytes);
        }
        let outcome = process.call(call);
        let after_bytes = process.total_bytes();
        let end = Some(call.ts);
        self.ended.extend(outcome.ended.iter().map(|piece| Ended { run, pid, device, piece: *piece, end }));
        if let Some((kind, addr, size_bytes, library)) = outcome.moved {
            // PyTorch's own allocator unmaps pages to release them for good.
            if !is_torch(&self.libraries[library as usize]) {
                let Call { tid, ts, .. } = *call;
                let before_bytes = match kind {
                    Move::Mapped => self.before_created.remove(&(pid, tid)).unwrap_or(before_bytes),
                    Move::Unmapped => before_bytes,
                };
                self.pauses.moved(&Moved {
                    kind,
                    addr,
                    size_bytes,
                    library,
                    pid,
                    tid,
                    ts,
                    dur,
                    before_bytes,
                    after_bytes,
                });
            }
        } else if let Some(piece) = outcome.ended.first() {
            self.pauses.released(pid, call.tid, piece.addr, call.ts.saturating_add(dur), after_bytes);
        }
        self.paused.extend(self.pauses.take().into_iter().map(|pause| (run, pause)));
    }

    fn exit(&mut self, run: u32, pid: u32, ts: i64) {
        let device = self.devices.device_of(pid);
        let Some(process) = self.devices.processes.remove(&pid) else { return };
        let end = Some(ts);
        self.ended.extend(process.pieces().map(|piece| Ended { run, pid, device, piece, end }));
    }

    /// Completes the current run: collects everything that is left.
    pub fn finish(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.pauses.finish();
        self.paused.extend(self.pauses.take().into_iter().map(|pause| (run, pause)));
        self.accounts.extend(self.devices.close_all().into_iter().map(|account| (run, account)));
        for (pid, process) in &self.devices.processes {
            let (pid, device) = (*pid, self.devices.device_of(*pid));
            let rest = process.pieces().map(|piece| Ended { run, pid, device, piece, end: None });
            self.ended.extend(rest);
        }
        self.pauses = Pauses::default();
        self.before_created.clear();
    }

    /// Reads one run, and returns for each requested time (ns, sorted) the state of every device at its best
    /// reading.
    pub async fn at(
        &mut self,
        events: &dyn Events,
        times: &[i64],
    ) -> Result<Vec<BTreeMap<i32, Instant>>, AnalyzeError> {
        let mut then: Vec<BTreeMap<u32, Sums>> = Vec::new();
        let mut batches = Self::start(events);
        while let Some(batch) = batches.try_next().await? {
            self.batch(&batch, |replay, now| {
                while times.get(then.len()).is_some_and(|time| now > *time) {
                    then.push(replay.devices.sums());
                }
            })?;
        }
        then.resize_with(times.len(), || self.devices.sums());
        self.finish();
        let devices: BTreeSet<i32> = self.accounts.iter().map(|(_, account)| account.device).collect();
        let of = |(time, sums): (&i64, &BTreeMap<u32, Sums>)| {
            let instants =
                devices.iter().filter_map(|device| Some((*device, self.instant(*device, *time, sums)?)));
            instants.collect()
        };
        Ok(times.iter().zip(&then).map(of).collect())
    }

    /// Returns the state of a device at `time`, when processes had allocated `then`.
    fn instant(&self, device: i32, time: i64, then: &BTreeMap<u32, Sums>) -> Option<Instant> {
        let accounts = self.accounts.iter().map(|(_, account)| account);
        let account = accounts
            .filter(|account| account.device == device)
            .min_by_key(|account| account.ts.abs_diff(time) + account.doubt_ns())?;
        let mut changes: BTreeMap<(u32, LibraryId), i64> = BTreeMap::new();
        for (sums, sign) in [(then, 1), (&account.sums, -1)] {
            for (pid, sums) in sums.iter().filter(|(pid, _)| self.devices.device_of(**pid) == Some(device)) {
                for (library, bytes) in sums {
                    *changes.entry((*pid, *library)).or_default() += sign * bytes;
                }
            }
        }
        changes.retain(|_, bytes| *bytes != 0);
        Some(Instant { account: account.clone(), changes })
    }
}
