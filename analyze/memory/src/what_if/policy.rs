//! The allocator's own decisions, as c10/cuda/CUDACachingAllocator.cpp makes them: which free block serves a
//! request, when memory is reserved, and what is released when the device is full. Of several blocks of the
//! same size the allocator takes the one at the lowest address (since PyTorch 2.13 that in the segment that was
//! reserved first), so addresses matter a little: a segment that
//! was also recorded gets its recorded address, and all others get higher addresses in the order in which
//! they are reserved. The driver may choose others in each process: after `Policy::shuffle` all are random.
//!
//! ```text
//! request ─► the smallest free block of its pool and stream that is large enough
//!         ─► newly reserved memory: a segment, or pages behind an expandable one, after segments that were
//!            unused for long were released (garbage_collection_threshold)
//!         ─► newly reserved memory, after large unused segments were released (max_split_size_mb)
//!         ─► newly reserved memory, after everything unused was released
//!         ─► out of memory
//! ```
//! Memory is newly reserved as far as the device has some and the process may (per_process_memory_fraction).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use analyze_run::random::Random;

use super::super::{
    event::PoolId,
    settings::{SMALL_BYTES, SMALL_SEGMENT_BYTES, Settings},
    totals::DEFAULT_POOL,
};

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Addresses of an expandable segment that have no memory.
    Unmapped,
    Free,
    Active,
    /// Freed by the program, and still used by other streams.
    Pending,
}

/// A block; the blocks of a space tile it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) size_bytes: u64,
    pub(super) is: Use,
    /// The number of its space.
    pub(super) space: usize,
    /// The number of requests to the default pool of large blocks until it became free.
    free_since: u64,
}

/// A pool, and whether it is the pool of small blocks.
type Class = (PoolId, bool);

/// The rank of a free block: its stream, its size in bytes, the age of its segment if that counts, and its address.
pub(super) type Rank = (u64, u64, usize, u64);

/// A segment, or the address range of an expandable one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) addr: u64,
    pub(super) size_bytes: u64,
    pub(super) stream: u64,
    pub(super) class: Class,
    /// The page size of an expandable segment in bytes; `None` for other segments.
    pub(super) page_bytes: Option<u64>,
}

/// Byte and event counts of the simulated allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reserved bytes.
    pub reserved_bytes: u64,
    /// The largest value that the reserved bytes have had.
    pub peak_reserved_bytes: u64,
    /// Bytes in allocated blocks.
    pub allocated_bytes: u64,
    /// Bytes in active blocks: allocated ones, and those that other streams still use.
    pub active_bytes: u64,
    /// The number of times that memory was reserved from the driver.
    pub asked_count: u64,
    /// The number of times that memory was released to the driver.
    pub given_back_count: u64,
    /// The number of times that everything unused was released because the device was full.
    pub retries_count: u64,
}

/// A simulation of the caching allocator; see the module documentation.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) settings: Settings,
    /// The largest number of bytes that the device has room for.
    pub(super) capacity_bytes: u64,
    /// The largest number of bytes that the process may reserve.
    pub(super) limit_bytes: u64,
    /// Unused segments are released early if more than this many bytes are reserved; `None` means never.
    pub(super) collects_over_bytes: Option<u64>,
    /// The number of requests to the default pool of large blocks.
    requests_count: u64,
    /// The size in bytes of an expandable segment's address range: the device's memory and an eighth.
    span_bytes: u64,
    pub(super) blocks: BTreeMap<u64, Block>,
    pub(super) spaces: Vec<Space>,
    /// The free blocks, in the order in which the allocator prefers them.
    pub(super) free: HashMap<Class, BTreeSet<Rank>>,
    /// Whether the allocator prefers blocks of older segments to those at lower addresses.
    pub(super) orders_by_age: bool,
    /// The unmapped blocks by stream and address.
    pub(super) unmapped: HashMap<Class, BTreeSet<(u64, u64)>>,
    pub(super) pending: BTreeSet<u64>,
    /// Private pools of the program that do not split blocks.
    whole_pools: HashSet<PoolId>,
    /// Private pools that nothing allocates from any more: what is unused of them is released with the default pool's.
    pub(super) destroyed_pools: BTreeSet<PoolId>,
    /// Whether requests to pools that the program made release unused memory if they find no room.
    pub(super) releases_in_pools: bool,
    next_addr: u64,
    /// The source of the addresses of segments, once they are random.
    pub(super) random: Option<Random>,
    /// The number of free blocks of each pool that are whole segments, or have whole pages of one.
    pub(super) releasable: HashMap<PoolId, usize>,
    /// Recorded segments that were reserved for the next request: address and size.
    seen: Vec<(u64, u64)>,
    /// The counts so far.
    pub counts: Counts,
}

/// The assumed size of the device's memory; only fragmentation of an address range could show that it is
/// wrong.
const DEVICE_BYTES: u64 = 80 << 30;

/// The only blocks that are released early.
const COLLECTED: Class = (DEFAULT_POOL, false);

/// The first address for segments that were not recorded, higher than any real one.
const FIRST_ADDR: u64 = 1 << 58;

/// Returns the part of a range of bytes that consists of whole pages; it may be empty.
fn whole_pages(offset: u64, bytes: u64, page_bytes: u64) -> Range<u64> {
    offset.next_multiple_of(page_bytes)..(offset + bytes) / page_bytes * page_bytes
}

impl Policy {
    /// Creates an allocator without segments. `capacity_bytes` limits the reserved bytes; `None` means no
    /// limit. `device_bytes` is the device's total memory; while it is not known, the process has no limit
    /// either.
    pub fn new(settings: Settings, capacity_bytes: Option<u64>, device_bytes: Option<u64>) -> Self {
        let share = |ratio: f64, bytes: u64| (ratio * bytes as f64) as u64;
        let limit = settings.memory_ratio.zip(device_bytes).map(|(ratio, bytes)| share(ratio, bytes));
        let threshold = settings.gc_threshold_ratio.zip(limit).map(|(ratio, limit)| share(ratio, limit));
        Self {
            releases_in_pools: settings.may_release_in_pools,
            orders_by_age: settings.orders_by_age == Some(true),
            settings,
            capacity_bytes: capacity_bytes.unwrap_or(u64::MAX),
            limit_bytes: limit.unwrap_or(u64::MAX),
            collects_over_bytes: threshold,
            requests_count: 0,
            span_bytes: DEVICE_BYTES + DEVICE_BYTES / 8,
            blocks: BTreeMap::new(),
            spaces: Vec::new(),
            free: HashMap::new(),
            unmapped: HashMap::new(),
            pending: BTreeSet::new(),
            whole_pools: HashSet::new(),
            destroyed_pools: BTreeSet::new(),
            next_addr: FIRST_ADDR,
            random: None,
            releasable: HashMap::new(),
            seen: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the largest number of bytes that the process may reserve; `None` means no limit.
    pub fn limit_bytes(&self) -> Option<u64> {
        (self.limit_bytes < u64::MAX).then_some(self.limit_bytes)
    }

    /// Declares that a pool does not split blocks.
    pub fn keep_whole(&mut self, pool: PoolId) {
        self.whole_pools.insert(pool);
    }

    /// Announces a segment that was reserved on record for the next request.
    pub fn see(&mut self, addr: u64, bytes: u64) {
        self.seen.push((addr, bytes));
    }

    /// Serves a request; returns the address of its block, or `None` if it is out of memory.
    pub fn alloc(&mut self, bytes: u64, stream: u64, pool: PoolId) -> Option<u64> {
        let found = self.serve(bytes, stream, pool);
        self.seen.clear();
        found
    }

    fn serve(&mut self, bytes: u64, stream: u64, pool: PoolId) -> Option<u64> {
        let size = self.settings.round(bytes);
        let class = (pool, size <= SMALL_BYTES);
        self.requests_count += u64::from(class == COLLECTED);
        let addr = self
            .best_fit(class, stream, size)
            .or_else(|| {
                self.collect();
                self.more(class, stream, size)
            })
            .or_else(|| self.release_large(class, stream, size).then(|| self.more(class, stream, size))?)
            .or_else(|| {
                self.releases_for(pool).then(|| {
                    self.counts.retries_count += 1;
                    self.empty_cache();
                    self.more(class, stream, size)
                })?
            })?;
        let found = self.remove_free(addr)?;
        let rest = found.size_bytes - size;
        let splits = self.settings.splits(size, rest, class.1, self.settings.expandable_segments);
        let taken = if splits && !self.whole_pools.contains(&pool) { size } else { found.size_bytes };
        if taken < found.size_bytes {
            self.insert_free(addr + taken, Block { size_bytes: found.size_bytes - taken, ..found });
        }
        self.blocks.insert(addr, Block { size_bytes: taken, is: Use::Active, ..found });
        self.counts.allocated_bytes += taken;
        self.counts.active_bytes += taken;
        Some(addr)
    }

    /// Frees a block that other streams may still use.
    pub fn free_requested(&mut self, addr: u64) {
        if let Some(block) = self.blocks.get_mut(&addr).filter(|block| block.is == Use::Active) {
            block.is = Use::Pending;
            self.counts.allocated_bytes -= block.size_bytes;
            self.pending.insert(addr);
        }
    }

    /// Completes the free of a block: nothing uses it any more.
    pub fn free_completed(&mut self, addr: u64) {
        self.free_requested(addr);
        if self.pending.remove(&addr)
            && let Some(block) = self.blocks.remove(&addr)
        {
            self.counts.active_bytes -= block.size_bytes;
            self.join(addr, Block { is: Use::Free, ..block });
        }
    }

    fn neighbour(&self, addr: u64, space: usize, is_after: bool) -> Option<(u64, Block)> {
        let (addr, block) = match is_after {
            true => self.blocks.range(addr + 1..).next()?,
            false => self.blocks.range(..addr).next_back()?,
        };
        (block.space == space).then_some((*addr, *block))
    }

    /// Returns whether a release of its pool would release a block if it were free, or pages of it.
    fn is_releasable(&self, addr: u64, block: &Block) -> bool {
        let space = &self.spaces[block.space];
        match space.page_bytes {
            None => block.size_bytes == space.size_bytes,
            Some(page) => !whole_pages(addr - space.addr, block.size_bytes, page).is_empty(),
        }
    }

    fn insert_free(&mut self, addr: u64, block: Block) {
        let space = self.spaces[block.space];
        if self.is_releasable(addr, &block) {
            self.count_releasable(&space, true);
        }
        let rank = self.rank(addr, &block);
        self.free.entry(space.class).or_default().insert(rank);
        self.blocks.insert(addr, Block { is: Use::Free, free_since: self.requests_count, ..block });
    }

    fn remove_free(&mut self, addr: u64) -> Option<Block> {
        let block = self.blocks.remove(&addr)?;
        let space = self.spaces[block.space];
        if self.is_releasable(addr, &block) {
            self.count_releasable(&space, false);
        }
        let rank = self.rank(addr, &block);
        self.free.entry(space.class).or_default().remove(&rank);
        Some(block)
    }

    fn insert_unmapped(&mut self, addr: u64, block: Block) {
        let space = &self.spaces[block.space];
        self.unmapped.entry(space.class).or_default().insert((space.stream, addr));
        self.blocks.insert(addr, Block { is: Use::Unmapped, ..block });
    }

    fn remove_unmapped(&mut self, addr: u64) -> Option<Block> {
        let block = self.blocks.remove(&addr)?;
        let space = &self.spaces[block.space];
        self.unmapped.entry(space.class).or_default().remove(&(space.stream, addr));
        Some(block)
    }

    /// Inserts a free or unmapped block, merged with its neighbours of the same kind, and returns the start
    /// of the merged block.
    fn join(&mut self, mut addr: u64, mut block: Block) -> u64 {
        let is_same = |other: &(u64, Block)| other.1.is == block.is;
        let beside =
            [false, true].map(|is_after| self.neighbour(addr, block.space, is_after).filter(is_same));
        for (other, _) in beside.into_iter().flatten() {
            let taken = match block.is {
                Use::Unmapped => self.remove_unmapped(other),
                _ => self.remove_free(other),
            };
            block.size_bytes += taken.map_or(0, |taken| taken.size_bytes);
            addr = addr.min(other);
        }
        match block.is {
            Use::Unmapped => self.insert_unmapped(addr, block),
            _ => self.insert_free(addr, block),
        }
        addr
    }

    /// Returns the free block that serves a request.
    pub(super) fn best_fit(&self, class: Class, stream: u64, size: u64) -> Option<u64> {
        let mut fitting = self
            .free
            .get(&class)?
            .range((stream, size, 0, 0)..)
            .take_while(|(of, ..)| *of == stream)
            .map(|(_, size, _, addr)| (*size, *addr));
        let (mut found_size, mut found) = fitting.next()?;
        if self.settings.expandable_segments {
            // A block that can grow counts as large as it can become.
            let reach = |(size, addr): (u64, u64)| {
                let next = self.neighbour(addr, self.blocks.get(&addr)?.space, true);
                let room = next.filter(|(_, next)| next.is == Use::Unmapped);
                Some(size + room.map_or(0, |(_, next)| next.size_bytes))
            };
            let mut best = reach((found_size, found))?;
            for next in fitting {
                match reach(next) {
                    Some(reached) if reached < best => (best, (found_size, found)) = (reached, next),
                    _ => break,
                }
            }
        }
        let most = match size < self.settings.max_split_bytes {
            true => self.settings.max_split_bytes,
            false => size.saturating_add(self.settings.max_rounding_bytes),
        };
        (found_size < most).then_some(found)
    }

    /// Reserves memory for a request, and returns the free block in it.
    fn more(&mut self, class: Class, stream: u64, size: u64) -> Option<u64> {
        let bytes = self.settings.segment_bytes(size);
        // PyTorch compares the size of a segment, even where an expandable one grows by less.
        if self.counts.reserved_bytes.saturating_add(bytes) > self.limit_bytes {
            return None;
        }
        if self.settings.expandable_segments {
            return self.expand(class, stream, size);
        }
        self.ask(bytes)?;
        let (addr, space) = self.space(class, stream, bytes, None);
        self.insert_free(addr, Block { size_bytes: bytes, is: Use::Free, space, free_since: 0 });
        Some(addr)
    }

    /// Reserves bytes; returns `None` if that exceeds the capacity.
    fn ask(&mut self, bytes: u64) -> Option<()> {
        let reserved = self.counts.reserved_bytes.checked_add(bytes)?;
        if reserved > self.capacity_bytes {
            return None;
        }
        self.counts.reserved_bytes = reserved;
        self.counts.peak_reserved_bytes = self.counts.peak_reserved_bytes.max(reserved);
        self.counts.asked_count += 1;
        Some(())
    }

    fn space(&mut self, class: Class, stream: u64, bytes: u64, page_bytes: Option<u64>) -> (u64, usize) {
        let seen = self.seen.iter().find(|(addr, size)| *size == bytes && self.is_unused(*addr, bytes));
        let addr = match seen.filter(|_| page_bytes.is_none() && self.random.is_none()) {
            Some((addr, _)) => *addr,
            None => self.new_addr(bytes),
        };
        self.spaces.push(Space { addr, size_bytes: bytes, stream, class, page_bytes });
        (addr, self.spaces.len() - 1)
    }

    /// Returns an address for a segment that was not recorded.
    pub(super) fn new_addr(&mut self, bytes: u64) -> u64 {
        // What exists is a small part of the addresses, so that nearly every draw is good.
        for _ in 0..64 {
            let Some(random) = &mut self.random else { break };
            let addr = random.below(1 << 41) as u64 * SMALL_SEGMENT_BYTES;
            if self.is_unused(addr, bytes) {
                return addr;
            }
        }
        let next = self.next_addr.saturating_add(bytes.next_multiple_of(SMALL_SEGMENT_BYTES));
        std::mem::replace(&mut self.next_addr, next)
    }

    fn is_unused(&self, addr: u64, bytes: u64) -> bool {
        let before = self.blocks.range(..addr.saturating_add(bytes)).next_back();
        before.is_none_or(|(start, block)| start + block.size_bytes <= addr)
    }

    /// Returns where an expandable segment has enough adjacent free memory and unmapped addresses for a
    /// request.
    fn room(&self, class: Class, stream: u64, size: u64) -> Option<u64> {
        let unmapped = self.unmapped.get(&class)?.range((stream, 0)..);
        for (_, addr) in unmapped.take_while(|(of, _)| *of == stream) {
            let space = self.blocks.get(addr)?.space;
            let before = self.neighbour(*addr, space, false).filter(|(_, block)| block.is == Use::Free);
            let start = before.map_or(*addr, |(addr, _)| addr);
            let from = self.blocks.range(start..).map(|(_, block)| block);
            let usable = from
                .take_while(|block| block.space == space && matches!(block.is, Use::Free | Use::Unmapped));
            let mut bytes = 0_u64;
            if usable.map(|block| block.size_bytes).any(|more| {
                bytes = bytes.saturating_add(more);
                bytes >= size
            }) {
                return Some(start);
            }
        }
        None
    }

    fn expand(&mut self, class: Class, stream: u64, size: u64) -> Option<u64> {
        let start = match self.room(class, stream, size) {
            Some(start) => start,
            None => {
                let page = if class.1 { SMALL_SEGMENT_BYTES } else { self.settings.large_segment_bytes };
                let bytes = self.span_bytes.max(size).checked_next_multiple_of(page)?;
                let (addr, space) = self.space(class, stream, bytes, Some(page));
                let block = Block { size_bytes: bytes, is: Use::Unmapped, space, free_since: 0 };
                self.insert_unmapped(addr, block);
                addr
            }
        };
        let mut at = start;
        let mut block = *self.blocks.get(&at)?;
        if block.is == Use::Unmapped {
            at = self.map(at, block.size_bytes.min(size))?;
            block = *self.blocks.get(&at)?;
        }
        while block.size_bytes < size {
            let (next, of) = self.neighbour(at, block.space, true)?;
            at = self.map(next, of.size_bytes.min(size - block.size_bytes))?;
            block = *self.blocks.get(&at)?;
        }
        Some(at)
    }

    /// Maps the pages that contain the first bytes of an unmapped block, and returns the free block that then
    /// contains them.
    fn map(&mut self, addr: u64, bytes: u64) -> Option<u64> {
        let block = *self.blocks.get(&addr)?;
        let space = self.spaces[block.space];
        let offset = addr - space.addr;
        let end = (offset + bytes).next_multiple_of(space.page_bytes?);
        let mapped = (end - offset).min(block.size_bytes);
        self.ask(mapped)?;
        self.remove_unmapped(addr);
        if mapped < block.size_bytes {
            self.insert_unmapped(addr + mapped, Block { size_bytes: block.size_bytes - mapped, ..block });
        }
        Some(self.join(addr, Block { size_bytes: mapped, is: Use::Free, ..block }))
    }

    /// Releases a free block if it is a whole segment, or the whole pages in it if the segment is expandable.
    pub(super) fn release(&mut self, addr: u64) {
        let Some(block) = self.blocks.get(&addr).copied().filter(|block| block.is == Use::Free) else {
            return;
        };
        let space = self.spaces[block.space];
        let Some(page) = space.page_bytes else {
            if block.size_bytes == space.size_bytes {
                self.remove_free(addr);
                self.counts.reserved_bytes -= block.size_bytes;
                self.counts.given_back_count += 1;
            }
            return;
        };
        let pages = whole_pages(addr - space.addr, block.size_bytes, page);
        if pages.is_empty() {
            return;
        }
        let (first, last) = (space.addr + pages.start, space.addr + pages.end);
        let end = addr + block.size_bytes;
        self.remove_free(addr);
        for (from, to) in [(addr, first), (last, end)].into_iter().filter(|(from, to)| from < to) {
            self.insert_free(from, Block { size_bytes: to - from, ..block });
        }
        self.counts.reserved_bytes -= last - first;
        self.counts.given_back_count += 1;
        let at = self.join(first, Block { size_bytes: last - first, is: Use::Unmapped, ..block });
        if self.blocks.get(&at).is_some_and(|block| block.size_bytes == space.size_bytes) {
            self.remove_unmapped(at);
        }
    }

    /// Releases unused segments if more than the threshold is reserved: all that have been unused for at
    /// least as many requests as they were on average, and so on with the others until enough is released.
    fn collect(&mut self) {
        let Some(threshold) = self.collects_over_bytes else { return };
        let unused = self.free.get(&COLLECTED).into_iter().flatten().filter_map(|(_, size, _, addr)| {
            let block = self.blocks.get(addr)?;
            let space = &self.spaces[block.space];
            let is_whole = space.page_bytes.is_none() && space.size_bytes == *size;
            is_whole.then_some((*addr, self.requests_count - block.free_since))
        });
        let mut unused: Vec<(u64, u64)> = unused.collect();
        while self.counts.reserved_bytes > threshold && !unused.is_empty() {
            let sum: u64 = unused.iter().map(|(_, age)| *age).sum();
            let average = sum as f64 / unused.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) =
                unused.into_iter().partition(|(_, age)| *age as f64 >= average);
            old.into_iter().for_each(|(addr, _)| self.release(addr));
            unused = young;
        }
    }

    /// Releases blocks that are too large to be split, to make room for a request; returns whether there may
    /// be room now.
    fn release_large(&mut self, class: Class, stream: u64, size: u64) -> bool {
        let limit = self.settings.max_split_bytes;
        if limit == u64::MAX {
            return false;
        }
        let wanted = size.max(limit);
        let Some(free) = self.free.get(&class) else { return false };
        // Pages of expandable segments are not released.
        let is_released = |addr: u64| {
            let block = self.blocks.get(&addr);
            block.is_some_and(|block| self.spaces[block.space].page_bytes.is_none())
        };
        let next = free.range((stream, wanted, 0, 0)..).next();
        let single = next.filter(|(of, _, _, addr)| *of == stream && is_released(*addr));
        if let Some((.., addr)) = single.copied() {
            self.release(addr);
            return true;
        }
        let smaller = free.range(..(stream, wanted, 0, 0)).rev();
        let smaller = smaller.take_while(|(of, size, ..)| *of == stream && *size >= limit);
        let mut total = 0;
        let mut chosen = Vec::new();
        for (_, size, _, addr) in smaller {
            if total >= wanted {
                break;
            }
            if is_released(*addr) {
                total += size;
                chosen.push(*addr);
            }
        }
        chosen.into_iter().for_each(|addr| self.release(addr));
        total >= wanted
    }
}

#[cfg(test)]
mod tests;
