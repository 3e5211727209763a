//! What the allocator releases, and for whom: private pools (`torch.cuda.MemPool`, CUDA graphs) keep their unused memory until
//! they are destroyed.
//!
//! ```text
//! empty_cache(), or a request that found no room          default pool and destroyed pools
//! empty_cache() while a program allocates from a pool     destroyed pools only (before PyTorch 2.13, and in CUDA graphs)
//! a request to such a pool that found no room             nothing (likewise)
//! the destructor of a pool                                this pool
//! ```

use super::{
    super::{event::PoolId, totals::DEFAULT_POOL},
    policy::{Policy, Space, Use},
};

/// The pools whose unused memory is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The default pool and all destroyed pools, after all pending frees have been completed.
    All,
    /// All destroyed pools.
    Destroyed,
    /// A private pool, which its destructor destroys.
    Pool(PoolId),
}

/// What a release would do: the number of frees that it completes and of free blocks that it releases, at least in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) completed_count: usize,
    pub(super) released_count: usize,
}

impl Policy {
    /// Returns the number of free blocks of a pool that are segments, or have whole pages of one.
    pub(super) fn releasable_of_pool(&self, pool: PoolId) -> usize {
        self.releasable.get(&pool).copied().unwrap_or_default()
    }

    /// Returns what a release would do now.
    pub(super) fn effect(&self, scope: Scope) -> Effect {
        let of_destroyed = || self.destroyed_pools.iter().map(|pool| self.releasable_of_pool(*pool)).sum();
        let is_of = |addr: &&u64, of: PoolId| {
            let block = self.blocks.get(addr);
            block.is_some_and(|block| self.spaces.get(block.space).is_some_and(|space| space.class.0 == of))
        };
        match scope {
            Scope::All => Effect {
                completed_count: self.pending.len(),
                released_count: self.releasable_of_pool(DEFAULT_POOL) + of_destroyed(),
            },
            Scope::Destroyed => Effect { completed_count: 0, released_count: of_destroyed() },
            Scope::Pool(pool) => Effect {
                completed_count: self.pending.iter().filter(|addr| is_of(addr, pool)).count(),
                released_count: self.releasable_of_pool(pool),
            },
        }
    }

    /// Returns what a release would do if a private pool had been destroyed.
    pub(super) fn effect_once_destroyed(&self, scope: Scope, pool: PoolId) -> Effect {
        let effect = self.effect(scope);
        let is_added = !matches!(scope, Scope::Pool(_)) && !self.is_destroyed(pool);
        let added_count = if is_added { self.releasable_of_pool(pool) } else { 0 };
        Effect { released_count: effect.released_count + added_count, ..effect }
    }

    /// Returns whether a release would do anything now.
    pub(super) fn can_release(&self, scope: Scope) -> bool {
        self.effect(scope) != Effect::default()
    }

    /// Returns whether `empty_cache()` would complete frees or release memory of the default pool.
    pub(super) fn has_releasable_by_default(&self) -> bool {
        !self.pending.is_empty() || self.releasable_of_pool(DEFAULT_POOL) > 0
    }

    /// Releases what is unused.
    pub(super) fn release_scope(&mut self, scope: Scope) {
        match scope {
            Scope::All => self.empty_cache(),
            Scope::Destroyed => self.release_destroyed(),
            Scope::Pool(pool) => {
                self.destroy_pool(pool);
                self.release_pool(pool);
            }
        }
    }

    /// Releases a segment if it is unused; returns whether it was.
    pub(super) fn release_segment(&mut self, addr: u64, size_bytes: u64) -> bool {
        let is_segment = self.blocks.get(&addr).is_some_and(|block| {
            let is_free = block.is == Use::Free && block.size_bytes == size_bytes;
            is_free && self.spaces.get(block.space).is_some_and(|space| space.size_bytes == size_bytes)
        });
        if is_segment {
            self.release(addr);
        }
        is_segment
    }

    /// Releases everything unused of the default pool and of destroyed pools, after all pending frees have been
    /// completed.
    pub fn empty_cache(&mut self) {
        for addr in std::mem::take(&mut self.pending) {
            self.pending.insert(addr);
            self.free_completed(addr);
        }
        self.release_pool(DEFAULT_POOL);
        self.release_destroyed();
    }

    fn release_destroyed(&mut self) {
        for pool in self.destroyed_pools.clone() {
            self.release_pool(pool);
        }
    }

    /// Releases everything unused of a pool.
    fn release_pool(&mut self, pool: PoolId) {
        let free = [true, false].into_iter().filter_map(|is_small| self.free.get(&(pool, is_small)));
        let free: Vec<u64> = free.flatten().map(|(.., addr)| *addr).collect();
        free.into_iter().for_each(|addr| self.release(addr));
    }

    /// Declares that nothing allocates from a private pool any more.
    pub(super) fn destroy_pool(&mut self, pool: PoolId) {
        self.destroyed_pools.insert(pool);
    }

    /// Returns whether a private pool has been destroyed.
    pub(super) fn is_destroyed(&self, pool: PoolId) -> bool {
        self.destroyed_pools.contains(&pool)
    }

    /// Returns whether a request to a pool may release unused memory of others.
    pub(super) fn releases_for(&self, pool: PoolId) -> bool {
        pool == DEFAULT_POOL || is_of_program(pool) && self.releases_in_pools
    }

    /// Returns whether the record leaves open if a request releases unused memory: where it finds no room, and its pool is
    /// a `torch.cuda.MemPool`, or the pool of a CUDA graph that the program made.
    pub(super) fn is_release_open(&self, bytes: u64, stream: u64, pool: PoolId) -> bool {
        let is_full = || self.needs_more_than(self.capacity_bytes.min(self.limit_bytes), bytes);
        let is_open = self.settings.may_release_in_pools && is_of_program(pool);
        is_open && is_full() && !self.has_room(bytes, stream, pool)
    }

    /// Counts a free block of a space, or no longer.
    pub(super) fn count_releasable(&mut self, space: &Space, is_added: bool) {
        let count = self.releasable.entry(space.class.0).or_default();
        *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
    }
}

/// Returns whether a pool was made by the program: a `torch.cuda.MemPool`, or `graph_pool_handle()`. The first half of the
/// ID of other private pools, which PyTorch makes for CUDA graphs, is not 0.
fn is_of_program(pool: PoolId) -> bool {
    pool != DEFAULT_POOL && pool.0 == 0
}
