//! One event of `traceEvents`, its fields not judged yet.

use std::io::Read;

use crate::json::{Json, JsonError, Shape, scaled};

/// A field that may be an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Field {
    #[default]
    Absent,
    Integer(i64),
    /// An integer above the largest signed one.
    Large(u64),
    Other,
}

impl Field {
    /// Reads any value.
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

/// Integers of `args` that rows are made of.
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

/// An event; read again and again into the same memory.
#[derive(Default)]
pub(super) struct Event {
    /// Where it begins.
    pub(super) offset: u64,
    pub(super) phase: String,
    pub(super) category: String,
    pub(super) name: String,
    pub(super) pid: Field,
    pub(super) tid: Field,
    /// Microseconds as they are written; empty: there are none.
    pub(super) ts: String,
    pub(super) dur: String,
    integers: [Field; INTEGERS.len()],
    pub(super) grid: [Field; 3],
    pub(super) block: [Field; 3],
    /// `args.name` or `args.labels`.
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

    /// An integer of `args`.
    pub(super) fn integer(&self, name: &str) -> Field {
        INTEGERS.iter().position(|known| *known == name).map_or(Field::Absent, |index| self.integers[index])
    }

    /// A time in nanoseconds.
    pub(super) fn nanos(text: &str) -> Option<i64> {
        scaled(text, 3)
    }

    /// Reads the next element of `traceEvents`.
    ///
    /// # Errors
    /// If it is no object, or a field that all events have is of another type.
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

/// The extents of a grid or block.
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
