//! Memory at an instant, by the stack that allocated it.

use std::sync::Arc;

use super::stacks::{Folded, Names, What};
use crate::{
    questions::memory::state::{self, At},
    trace::Trace,
};
use analyze_memory::{
    input::{Input, Key, Listener, Replay},
    span::{Block, State},
    totals::releasable_bytes,
};
use analyze_run::error::AnalyzeError;

/// Frame for pinned bytes that no recorded block holds.
const NOBODY: &str = "no block on record";

struct Watch {
    what: What,
    names: Arc<Names>,
    folded: Folded,
    unknown_bytes: i64,
    lost_count: u64,
}

impl Watch {
    fn add(&mut self, key: Key, block: Option<&Block>, bytes: u64) {
        let device = [self.names.process(key.pid), format!("GPU {}", key.device)];
        let who = block.map_or_else(|| NOBODY.to_owned(), |block| self.names.thread(key.pid, block.tid));
        let stack = block.map_or(&[][..], |block| self.names.stack(key.pid, block.stack));
        self.folded.add(device.iter().chain([&who]).chain(stack).map(String::as_str), bytes);
    }
}

impl Listener for Watch {
    fn instant(&mut self, _run: u32, _instant: usize, replay: &Replay) {
        for (key, allocator) in replay.allocators() {
            self.unknown_bytes += allocator.totals().unknown_bytes;
            self.lost_count += allocator.knowledge().lost_count;
            if self.what == What::AllocatedBytes {
                for block in allocator.blocks().filter(|block| block.state == State::Active) {
                    self.add(key, Some(block), block.size_bytes);
                }
                continue;
            }
            for segment in allocator.segments() {
                let free = allocator.blocks_in(segment).filter(|block| block.state == State::Inactive);
                let pinned: u64 = free.map(|block| block.size_bytes - releasable_bytes(block, segment)).sum();
                let in_use: Vec<&Block> =
                    allocator.blocks_in(segment).filter(|block| block.is_active()).collect();
                if in_use.is_empty() {
                    self.add(key, None, pinned);
                }
                let count = in_use.len() as u64;
                for (number, block) in (0..).zip(in_use) {
                    self.add(key, Some(block), pinned / count + u64::from(number < pinned % count));
                }
            }
        }
    }
}

/// Sums up the memory at an instant.
///
/// # Errors
/// Returns an error if the instant does not exist, or if the data cannot be read.
pub(super) async fn run(
    trace: &Trace,
    what: What,
    at: &At,
    names: Arc<Names>,
) -> Result<Folded, AnalyzeError> {
    let start_ns = trace.files().first().map_or(0, |file| file.run.clock.start_ns);
    let (ts, _) = state::instant(trace, at, start_ns).await?;
    let watch = Watch { what, names, folded: Folded::default(), unknown_bytes: 0, lost_count: 0 };
    let input = Input::new(trace.events(), trace.files());
    let (_, watch) = input.replay(vec![vec![ts]], watch).await?;
    let mut folded = watch.folded;
    let unknown_bytes = u64::try_from(watch.unknown_bytes).unwrap_or_default();
    folded.note(unknown_bytes, "bytes more: not known whether they were in use");
    folded.note(watch.lost_count, "events of allocators were lost until then");
    Ok(folded)
}
