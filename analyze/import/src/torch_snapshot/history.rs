//! Checks whether a device's events are its whole history: all memory that is freed in it, or in use at its
//! end, must have been allocated in it.

use std::collections::HashSet;

use crate::pickle::TextId;
use analyze_run::address_ranges::Ranges;

use super::keys;

/// The blocks and segments that a device's events have allocated and not freed so far.
#[derive(Default)]
pub(super) struct History {
    live: HashSet<u64>,
    segments: Ranges,
    events_count: u64,
    /// Number of frees, blocks and segments whose allocation is not among the events.
    unexplained_count: u64,
}

impl History {
    /// Takes an event: its action, and the address and the size in bytes of its memory.
    pub(super) fn event(&mut self, action: TextId, addr: u64, size: u64) {
        self.events_count += 1;
        let explained = match action {
            keys::ALLOC => {
                self.live.insert(addr);
                true
            }
            keys::FREE_COMPLETED => self.live.remove(&addr),
            keys::SEGMENT_ALLOC | keys::SEGMENT_MAP => {
                self.segments.insert(addr, size);
                true
            }
            keys::SEGMENT_FREE | keys::SEGMENT_UNMAP => self.segments.remove(addr, size).is_empty(),
            // Requested frees, snapshots and failures change nothing about who owns memory.
            keys::FREE_REQUESTED | keys::SNAPSHOT | keys::OOM => true,
            _ => true,
        };
        self.unexplained_count += u64::from(!explained);
    }

    /// Checks a segment of the final state, by its address and its size in bytes.
    pub(super) fn segment(&mut self, addr: u64, size: u64) {
        self.unexplained_count += u64::from(!self.segments.covers(addr, size));
    }

    /// Checks a block of the final state that is in use, by its address.
    pub(super) fn block(&mut self, addr: u64) {
        self.unexplained_count += u64::from(!self.live.contains(&addr));
    }

    /// Returns the number of blocks that are allocated and not freed.
    pub(super) fn live_count(&self) -> usize {
        self.live.len()
    }

    /// Returns the number of events.
    pub(super) fn events_count(&self) -> u64 {
        self.events_count
    }

    /// Returns how often memory is freed, or is there at the end, whose allocation is not among the events.
    pub(super) fn unexplained_count(&self) -> u64 {
        self.unexplained_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_from_the_start_explains_everything() {
        let mut history = History::default();
        history.event(keys::SEGMENT_ALLOC, 0, 100);
        history.event(keys::ALLOC, 0, 10);
        history.event(keys::FREE_REQUESTED, 0, 10);
        history.event(keys::FREE_COMPLETED, 0, 10);
        history.event(keys::ALLOC, 20, 10);
        history.segment(0, 100);
        history.block(20);
        assert_eq!((history.events_count(), history.unexplained_count()), (5, 0));
        history.event(keys::FREE_COMPLETED, 0, 10);
        history.event(keys::SEGMENT_FREE, 200, 10);
        history.block(40);
        history.segment(50, 100);
        assert_eq!(history.unexplained_count(), 4);
    }
}
