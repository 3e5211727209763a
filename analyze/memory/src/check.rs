//! Compares the final state of a replay with the state recorded in a snapshot.

use crate::{
    allocator::Allocator,
    event::PoolId,
    initial_state::SnapshotState,
    span::{Block, Segment, State},
    totals::DEFAULT_POOL,
};

/// A segment or block whose recorded state differs from the replayed one.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    #[serde(skip)]
    pub(super) is_of_segment: bool,
    /// The address of the segment or block.
    pub addr: u64,
    /// What the snapshot says, in words.
    pub said: String,
    /// What the replay makes of the events, in words.
    pub replayed: String,
}

const NOTHING: &str = "nothing";

/// Describes a segment. The events of most PyTorch versions do not tell pools, so the caller passes the pool
/// to show: a replayed default pool does not contradict the snapshot.
fn about(segment: &Segment, pool: PoolId) -> String {
    let size = if segment.is_small { "small" } else { "large" };
    let expandable = if segment.is_expandable { ", expandable" } else { "" };
    format!(
        "a segment of {} bytes, {size}{expandable}, stream {:#x}, pool {}.{}",
        segment.size_bytes, segment.stream, pool.0, pool.1
    )
}

fn about_block(block: &Block) -> String {
    let of = |bytes| format!(" for {bytes} asked for");
    let requested = block.requested_bytes.filter(|_| block.is_active()).map_or_else(String::new, of);
    format!("{} bytes {}{requested}", block.size_bytes, block.state.name())
}

/// Returns the differences: segments first, then blocks. Memory that is unknown to the replay is not a
/// difference.
pub(super) fn differences(allocator: &Allocator, held: &SnapshotState) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |is_of_segment, addr, said: Option<String>, replayed: Option<String>| {
        if said != replayed {
            let [said, replayed] = [said, replayed].map(|text| text.unwrap_or_else(|| NOTHING.to_owned()));
            found.push(Difference { is_of_segment, addr, said, replayed });
        }
    };
    let replayed = |addr: u64| allocator.segments_from(addr).next().filter(|segment| segment.addr == addr);
    for (addr, said) in &held.segments {
        let found = replayed(*addr);
        let pool = found.map(|found| found.pool).filter(|pool| *pool != DEFAULT_POOL).unwrap_or(said.pool);
        add(true, *addr, Some(about(said, said.pool)), found.map(|found| about(found, pool)));
    }
    for segment in allocator.segments().filter(|segment| !held.segments.contains_key(&segment.addr)) {
        add(true, segment.addr, None, Some(about(segment, segment.pool)));
    }
    for (addr, said) in &held.blocks {
        let overlapping = allocator.blocks_within(*addr, said.size_bytes);
        if overlapping.clone().any(|block| block.state == State::Unknown) {
            continue;
        }
        let found = overlapping.clone().find(|block| block.addr == *addr);
        add(false, *addr, Some(about_block(said)), found.map(about_block));
    }
    let extra = allocator.blocks().filter(|block| block.state != State::Unknown);
    for block in extra.filter(|block| !held.blocks.contains_key(&block.addr)) {
        add(false, block.addr, None, Some(about_block(block)));
    }
    found
}
