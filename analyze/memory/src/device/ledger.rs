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
//!
//! A program that asks what is free (`cuMemGetInfo`) reads the device, too: used = total - reserved for the driver - free.
//! What processes have is taken from the driver's next reading then, or else from the one before.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::driver::{LibraryId, Process};

/// Who has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
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
    pub fn name(self) -> &'static str {
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
pub struct Line {
    pub part: Part,
    pub pid: Option<u32>,
    pub library: Option<LibraryId>,
    pub bytes: i64,
}

/// A reading of a device, split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub ts: i64,
    pub device: i32,
    pub lines: Vec<Line>,
    /// What every process had then, on whatever device.
    pub sums: BTreeMap<u32, Sums>,
    /// A program read it itself.
    is_asked: bool,
}

/// A reading by the recorder takes some time, in which calls go on.
const READING_NS: u64 = 5_000_000;
/// One that does not add up fell into a call that had not done its work.
const UNSETTLED_NS: u64 = 100_000_000;

impl Account {
    /// What the driver said was used.
    pub fn used_bytes(&self) -> i64 {
        self.lines.first().map_or(0, |line| line.bytes)
    }

    /// Every process could be split, and no more is explained than is used.
    fn is_settled(&self) -> bool {
        self.lines.iter().all(|line| line.part != Part::Process && line.bytes >= 0)
    }

    /// How much nearer another reading need not be to be as good.
    pub fn doubt_ns(&self) -> u64 {
        let reading = if self.is_asked { 0 } else { READING_NS };
        if self.is_settled() { reading } else { reading + UNSETTLED_NS }
    }
}

/// What a process had at a time, by library.
pub type Sums = BTreeMap<LibraryId, i64>;

/// A reading that is not complete.
#[derive(Clone, Debug)]
struct Round {
    ts: i64,
    used_bytes: i64,
    /// A thread of a program read it.
    asked_by: Option<u32>,
    /// By process, then.
    sums: BTreeMap<u32, Sums>,
    /// By process: what the driver said a little later, and what its calls had had by then.
    readings: BTreeMap<u32, (i64, i64)>,
}

/// The devices of one run.
#[derive(Debug, Default)]
pub struct Devices {
    pub processes: BTreeMap<u32, Process>,
    /// Processes that are recorded.
    recorded: BTreeSet<u32>,
    /// Devices on which the driver has named a process.
    devices_of: HashMap<u32, BTreeSet<i32>>,
    devices: BTreeSet<i32>,
    rounds: BTreeMap<i32, Round>,
    /// Readings by programs since then.
    asked: BTreeMap<i32, Vec<Round>>,
    /// What the driver last said of processes.
    last: BTreeMap<i32, BTreeMap<u32, (i64, i64)>>,
    total_bytes: HashMap<i32, i64>,
    reserved_bytes: HashMap<i32, i64>,
}

impl Devices {
    /// `recorded`: the processes whose calls are on record.
    pub fn new(recorded: BTreeSet<u32>) -> Self {
        Self { recorded, ..Self::default() }
    }

    /// The device that a process uses: the only one it was seen on, or the only one there is.
    pub fn device_of(&self, pid: u32) -> Option<i32> {
        let only = |of: &BTreeSet<i32>| (of.len() == 1).then(|| of.first().copied()).flatten();
        match self.devices_of.get(&pid) {
            Some(of) => only(of),
            None => only(&self.devices),
        }
    }

    /// What every process has now.
    pub fn sums(&self) -> BTreeMap<u32, Sums> {
        self.processes.iter().map(|(pid, process)| (*pid, process.sums().clone())).collect()
    }

    /// The driver says what is used on a device; the accounts of the readings before.
    pub fn used(&mut self, device: i32, ts: i64, used_bytes: i64) -> Vec<Account> {
        self.devices.insert(device);
        let finished = self.close(device);
        let round = Round { ts, used_bytes, asked_by: None, sums: self.sums(), readings: BTreeMap::new() };
        self.rounds.insert(device, round);
        finished
    }

    /// The driver says how much memory there is.
    pub fn total(&mut self, device: i32, bytes: i64) {
        self.total_bytes.insert(device, bytes);
    }

    /// And how much of it is its own.
    pub fn reserved(&mut self, device: i32, bytes: i64) {
        self.reserved_bytes.insert(device, bytes);
    }

    /// A program asked what is free.
    pub fn asked(&mut self, pid: u32, tid: u32, ts: i64, free_bytes: i64) {
        let Some(device) = self.device_of(pid) else { return };
        let (Some(total), Some(reserved)) = (self.total_bytes.get(&device), self.reserved_bytes.get(&device))
        else {
            return;
        };
        let used_bytes = total - reserved - free_bytes;
        let sums = self.sums();
        let asked = self.asked.entry(device).or_default();
        // A call of libcudart makes one of libcuda: one reading.
        if asked.last().is_some_and(|last| {
            (last.asked_by, last.used_bytes) == (Some(tid), used_bytes) && last.sums == sums
        }) {
            asked.pop();
        }
        asked.push(Round { ts, used_bytes, asked_by: Some(tid), sums, readings: BTreeMap::new() });
    }

    /// The driver says what a process has on a device.
    pub fn of_process(&mut self, device: i32, pid: u32, bytes: i64) {
        self.devices_of.entry(pid).or_default().insert(device);
        let had = self.processes.get(&pid).map_or(0, Process::total_bytes);
        if let Some(round) = self.rounds.get_mut(&device) {
            round.readings.insert(pid, (bytes, had));
        }
    }

    /// The accounts of the last readings.
    ///
    /// Programs' readings wait for the driver's next one: it says what processes have that were not there before.
    fn close(&mut self, device: i32) -> Vec<Account> {
        let asked = self.asked.remove(&device).unwrap_or_default();
        let Some(round) = self.rounds.remove(&device) else {
            return self.accounts(device, asked, &BTreeMap::new());
        };
        let (before, after): (Vec<Round>, Vec<Round>) =
            asked.into_iter().partition(|asked| asked.ts < round.ts);
        let mut accounts = self.accounts(device, before, &round.readings);
        accounts.push(self.account(device, &round));
        self.last.insert(device, round.readings);
        if !after.is_empty() {
            self.asked.insert(device, after);
        }
        accounts
    }

    /// Of programs' readings, with what the driver says of processes.
    fn accounts(&self, device: i32, asked: Vec<Round>, next: &BTreeMap<u32, (i64, i64)>) -> Vec<Account> {
        let last = self.last.get(&device).cloned().unwrap_or_default();
        let mut readings = last.clone();
        readings.extend(next);
        let of = |round: Round| {
            let with = |readings: &BTreeMap<u32, (i64, i64)>| {
                self.account(device, &Round { readings: readings.clone(), ..round.clone() })
            };
            let account = with(&readings);
            // The next reading may have fallen into a call: the one before may do. A process of the one before may be
            // gone: the next may do.
            if account.is_settled() {
                return account;
            }
            [&last, next].into_iter().map(with).find(Account::is_settled).unwrap_or(account)
        };
        asked.into_iter().map(of).collect()
    }

    fn account(&self, device: i32, round: &Round) -> Account {
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
        Account { ts: round.ts, device, lines, sums: round.sums.clone(), is_asked: round.asked_by.is_some() }
    }

    /// The accounts of every device's last reading.
    pub fn close_all(&mut self) -> Vec<Account> {
        let devices: Vec<i32> = self.devices.iter().copied().collect();
        // Once for the driver's last reading, once for what programs read after it.
        devices.iter().chain(&devices).flat_map(|device| self.close(*device)).collect()
    }
}

fn line(part: Part, pid: Option<u32>, library: Option<LibraryId>, bytes: i64) -> Line {
    Line { part, pid, library, bytes }
}
