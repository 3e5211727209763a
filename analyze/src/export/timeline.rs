//! A run as tracks, slices, counters and flows: what every timeline format shows.
//!
//! | track | what is on it |
//! |---|---|
//! | thread | its calls, nested; events of its process's life |
//! | thread / off CPU | when it did not run: state, system call, who woke it, who had the CPU |
//! | thread / marks | what the workload named |
//! | thread / delayed others | links of chains behind slow calls of others that lead here; a flow comes from the call |
//! | thread / host | operators and functions that an imported profile has; work without a thread is on a track of its own |
//! | GPU, stream | its work, in imported profiles; a flow comes from the call that caused it |
//! | process | counters: what its allocators have, per device; readings of the process |
//! | no process | readings of devices, lost events, and the circumstances of the recording |
//!
//! Everything streams: sorts may spill, and of the slices only those are held that are under way.

mod content;
mod imported;

use std::{collections::HashMap, io, path::Path};

use trace_schema::Run;

pub(super) use content::off_cpu_name;

use super::lanes::{Lanes, OPEN, Place};
use crate::trace::Trace;
use analyze_run::error::AnalyzeError;

/// What a track is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'a> {
    Process { pid: u32, name: &'a str, command: &'a [String] },
    Thread { pid: u32, tid: u32, name: &'a str },
    Child { name: &'a str },
    Counter { name: &'a str },
}

/// A value beside a slice.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Int(i64),
    Float(f64),
    Text(&'a str),
}

/// Something on a track.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice<'a> {
    pub(super) ts: i64,
    /// `None`: it did not end, or has no length.
    pub(super) dur: Option<i64>,
    pub(super) name: &'a str,
    pub(super) category: &'a str,
    pub(super) args: &'a [(&'a str, Value<'a>)],
    /// Flows that begin here.
    pub(super) flows: &'a [u64],
    /// The flow that ends here.
    pub(super) ended_flow: Option<u64>,
}

/// A format.
pub(super) trait Sink {
    /// Circumstances; comes first.
    fn begin_run(&mut self, run: &Run) -> io::Result<()>;
    /// A track, before anything is on it, and after the one it belongs to.
    fn track(&mut self, id: u64, parent: Option<u64>, kind: Kind<'_>) -> io::Result<()>;
    /// A slice begins, within those that are open on the track.
    fn begin(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()>;
    /// The innermost slice of the track ends.
    fn end(&mut self, track: u64, ts: i64) -> io::Result<()>;
    /// A moment.
    fn instant(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()>;
    /// A value of a counter's track.
    fn value(&mut self, track: u64, ts: i64, value: i64) -> io::Result<()>;
    /// There is no more.
    fn finish(self) -> io::Result<()>;
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub slices_count: u64,
    pub instants_count: u64,
    pub values_count: u64,
    pub flows_count: u64,
}

/// Kinds of slices, each with tracks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    Calls,
    OffCpu,
    Marks,
    Delays,
    Lost,
    Host,
    /// Of a device, on a stream.
    Work(Option<i64>, Option<i64>),
}

impl Group {
    /// Name of its track below the thread's; `None`: it is the thread's own.
    fn name(self) -> Option<String> {
        let name = match self {
            Self::Calls => return None,
            Self::OffCpu => "off CPU",
            Self::Marks => "marks",
            Self::Delays => "delayed others",
            Self::Lost => "events lost",
            Self::Host => "host",
            Self::Work(Some(device), Some(stream)) => return Some(format!("GPU {device} stream {stream}")),
            Self::Work(Some(device), None) => return Some(format!("GPU {device}")),
            Self::Work(None, _) => "GPU",
        };
        Some(name.to_owned())
    }
}

/// Who a track belongs to; `None`: nobody.
type Owner = Option<(u32, u32)>;

/// Puts things onto tracks, which it makes as they are needed.
struct Timeline<S> {
    sink: S,
    out: std::path::PathBuf,
    run: Run,
    counts: Counts,
    tracks_count: u64,
    processes: HashMap<u32, u64>,
    threads: HashMap<(u32, u32), u64>,
    lanes: HashMap<(Owner, Group), Lanes>,
    counters: HashMap<(Option<u32>, String), u64>,
    names: HashMap<(u32, u32), String>,
    /// The track of moments of no process.
    moments: Option<u64>,
    ended: Vec<(u64, i64)>,
}

impl<S: Sink> Timeline<S> {
    fn new(sink: S, out: &Path, run: Run) -> Self {
        let names =
            run.threads.iter().map(|thread| ((thread.pid, thread.tid), thread.comm.clone())).collect();
        Self {
            sink,
            out: out.to_owned(),
            run,
            counts: Counts::default(),
            tracks_count: 0,
            processes: HashMap::new(),
            threads: HashMap::new(),
            lanes: HashMap::new(),
            counters: HashMap::new(),
            names,
            moments: None,
            ended: Vec::new(),
        }
    }

    /// The outcome of writing, as this program's.
    fn written(&self, result: io::Result<()>) -> Result<(), AnalyzeError> {
        result.map_err(|source| AnalyzeError::Io { path: self.out.clone(), source })
    }

    fn track(&mut self, parent: Option<u64>, kind: Kind<'_>) -> Result<u64, AnalyzeError> {
        self.tracks_count += 1;
        let result = self.sink.track(self.tracks_count, parent, kind);
        self.written(result)?;
        Ok(self.tracks_count)
    }

    fn process(&mut self, pid: u32) -> Result<u64, AnalyzeError> {
        if let Some(track) = self.processes.get(&pid) {
            return Ok(*track);
        }
        let known = self.run.processes.iter().find(|process| process.pid == pid);
        let command = known.map(|process| process.command.clone()).unwrap_or_default();
        let name = match command.first() {
            Some(program) => program.rsplit('/').next().unwrap_or_default().to_owned(),
            None => self.names.get(&(pid, pid)).cloned().unwrap_or_default(),
        };
        let track = self.track(None, Kind::Process { pid, name: &name, command: &command })?;
        self.processes.insert(pid, track);
        Ok(track)
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Result<u64, AnalyzeError> {
        if let Some(track) = self.threads.get(&(pid, tid)) {
            return Ok(*track);
        }
        let parent = self.process(pid)?;
        let name = self.names.get(&(pid, tid)).cloned().unwrap_or_default();
        let track = self.track(Some(parent), Kind::Thread { pid, tid, name: &name })?;
        self.threads.insert((pid, tid), track);
        Ok(track)
    }

    /// A name for a thread that the run has no better one for.
    fn name(&mut self, pid: u32, tid: u32, name: &str) {
        self.names.entry((pid, tid)).or_insert_with(|| name.to_owned());
    }

    fn slice(&mut self, owner: Owner, group: Group, slice: &Slice<'_>) -> Result<(), AnalyzeError> {
        let ts = self.time(slice.ts)?;
        let end = slice.dur.map_or(OPEN, |dur| ts.saturating_add(dur.max(0)));
        let mut ended = std::mem::take(&mut self.ended);
        let place = self.lanes.entry((owner, group)).or_default().place(ts, end, &mut ended);
        for (track, ts) in ended.drain(..) {
            let result = self.sink.end(track, ts);
            self.written(result)?;
        }
        self.ended = ended;
        let track = match place {
            Place::Track(track) => track,
            Place::New(lane) => {
                let parent = owner.map(|(pid, tid)| self.thread(pid, tid)).transpose()?;
                let track = match (group.name(), lane, parent) {
                    (None, 0, Some(thread)) => thread,
                    (name, lane, _) => {
                        let mut name = name.unwrap_or_else(|| "calls".to_owned());
                        if lane > 0 {
                            name += &format!(" ({})", lane + 1);
                        }
                        self.track(parent, Kind::Child { name: &name })?
                    }
                };
                self.lanes.entry((owner, group)).or_default().add(track, end);
                track
            }
        };
        self.counts.slices_count += 1;
        self.counts.flows_count += u64::from(slice.ended_flow.is_some());
        let result = self.sink.begin(track, slice);
        self.written(result)
    }

    fn instant(&mut self, track: u64, slice: &Slice<'_>) -> Result<(), AnalyzeError> {
        self.time(slice.ts)?;
        self.counts.instants_count += 1;
        let result = self.sink.instant(track, slice);
        self.written(result)
    }

    /// A moment of no process.
    fn moment(&mut self, slice: &Slice<'_>) -> Result<(), AnalyzeError> {
        let track = match self.moments {
            Some(track) => track,
            None => self.track(None, Kind::Child { name: "moments" })?,
        };
        self.moments = Some(track);
        self.instant(track, slice)
    }

    fn value(&mut self, pid: Option<u32>, name: &str, ts: i64, value: i64) -> Result<(), AnalyzeError> {
        self.time(ts)?;
        let key = (pid, name.to_owned());
        let track = match self.counters.get(&key) {
            Some(track) => *track,
            None => {
                let parent = pid.map(|pid| self.process(pid)).transpose()?;
                let track = self.track(parent, Kind::Counter { name })?;
                self.counters.insert(key, track);
                track
            }
        };
        self.counts.values_count += 1;
        let result = self.sink.value(track, ts, value);
        self.written(result)
    }

    /// A time that the formats can express.
    fn time(&self, ts: i64) -> Result<i64, AnalyzeError> {
        let damaged = || AnalyzeError::Damaged(format!("column ts: {ts} is before the clock's zero"));
        (ts >= 0).then_some(ts).ok_or_else(damaged)
    }

    fn finish(mut self) -> Result<Counts, AnalyzeError> {
        for lanes in std::mem::take(&mut self.lanes).into_values() {
            for (track, ts) in lanes.rest() {
                let result = self.sink.end(track, ts);
                self.written(result)?;
            }
        }
        let io = |source| AnalyzeError::Io { path: self.out.clone(), source };
        self.sink.finish().map_err(io)?;
        Ok(self.counts)
    }
}

/// Writes the one run of `trace`.
///
/// # Errors
/// If its data cannot be read, or the timeline not be written.
pub(super) async fn write(trace: &Trace, sink: impl Sink, out: &Path) -> Result<Counts, AnalyzeError> {
    let run = trace.files().first().map(|file| file.run.clone()).unwrap_or_default();
    let mut timeline = Timeline::new(sink, out, run);
    content::write(trace, &mut timeline).await?;
    timeline.finish()
}
