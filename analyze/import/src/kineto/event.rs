//! One event of `traceEvents`, before its fields are checked.

use std::io::Read;

use crate::json::{Json, JsonError, Shape, scaled};

/// A field that may be an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Field {
    /// The field is missing.
    #[default]
    Absent,
    /// An integer that fits into 64 bits with a sign.
    Integer(i64),
    /// An integer above `i64::MAX`.
    Large(u64),
    /// A value of another type, or a number that is not one of these integers.
    Other,
}

impl Field {
    /// Reads the next value, whatever its type.
    fn read(json: &mut Json<impl Read>, scratch: &mut String) -> Result<Self, JsonError> {
        if json.shape()? != Shape::Number {
            json.skip()?;
            return Ok(Self::Other);
        }
        json.number(scratch, "a field")?;
        if let Ok(number) = scratch.parse() {
            return Ok(Self::Integer(number));
        }
        Ok(scratch.parse().map_or(Self::Other, Self::Large))
    }
}

/// Names of the integers in `args` that rows are made of.
pub(super) const INTEGERS: [&str; 10] = [
    "correlation",
    "stream",
    "device",
    "bytes",
    "Bytes",
    "Addr",
    "Device Id",
    "Device Type",
    "Total Allocated",
    "Total Reserved",
];

/// One event. It is reused for all events of a trace, to allocate its memory once.
#[derive(Default)]
pub(super) struct Event {
    /// Byte offset at which the event begins.
    pub(super) offset: u64,
    /// `ph`: the event's phase, such as `X` for a complete event.
    pub(super) phase: String,
    /// `cat`: the event's category, such as `kernel`.
    pub(super) category: String,
    /// `name` of the event.
    pub(super) name: String,
    /// `pid`: a process id, or the number of a device.
    pub(super) pid: Field,
    /// `tid`: a thread id, or the number of a stream.
    pub(super) tid: Field,
    /// `ts`: the start in microseconds, as it is written; empty if it is missing.
    pub(super) ts: String,
    /// `dur`: the duration in microseconds, as it is written; empty if it is missing.
    pub(super) dur: String,
    integers: [Field; INTEGERS.len()],
    /// `args.grid`: number of blocks in the grid by dimension (x, y, z).
    pub(super) grid: [Field; 3],
    /// `args.block`: number of threads in a block by dimension (x, y, z).
    pub(super) block: [Field; 3],
    /// `args.name` or `args.labels` of a metadata event.
    pub(super) label: String,
    key: String,
    scratch: String,
}

impl Event {
    fn clear(&mut self) {
        for text in [
            &mut self.phase,
            &mut self.category,
            &mut self.name,
            &mut self.ts,
            &mut self.dur,
            &mut self.label,
        ] {
            text.clear();
        }
        (self.pid, self.tid) = (Field::Absent, Field::Absent);
        self.integers = Default::default();
        (self.grid, self.block) = Default::default();
    }

    /// Returns an integer of `args` by its name; the field is absent if `INTEGERS` does not have the name.
    pub(super) fn integer(&self, name: &str) -> Field {
        INTEGERS.iter().position(|known| *known == name).map_or(Field::Absent, |index| self.integers[index])
    }

    /// Converts a time in microseconds to nanoseconds. Returns `None` if it is not a number or out of range.
    pub(super) fn nanos(text: &str) -> Option<i64> {
        scaled(text, 3)
    }

    /// Reads the next element of `traceEvents` into this event.
    ///
    /// # Errors
    /// Returns an error if the element is not an object, or a field that all events have is of the wrong
    /// type.
    pub(super) fn read(&mut self, json: &mut Json<impl Read>) -> Result<(), JsonError> {
        self.clear();
        json.shape()?;
        self.offset = json.offset();
        json.begin(Shape::Object, "an event")?;
        let (mut is_first, mut key) = (true, std::mem::take(&mut self.key));
        while json.next_key(&mut is_first, &mut key)? {
            match key.as_str() {
                "ph" => json.text(&mut self.phase, "`ph`")?,
                "cat" => json.text(&mut self.category, "`cat`")?,
                "name" => json.text(&mut self.name, "`name`")?,
                "ts" => json.number(&mut self.ts, "`ts`")?,
                "dur" => json.number(&mut self.dur, "`dur`")?,
                "pid" => self.pid = Field::read(json, &mut self.scratch)?,
                "tid" => self.tid = Field::read(json, &mut self.scratch)?,
                "args" if json.shape()? == Shape::Object => self.read_args(json)?,
                _ => json.skip()?,
            }
        }
        self.key = key;
        Ok(())
    }

    fn read_args(&mut self, json: &mut Json<impl Read>) -> Result<(), JsonError> {
        json.begin(Shape::Object, "`args`")?;
        let (mut is_first, mut key) = (true, String::new());
        while json.next_key(&mut is_first, &mut key)? {
            if let Some(index) = INTEGERS.iter().position(|name| *name == key) {
                self.integers[index] = Field::read(json, &mut self.scratch)?;
                continue;
            }
            match key.as_str() {
                "grid" => self.grid = read_three(json, &mut self.scratch)?,
                "block" => self.block = read_three(json, &mut self.scratch)?,
                "name" | "labels" if json.shape()? == Shape::Text => {
                    json.text(&mut self.label, "a name")?;
                }
                _ => json.skip()?,
            }
        }
        Ok(())
    }
}

/// Reads the three extents of a grid or block.
fn read_three(json: &mut Json<impl Read>, scratch: &mut String) -> Result<[Field; 3], JsonError> {
    let mut found = [Field::Absent; 3];
    if json.shape()? != Shape::List {
        json.skip()?;
        return Ok([Field::Other; 3]);
    }
    json.begin(Shape::List, "an extent")?;
    let (mut is_first, mut index) = (true, 0);
    while json.next_element(&mut is_first)? {
        let field = Field::read(json, scratch)?;
        match found.get_mut(index) {
            Some(place) => *place = field,
            None => found = [Field::Other; 3],
        }
        index += 1;
    }
    Ok(found)
}
