//! Changes of the program, as opposed to the allocator's settings.

use std::collections::HashMap;

use analyze_run::spans::Spans;

use crate::{
    event::{Event, PoolId},
    settings::Settings,
    totals::DEFAULT_POOL,
};

/// What the program does otherwise than on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The program does not call `empty_cache()`.
    pub no_empty_cache: bool,
    /// The times of additional calls of `empty_cache()` (ns, trace clock), in order.
    pub empty_cache_ts: Vec<i64>,
    /// The times (trace clock) during which a thread allocates from a pool of its own (`torch.cuda.MemPool`), by
    /// thread.
    pub pool_uses: HashMap<u32, Spans>,
}

/// The pool that serves requests during [`Changes::pool_uses`]; PyTorch's ids count from 0.
const ADDED_POOL: PoolId = (u64::MAX, u64::MAX);

impl Changes {
    /// Returns a request as it is made with the changes.
    pub(super) fn request(&self, event: &Event) -> Event {
        let is_used = self.pool_uses.get(&event.tid).is_some_and(|times| times.contains(event.ts));
        match is_used && event.pool == DEFAULT_POOL {
            true => Event { pool: ADDED_POOL, ..*event },
            false => *event,
        }
    }
}

/// An alternative to what the process had.
#[derive(Clone, Debug, Default)]
pub struct Alternative {
    /// The allocator's settings; `None` if they are as they were.
    pub settings: Option<Settings>,
    /// What the program does otherwise.
    pub changes: Changes,
}
