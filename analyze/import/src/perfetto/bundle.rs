//! Decodes the scheduler events in a bundle of ftrace events: those of one CPU, in that CPU's order.
//!
//! They are messages, or "compact": one list for each of their fields, with times as differences and names as
//! indices of a table; the thread that leaves is then the one that came before.

use std::collections::HashMap;

use crate::{
    limits::{BUNDLE_EVENTS_COUNT, PATH_BYTES},
    protobuf::{Fields, ReadError, Value},
    sched::{
        machine::{Event, Moment, Task},
        state::State,
    },
};

/// Bits of an event's flags that are set while an interrupt is served.
const INTERRUPT_FLAGS: u64 = 0x08 | 0x10 | 0x40;
/// Flag of `clone`: the child is a thread of its parent's process.
const CLONE_THREAD: u64 = 0x10000;
/// Longest plausible name of a thread, in bytes; the kernel's limit is 16.
const MAX_NAME_BYTES: usize = 64;

/// An event that waits until all events before it have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Time, CPU and context of the event.
    pub(super) at: Moment,
    what: What,
}

/// The content of an event, with names that it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Switch { prev: Option<(u32, Box<str>)>, state: State, next: (u32, Box<str>) },
    Waking(u32),
    Wakeup(u32, Option<u32>),
    Migrate(u32, u32),
    New { child: (u32, Box<str>), is_thread: Option<bool> },
    Exec(u32, Box<str>),
    Exit(u32, Box<str>),
}

fn task(named: &(u32, Box<str>)) -> Task<'_> {
    Task { tid: named.0, comm: &named.1 }
}

impl Waiting {
    /// Returns the event in the form that the scheduler's state machine takes.
    pub(super) fn event(&self) -> Event<'_> {
        match &self.what {
            What::Switch { prev, state, next } => {
                Event::Switch { prev: prev.as_ref().map(task), state: *state, next: task(next) }
            }
            What::Waking(tid) => Event::Waking { tid: *tid },
            What::Wakeup(tid, cpu) => Event::Wakeup { tid: *tid, cpu: *cpu },
            What::Migrate(tid, cpu) => Event::Migrate { tid: *tid, cpu: *cpu },
            What::New { child, is_thread } => Event::New { child: task(child), is_thread: *is_thread },
            What::Exec(tid, file) => Event::Exec { tid: *tid, file },
            What::Exit(tid, comm) => Event::Exit { task: Task { tid: *tid, comm } },
        }
    }
}

/// The content of a bundle.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    /// Number of the CPU.
    pub(super) cpu: u32,
    /// The scheduler events. The switches and wakings of compact lists are not merged in the order of time.
    pub(super) events: Vec<Waiting>,
    /// Set if events before the first one were lost.
    pub(super) has_lost: bool,
    /// The clock of the times, by its number in `FtraceClock`; 0 is CLOCK_BOOTTIME.
    pub(super) clock: u64,
    /// Times of one moment on that clock and on CLOCK_BOOTTIME, in ns.
    pub(super) clocks: (Option<i64>, Option<i64>),
    /// Number of events of other kinds.
    pub(super) others_count: u64,
}

/// The thread that last came onto each CPU: compact events do not say which thread leaves.
pub(super) type Current = HashMap<u32, (u32, Box<str>)>;

fn text(fields: Fields<'_>) -> Result<Box<str>, ReadError> {
    if fields.bytes().len() > MAX_NAME_BYTES {
        return ReadError::at(fields.offset(), "the name of a thread is longer than 64 bytes");
    }
    Ok(String::from_utf8_lossy(fields.bytes()).into())
}

fn small(number: u64, what: &str, offset: u64) -> Result<u32, ReadError> {
    match u32::try_from(number) {
        Ok(number) => Ok(number),
        Err(_) => ReadError::at(offset, format!("{what} is {}", number as i64)),
    }
}

fn time(number: u64, offset: u64) -> Result<i64, ReadError> {
    match i64::try_from(number) {
        Ok(number) => Ok(number),
        Err(_) => ReadError::at(offset, format!("a time is {number}")),
    }
}

/// Errs at byte `offset` if a bundle has more than so many events.
fn within(count: usize, offset: u64) -> Result<(), ReadError> {
    if BUNDLE_EVENTS_COUNT.is_exceeded_by(count) {
        return ReadError::at(offset, BUNDLE_EVENTS_COUNT.over("the events of a bundle are more"));
    }
    Ok(())
}

/// Numbers and texts of a message, indexed by the numbers of their fields; fields from 8 on are left out.
struct Plain<'a> {
    numbers: [Option<u64>; 8],
    texts: [Option<Fields<'a>>; 8],
    offset: u64,
}

impl<'a> Plain<'a> {
    fn read(mut fields: Fields<'a>) -> Result<Self, ReadError> {
        let mut plain = Self { numbers: [None; 8], texts: [None; 8], offset: fields.offset() };
        while let Some((field, value, offset)) = fields.next()? {
            let Some(place) = usize::try_from(field).ok().filter(|field| *field < 8) else { continue };
            match value {
                Value::Bytes(bytes) => plain.texts[place] = Some(bytes),
                other => plain.numbers[place] = Some(other.number(offset)?),
            }
        }
        Ok(plain)
    }

    /// Returns a number that must be present: `proto2` writes zeros too. Errs if it is missing.
    fn number(&self, field: usize) -> Result<u64, ReadError> {
        match self.numbers[field] {
            Some(number) => Ok(number),
            None => ReadError::at(self.offset, format!("an event of the scheduler has no field {field}")),
        }
    }

    fn tid(&self, field: usize) -> Result<u32, ReadError> {
        small(self.number(field)?, "a thread's number", self.offset)
    }

    fn cpu(&self, field: usize) -> Result<u32, ReadError> {
        small(self.number(field)?, "a CPU's number", self.offset)
    }

    fn name(&self, field: usize) -> Result<Box<str>, ReadError> {
        self.texts[field].map_or_else(|| Ok("".into()), text)
    }
}

impl Bundle {
    /// Reads a bundle. `current` tells the first compact switch of each CPU which thread leaves, and is
    /// updated.
    pub(super) fn read(mut fields: Fields<'_>, current: &mut Current) -> Result<Self, ReadError> {
        let mut bundle = Self::default();
        let mut found = Vec::new();
        let mut compact = None;
        while let Some((field, value, offset)) = fields.next()? {
            match field {
                1 => bundle.cpu = small(value.number(offset)?, "a CPU's number", offset)?,
                2 => {
                    within(found.len() + 1, offset)?;
                    found.push(value.fields(offset)?);
                }
                3 => bundle.has_lost = value.number(offset)? != 0,
                4 => compact = Some(value.fields(offset)?),
                5 => bundle.clock = value.number(offset)?,
                6 => bundle.clocks.0 = Some(value.number(offset)? as i64),
                7 => bundle.clocks.1 = Some(value.number(offset)? as i64),
                _ => {}
            }
        }
        for event in found {
            bundle.event(event)?;
        }
        if bundle.has_lost {
            current.remove(&bundle.cpu);
        }
        if let Some(compact) = compact {
            bundle.compact(compact, current)?;
        }
        Ok(bundle)
    }

    fn event(&mut self, mut fields: Fields<'_>) -> Result<(), ReadError> {
        let (mut at, mut found) = (Moment { cpu: Some(self.cpu), ..Moment::default() }, None);
        let start = fields.offset();
        let mut has_time = false;
        while let Some((field, value, offset)) = fields.next()? {
            match field {
                1 => {
                    at.ts = time(value.number(offset)?, offset)?;
                    has_time = true;
                }
                2 => at.tid = u32::try_from(value.number(offset)?).ok(),
                5 => at.in_interrupt = Some(value.number(offset)? & INTERRUPT_FLAGS != 0),
                4 | 17 | 20 | 235 | 237 | 238 | 239 | 491 => found = Some((field, value.fields(offset)?)),
                // `sched_wakeup_new` is not used: the first time that a thread runs does not end an off-CPU
                // interval.
                114 => {}
                _ => self.others_count += u64::from(matches!(value, Value::Bytes(_))),
            }
        }
        let Some((kind, fields)) = found else { return Ok(()) };
        if !has_time {
            return ReadError::at(start, "an event has no time");
        }
        let plain = Plain::read(fields)?;
        let what = match kind {
            4 => What::Switch {
                prev: Some((plain.tid(2)?, plain.name(1)?)),
                state: State::of_number(plain.number(4)? as i64),
                next: (plain.tid(6)?, plain.name(5)?),
            },
            17 => What::Wakeup(plain.tid(2)?, Some(plain.cpu(5)?)),
            20 => What::Waking(plain.tid(2)?),
            235 => What::New {
                child: (plain.tid(1)?, plain.name(2)?),
                is_thread: Some(plain.number(3)? & CLONE_THREAD != 0),
            },
            237 => {
                let file: &[u8] = plain.texts[1].map_or(&[][..], |text| text.bytes());
                if PATH_BYTES.is_exceeded_by(file.len()) {
                    return ReadError::at(plain.offset, PATH_BYTES.over("the path of a program is longer"));
                }
                What::Exec(plain.tid(2)?, String::from_utf8_lossy(file).into())
            }
            238 => {
                // This is the process of the thread that ends.
                at.pid = plain.numbers[3].and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
                What::Exit(plain.tid(2)?, plain.name(1)?)
            }
            239 => What::New { child: (plain.tid(4)?, plain.name(3)?), is_thread: None },
            _ => What::Migrate(plain.tid(2)?, plain.cpu(5)?),
        };
        self.events.push(Waiting { at, what });
        Ok(())
    }

    fn compact(&mut self, mut fields: Fields<'_>, current: &mut Current) -> Result<(), ReadError> {
        let start = fields.offset();
        let mut names: Vec<Box<str>> = Vec::new();
        let mut lists: [Vec<u64>; 13] = Default::default();
        while let Some((field, value, offset)) = fields.next()? {
            match (usize::try_from(field).unwrap_or(usize::MAX), value) {
                (5, value) => {
                    within(names.len() + 1, offset)?;
                    names.push(text(value.fields(offset)?)?);
                }
                (place @ (1..=4 | 6..=12), Value::Bytes(mut packed)) => {
                    while let Some(number) = packed.packed()? {
                        within(lists[place].len() + 1, offset)?;
                        lists[place].push(number);
                    }
                }
                (place @ (1..=4 | 6..=12), value) => {
                    within(lists[place].len() + 1, offset)?;
                    lists[place].push(value.number(offset)?);
                }
                _ => {}
            }
        }
        let [_, switches, states, tids, _, _, comms, wakings, woken, _, _, _, flags] = &lists;
        let is_even = switches.len() == states.len()
            && switches.len() == tids.len()
            && switches.len() == comms.len()
            && wakings.len() == woken.len()
            && (flags.is_empty() || flags.len() == wakings.len());
        if !is_even {
            return ReadError::at(start, "lists of compact events have different lengths");
        }
        let cpu = Some(self.cpu);
        let mut ts = 0_u64;
        for place in 0..switches.len() {
            ts = ts.wrapping_add(switches[place]);
            let comm = usize::try_from(comms[place]).ok().and_then(|number| names.get(number));
            let Some(comm) = comm else {
                return ReadError::at(start, format!("there is no name {} in the table", comms[place]));
            };
            let next = (small(tids[place], "a thread's number", start)?, comm.clone());
            let prev = current.insert(self.cpu, next.clone());
            let at = Moment {
                ts: time(ts, start)?,
                cpu,
                tid: prev.as_ref().map(|(tid, _)| *tid),
                ..Moment::default()
            };
            let what = What::Switch { prev, state: State::of_number(states[place] as i64), next };
            self.events.push(Waiting { at, what });
        }
        let mut ts = 0_u64;
        for place in 0..wakings.len() {
            ts = ts.wrapping_add(wakings[place]);
            let in_interrupt = flags.get(place).map(|flags| flags & INTERRUPT_FLAGS != 0);
            let at = Moment { ts: time(ts, start)?, cpu, in_interrupt, ..Moment::default() };
            let tid = small(woken[place], "a thread's number", start)?;
            self.events.push(Waiting { at, what: What::Waking(tid) });
        }
        Ok(())
    }
}
