//! Infers whether the private pools of a program (`torch.cuda.MemPool`) split blocks. A pool made with
//! `no_split` allocates whole blocks, and no event says so. A pool splits if it allocates at an address that
//! is not the start of a segment or page, and does not split if it grows although it had room. A pool that
//! showed neither may be of either kind; the remainder behind its blocks is then unknown.
//!
//! The private pools that PyTorch makes for CUDA graphs always split; the first half of their ids is not 0.

use std::collections::BTreeMap;

use super::{
    allocator::Allocator,
    event::{Action, Event, PoolId},
    knowledge::{Knowledge, SplitPolicy},
    settings::Settings,
    span::State,
};

/// Returns whether a program made the pool itself, so that it may be one that does not split.
pub fn is_users(pool: PoolId) -> bool {
    pool.0 == 0 && pool.1 != 0
}

/// Collects the evidence from the events of one allocator.
pub struct SplitInference {
    /// A replay that assumes that all pools split.
    trial: Allocator,
    /// The pool that has just grown, and its largest free block in bytes before that.
    grown: Option<(PoolId, u64)>,
    split_policies: BTreeMap<PoolId, SplitPolicy>,
}

impl SplitInference {
    /// Creates a study of an allocator with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            trial: Allocator::new(settings, Knowledge::default()),
            grown: None,
            split_policies: BTreeMap::new(),
        }
    }

    /// Takes the next event, in order of time.
    pub fn event(&mut self, event: &Event) {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap
                if is_users(event.pool) && self.grown.is_none_or(|(pool, _)| pool != event.pool) =>
            {
                self.grown = Some((event.pool, self.room(event)));
            }
            Action::Alloc => self.alloc(event),
            _ => (),
        }
        self.trial.apply(event, &mut ());
    }

    fn alloc(&mut self, event: &Event) {
        let Some(segment) = self.trial.segment_at(event.addr).filter(|segment| is_users(segment.pool)) else {
            self.grown = None;
            return;
        };
        let rest = self.split_policies.entry(segment.pool).or_insert(SplitPolicy::NotKnown);
        let head = event.addr - segment.addr;
        let is_inside = match segment.is_expandable {
            true => !head.is_multiple_of(segment.page_bytes.max(1)),
            false => head > 0,
        };
        let asked = self.trial.settings().round(event.size_bytes);
        let had_room = self.grown.take().is_some_and(|(pool, room)| pool == segment.pool && asked <= room);
        if is_inside {
            *rest = SplitPolicy::Split;
        } else if had_room && *rest == SplitPolicy::NotKnown {
            *rest = SplitPolicy::Kept;
        }
    }

    /// Returns the size of the largest free block that can serve a request on the stream and pool of `event`.
    fn room(&self, event: &Event) -> u64 {
        let settings = self.trial.settings();
        let is_small = event.size_bytes <= super::settings::SMALL_SEGMENT_BYTES;
        let of = self.trial.segments().filter(|segment| {
            segment.pool == event.pool && segment.stream == event.stream && segment.is_small == is_small
        });
        let free = of.flat_map(|segment| self.trial.blocks_in(segment));
        let free = free.filter(|block| block.state == State::Inactive);
        free.map(|block| block.size_bytes).filter(|size| *size < settings.max_split_bytes).max().unwrap_or(0)
    }

    /// Returns the finding for each private pool that allocated.
    pub fn finish(self) -> BTreeMap<PoolId, SplitPolicy> {
        self.split_policies
    }
}
