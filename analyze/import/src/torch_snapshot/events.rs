//! Entries of `device_traces` to rows, as they are read.
//!
//! Times are whole microseconds, and entries of one microsecond have an order: each gets a time that is later
//! than the one before it in its trace, by a nanosecond if need be.

use trace_schema::{Kind, Row, Text};
use trace_writer::Recorder;

use crate::pickle::{Consumer, PickleError, Shape, Store, TextId, Value};

use super::{
    fields::{Pool, pool, signed, stream, text, unsigned},
    history::History,
    keys,
    stacks::Stacks,
};

/// Texts that may wait in memory to be written.
const WAITING_BYTES: usize = 16 << 20;

/// A stretch of events that carry the same note of the user's.
struct Note {
    text: TextId,
    from_ns: i64,
    to_ns: i64,
}

/// What is known of one device's trace.
#[derive(Default)]
pub(super) struct Device {
    last_ns: Option<i64>,
    note: Option<Note>,
    pub(super) history: History,
}

/// Rows on their way into the run.
pub(super) struct Events {
    pub(super) recorder: Recorder,
    pub(super) stacks: Stacks,
    pub(super) devices: Vec<Device>,
    pub(super) first_ns: Option<i64>,
    pub(super) last_ns: Option<i64>,
    /// Entries that are earlier than the one before them.
    pub(super) backward_count: u64,
    /// Entries without a time.
    pub(super) timeless_count: u64,
    waiting_bytes: usize,
}

/// Devices that a snapshot may have: more than any machine.
pub(super) const DEVICES: usize = 1024;

/// The fields of an entry, not looked at yet.
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

/// A row that names a stack.
pub(super) fn stack_row(ts: i64, number: u32, frames: Text) -> Row {
    Row { stack: Some(number), detail: Some(frames), ..Row::new(ts, Kind::Name, "stack".into(), 0, 0) }
}

/// A phase that the program has named.
pub(super) fn mark_row(ts: i64, dur: Option<i64>, op: &'static str, name: Text) -> Row {
    Row { dur, detail: Some(name), ..Row::new(ts, Kind::Mark, op.into(), 0, 0) }
}

impl Events {
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

    /// A device's trace.
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

    /// The time of an entry, after the one before it.
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
                // The latest time leaves room for what follows it.
                let own =
                    time_us.checked_mul(1000).filter(|ts| *ts < i64::MAX - (1 << 40)).ok_or_else(|| {
                        PickleError::at(offset, format!("`time_us` of what begins here is {time_us}"))
                    })?;
                self.backward_count += u64::from(last.is_some_and(|last| own / 1000 < last / 1000));
                own.max(next)
            }
        };
        self.device(device, offset)?.last_ns = Some(ts);
        self.first_ns = Some(self.first_ns.map_or(ts, |first| first.min(ts)));
        self.last_ns = Some(self.last_ns.map_or(ts, |last| last.max(ts)));
        Ok(ts)
    }

    /// The number of a stack; a new one is spelled out first.
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

    /// Follows the note that entries carry; a stretch of one note is a phase.
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

    /// Ends the phases that last to the end.
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
        self.device(device, offset)?.history.event(action, addr, size as u64);
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
