//! Tracks what one process has allocated from the driver, by the library that made the call.
//!
//! A call of libcudart makes one of libcuda, and both are recorded. The outer call comes first and tells the
//! library, so the inner call with the same address is the same allocation. Memory behind mapped addresses
//! (`cuMemCreate`) lives until it is both released and unmapped. Host memory does not belong to the device
//! and is not counted; nor is managed memory, which migrates.

use std::collections::{BTreeMap, HashMap};

/// The number of a library, assigned by the caller.
pub type LibraryId = u32;

/// The way in which memory was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Manner {
    /// The memory was allocated with cudaMalloc, cuMemAlloc or a similar function.
    Plain,
    /// The memory was allocated with cudaMallocAsync or a similar function, from a pool that the driver
    /// keeps.
    Pool,
    /// The memory was created with cuMemCreate, to be mapped.
    Mapped,
}

impl Manner {
    /// Returns the name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pool => "stream_ordered",
            Self::Mapped => "mapped",
        }
    }
}

/// One allocation from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its address; for mapped memory, the first address that it was mapped at, or 0 if it has not been
    /// mapped.
    pub addr: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The way in which it was allocated.
    pub manner: Manner,
    /// The library that allocated it.
    pub library: LibraryId,
    /// The time at which it was allocated (ns, trace clock).
    pub ts: i64,
    /// The thread that allocated it.
    pub tid: u32,
    /// The number of the call stack of the allocation, if one was taken.
    pub stack: Option<u32>,
}

/// Memory that cuMemCreate made, with the number of its mappings.
#[derive(Clone, Copy, Debug)]
struct Physical {
    piece: Piece,
    is_released: bool,
    mappings: u32,
}

/// What happened to the memory behind a reserved address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// cuMemMap placed memory behind it.
    Mapped,
    /// cuMemUnmap removed the memory.
    Unmapped,
}

/// The effect of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Allocations that ended.
    pub ended: Vec<Piece>,
    /// Addresses that were mapped or unmapped: the address, the size in bytes, and the library that allocated
    /// the memory.
    pub moved: Option<(Move, u64, u64, LibraryId)>,
}

/// One call that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The function's name, one of [`OPS`].
    pub op: &'a str,
    /// The time at which it was called (ns, trace clock).
    pub ts: i64,
    /// The calling thread.
    pub tid: u32,
    /// The address of the memory; for cuMemCreate and cuMemRelease, the handle.
    pub addr: u64,
    /// The handle that cuMemMap maps; 0 for other functions.
    pub handle: u64,
    /// The size in bytes; 0 if the function has none.
    pub size_bytes: u64,
    /// The library that made the call.
    pub library: LibraryId,
    /// The number of its call stack, if one was taken.
    pub stack: Option<u32>,
}

/// The driver allocations of one process.
#[derive(Debug, Default)]
pub struct Process {
    pieces: HashMap<u64, Piece>,
    physical: HashMap<u32, Physical>,
    handles: HashMap<u64, u32>,
    /// Mapped addresses with their size in bytes and the number of the memory behind them.
    mapped: BTreeMap<u64, (u64, u32)>,
    next: u32,
    sums: BTreeMap<LibraryId, i64>,
    /// The number of frees of memory whose allocation was not recorded.
    pub unknown_count: u64,
}

/// The functions that allocate, free or map device memory.
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
    /// Returns the allocated bytes by library.
    pub fn sums(&self) -> &BTreeMap<LibraryId, i64> {
        &self.sums
    }

    /// Returns the allocated bytes of all libraries.
    pub fn total_bytes(&self) -> i64 {
        self.sums.values().sum()
    }

    /// Returns every allocation that still exists, in no particular order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.pieces.values().copied().chain(self.physical.values().map(|physical| physical.piece))
    }

    /// Replays a call.
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
        let Call { addr, size_bytes, library, ts, tid, stack, .. } = *call;
        // Like cudaFree(NULL), an allocation with a null address does nothing.
        if addr == 0 {
            return Outcome::default();
        }
        let piece = Piece { addr, size_bytes, manner, library, ts, tid, stack };
        let mut outcome = Outcome::default();
        if let Some(known) = self.pieces.get(&addr).copied() {
            if call.op.starts_with("cu") && !call.op.starts_with("cuda") && known.tid == tid {
                return outcome;
            }
            // Its free was not recorded.
            self.add(&known, -1);
            outcome.ended.push(known);
        }
        self.add(&piece, 1);
        self.pieces.insert(addr, piece);
        outcome
    }

    fn give_back(&mut self, call: &Call<'_>) -> Outcome {
        let Some(piece) = self.pieces.remove(&call.addr) else {
            // The inner call of a pair finds nothing, because the outer one was replayed first.
            let is_inner = !call.op.starts_with("cuda");
            self.unknown_count += u64::from(call.addr != 0 && !is_inner);
            return Outcome::default();
        };
        self.add(&piece, -1);
        Outcome { ended: vec![piece], moved: None }
    }

    fn create(&mut self, call: &Call<'_>) -> Outcome {
        let Call { addr: handle, size_bytes, library, ts, tid, stack, .. } = *call;
        let piece = Piece { addr: 0, size_bytes, manner: Manner::Mapped, library, ts, tid, stack };
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
        Call { op, ts: 1, tid: 7, addr, handle, size_bytes, library, stack: None }
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
        // The handle may be reused before the memory is gone.
        process.call(&call("cuMemCreate", 77, 0, 30, 1));
        assert_eq!(process.total_bytes(), 130);
        let outcome = process.call(&call("cuMemUnmap", 4096, 0, 100, 9));
        assert_eq!(outcome.ended[0].addr, 4096);
        assert_eq!(outcome.moved, Some((Move::Unmapped, 4096, 100, 1)));
        assert_eq!(process.total_bytes(), 30);
    }
}
