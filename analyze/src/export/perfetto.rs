//! Perfetto's trace format: a stream of packets with track events. Field numbers are those of
//! `trace_packet.proto`, `track_event.proto` and the files that these import.
//!
//! Times are on CLOCK_MONOTONIC; a clock snapshot relates them to the wall clock. Recurring strings are
//! interned: each is written once, and referred to by its ID from then on.

mod proto;

use std::{
    collections::HashMap,
    io::{self, Write},
};

use prost::Message;
use trace_schema::Run;

use self::proto::{
    Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, InternedData, InternedString,
    ProcessDescriptor, ThreadDescriptor, Trace, TracePacket, TracePacketDefaults, TrackDescriptor,
    TrackEvent,
};
use super::timeline::{Kind, Sink, Slice, Value};

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

/// The sequence starts without interned strings.
const INTERNED_CLEARED: u64 = 1;
/// The packet needs the strings that were interned before it.
const INTERNED_NEEDED: u64 = 2;

/// Interned strings of one kind, with their IDs.
#[derive(Debug, Default)]
struct Interned(HashMap<String, u64>);

impl Interned {
    /// Returns the ID of a string, and adds it to `new` if it is new. If the table is full, returns the
    /// string itself.
    fn refer(&mut self, text: &str, new: &mut Vec<InternedString>) -> (Option<u64>, Option<String>) {
        if let Some(iid) = self.0.get(text) {
            return (Some(*iid), None);
        }
        if self.0.len() >= INTERNED {
            return (None, Some(text.to_owned()));
        }
        let iid = self.0.len() as u64 + 1;
        new.push(InternedString { iid, name: text.to_owned() });
        self.0.insert(text.to_owned(), iid);
        (Some(iid), None)
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
            categories: Interned::default(),
            names: Interned::default(),
            arg_names: Interned::default(),
            arg_texts: Interned::default(),
        }
    }

    /// Writes one packet.
    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: SEQUENCE, ..packet };
        self.out.write_all(&Trace { packet: vec![packet] }.encode_to_vec())
    }

    fn event(&mut self, track_uuid: u64, kind: u64, slice: &Slice<'_>) -> io::Result<()> {
        let mut data = InternedData::default();
        let (category_iids, categories) = self.categories.refer(slice.category, &mut data.event_categories);
        let (name_iid, name) = self.names.refer(slice.name, &mut data.event_names);
        let mut debug_annotations = Vec::with_capacity(slice.args.len());
        for (name, value) in slice.args {
            let (name_iid, name) = self.arg_names.refer(name, &mut data.debug_annotation_names);
            let mut arg = DebugAnnotation { name_iid, name, ..DebugAnnotation::default() };
            match value {
                Value::Int(value) => arg.int_value = Some(*value),
                Value::Float(value) => arg.double_value = Some(*value),
                Value::Text(text) => {
                    (arg.string_value_iid, arg.string_value) =
                        self.arg_texts.refer(text, &mut data.debug_annotation_string_values);
                }
            }
            debug_annotations.push(arg);
        }
        let event = TrackEvent {
            category_iids,
            debug_annotations,
            kind,
            name_iid,
            track_uuid,
            categories,
            name,
            counter_value: None,
            flow_ids: slice.flows.to_vec(),
            terminating_flow_ids: Vec::from_iter(slice.ended_flow),
        };
        self.timed(slice.ts, event, data)
    }

    fn timed(&mut self, ts: i64, event: TrackEvent, data: InternedData) -> io::Result<()> {
        self.packet(TracePacket {
            timestamp: Some(ts as u64),
            sequence_flags: Some(INTERNED_NEEDED),
            track_event: Some(event),
            interned_data: (data != InternedData::default()).then_some(data),
            ..TracePacket::default()
        })
    }

    /// Writes a snapshot of the clocks at one moment, in ns.
    fn clocks(&mut self, monotonic_ns: i64, wall_ns: Option<i64>) -> io::Result<()> {
        let readings = [(MONOTONIC, Some(monotonic_ns)), (REALTIME, wall_ns)];
        let clocks = readings
            .into_iter()
            .filter_map(|(clock_id, ns)| Some(Clock { clock_id, timestamp: ns? as u64 }))
            .collect();
        self.packet(TracePacket {
            clock_snapshot: Some(ClockSnapshot { clocks, primary_trace_clock: MONOTONIC }),
            ..TracePacket::default()
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
        self.packet(TracePacket {
            sequence_flags: Some(INTERNED_CLEARED),
            first_packet_on_sequence: Some(true),
            trace_packet_defaults: Some(TracePacketDefaults { timestamp_clock_id: MONOTONIC }),
            ..TracePacket::default()
        })
    }

    fn track(&mut self, id: u64, parent: Option<u64>, kind: Kind<'_>) -> io::Result<()> {
        let mut track = TrackDescriptor { uuid: id, parent_uuid: parent, ..TrackDescriptor::default() };
        match kind {
            Kind::Process { pid, name, command } => {
                track.process =
                    Some(ProcessDescriptor { pid, cmdline: command.to_vec(), process_name: name.to_owned() });
            }
            Kind::Thread { pid, tid, name } => {
                track.thread = Some(ThreadDescriptor { pid, tid, thread_name: name.to_owned() });
            }
            Kind::Child { name } => track.name = Some(name.to_owned()),
            Kind::Counter { name } => {
                let (unit, unit_name) = match unit(name) {
                    Ok(unit) => (Some(unit), None),
                    Err(other) => (None, Some(other.to_owned())),
                };
                track.name = Some(name.to_owned());
                track.counter = Some(CounterDescriptor { unit, unit_name });
            }
        }
        self.packet(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })
    }

    fn begin(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()> {
        self.event(track, SLICE_BEGIN, slice)
    }

    fn end(&mut self, track: u64, ts: i64) -> io::Result<()> {
        let event = TrackEvent { kind: SLICE_END, track_uuid: track, ..TrackEvent::default() };
        self.timed(ts, event, InternedData::default())
    }

    fn instant(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()> {
        self.event(track, INSTANT, slice)
    }

    fn value(&mut self, track: u64, ts: i64, value: i64) -> io::Result<()> {
        let counter_value = Some(value);
        let event = TrackEvent { kind: COUNTER, track_uuid: track, counter_value, ..TrackEvent::default() };
        self.timed(ts, event, InternedData::default())
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
