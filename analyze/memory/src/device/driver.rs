//! What one process has from the driver, by the library that asked.
//!
//! A call of libcudart makes one of libcuda, and both are on record: the outer one comes first and knows who asked, so
//! the inner one with the same address is the same memory. Memory behind mapped addresses (`cuMemCreate`) lives until it
//! is both released and unmapped. Host memory is not the device's and not counted; managed memory moves, and is not either.

use std::collections::{BTreeMap, HashMap};

/// What a library is called by number; numbers are handed out by the caller.
pub type LibraryId = u32;

/// How memory was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Manner {
    /// cudaMalloc, cuMemAlloc and their like.
    Plain,
    /// cudaMallocAsync and its like: from a pool that the driver keeps.
    Pool,
    /// cuMemCreate: to be mapped.
    Mapped,
}

impl Manner {
    /// What users read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pool => "stream_ordered",
            Self::Mapped => "mapped",
        }
    }
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its address; of mapped memory, the first that it was mapped at, or 0.
    pub addr: u64,
    pub size_bytes: u64,
    pub manner: Manner,
    pub library: LibraryId,
    pub ts: i64,
    pub tid: u32,
}

#[derive(Clone, Copy, Debug)]
struct Physical {
    piece: Piece,
    is_released: bool,
    mappings: u32,
}

/// What happened to memory behind an address that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Mapped,
    Unmapped,
}

/// What a call did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Memory that was given back.
    pub ended: Vec<Piece>,
    /// Addresses that were mapped or unmapped: address, size, whose memory.
    pub moved: Option<(Move, u64, u64, LibraryId)>,
}

/// One call that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub op: &'a str,
    pub ts: i64,
    pub tid: u32,
    /// The address; of cuMemCreate and cuMemRelease, the handle.
    pub addr: u64,
    /// Of cuMemMap, the handle.
    pub handle: u64,
    pub size_bytes: u64,
    pub library: LibraryId,
}

/// The memory of one process.
#[derive(Debug, Default)]
pub struct Process {
    pieces: HashMap<u64, Piece>,
    physical: HashMap<u32, Physical>,
    handles: HashMap<u64, u32>,
    /// Mapped addresses: size, and what lies behind.
    mapped: BTreeMap<u64, (u64, u32)>,
    next: u32,
    sums: BTreeMap<LibraryId, i64>,
    /// Memory was given back that is not known to have been had.
    pub unknown_count: u64,
}

/// Functions that say something of device memory.
pub const OPS: &[&str] = &[
    "cudaMalloc",
    "cudaMallocPitch",
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cudaFree",
    "cudaFreeAsync",
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
];

impl Process {
    /// Bytes by library.
    pub fn sums(&self) -> &BTreeMap<LibraryId, i64> {
        &self.sums
    }

    /// Bytes of all.
    pub fn total_bytes(&self) -> i64 {
        self.sums.values().sum()
    }

    /// Everything it has.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.pieces.values().copied().chain(self.physical.values().map(|physical| physical.piece))
    }

    /// Takes a call into account.
    pub fn call(&mut self, call: &Call<'_>) -> Outcome {
        match call.op {
            "cudaMalloc" | "cudaMallocPitch" | "cuMemAlloc" | "cuMemAllocPitch" => {
                self.take(call, Manner::Plain)
            }
            "cudaMallocAsync" | "cudaMallocFromPoolAsync" | "cuMemAllocAsync" | "cuMemAllocFromPoolAsync" => {
                self.take(call, Manner::Pool)
            }
            "cudaFree" | "cudaFreeAsync" | "cuMemFree" | "cuMemFreeAsync" => self.give_back(call),
            "cuMemCreate" => self.create(call),
            "cuMemRelease" => self.release(call),
            "cuMemMap" => self.map(call),
            "cuMemUnmap" => self.unmap(call),
            _ => Outcome::default(),
        }
    }

    fn add(&mut self, piece: &Piece, sign: i64) {
        *self.sums.entry(piece.library).or_default() += sign * piece.size_bytes as i64;
    }

    fn take(&mut self, call: &Call<'_>, manner: Manner) -> Outcome {
        let Call { addr, size_bytes, library, ts, tid, .. } = *call;
        // cudaFree(NULL) has its like here, too.
        if addr == 0 {
            return Outcome::default();
        }
        let piece = Piece { addr, size_bytes, manner, library, ts, tid };
        let mut outcome = Outcome::default();
        if let Some(known) = self.pieces.get(&addr).copied() {
            if call.op.starts_with("cu") && !call.op.starts_with("cuda") && known.tid == tid {
                return outcome;
            }
            // Its end is not on record.
            self.add(&known, -1);
            outcome.ended.push(known);
        }
        self.add(&piece, 1);
        self.pieces.insert(addr, piece);
        outcome
    }

    fn give_back(&mut self, call: &Call<'_>) -> Outcome {
        let Some(piece) = self.pieces.remove(&call.addr) else {
            // The inner call finds nothing: the outer one has taken it.
            let is_inner = !call.op.starts_with("cuda");
            self.unknown_count += u64::from(call.addr != 0 && !is_inner);
            return Outcome::default();
        };
        self.add(&piece, -1);
        Outcome { ended: vec![piece], moved: None }
    }

    fn create(&mut self, call: &Call<'_>) -> Outcome {
        let Call { addr: handle, size_bytes, library, ts, tid, .. } = *call;
        let piece = Piece { addr: 0, size_bytes, manner: Manner::Mapped, library, ts, tid };
        self.add(&piece, 1);
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.handles.insert(handle, number);
        self.physical.insert(number, Physical { piece, is_released: false, mappings: 0 });
        Outcome::default()
    }

    fn map(&mut self, call: &Call<'_>) -> Outcome {
        let Some(number) = self.handles.get(&call.handle).copied() else { return Outcome::default() };
        let Some(physical) = self.physical.get_mut(&number) else { return Outcome::default() };
        physical.mappings += 1;
        if physical.piece.addr == 0 {
            physical.piece.addr = call.addr;
        }
        let library = physical.piece.library;
        self.mapped.insert(call.addr, (call.size_bytes, number));
        Outcome { ended: Vec::new(), moved: Some((Move::Mapped, call.addr, call.size_bytes, library)) }
    }

    fn unmap(&mut self, call: &Call<'_>) -> Outcome {
        let end = call.addr.saturating_add(call.size_bytes);
        let within: Vec<(u64, u32)> =
            self.mapped.range(call.addr..end).map(|(addr, (_, number))| (*addr, *number)).collect();
        let mut outcome = Outcome::default();
        for (addr, number) in within {
            self.mapped.remove(&addr);
            let Some(physical) = self.physical.get_mut(&number) else { continue };
            physical.mappings -= 1;
            outcome.moved = Some((Move::Unmapped, call.addr, call.size_bytes, physical.piece.library));
            outcome.ended.extend(self.drop_unused(number));
        }
        outcome
    }

    fn release(&mut self, call: &Call<'_>) -> Outcome {
        let Some(number) = self.handles.remove(&call.addr) else {
            self.unknown_count += 1;
            return Outcome::default();
        };
        if let Some(physical) = self.physical.get_mut(&number) {
            physical.is_released = true;
        }
        Outcome { ended: self.drop_unused(number).into_iter().collect(), moved: None }
    }

    fn drop_unused(&mut self, number: u32) -> Option<Piece> {
        let physical = *self.physical.get(&number)?;
        if !physical.is_released || physical.mappings > 0 {
            return None;
        }
        self.physical.remove(&number);
        self.add(&physical.piece, -1);
        Some(physical.piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: &str, addr: u64, handle: u64, size_bytes: u64, library: LibraryId) -> Call<'_> {
        Call { op, ts: 1, tid: 7, addr, handle, size_bytes, library }
    }

    #[test]
    fn a_call_within_a_call_is_the_same_memory() {
        let mut process = Process::default();
        process.call(&call("cudaMalloc", 4096, 0, 100, 1));
        process.call(&call("cuMemAlloc", 4096, 0, 100, 2));
        process.call(&call("cuMemAlloc", 8192, 0, 50, 3));
        assert_eq!(process.sums().clone(), BTreeMap::from([(1, 100), (3, 50)]));
        assert_eq!(process.call(&call("cudaFree", 4096, 0, 0, 1)).ended.len(), 1);
        assert!(process.call(&call("cuMemFree", 4096, 0, 0, 2)).ended.is_empty());
        assert_eq!((process.total_bytes(), process.unknown_count), (50, 0));
        process.call(&call("cudaFree", 12345, 0, 0, 1));
        assert_eq!((process.total_bytes(), process.unknown_count), (50, 1));
    }

    #[test]
    fn mapped_memory_lives_until_it_is_released_and_unmapped() {
        let mut process = Process::default();
        process.call(&call("cuMemCreate", 77, 0, 100, 1));
        assert_eq!(process.total_bytes(), 100);
        process.call(&call("cuMemMap", 4096, 77, 100, 9));
        assert!(process.call(&call("cuMemRelease", 77, 0, 0, 9)).ended.is_empty());
        // The handle may be used again before the memory is gone.
        process.call(&call("cuMemCreate", 77, 0, 30, 1));
        assert_eq!(process.total_bytes(), 130);
        let outcome = process.call(&call("cuMemUnmap", 4096, 0, 100, 9));
        assert_eq!(outcome.ended[0].addr, 4096);
        assert_eq!(outcome.moved, Some((Move::Unmapped, 4096, 100, 1)));
        assert_eq!(process.total_bytes(), 30);
    }
}
