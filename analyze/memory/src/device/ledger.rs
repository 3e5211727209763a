//! Splits every reading of a device's counters by owner:
//!
//! ```text
//! used = allocator + libraries + context          of each recorded process
//!      + other processes                          that the driver names
//!      + unexplained
//! ```
//! *Allocator* is what PyTorch's library has allocated from the driver, and *libraries* is what others
//! (cuBLAS, NCCL, …) have; both are exact sums over their calls. *Context* is what else the driver counts for
//! a process: its context, loaded code, printf and heap buffers, managed memory, and rounding. The driver's
//! reading of a process comes a moment after the reading of the device; each is compared with the calls up to
//! its own time. The context of a process that ran before recording began contains what it allocated until then, and has a name
//! of its own. What the driver does not attribute to a process is unexplained.
//!
//! A program that queries the free memory (`cuMemGetInfo`) also reads the device: used = total - reserved for
//! the driver - free. The memory of the processes is then taken from the driver's next reading, or else from
//! the one before.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::driver::{LibraryId, Process};

/// The owner of a part of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// All used memory: the sum of the other parts.
    Used,
    /// PyTorch's caching allocator.
    Allocator,
    /// Another library of a recorded process.
    Library,
    /// What else the driver counts for a recorded process, such as its CUDA context.
    Context,
    /// [`Part::Context`] of a process that ran before recording began: what it allocated until then is in it, too.
    BeforeRecording,
    /// All memory of a recorded process that cannot be split, because its calls allocated more than the
    /// driver reports, or because it uses several devices.
    Process,
    /// A process that was not recorded.
    OtherProcess,
    /// Used memory that the driver attributes to no process.
    Unexplained,
}

impl Part {
    /// Returns the name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Allocator => "allocator",
            Self::Library => "library",
            Self::Context => "context",
            Self::BeforeRecording => "before_recording",
            Self::Process => "process",
            Self::OtherProcess => "other_process",
            Self::Unexplained => "unexplained",
        }
    }
}

/// One line of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The owner.
    pub part: Part,
    /// The process; `None` for the whole device and for unexplained memory.
    pub pid: Option<u32>,
    /// The library, for parts that belong to one.
    pub library: Option<LibraryId>,
    /// The size in bytes; negative if more is explained than is used.
    pub bytes: i64,
}

/// A reading of a device, split by owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The time of the reading (ns, trace clock).
    pub ts: i64,
    /// The device.
    pub device: i32,
    /// The lines: the first is [`Part::Used`], the last [`Part::Unexplained`].
    pub lines: Vec<Line>,
    /// The bytes that every process had allocated at that time on all devices, by library.
    pub sums: BTreeMap<u32, Sums>,
    /// The reading was made by a recorded program (`cuMemGetInfo`).
    is_asked: bool,
}

/// The duration of a reading by the recorder, during which calls continue.
const READING_NS: u64 = 5_000_000;
/// The penalty for a reading that does not add up: it coincided with a call that was still in progress.
const UNSETTLED_NS: u64 = 100_000_000;

impl Account {
    /// Returns the bytes that the driver reported as used.
    pub fn used_bytes(&self) -> i64 {
        self.lines.first().map_or(0, |line| line.bytes)
    }

    /// Returns whether every process could be split, and no more is explained than is used.
    fn is_settled(&self) -> bool {
        self.lines.iter().all(|line| line.part != Part::Process && line.bytes >= 0)
    }

    /// Returns the imprecision of the reading in ns, which is added to its distance in time when the best
    /// reading is chosen; 0 for an exact one.
    pub fn doubt_ns(&self) -> u64 {
        let reading = if self.is_asked { 0 } else { READING_NS };
        if self.is_settled() { reading } else { reading + UNSETTLED_NS }
    }
}

/// The bytes that a process had allocated at some time, by library.
pub type Sums = BTreeMap<LibraryId, i64>;

/// A reading that is not complete yet.
#[derive(Clone, Debug)]
struct Round {
    ts: i64,
    used_bytes: i64,
    /// The thread that made the reading, if a program did.
    asked_by: Option<u32>,
    /// The allocated bytes at that time, by process and library.
    sums: BTreeMap<u32, Sums>,
    /// The bytes that the driver reported for each process a little later, and those that its calls had
    /// allocated by then.
    readings: BTreeMap<u32, (i64, i64)>,
}

/// The devices of one run.
#[derive(Debug, Default)]
pub struct Devices {
    /// The driver allocations of each process.
    pub processes: BTreeMap<u32, Process>,
    /// The processes whose calls were recorded.
    recorded: BTreeSet<u32>,
    /// Whether processes may have run before recording began.
    is_joined: bool,
    /// The processes that started a program since.
    started: BTreeSet<u32>,
    /// The devices on which the driver has named each process.
    devices_of: HashMap<u32, BTreeSet<i32>>,
    devices: BTreeSet<i32>,
    rounds: BTreeMap<i32, Round>,
    /// Readings by programs since the last reading by the recorder.
    asked: BTreeMap<i32, Vec<Round>>,
    /// What the driver last reported for each process.
    last: BTreeMap<i32, BTreeMap<u32, (i64, i64)>>,
    total_bytes: HashMap<i32, i64>,
    reserved_bytes: HashMap<i32, i64>,
}

impl Devices {
    /// Creates the devices of a run in which the calls of the processes `recorded` were recorded.
    pub fn new(recorded: BTreeSet<u32>) -> Self {
        Self { recorded, ..Self::default() }
    }

    /// Sets whether the processes ran before recording began.
    pub fn joined(self, is_joined: bool) -> Self {
        Self { is_joined, ..self }
    }

    /// Takes the start of a program: its process has no memory from before recording began.
    pub fn started(&mut self, pid: u32) {
        self.started.insert(pid);
    }

    /// Returns the device that a process uses: the only one it was seen on, or the only one there is. Returns
    /// `None` if several are possible.
    pub fn device_of(&self, pid: u32) -> Option<i32> {
        let only = |of: &BTreeSet<i32>| (of.len() == 1).then(|| of.first().copied()).flatten();
        match self.devices_of.get(&pid) {
            Some(of) => only(of),
            None => only(&self.devices),
        }
    }

    /// Returns the bytes that every process has allocated now, by library.
    pub fn sums(&self) -> BTreeMap<u32, Sums> {
        self.processes.iter().map(|(pid, process)| (*pid, process.sums().clone())).collect()
    }

    /// Takes a reading of a device's used bytes, and returns the accounts of the readings before it, which
    /// are complete now.
    pub fn used(&mut self, device: i32, ts: i64, used_bytes: i64) -> Vec<Account> {
        self.devices.insert(device);
        let finished = self.close(device);
        let round = Round { ts, used_bytes, asked_by: None, sums: self.sums(), readings: BTreeMap::new() };
        self.rounds.insert(device, round);
        finished
    }

    /// Takes a reading of a device's total bytes.
    pub fn total(&mut self, device: i32, bytes: i64) {
        self.total_bytes.insert(device, bytes);
    }

    /// Takes a reading of the bytes that the driver reserves for itself on a device.
    pub fn reserved(&mut self, device: i32, bytes: i64) {
        self.reserved_bytes.insert(device, bytes);
    }

    /// Takes the result of a program's query for free memory; it is ignored unless the device and its total
    /// are known.
    pub fn asked(&mut self, pid: u32, tid: u32, ts: i64, free_bytes: i64) {
        let Some(device) = self.device_of(pid) else { return };
        let (Some(total), Some(reserved)) = (self.total_bytes.get(&device), self.reserved_bytes.get(&device))
        else {
            return;
        };
        let used_bytes = total - reserved - free_bytes;
        let sums = self.sums();
        let asked = self.asked.entry(device).or_default();
        // A call of libcudart makes one of libcuda: both are one reading.
        if asked.last().is_some_and(|last| {
            (last.asked_by, last.used_bytes) == (Some(tid), used_bytes) && last.sums == sums
        }) {
            asked.pop();
        }
        asked.push(Round { ts, used_bytes, asked_by: Some(tid), sums, readings: BTreeMap::new() });
    }

    /// Takes a reading of the bytes that a process uses on a device.
    pub fn of_process(&mut self, device: i32, pid: u32, bytes: i64) {
        self.devices_of.entry(pid).or_default().insert(device);
        let had = self.processes.get(&pid).map_or(0, Process::total_bytes);
        if let Some(round) = self.rounds.get_mut(&device) {
            round.readings.insert(pid, (bytes, had));
        }
    }

    /// Completes the pending readings of a device, and returns their accounts.
    ///
    /// Readings by programs wait for the driver's next reading, which covers processes that did not exist at
    /// the one before.
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

    /// Returns the accounts of readings by programs, using what the driver reported for the processes before
    /// and after.
    fn accounts(&self, device: i32, asked: Vec<Round>, next: &BTreeMap<u32, (i64, i64)>) -> Vec<Account> {
        let last = self.last.get(&device).cloned().unwrap_or_default();
        let mut readings = last.clone();
        readings.extend(next);
        let of = |round: Round| {
            let with = |readings: &BTreeMap<u32, (i64, i64)>| {
                self.account(device, &Round { readings: readings.clone(), ..round.clone() })
            };
            let account = with(&readings);
            // The next reading may have coincided with a call, in which case the one before may add up. A
            // process of the one before may be gone, in which case the next may add up.
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
                // For a process on several devices it is not known which memory lies where.
                Some((bytes, had)) if !is_here(&pid) || bytes < had => {
                    lines.push(line(Part::Process, Some(pid), None, bytes));
                }
                _ => {
                    let held = sums.into_iter().flatten().filter(|(_, bytes)| **bytes != 0);
                    lines.extend(
                        held.map(|(library, bytes)| line(Part::Library, Some(pid), Some(*library), *bytes)),
                    );
                    if let Some((bytes, had)) = reading {
                        let is_older = self.is_joined && !self.started.contains(&pid);
                        let part = if is_older { Part::BeforeRecording } else { Part::Context };
                        lines.push(line(part, Some(pid), None, bytes - had));
                    }
                }
            }
        }
        let explained: i64 = lines.iter().skip(1).map(|line| line.bytes).sum();
        lines.push(line(Part::Unexplained, None, None, round.used_bytes - explained));
        Account { ts: round.ts, device, lines, sums: round.sums.clone(), is_asked: round.asked_by.is_some() }
    }

    /// Completes all pending readings, and returns their accounts.
    pub fn close_all(&mut self) -> Vec<Account> {
        let devices: Vec<i32> = self.devices.iter().copied().collect();
        // The first pass completes the driver's last reading, the second what programs read after it.
        devices.iter().chain(&devices).flat_map(|device| self.close(*device)).collect()
    }
}

fn line(part: Part, pid: Option<u32>, library: Option<LibraryId>, bytes: i64) -> Line {
    Line { part, pid, library, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_joined_process_had_before_is_named_so() {
        let part = |is_joined, is_started| {
            let mut devices = Devices::new(BTreeSet::from([7])).joined(is_joined);
            if is_started {
                devices.started(7);
            }
            devices.used(0, 10, 100);
            devices.of_process(0, 7, 60);
            let accounts = devices.close_all();
            let [account] = accounts.as_slice() else { panic!("{accounts:?}") };
            let line = account.lines.iter().find(|line| line.pid == Some(7)).copied();
            line.map(|line| (line.part, line.bytes))
        };
        assert_eq!(part(false, false), Some((Part::Context, 60)));
        assert_eq!(part(true, false), Some((Part::BeforeRecording, 60)));
        assert_eq!(part(true, true), Some((Part::Context, 60)));
    }
}
