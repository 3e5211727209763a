//! Chrome's trace event format: JSON with one object per line. The format knows only processes and threads,
//! so other tracks are written as threads, with numbers that no thread can have and with the name of the
//! thread they belong to. Times are microseconds with three decimals.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use serde_json::{Map, Value as Json, json};
use trace_schema::Run;

use super::timeline::{Kind, Sink, Slice, Value};

/// Smallest number that no thread has: Linux assigns smaller thread IDs only.
const FIRST_FREE_TID: u64 = 1 << 22;

/// A track as the format represents it.
#[derive(Clone, Debug)]
struct Track {
    pid: u64,
    tid: u64,
    name: String,
}

/// Writer of the format.
pub(super) struct Chrome<W> {
    out: W,
    tracks: HashMap<u64, Track>,
    other: Json,
    is_first: bool,
}

impl<W: Write> Chrome<W> {
    /// Creates a writer to `out`.
    pub(super) fn new(out: W) -> Self {
        Self { out, tracks: HashMap::new(), other: Json::Null, is_first: true }
    }

    /// Writes an event. `fields` is a JSON object; `ts` and `dur` (both in ns) are appended before its
    /// closing brace, so that they are written without rounding.
    fn event(&mut self, fields: &Json, ts: Option<i64>, dur: Option<i64>) -> io::Result<()> {
        let fields = fields.to_string();
        self.out.write_all(if self.is_first { b"\n" } else { b",\n" })?;
        self.is_first = false;
        self.out.write_all(fields.strip_suffix('}').unwrap_or(&fields).as_bytes())?;
        for (name, ns) in [("ts", ts), ("dur", dur)].into_iter().filter_map(|(name, ns)| Some((name, ns?))) {
            write!(self.out, ",\"{name}\":{}.{:03}", ns / 1000, ns % 1000)?;
        }
        self.out.write_all(b"}")
    }

    fn of(&self, track: u64) -> Track {
        self.tracks.get(&track).cloned().unwrap_or(Track { pid: 0, tid: track, name: String::new() })
    }

    fn named(&mut self, what: &str, pid: u64, tid: u64, name: &str) -> io::Result<()> {
        let event = json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
        self.event(&event, None, None)
    }

    fn flow(&mut self, ph: &str, track: &Track, flow: u64, ts: i64) -> io::Result<()> {
        let mut event = json!({ "ph": ph, "name": "cause", "cat": "chain", "id": format!("{flow:#x}"), "pid": track.pid, "tid": track.tid });
        if ph == "f" {
            // Binds the flow to the slice that begins here rather than to the next one.
            event["bp"] = "e".into();
        }
        self.event(&event, Some(ts), None)
    }
}

fn args(slice: &Slice<'_>) -> Map<String, Json> {
    let json = |value: &Value<'_>| match value {
        Value::Int(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Text(text) => (*text).into(),
    };
    slice.args.iter().map(|(name, value)| ((*name).to_owned(), json(value))).collect()
}

impl<W: Write> Sink for Chrome<W> {
    fn begin_run(&mut self, run: &Run) -> io::Result<()> {
        self.other = json!({
            "clock": "CLOCK_MONOTONIC",
            "wall_offset_ns": run.clock.wall_offset_ns,
            "start_ns": run.clock.start_ns,
            "producer": run.producer,
        });
        self.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")
    }

    fn track(&mut self, id: u64, parent: Option<u64>, kind: Kind<'_>) -> io::Result<()> {
        let parent = parent.map(|parent| self.of(parent));
        let track = match kind {
            Kind::Process { pid, name, .. } => {
                self.named("process_name", pid.into(), 0, name)?;
                Track { pid: pid.into(), tid: 0, name: name.to_owned() }
            }
            Kind::Thread { pid, tid, name } => {
                self.named("thread_name", pid.into(), tid.into(), name)?;
                Track { pid: pid.into(), tid: tid.into(), name: name.to_owned() }
            }
            Kind::Child { name } => {
                let pid = parent.as_ref().map_or(0, |parent| parent.pid);
                let name = match &parent {
                    Some(thread) => format!("{} {}: {name}", thread.name, thread.tid),
                    None => name.to_owned(),
                };
                self.named("thread_name", pid, FIRST_FREE_TID + id, &name)?;
                Track { pid, tid: FIRST_FREE_TID + id, name }
            }
            Kind::Counter { name } => {
                Track { pid: parent.map_or(0, |parent| parent.pid), tid: 0, name: name.to_owned() }
            }
        };
        self.tracks.insert(id, track);
        Ok(())
    }

    fn begin(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()> {
        let track = self.of(track);
        // A slice without end has only a begin event.
        let ph = if slice.dur.is_some() { "X" } else { "B" };
        let event = json!({
            "ph": ph, "name": slice.name, "cat": slice.category, "pid": track.pid, "tid": track.tid, "args": args(slice),
        });
        self.event(&event, Some(slice.ts), slice.dur.map(|dur| dur.max(0)))?;
        for flow in slice.flows {
            self.flow("s", &track, *flow, slice.ts)?;
        }
        match slice.ended_flow {
            Some(flow) => self.flow("f", &track, flow, slice.ts),
            None => Ok(()),
        }
    }

    fn end(&mut self, _track: u64, _ts: i64) -> io::Result<()> {
        Ok(())
    }

    fn instant(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()> {
        let track = self.of(track);
        let event = json!({
            "ph": "i", "s": "t", "name": slice.name, "cat": slice.category, "pid": track.pid, "tid": track.tid,
            "args": args(slice),
        });
        self.event(&event, Some(slice.ts), None)
    }

    fn value(&mut self, track: u64, ts: i64, value: i64) -> io::Result<()> {
        let track = self.of(track);
        let event =
            json!({ "ph": "C", "name": track.name, "pid": track.pid, "tid": 0, "args": { "value": value } });
        self.event(&event, Some(ts), None)
    }

    fn finish(mut self) -> io::Result<()> {
        writeln!(self.out, "\n],\"otherData\":{}}}", self.other)?;
        self.out.flush()
    }
}
