//! Finds memory that is paused: a process keeps its address but unmaps and releases what lies behind it, and
//! later maps new memory at the same address.
//!
//! A pause is a series of unmappings by one thread of a process, and a resume is a series of mappings at
//! addresses that were unmapped before. When the thread releases other memory, as `empty_cache()` does, the
//! series ends, so that the bytes of each are known. PyTorch's allocator also unmaps pages of expandable
//! segments, but that is its own way of releasing memory: see the view `memory_releases`.

use std::collections::{BTreeMap, HashMap};

use super::driver::{LibraryId, Move};

/// The direction of a pause or resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Memory was unmapped and released.
    Pause,
    /// Memory was mapped again.
    Resume,
}

impl Way {
    /// Returns the name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }
}

/// A range that was mapped or unmapped and stayed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// The address of the first byte.
    addr: u64,
    /// The size in bytes.
    size_bytes: u64,
    /// The duration of the call in ns.
    dur: i64,
    /// The time at which the call, or the release of what lay behind the range, ended (ns, trace clock).
    end_ts: i64,
    /// The bytes that the process had allocated from the driver then.
    after_bytes: i64,
}

/// One pause or resume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Whether it is a pause or a resume.
    pub way: Way,
    /// The process.
    pub pid: u32,
    /// The thread that made the calls.
    pub tid: u32,
    /// The library that allocated the memory.
    pub library: LibraryId,
    /// The time at which the first call began (ns, trace clock).
    pub ts: i64,
    /// The ranges that were mapped or unmapped.
    parts: Vec<Part>,
    /// The bytes that the process had allocated from the driver just before.
    pub before_bytes: i64,
    /// The bytes that were still unmapped afterwards, their address kept; 0 for a pause.
    pub missing_bytes: u64,
    /// The number of ranges that were still unmapped afterwards; 0 for a pause.
    pub missing_count: u64,
}

impl Pause {
    /// Returns the paused or resumed bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.size_bytes).sum()
    }

    /// Returns the time at which the last call ended (ns, trace clock).
    pub fn end_ts(&self) -> i64 {
        self.parts.iter().map(|part| part.end_ts).max().unwrap_or(self.ts)
    }

    /// Returns the bytes that the process had allocated after the last call.
    pub fn after_bytes(&self) -> i64 {
        self.parts.last().map_or(self.before_bytes, |part| part.after_bytes)
    }

    /// Returns the durations of its calls in ns, sorted in ascending order.
    pub fn durs(&self) -> Vec<i64> {
        let mut durs: Vec<i64> = self.parts.iter().map(|part| part.dur).collect();
        durs.sort_unstable();
        durs
    }
}

/// Collects pauses and resumes from the mapping calls of all processes.
#[derive(Debug, Default)]
pub struct Pauses {
    /// Unmapped addresses and their size in bytes, by process.
    away: HashMap<u32, BTreeMap<u64, u64>>,
    /// Pauses and resumes in progress, by process and thread.
    open: HashMap<(u32, u32), Pause>,
    finished: Vec<Pause>,
}

/// A mapping or unmapping call that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Whether it mapped or unmapped memory.
    pub kind: Move,
    /// The address of the first byte.
    pub addr: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The library that allocated the memory.
    pub library: LibraryId,
    /// The process.
    pub pid: u32,
    /// The calling thread.
    pub tid: u32,
    /// The time at which it was called (ns, trace clock).
    pub ts: i64,
    /// The duration of the call in ns.
    pub dur: i64,
    /// The bytes that the process had allocated from the driver before the call, or before it created the
    /// memory that it maps.
    pub before_bytes: i64,
    /// The bytes that the process had allocated from the driver after the call.
    pub after_bytes: i64,
}

impl Pauses {
    /// Takes the next call, in order of time.
    pub fn moved(&mut self, moved: &Moved) {
        let away = self.away.entry(moved.pid).or_default();
        let way = match moved.kind {
            Move::Unmapped => {
                away.insert(moved.addr, moved.size_bytes);
                Way::Pause
            }
            // A mapping at an address that was not unmapped before is new memory, not a resume.
            Move::Mapped => match away.remove(&moved.addr) {
                Some(_) => Way::Resume,
                None => return,
            },
        };
        let of = (moved.pid, moved.tid);
        if self.open.get(&of).is_some_and(|open| open.way != way || open.library != moved.library) {
            self.finished.extend(self.open.remove(&of));
        }
        let open = self.open.entry(of).or_insert_with(|| Pause {
            way,
            pid: moved.pid,
            tid: moved.tid,
            library: moved.library,
            ts: moved.ts,
            parts: Vec::new(),
            before_bytes: moved.before_bytes,
            missing_bytes: 0,
            missing_count: 0,
        });
        open.parts.push(Part {
            addr: moved.addr,
            size_bytes: moved.size_bytes,
            dur: moved.dur,
            end_ts: moved.ts.saturating_add(moved.dur),
            after_bytes: moved.after_bytes,
        });
        if way == Way::Resume {
            open.missing_bytes = away.values().sum();
            open.missing_count = away.len() as u64;
        }
    }

    /// Notes that a thread released the memory at `addr`. What lies behind a pause is released a moment after it
    /// was unmapped; the release of other memory ends the series.
    pub fn released(&mut self, pid: u32, tid: u32, addr: u64, end_ts: i64, after_bytes: i64) {
        let of = (pid, tid);
        let mut parts = self.open.get_mut(&of).into_iter().flat_map(|open| &mut open.parts);
        match parts.find(|part| part.addr == addr) {
            Some(part) => (part.end_ts, part.after_bytes) = (part.end_ts.max(end_ts), after_bytes),
            None => self.finished.extend(self.open.remove(&of)),
        }
    }

    /// Notes that the address range itself was released: what was unmapped there was freed, not paused, and
    /// the release ends the series.
    pub fn given_up(&mut self, pid: u32, addr: u64, size_bytes: u64) {
        let range = addr..addr.saturating_add(size_bytes);
        if let Some(away) = self.away.get_mut(&pid) {
            away.retain(|at, _| !range.contains(at));
        }
        let pausing = self.open.iter_mut().filter(|((of, _), open)| *of == pid && open.way == Way::Pause);
        let mut ended = Vec::new();
        for (of, open) in pausing {
            let count = open.parts.len();
            open.parts.retain(|part| !range.contains(&part.addr));
            if open.parts.len() < count {
                ended.push(*of);
            }
        }
        for of in ended {
            self.finished.extend(self.open.remove(&of).filter(|open| !open.parts.is_empty()));
        }
    }

    /// Returns the pauses and resumes that are complete, and forgets them.
    pub fn take(&mut self) -> Vec<Pause> {
        std::mem::take(&mut self.finished)
    }

    /// Completes all pauses and resumes in progress.
    pub fn finish(&mut self) {
        let mut open: Vec<Pause> = self.open.drain().map(|(_, pause)| pause).collect();
        open.sort_by_key(|pause| (pause.ts, pause.pid, pause.tid));
        self.finished.append(&mut open);
    }
}
