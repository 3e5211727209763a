//! Memory that is paused: its address is kept while what lay behind it is given back, to be mapped again at the same
//! address later.
//!
//! A pause is a row of unmappings by one thread of a process, a resume a row of mappings at addresses that were
//! unmapped before. PyTorch's allocator unmaps pages of expandable segments, too, but that is its own way to give memory
//! back: see `memory_releases`.

use std::collections::{BTreeMap, HashMap};

use super::driver::{LibraryId, Move};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Pause,
    Resume,
}

impl Way {
    /// What users read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }
}

/// One pause or resume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    pub way: Way,
    pub pid: u32,
    pub tid: u32,
    pub library: LibraryId,
    pub ts: i64,
    /// End of the last call.
    pub end_ts: i64,
    /// What was mapped or unmapped, and stayed so: address, size, time of the call.
    pub pieces: Vec<(u64, u64, i64)>,
    /// What the process had from the driver just before.
    pub before_bytes: i64,
    /// And after the last call.
    pub after_bytes: i64,
    /// A resume: bytes that stayed away, their address still kept.
    pub missing_bytes: u64,
    pub missing_count: u64,
}

impl Pause {
    /// Bytes paused or resumed.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, size_bytes, _)| size_bytes).sum()
    }

    /// Times of its calls, shortest first.
    pub fn durs(&self) -> Vec<i64> {
        let mut durs: Vec<i64> = self.pieces.iter().map(|(_, _, dur)| *dur).collect();
        durs.sort_unstable();
        durs
    }
}

/// Unmapped and mapped again so far, by process.
#[derive(Debug, Default)]
pub struct Pauses {
    /// Addresses without memory: size.
    away: HashMap<u32, BTreeMap<u64, u64>>,
    /// What goes on, by process and thread.
    open: HashMap<(u32, u32), Pause>,
    finished: Vec<Pause>,
}

/// A mapping or unmapping call that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub kind: Move,
    pub addr: u64,
    pub size_bytes: u64,
    pub library: LibraryId,
    pub pid: u32,
    pub tid: u32,
    pub ts: i64,
    pub dur: i64,
    pub before_bytes: i64,
    pub after_bytes: i64,
}

impl Pauses {
    /// Takes a call into account.
    pub fn moved(&mut self, moved: &Moved) {
        let away = self.away.entry(moved.pid).or_default();
        let way = match moved.kind {
            Move::Unmapped => {
                away.insert(moved.addr, moved.size_bytes);
                Way::Pause
            }
            // Where nothing was before, memory is new and nothing is resumed.
            Move::Mapped => match away.remove(&moved.addr) {
                Some(_) => Way::Resume,
                None => return,
            },
        };
        let of = (moved.pid, moved.tid);
        if self.open.get(&of).is_some_and(|open| open.way != way || open.library != moved.library) {
            self.finished.extend(self.open.remove(&of));
        }
        let end_ts = moved.ts.saturating_add(moved.dur);
        let open = self.open.entry(of).or_insert_with(|| Pause {
            way,
            pid: moved.pid,
            tid: moved.tid,
            library: moved.library,
            ts: moved.ts,
            end_ts,
            pieces: Vec::new(),
            before_bytes: moved.before_bytes,
            after_bytes: moved.after_bytes,
            missing_bytes: 0,
            missing_count: 0,
        });
        open.end_ts = open.end_ts.max(end_ts);
        open.pieces.push((moved.addr, moved.size_bytes, moved.dur));
        open.after_bytes = moved.after_bytes;
        if way == Way::Resume {
            open.missing_bytes = away.values().sum();
            open.missing_count = away.len() as u64;
        }
    }

    /// The memory behind what is being paused went a moment after it was unmapped.
    pub fn released(&mut self, pid: u32, tid: u32, end_ts: i64, after_bytes: i64) {
        if let Some(open) = self.open.get_mut(&(pid, tid)).filter(|open| open.way == Way::Pause) {
            open.end_ts = open.end_ts.max(end_ts);
            open.after_bytes = after_bytes;
        }
    }

    /// The address itself is given up: what was unmapped there was freed, not paused.
    pub fn given_up(&mut self, pid: u32, addr: u64, size_bytes: u64) {
        let end = addr.saturating_add(size_bytes);
        if let Some(away) = self.away.get_mut(&pid) {
            away.retain(|at, _| !(addr..end).contains(at));
        }
        let pausing = self.open.iter_mut().filter(|((of, _), open)| *of == pid && open.way == Way::Pause);
        pausing.for_each(|(_, open)| open.pieces.retain(|(at, _, _)| !(addr..end).contains(at)));
        self.open.retain(|_, open| !open.pieces.is_empty());
    }

    /// What is complete.
    pub fn take(&mut self) -> Vec<Pause> {
        std::mem::take(&mut self.finished)
    }

    /// That was all.
    pub fn finish(&mut self) {
        let mut open: Vec<Pause> = self.open.drain().map(|(_, pause)| pause).collect();
        open.sort_by_key(|pause| (pause.ts, pause.pid, pause.tid));
        self.finished.append(&mut open);
    }
}
