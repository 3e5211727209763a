//! Converts the entries of `device_traces` to rows while they are read.
//!
//! Times are whole microseconds, and the order of entries within one microsecond matters: each entry gets a
//! time that is later than that of the entry before it in its trace, by a nanosecond if need be.

use trace_schema::{Kind, Row, TIME_LIMIT_NS, Text};
use trace_writer::Recorder;

use crate::{
    limits::LIVE_BLOCKS_COUNT,
    pickle::{Consumer, PickleError, Shape, Store, TextId, Value},
};

use super::{
    fields::{Pool, pool, signed, stream, text, unsigned},
    history::History,
    keys,
    stacks::Stacks,
};

/// Size in bytes of the texts that may wait in the recorder's memory to be written.
const WAITING_BYTES: usize = 16 << 20;

/// A range of consecutive events that carry the same user metadata.
struct Note {
    text: TextId,
    from_ns: i64,
    to_ns: i64,
}

/// The state of one device's trace.
#[derive(Default)]
pub(super) struct Device {
    last_ns: Option<i64>,
    note: Option<Note>,
    /// The memory that the events have allocated and freed.
    pub(super) history: History,
}

/// Converts entries to rows and writes them to the recording.
pub(super) struct Events {
    /// The recording that rows are written to.
    pub(super) recorder: Recorder,
    /// The call stacks that were read.
    pub(super) stacks: Stacks,
    /// The state of each device's trace, by the device's number.
    pub(super) devices: Vec<Device>,
    /// Time of the earliest entry of all devices, in ns.
    pub(super) first_ns: Option<i64>,
    /// Time of the latest entry of all devices, in ns.
    pub(super) last_ns: Option<i64>,
    /// Number of entries whose time is earlier than that of the entry before them.
    pub(super) backward_count: u64,
    /// Number of entries without a time.
    pub(super) timeless_count: u64,
    waiting_bytes: usize,
}

/// Largest number of devices that a snapshot may have; no machine has that many.
pub(super) const DEVICES: usize = 1024;

/// The fields of an entry, before their types are checked.
#[derive(Default)]
struct Entry {
    action: Option<Value>,
    addr: Option<Value>,
    size: Option<Value>,
    stream: Option<Value>,
    time_us: Option<Value>,
    frames: Option<Value>,
    note: Option<Value>,
    pool: Option<Value>,
}

impl Entry {
    fn new(pairs: &[Value]) -> Self {
        let mut entry = Self::default();
        for pair in pairs.chunks_exact(2) {
            let Value::Text(key) = pair[0] else {
                continue;
            };
            let field = match key {
                keys::ACTION => &mut entry.action,
                keys::ADDR | keys::DEVICE_FREE => &mut entry.addr,
                keys::SIZE => &mut entry.size,
                keys::STREAM => &mut entry.stream,
                keys::TIME_US => &mut entry.time_us,
                keys::FRAMES => &mut entry.frames,
                keys::USER_METADATA => &mut entry.note,
                keys::POOL_ID | keys::MEMPOOL_ID | keys::SEGMENT_POOL_ID => &mut entry.pool,
                _ => continue,
            };
            *field = Some(pair[1]);
        }
        entry
    }
}

/// Returns the row that spells out the stack `number` as text.
pub(super) fn stack_row(ts: i64, number: u32, frames: Text) -> Row {
    Row { stack: Some(number), detail: Some(frames), ..Row::new(ts, Kind::Name, "stack".into(), 0, 0) }
}

/// Returns the row of a mark: a point or range that the program has named, with its duration in ns if it has
/// one.
pub(super) fn mark_row(ts: i64, dur: Option<i64>, op: &'static str, name: Text) -> Row {
    Row { dur, detail: Some(name), ..Row::new(ts, Kind::Mark, op.into(), 0, 0) }
}

impl Events {
    /// Creates a converter that writes to `recorder`.
    pub(super) fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            stacks: Stacks::default(),
            devices: Vec::new(),
            first_ns: None,
            last_ns: None,
            backward_count: 0,
            timeless_count: 0,
            waiting_bytes: 0,
        }
    }

    /// Returns the state of a device's trace. Errs at byte `offset` if the device's number is implausible.
    pub(super) fn device(&mut self, index: usize, offset: u64) -> Result<&mut Device, PickleError> {
        if index >= DEVICES {
            return Err(PickleError::at(
                offset,
                format!("it has a device {index}: no machine has that many"),
            ));
        }
        if self.devices.len() <= index {
            self.devices.resize_with(index + 1, Device::default);
        }
        Ok(&mut self.devices[index])
    }

    /// Returns the time of an entry in ns, which is later than that of the entry before it.
    fn time(&mut self, device: usize, time_us: Option<Value>, offset: u64) -> Result<i64, PickleError> {
        let last = self.device(device, offset)?.last_ns;
        let next = last.map_or(0, |last| last.saturating_add(1));
        let ts = match time_us {
            None => {
                self.timeless_count += 1;
                next
            }
            Some(time_us) => {
                let time_us = signed(time_us, "time_us", offset)?;
                // The limit leaves room for the times of the entries that follow.
                let own = time_us.checked_mul(1000).filter(|ts| *ts < TIME_LIMIT_NS - (1 << 40)).ok_or_else(
                    || PickleError::at(offset, format!("`time_us` of what begins here is {time_us}")),
                )?;
                self.backward_count += u64::from(last.is_some_and(|last| own / 1000 < last / 1000));
                own.max(next)
            }
        };
        self.device(device, offset)?.last_ns = Some(ts);
        self.first_ns = Some(self.first_ns.map_or(ts, |first| first.min(ts)));
        self.last_ns = Some(self.last_ns.map_or(ts, |last| last.max(ts)));
        Ok(ts)
    }

    /// Returns the number of a stack. A stack that is new is written as a row first.
    pub(super) fn stack(
        &mut self,
        ts: i64,
        frames: Option<Value>,
        offset: u64,
    ) -> Result<Option<u32>, PickleError> {
        let Some((number, text)) = self.stacks.look_up(frames, offset)? else {
            return Ok(None);
        };
        if let Some(text) = text {
            self.waiting_bytes += text.len();
            self.recorder.push(&stack_row(ts, number, text))?;
            if self.waiting_bytes > WAITING_BYTES {
                self.waiting_bytes = 0;
                self.recorder.flush()?;
            }
        }
        Ok(Some(number))
    }

    /// Follows the user metadata of entries: consecutive entries with the same text form a range.
    fn note(
        &mut self,
        device: usize,
        ts: i64,
        note: Option<Value>,
        store: &Store,
        offset: u64,
    ) -> Result<(), PickleError> {
        let text = match note {
            Some(Value::Text(text)) if !store.word(text).is_empty() => Some(text),
            _ => None,
        };
        let device = self.device(device, offset)?;
        match (&mut device.note, text) {
            (Some(note), Some(text)) if note.text == text => {
                note.to_ns = ts;
                return Ok(());
            }
            (None, None) => return Ok(()),
            _ => {}
        }
        let ended =
            std::mem::replace(&mut device.note, text.map(|text| Note { text, from_ns: ts, to_ns: ts }));
        self.end_note(ended, store)
    }

    fn end_note(&mut self, note: Option<Note>, store: &Store) -> Result<(), PickleError> {
        if let Some(note) = note {
            let name = Text::Shared(store.word(note.text).clone());
            let dur = note.to_ns - note.from_ns + 1;
            self.recorder.push(&mark_row(note.from_ns, Some(dur), "range", name))?;
        }
        Ok(())
    }

    /// Writes the ranges that last until the end of the history.
    pub(super) fn end_notes(&mut self, store: &Store) -> Result<(), PickleError> {
        for device in 0..self.devices.len() {
            let note = self.devices[device].note.take();
            self.end_note(note, store)?;
        }
        Ok(())
    }

    fn entry(&mut self, device: usize, entry: &Entry, store: &Store, offset: u64) -> Result<(), PickleError> {
        let missing =
            |name: &str| PickleError::at(offset, format!("the event that begins here has no `{name}`"));
        let action = text(entry.action.ok_or_else(|| missing("action"))?, "action", offset)?;
        let addr = unsigned(entry.addr.ok_or_else(|| missing("addr"))?, "addr", offset)?;
        let size = signed(entry.size.ok_or_else(|| missing("size"))?, "size", offset)?;
        let stream = entry.stream.map_or(Ok(None), |value| stream(value, offset))?;
        let pool = entry.pool.map_or(Ok(Pool::default()), |value| pool(value, store, offset))?;
        let ts = self.time(device, entry.time_us, offset)?;
        let number = i32::try_from(device).unwrap_or(i32::MAX);
        let stack = self.stack(ts, entry.frames, offset)?;
        self.note(device, ts, entry.note, store, offset)?;
        let history = &mut self.device(device, offset)?.history;
        history.event(action, addr, size as u64);
        if LIVE_BLOCKS_COUNT.is_exceeded_by(history.live_count()) {
            let reason = LIVE_BLOCKS_COUNT.over("blocks that are allocated and not freed are more");
            return Err(PickleError::at(offset, reason));
        }
        let op = match keys::ACTIONS.get(action.0 as usize) {
            Some(name) => Text::Static(name),
            None => Text::Shared(store.word(action).clone()),
        };
        self.recorder.push_with(|rows| {
            rows.start(ts, Kind::Alloc, op, 0, 0)
                .addr(addr)
                .size_bytes(size)
                .stream(stream)
                .device(number)
                .pool_owner(pool.owner)
                .pool_id(pool.id)
                .stack(stack);
        })?;
        Ok(())
    }
}

impl Consumer for Events {
    fn element(
        &mut self,
        index: usize,
        element: Value,
        store: &mut Store,
        near: u64,
    ) -> Result<(), PickleError> {
        let (id, _) = store.values(element, Shape::Dict, "an event of a device's trace", near)?;
        let offset = store.offset(id);
        let pairs = store.take(id);
        let entry = Entry::new(&pairs);
        self.entry(index, &entry, store, offset)?;
        store.finish(id, pairs, None);
        Ok(())
    }

    fn condense(&mut self, value: Value, store: &mut Store) -> Result<Value, PickleError> {
        self.stacks.condense(value, store)
    }
}
