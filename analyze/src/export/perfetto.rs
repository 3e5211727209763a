//! Perfetto's trace format: a stream of packets with track events. Field numbers are those of
//! `trace_packet.proto`, `track_event.proto` and the files that these import.
//!
//! Times are on CLOCK_MONOTONIC; a clock snapshot relates them to the wall clock. Recurring strings are
//! interned: each is written once, and referred to by its ID from then on.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use trace_schema::Run;

use super::timeline::{Kind, Sink, Slice, Value};
use analyze_import::protobuf::Message;

/// IDs of Perfetto's built-in clocks.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;

/// ID of the only packet sequence, to which the interned strings belong.
const SEQUENCE: u64 = 1;

/// Largest number of interned strings per kind. Further ones are written out, so that memory stays bounded.
const INTERNED: usize = 1 << 16;

/// Types of track events.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Units of counters.
const UNIT_TIME_NS: u64 = 1;
const UNIT_COUNT: u64 = 2;
const UNIT_SIZE_BYTES: u64 = 3;

/// Interned strings of one kind, with their IDs.
#[derive(Debug)]
struct Interned {
    /// Field number of the kind in `InternedData`.
    field: u64,
    numbers: HashMap<String, u64>,
}

impl Interned {
    fn new(field: u64) -> Self {
        Self { field, numbers: HashMap::new() }
    }

    /// Returns the ID of a string, and adds it to `data` if it is new. Returns `None` if the table is full.
    fn number(&mut self, text: &str, data: &mut Message) -> Option<u64> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        let number = self.numbers.len() as u64 + 1;
        (number <= INTERNED as u64).then(|| {
            data.with(self.field, |entry| {
                entry.number(1, number);
                entry.bytes(2, text.as_bytes());
            });
            self.numbers.insert(text.to_owned(), number);
            number
        })
    }
}

/// Writer of the format.
pub(super) struct Perfetto<W> {
    out: W,
    categories: Interned,
    names: Interned,
    arg_names: Interned,
    arg_texts: Interned,
}

impl<W: Write> Perfetto<W> {
    /// Creates a writer to `out`.
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            categories: Interned::new(1),
            names: Interned::new(2),
            arg_names: Interned::new(3),
            arg_texts: Interned::new(29),
        }
    }

    /// Writes one packet.
    fn packet(&mut self, build: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut trace = Message::default();
        trace.with(1, |packet| {
            packet.number(10, SEQUENCE);
            build(packet);
        });
        self.out.write_all(trace.encoded())
    }

    fn event(&mut self, track: u64, kind: u64, slice: &Slice<'_>) -> io::Result<()> {
        let (mut data, mut event) = (Message::default(), Message::default());
        event.number(9, kind);
        event.number(11, track);
        match self.categories.number(slice.category, &mut data) {
            Some(number) => event.number(3, number),
            None => event.bytes(22, slice.category.as_bytes()),
        }
        match self.names.number(slice.name, &mut data) {
            Some(number) => event.number(10, number),
            None => event.bytes(23, slice.name.as_bytes()),
        }
        for (name, value) in slice.args {
            event.with(4, |arg| {
                match self.arg_names.number(name, &mut data) {
                    Some(number) => arg.number(1, number),
                    None => arg.bytes(10, name.as_bytes()),
                }
                match value {
                    Value::Int(value) => arg.number(4, *value as u64),
                    Value::Float(value) => arg.double(5, *value),
                    Value::Text(text) => match self.arg_texts.number(text, &mut data) {
                        Some(number) => arg.number(17, number),
                        None => arg.bytes(6, text.as_bytes()),
                    },
                }
            });
        }
        slice.flows.iter().for_each(|flow| event.fixed64(47, *flow));
        slice.ended_flow.iter().for_each(|flow| event.fixed64(48, *flow));
        self.timed(slice.ts, &event, &data)
    }

    fn timed(&mut self, ts: i64, event: &Message, data: &Message) -> io::Result<()> {
        self.packet(|packet| {
            packet.number(8, ts as u64);
            // The packet needs the strings that were interned before it.
            packet.number(13, 2);
            packet.message(11, event);
            if !data.is_empty() {
                packet.message(12, data);
            }
        })
    }

    /// Writes a snapshot of the clocks at one moment, in ns.
    fn clocks(&mut self, monotonic_ns: i64, wall_ns: Option<i64>) -> io::Result<()> {
        self.packet(|packet| {
            packet.with(6, |snapshot| {
                let clocks = [(MONOTONIC, Some(monotonic_ns)), (REALTIME, wall_ns)];
                for (clock, ns) in clocks.into_iter().filter_map(|(clock, ns)| Some((clock, ns?))) {
                    snapshot.with(1, |reading| {
                        reading.number(1, clock);
                        reading.number(2, ns as u64);
                    });
                }
                snapshot.number(2, MONOTONIC);
            });
        })
    }
}

/// Unit of a counter, taken from the end of its name; an error carries a unit that Perfetto does not know.
fn unit(name: &str) -> Result<u64, &str> {
    match name.rsplit('_').next().unwrap_or_default() {
        "bytes" => Ok(UNIT_SIZE_BYTES),
        "ns" => Ok(UNIT_TIME_NS),
        "count" => Ok(UNIT_COUNT),
        other => Err(other),
    }
}

impl<W: Write> Sink for Perfetto<W> {
    fn begin_run(&mut self, run: &Run) -> io::Result<()> {
        let clock = &run.clock;
        let wall = |ns: i64| (clock.wall_offset_ns != 0).then_some(ns.saturating_add(clock.wall_offset_ns));
        self.clocks(clock.start_ns, wall(clock.start_ns))?;
        if clock.wall_step_ns != 0 && clock.end_ns > clock.start_ns {
            let at_end = wall(clock.end_ns).map(|ns| ns.saturating_add(clock.wall_step_ns));
            self.clocks(clock.end_ns, at_end)?;
        }
        self.packet(|packet| {
            // The sequence starts without interned strings.
            packet.number(13, 1);
            packet.number(87, 1);
            packet.with(59, |defaults| defaults.number(58, MONOTONIC));
        })
    }

    fn track(&mut self, id: u64, parent: Option<u64>, kind: Kind<'_>) -> io::Result<()> {
        self.packet(|packet| {
            packet.with(60, |track| {
                track.number(1, id);
                if let Some(parent) = parent {
                    track.number(5, parent);
                }
                match kind {
                    Kind::Process { pid, name, command } => track.with(3, |process| {
                        process.number(1, pid.into());
                        command.iter().for_each(|word| process.bytes(2, word.as_bytes()));
                        if !name.is_empty() {
                            process.bytes(6, name.as_bytes());
                        }
                    }),
                    Kind::Thread { pid, tid, name } => track.with(4, |thread| {
                        thread.number(1, pid.into());
                        thread.number(2, tid.into());
                        if !name.is_empty() {
                            thread.bytes(5, name.as_bytes());
                        }
                    }),
                    Kind::Child { name } => track.bytes(2, name.as_bytes()),
                    Kind::Counter { name } => {
                        track.bytes(2, name.as_bytes());
                        track.with(8, |counter| match unit(name) {
                            Ok(unit) => counter.number(3, unit),
                            Err(other) => counter.bytes(6, other.as_bytes()),
                        });
                    }
                }
            });
        })
    }

    fn begin(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()> {
        self.event(track, SLICE_BEGIN, slice)
    }

    fn end(&mut self, track: u64, ts: i64) -> io::Result<()> {
        let mut event = Message::default();
        event.number(9, SLICE_END);
        event.number(11, track);
        self.timed(ts, &event, &Message::default())
    }

    fn instant(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()> {
        self.event(track, INSTANT, slice)
    }

    fn value(&mut self, track: u64, ts: i64, value: i64) -> io::Result<()> {
        let mut event = Message::default();
        event.number(9, COUNTER);
        event.number(11, track);
        event.number(30, value as u64);
        self.timed(ts, &event, &Message::default())
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
