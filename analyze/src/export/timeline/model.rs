//! What a timeline consists of, the interface of the formats, and the tracks on which items are placed.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

use trace_schema::Run;

use crate::export::lanes::{Lanes, OPEN, Place};
use analyze_run::error::AnalyzeError;

/// Kind of a track.
#[derive(Clone, Copy, Debug)]
pub(in crate::export) enum Kind<'a> {
    /// A process.
    Process { pid: u32, name: &'a str, command: &'a [String] },
    /// A thread of a process.
    Thread { pid: u32, tid: u32, name: &'a str },
    /// A named track, below a thread or on its own.
    Child { name: &'a str },
    /// A counter.
    Counter { name: &'a str },
}

/// Value of an argument of a slice.
#[derive(Clone, Copy, Debug)]
pub(in crate::export) enum Value<'a> {
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(&'a str),
}

/// A slice or an instant on a track.
#[derive(Clone, Copy, Debug)]
pub(in crate::export) struct Slice<'a> {
    /// Start time in ns on the trace's clock.
    pub(in crate::export) ts: i64,
    /// Duration in ns; `None` for an instant, or for a slice that did not end.
    pub(in crate::export) dur: Option<i64>,
    /// Name that is displayed.
    pub(in crate::export) name: &'a str,
    /// Category, by which viewers filter.
    pub(in crate::export) category: &'a str,
    /// Arguments, by name.
    pub(in crate::export) args: &'a [(&'a str, Value<'a>)],
    /// IDs of flows that begin here.
    pub(in crate::export) flows: &'a [u64],
    /// ID of the flow that ends here.
    pub(in crate::export) ended_flow: Option<u64>,
}

/// Writer of a timeline format. Times are in ns on the trace's clock.
pub(in crate::export) trait Sink {
    /// Begins the timeline with the circumstances of the run. This call comes first.
    fn begin_run(&mut self, run: &Run) -> io::Result<()>;
    /// Adds a track. The call comes after that of the track's parent, and before anything is on the track.
    fn track(&mut self, id: u64, parent: Option<u64>, kind: Kind<'_>) -> io::Result<()>;
    /// Begins a slice within the slices that are open on the track.
    fn begin(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()>;
    /// Ends the innermost open slice of the track.
    fn end(&mut self, track: u64, ts: i64) -> io::Result<()>;
    /// Adds an instant.
    fn instant(&mut self, track: u64, slice: &Slice<'_>) -> io::Result<()>;
    /// Adds a value of a counter track.
    fn value(&mut self, track: u64, ts: i64, value: i64) -> io::Result<()>;
    /// Ends the timeline.
    fn finish(self) -> io::Result<()>;
}

/// Numbers of items written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of slices.
    pub slices_count: u64,
    /// Number of instants.
    pub instants_count: u64,
    /// Number of counter values.
    pub values_count: u64,
    /// Number of flows.
    pub flows_count: u64,
}

/// Groups of slices, each with tracks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    /// Calls of a thread.
    Calls,
    /// Intervals off CPU.
    OffCpu,
    /// Ranges that the workload named.
    Marks,
    /// Links of chains behind others' slow calls.
    Delays,
    /// Intervals in which events were lost.
    Lost,
    /// Operators and functions of imported profiles.
    Host,
    /// Work of a device on a stream.
    Work(Option<i64>, Option<i64>),
}

impl Group {
    /// Name of the group's track below the thread; `None` if the group is on the thread's own track.
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

/// Process and thread to which a track belongs; `None` if it belongs to no thread.
pub(super) type Owner = Option<(u32, u32)>;

/// Writes items to tracks, which are created on first use.
pub(super) struct Timeline<S> {
    /// The format.
    pub(super) sink: S,
    out: PathBuf,
    /// The run whose timeline it is.
    pub(super) run: Run,
    counts: Counts,
    tracks_count: u64,
    processes: HashMap<u32, u64>,
    threads: HashMap<(u32, u32), u64>,
    lanes: HashMap<(Owner, Group), Lanes>,
    counters: HashMap<(Option<u32>, String), u64>,
    names: HashMap<(u32, u32), String>,
    /// Track of instants without a process.
    moments: Option<u64>,
    ended: Vec<(u64, i64)>,
}

impl<S: Sink> Timeline<S> {
    /// Creates a timeline of `run` without tracks. Errors name the file `out`.
    pub(super) fn new(sink: S, out: &Path, run: Run) -> Self {
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

    /// Converts the result of a write to this program's error.
    pub(super) fn written(&self, result: io::Result<()>) -> Result<(), AnalyzeError> {
        result.map_err(|source| AnalyzeError::Io { path: self.out.clone(), source })
    }

    /// Adds a track, and returns its ID.
    pub(super) fn track(&mut self, parent: Option<u64>, kind: Kind<'_>) -> Result<u64, AnalyzeError> {
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

    /// Returns the track of a thread, which is below that of its process.
    pub(super) fn thread(&mut self, pid: u32, tid: u32) -> Result<u64, AnalyzeError> {
        if let Some(track) = self.threads.get(&(pid, tid)) {
            return Ok(*track);
        }
        let parent = self.process(pid)?;
        let name = self.names.get(&(pid, tid)).cloned().unwrap_or_default();
        let track = self.track(Some(parent), Kind::Thread { pid, tid, name: &name })?;
        self.threads.insert((pid, tid), track);
        Ok(track)
    }

    /// Sets the name of a thread unless the run has one.
    pub(super) fn name(&mut self, pid: u32, tid: u32, name: &str) {
        self.names.entry((pid, tid)).or_insert_with(|| name.to_owned());
    }

    /// Adds a slice to the group's tracks of a thread.
    ///
    /// # Errors
    /// Returns an error if the time is negative, or if the timeline cannot be written.
    pub(super) fn slice(
        &mut self,
        owner: Owner,
        group: Group,
        slice: &Slice<'_>,
    ) -> Result<(), AnalyzeError> {
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

    /// Adds an instant to a track.
    ///
    /// # Errors
    /// Returns an error if the time is negative, or if the timeline cannot be written.
    pub(super) fn instant(&mut self, track: u64, slice: &Slice<'_>) -> Result<(), AnalyzeError> {
        self.time(slice.ts)?;
        self.counts.instants_count += 1;
        let result = self.sink.instant(track, slice);
        self.written(result)
    }

    /// Adds an instant without a process.
    ///
    /// # Errors
    /// Returns an error if the time is negative, or if the timeline cannot be written.
    pub(super) fn moment(&mut self, slice: &Slice<'_>) -> Result<(), AnalyzeError> {
        let track = match self.moments {
            Some(track) => track,
            None => self.track(None, Kind::Child { name: "moments" })?,
        };
        self.moments = Some(track);
        self.instant(track, slice)
    }

    /// Adds a value to the counter with this name, of a process or of none.
    ///
    /// # Errors
    /// Returns an error if the time is negative, or if the timeline cannot be written.
    pub(super) fn value(
        &mut self,
        pid: Option<u32>,
        name: &str,
        ts: i64,
        value: i64,
    ) -> Result<(), AnalyzeError> {
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

    /// Returns the time if the formats can represent it, which excludes negative times.
    fn time(&self, ts: i64) -> Result<i64, AnalyzeError> {
        let damaged = || AnalyzeError::Damaged(format!("column ts: {ts} is before the clock's zero"));
        (ts >= 0).then_some(ts).ok_or_else(damaged)
    }

    /// Ends the open slices and the timeline. Returns what was written.
    pub(super) fn finish(mut self) -> Result<Counts, AnalyzeError> {
        // In an order that does not depend on the map's. Of one track, the innermost slice stays the first.
        let mut open: Vec<(u64, i64)> =
            std::mem::take(&mut self.lanes).into_values().flat_map(Lanes::rest).collect();
        open.sort_by_key(|(track, _)| *track);
        for (track, ts) in open {
            let result = self.sink.end(track, ts);
            self.written(result)?;
        }
        let io = |source| AnalyzeError::Io { path: self.out.clone(), source };
        self.sink.finish().map_err(io)?;
        Ok(self.counts)
    }
}
