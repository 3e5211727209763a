//! Converts the final state, `segments`, to rows: every segment, followed by its blocks, all at the time of
//! the snapshot.

use trace_schema::{Kind, Row, Text};

use crate::pickle::{PickleError, Shape, Store, TextId, Value};

use super::{
    events::Events,
    fields::{field, pool, required, signed, stream, text, unsigned},
    keys,
};

/// A state of blocks for which PyTorch's documentation and its program have different names: the name that is
/// replaced, and the name in rows.
const RENAMED: (&str, &str) = ("active_awaiting_free", "active_pending_free");
/// The state of a free block.
const INACTIVE: &str = "inactive";

/// Facts about a segment that hold for its blocks, too.
struct Segment {
    device: usize,
    number: i32,
    stream: Option<u64>,
    next_address: u64,
}

/// Writes the rows of all segments at the time `ts` in ns, and returns the number of segments.
pub(super) fn write(
    events: &mut Events,
    store: &mut Store,
    segments: Value,
    ts: i64,
) -> Result<usize, PickleError> {
    let (id, _) = store.values(segments, Shape::List, "`segments`", 0)?;
    let offset = store.offset(id);
    let segments = store.take(id);
    for segment in &segments {
        write_segment(events, store, *segment, ts, offset)?;
    }
    let count = segments.len();
    store.finish(id, segments, None);
    Ok(count)
}

fn write_segment(
    events: &mut Events,
    store: &mut Store,
    segment: Value,
    ts: i64,
    near: u64,
) -> Result<(), PickleError> {
    let (id, _) = store.values(segment, Shape::Dict, "a segment", near)?;
    let offset = store.offset(id);
    let pairs = store.take(id);
    let what = "the segment";
    let address = unsigned(required(&pairs, keys::ADDRESS, what, offset)?, "address", offset)?;
    let size = signed(required(&pairs, keys::TOTAL_SIZE, what, offset)?, "total_size", offset)?;
    let device = unsigned(required(&pairs, keys::DEVICE, what, offset)?, "device", offset)?;
    let device = usize::try_from(device).unwrap_or(usize::MAX);
    let stream = field(&pairs, keys::STREAM).map_or(Ok(None), |value| stream(value, offset))?;
    let pool = field(&pairs, keys::SEGMENT_POOL_ID)
        .map_or(Ok(Default::default()), |value| pool(value, store, offset))?;
    let class = field(&pairs, keys::SEGMENT_TYPE).map(|value| text(value, "segment_type", offset));
    let mut detail = class.transpose()?.map(|class| store.word(class).to_string()).unwrap_or_default();
    if field(&pairs, keys::IS_EXPANDABLE) == Some(Value::Bool(true)) {
        detail += if detail.is_empty() { "expandable" } else { ",expandable" };
    }
    events.device(device, offset)?.history.segment(address, size as u64);
    let number = i32::try_from(device).unwrap_or(i32::MAX);
    let stack = events.stack(ts, field(&pairs, keys::FRAMES), offset)?;
    events.recorder.push(&Row {
        addr: Some(address),
        size_bytes: Some(size),
        stream,
        device: Some(number),
        pool_owner: pool.owner,
        pool_id: pool.id,
        detail: Some(detail.into()).filter(|detail: &Text| !detail.is_empty()),
        stack,
        ..Row::new(ts, Kind::Alloc, "state_segment".into(), 0, 0)
    })?;
    let mut segment = Segment { device, number, stream, next_address: address };
    let blocks = required(&pairs, keys::BLOCKS, what, offset)?;
    store.finish(id, pairs, None);
    let (id, _) = store.values(blocks, Shape::List, "`blocks` of a segment", offset)?;
    let blocks = store.take(id);
    for block in &blocks {
        write_block(events, store, *block, &mut segment, ts, offset)?;
    }
    store.finish(id, blocks, None);
    Ok(())
}

fn write_block(
    events: &mut Events,
    store: &mut Store,
    block: Value,
    segment: &mut Segment,
    ts: i64,
    near: u64,
) -> Result<(), PickleError> {
    let (id, _) = store.values(block, Shape::Dict, "a block", near)?;
    let offset = store.offset(id);
    let pairs = store.take(id);
    let size = signed(required(&pairs, keys::SIZE, "the block", offset)?, "size", offset)?;
    // Early versions state no address: the blocks of a segment follow each other without gaps.
    let address = field(&pairs, keys::ADDRESS)
        .map_or(Ok(segment.next_address), |value| unsigned(value, "address", offset))?;
    segment.next_address = address.saturating_add(size as u64);
    let state = state(required(&pairs, keys::STATE, "the block", offset)?, store, offset)?;
    let latest = latest(&pairs, store);
    let requested = field(&pairs, keys::REQUESTED_SIZE).or(latest.and_then(|(size, _)| size));
    let requested = requested.map(|value| signed(value, "requested_size", offset)).transpose()?;
    let frames = field(&pairs, keys::FRAMES).or(latest.and_then(|(_, frames)| frames));
    if *state != *INACTIVE {
        events.device(segment.device, offset)?.history.block(address);
    }
    let stack = events.stack(ts, frames, offset)?;
    events.recorder.push(&Row {
        addr: Some(address),
        size_bytes: requested,
        value: Some(size),
        stream: segment.stream,
        device: Some(segment.number),
        detail: Some(state),
        stack,
        ..Row::new(ts, Kind::Alloc, "state_block".into(), 0, 0)
    })?;
    store.finish(id, pairs, None);
    Ok(())
}

fn state(value: Value, store: &Store, offset: u64) -> Result<Text, PickleError> {
    let state: TextId = text(value, "state", offset)?;
    let word = store.word(state);
    Ok(if **word == *RENAMED.0 { Text::Static(RENAMED.1) } else { Text::Shared(word.clone()) })
}

/// Returns the requested size and the frames of a block's latest allocation, as early versions state them.
fn latest(pairs: &[Value], store: &Store) -> Option<(Option<Value>, Option<Value>)> {
    let (_, history) = store.values(field(pairs, keys::HISTORY)?, Shape::List, "history", 0).ok()?;
    let (_, latest) = store.values(*history.first()?, Shape::Dict, "history", 0).ok()?;
    Some((field(latest, keys::REAL_SIZE), field(latest, keys::FRAMES)))
}
