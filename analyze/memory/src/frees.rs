//! What a thread freed before it asked its allocators to release memory: the blocks that it freed and the CUDA IPC handles
//! that it closed.
//!
//! ```text
//! alloc ─ free_requested … ─ empty_cache ─ free_requested … ─ ipc_collect
//!         └── before it ──┘                └── before it ──┘
//! ```
//! A window begins with the thread's last allocation, or after its last release. What was freed in a window is known only
//! if the record has the whole window: a process that was joined has no beginning of a thread's first window, and events
//! that were lost leave a gap.

use crate::{allocator::Allocator, decode::Key, event::Event, knowledge::Knowledge, span::State};
use analyze_run::hash::HashMap;

/// A thread, by run, process and its own number.
pub(crate) type Thread = (u32, u32, u32);

/// The blocks that a thread freed in one allocator since the beginning of its window.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The bytes of these blocks; `None` if the record does not tell.
    bytes: Option<u64>,
    /// The number of the allocator's events that had been lost when the window began.
    lost_count: u64,
}

impl Window {
    /// Begins a window of which nothing is on record yet; the record of a process that was joined may lack its
    /// beginning.
    fn first(knowledge: &Knowledge) -> Self {
        let bytes = (knowledge.has_blocks && !knowledge.begins_late).then_some(0);
        Self { bytes, lost_count: 0 }
    }
}

/// Returns the size in bytes of the block that an event frees; `None` if the replay does not know the block.
pub(crate) fn freed_bytes(allocator: &Allocator, event: &Event) -> Option<u64> {
    let block = allocator.block_at(event.addr).filter(|block| block.addr == event.addr);
    block.filter(|block| block.state == State::Active).map(|block| block.size_bytes)
}

/// The handles that a thread closed since the beginning of its window.
#[derive(Clone, Copy, Debug, Default)]
struct Handles {
    count: u64,
    /// Whether the beginning of the window is on record.
    has_beginning: bool,
}

/// The current windows of all threads.
#[derive(Debug, Default)]
pub(crate) struct Frees {
    blocks: HashMap<(Key, u32), Window>,
    handles: HashMap<Thread, Handles>,
    /// The address that a call of the CUDA runtime closed: the driver's call within it closes the same handle.
    within: HashMap<Thread, u64>,
}

impl Frees {
    /// Notes that a thread allocated a block, which begins a window.
    pub(crate) fn allocated(&mut self, key: Key, tid: u32, knowledge: &Knowledge) {
        let bytes = knowledge.has_blocks.then_some(0);
        self.blocks.insert((key, tid), Window { bytes, lost_count: knowledge.lost_count });
        self.released((key.run, key.pid, tid));
    }

    /// Notes that a thread frees a block of this size, in bytes.
    pub(crate) fn freed(&mut self, key: Key, tid: u32, knowledge: &Knowledge, bytes: Option<u64>) {
        let window = self.blocks.entry((key, tid)).or_insert_with(|| Window::first(knowledge));
        window.bytes = window.bytes.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
    }

    /// Returns whether a call that closed the handle of `addr` is one of its own: a call of the driver may be part of one
    /// of the runtime, which came first.
    pub(crate) fn is_own_close(&mut self, thread: Thread, addr: u64, is_driver: bool) -> bool {
        match is_driver {
            true => self.within.remove(&thread) != Some(addr),
            false => {
                self.within.insert(thread, addr);
                true
            }
        }
    }

    /// Notes that a thread closed a handle.
    pub(crate) fn closed(&mut self, thread: Thread) {
        self.handles.entry(thread).or_default().count += 1;
    }

    /// Returns the bytes that a thread freed in one allocator and the number of handles that it closed since its window
    /// began, each `None` if the record does not tell, and begins the next window of that allocator.
    pub(crate) fn take(&mut self, key: Key, tid: u32, knowledge: &Knowledge) -> (Option<u64>, Option<u64>) {
        let window = self.blocks.get(&(key, tid)).copied().unwrap_or_else(|| Window::first(knowledge));
        let bytes = window.bytes.filter(|_| window.lost_count == knowledge.lost_count);
        let next = Window { bytes: knowledge.has_blocks.then_some(0), lost_count: knowledge.lost_count };
        self.blocks.insert((key, tid), next);
        let handles = self.handles.get(&(key.run, key.pid, tid)).copied().unwrap_or_default();
        let has_handles =
            knowledge.records_closed_handles && (handles.has_beginning || !knowledge.begins_late);
        (bytes, has_handles.then_some(handles.count))
    }

    /// Begins the next window of the handles of a thread, after its releases in all allocators.
    pub(crate) fn released(&mut self, thread: Thread) {
        self.handles.insert(thread, Handles { count: 0, has_beginning: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { run: 0, pid: 7, device: 0 };
    const THREAD: Thread = (0, 7, 9);

    fn whole() -> Knowledge {
        Knowledge { records_closed_handles: true, ..Knowledge::default() }
    }

    #[test]
    fn a_window_is_what_was_freed_since_the_last_allocation_or_release() {
        let (mut frees, knowledge) = (Frees::default(), whole());
        frees.freed(KEY, 9, &knowledge, Some(100));
        frees.allocated(KEY, 9, &knowledge);
        frees.freed(KEY, 9, &knowledge, Some(20));
        frees.freed(KEY, 9, &knowledge, Some(3));
        // Another thread has a window of its own.
        frees.freed(KEY, 8, &knowledge, Some(4));
        frees.closed(THREAD);
        assert_eq!(frees.take(KEY, 9, &knowledge), (Some(23), Some(1)));
        frees.released(THREAD);
        assert_eq!(frees.take(KEY, 9, &knowledge), (Some(0), Some(0)));
        assert_eq!(frees.take(KEY, 8, &knowledge), (Some(4), Some(0)));
    }

    #[test]
    fn what_the_record_lacks_is_not_known() {
        let mut frees = Frees::default();
        let late = Knowledge { begins_late: true, ..whole() };
        frees.freed(KEY, 9, &late, Some(100));
        frees.closed(THREAD);
        assert_eq!(frees.take(KEY, 9, &late), (None, None), "the window began before the record");
        frees.released(THREAD);
        assert_eq!(frees.take(KEY, 9, &late), (Some(0), Some(0)));
        frees.freed(KEY, 9, &whole(), None);
        assert_eq!(frees.take(KEY, 9, &whole()).0, None, "a block of unknown size");
        let lossy = Knowledge { lost_count: 1, ..whole() };
        assert_eq!(frees.take(KEY, 9, &lossy).0, None, "events were lost in the window");
        assert_eq!(frees.take(KEY, 9, &lossy).0, Some(0));
        let segments = Knowledge { has_blocks: false, ..Knowledge::default() };
        assert_eq!(Frees::default().take(KEY, 9, &segments), (None, None), "neither is recorded");
    }

    #[test]
    fn a_call_of_the_driver_within_one_of_the_runtime_closes_the_same_handle() {
        let mut frees = Frees::default();
        assert!(frees.is_own_close(THREAD, 4096, false));
        assert!(!frees.is_own_close(THREAD, 4096, true));
        assert!(frees.is_own_close(THREAD, 4096, true), "the program calls the driver itself");
    }
}
