//! Every reading of a device's counters as an account:
//!
//! ```text
//! used = allocator + libraries + context          of each recorded process
//!      + other processes                          that the driver names
//!      + unexplained
//! ```
//! *Allocator* is what PyTorch's library has from the driver, *libraries* what others have (cuBLAS, NCCL, …), to the byte,
//! from their calls. *Context* is what else the driver counts for a process: its context, loaded code, printf and heap
//! buffers, managed memory, and what it rounds up. The driver's reading of a process comes a moment after that of the
//! device; each is compared with the calls until its own time. What the driver does not ascribe to a process is unexplained.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::driver::{LibraryId, Process};

/// Who has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    /// All that is used: the sum of the others.
    Used,
    /// PyTorch's caching allocator.
    Allocator,
    /// Another library.
    Library,
    /// What else a recorded process has.
    Context,
    /// All that a recorded process has: what its calls had is more, so that it cannot be split.
    Process,
    /// A process that is not recorded.
    OtherProcess,
    Unexplained,
}

impl Part {
    /// What users read.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Allocator => "allocator",
            Self::Library => "library",
            Self::Context => "context",
            Self::Process => "process",
            Self::OtherProcess => "other_process",
            Self::Unexplained => "unexplained",
        }
    }
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) part: Part,
    pub(crate) pid: Option<u32>,
    pub(crate) library: Option<LibraryId>,
    pub(crate) bytes: i64,
}

/// A reading of a device, split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) ts: i64,
    pub(crate) device: i32,
    pub(crate) lines: Vec<Line>,
    /// What every process had then, on whatever device.
    pub(crate) sums: BTreeMap<u32, Sums>,
}

impl Account {
    /// What the driver said was used.
    pub(crate) fn used_bytes(&self) -> i64 {
        self.lines.first().map_or(0, |line| line.bytes)
    }
}

/// What a process had at a time, by library.
pub(crate) type Sums = BTreeMap<LibraryId, i64>;

/// A reading that is not complete.
#[derive(Debug)]
struct Round {
    ts: i64,
    used_bytes: i64,
    /// By process, then.
    sums: BTreeMap<u32, Sums>,
    /// By process: what the driver said a little later, and what its calls had had by then.
    readings: BTreeMap<u32, (i64, i64)>,
}

/// The devices of one run.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub(crate) processes: BTreeMap<u32, Process>,
    /// Processes that are recorded.
    recorded: BTreeSet<u32>,
    /// Devices on which the driver has named a process.
    devices_of: HashMap<u32, BTreeSet<i32>>,
    devices: BTreeSet<i32>,
    rounds: BTreeMap<i32, Round>,
}

impl Devices {
    /// `recorded`: the processes whose calls are on record.
    pub(crate) fn new(recorded: BTreeSet<u32>) -> Self {
        Self { recorded, ..Self::default() }
    }

    /// The device that a process uses: the only one it was seen on, or the only one there is.
    pub(crate) fn device_of(&self, pid: u32) -> Option<i32> {
        let only = |of: &BTreeSet<i32>| (of.len() == 1).then(|| of.first().copied()).flatten();
        match self.devices_of.get(&pid) {
            Some(of) => only(of),
            None => only(&self.devices),
        }
    }

    /// What every process has now.
    pub(crate) fn sums(&self) -> BTreeMap<u32, Sums> {
        self.processes.iter().map(|(pid, process)| (*pid, process.sums().clone())).collect()
    }

    /// The driver says what is used on a device; the account of the reading before.
    pub(crate) fn used(&mut self, device: i32, ts: i64, used_bytes: i64) -> Option<Account> {
        self.devices.insert(device);
        let finished = self.close(device);
        let sums = self.sums();
        self.rounds.insert(device, Round { ts, used_bytes, sums, readings: BTreeMap::new() });
        finished
    }

    /// The driver says what a process has on a device.
    pub(crate) fn of_process(&mut self, device: i32, pid: u32, bytes: i64) {
        self.devices_of.entry(pid).or_default().insert(device);
        let had = self.processes.get(&pid).map_or(0, Process::total_bytes);
        if let Some(round) = self.rounds.get_mut(&device) {
            round.readings.insert(pid, (bytes, had));
        }
    }

    /// The account of the last reading.
    pub(crate) fn close(&mut self, device: i32) -> Option<Account> {
        let round = self.rounds.remove(&device)?;
        let mut lines = vec![line(Part::Used, None, None, round.used_bytes)];
        // A process may be named for the first time in this very round.
        let is_here = |pid: &u32| self.device_of(*pid) == Some(device);
        let had = round.sums.keys().filter(|pid| is_here(pid));
        let pids: BTreeSet<u32> = had.chain(round.readings.keys()).copied().collect();
        for pid in pids {
            let sums = round.sums.get(&pid);
            let reading = round.readings.get(&pid).copied();
            if !self.recorded.contains(&pid) {
                let bytes = reading.map_or(0, |(bytes, _)| bytes);
                lines.push(line(Part::OtherProcess, Some(pid), None, bytes));
                continue;
            }
            match reading {
                // Of a process on several devices nobody knows what lies where.
                Some((bytes, had)) if !is_here(&pid) || bytes < had => {
                    lines.push(line(Part::Process, Some(pid), None, bytes));
                }
                _ => {
                    let held = sums.into_iter().flatten().filter(|(_, bytes)| **bytes != 0);
                    lines.extend(
                        held.map(|(library, bytes)| line(Part::Library, Some(pid), Some(*library), *bytes)),
                    );
                    if let Some((bytes, had)) = reading {
                        lines.push(line(Part::Context, Some(pid), None, bytes - had));
                    }
                }
            }
        }
        let explained: i64 = lines.iter().skip(1).map(|line| line.bytes).sum();
        lines.push(line(Part::Unexplained, None, None, round.used_bytes - explained));
        Some(Account { ts: round.ts, device, lines, sums: round.sums })
    }

    /// The accounts of every device's last reading.
    pub(crate) fn close_all(&mut self) -> Vec<Account> {
        let devices: Vec<i32> = self.rounds.keys().copied().collect();
        devices.into_iter().filter_map(|device| self.close(device)).collect()
    }
}

fn line(part: Part, pid: Option<u32>, library: Option<LibraryId>, bytes: i64) -> Line {
    Line { part, pid, library, bytes }
}
