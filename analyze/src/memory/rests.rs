//! Whether the pools that a program makes itself (`torch.cuda.MemPool`) split blocks: those made with `no_split` hand out
//! whole ones, and no event says so. It shows when one grows though it had room, or hands out what is no start of a
//! segment or page; a pool that did neither may be either, and then the rest behind a block is not known.
//!
//! The pools of graphs that PyTorch makes split always; their ids have a first half.

use std::collections::BTreeMap;

use super::{
    allocator::{Allocator, Knowledge},
    event::{Action, Event, PoolId},
    settings::Settings,
    span::State,
};

/// What a pool does with the rest of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// It is split off.
    #[default]
    Split,
    /// It is handed out with the block.
    Kept,
    NotKnown,
}

/// Whether a pool may be one that does not split.
pub fn is_users(pool: PoolId) -> bool {
    pool.0 == 0 && pool.1 != 0
}

/// Collects what shows it.
pub struct Study {
    /// As if all pools split.
    trial: Allocator,
    /// The pool that has just grown, and the most that was free in it before.
    grown: Option<(PoolId, u64)>,
    rests: BTreeMap<PoolId, Rest>,
}

impl Study {
    /// Of an allocator with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { trial: Allocator::new(settings, Knowledge::default()), grown: None, rests: BTreeMap::new() }
    }

    /// Takes the next event.
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
        let rest = self.rests.entry(segment.pool).or_insert(Rest::NotKnown);
        let head = event.addr - segment.addr;
        let is_inside = match segment.is_expandable {
            true => !head.is_multiple_of(segment.page_bytes.max(1)),
            false => head > 0,
        };
        let asked = self.trial.settings().round(event.size_bytes);
        let had_room = self.grown.take().is_some_and(|(pool, room)| pool == segment.pool && asked <= room);
        if is_inside {
            *rest = Rest::Split;
        } else if had_room && *rest == Rest::NotKnown {
            *rest = Rest::Kept;
        }
    }

    /// The most that an allocation on the stream and pool of `event` finds.
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

    /// What the pools do.
    pub fn finish(self) -> BTreeMap<PoolId, Rest> {
        self.rests
    }
}
