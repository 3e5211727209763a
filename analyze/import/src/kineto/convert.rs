//! Converts events to rows. Events that become no row are counted by phase and category, and reported.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use trace_schema::{Clock, Direction, Kind, Row, Run, TIME_LIMIT_NS, Text};
use trace_writer::Recorder;

use super::{
    Failure,
    event::{Event, Field},
    metadata::Metadata,
};

/// Size of the cached names in bytes above which the cache is emptied.
const NAME_BYTES: usize = 16 << 20;
/// Largest number of phases and categories that are counted separately.
const MAX_CATEGORIES: usize = 64;
/// Largest number of threads whose ids in the trace are not kernel thread ids.
const MAX_STRANGE_THREADS: usize = 1 << 16;
/// Value of `c10::DeviceType` for a CUDA or ROCm GPU.
const DEVICE_TYPE_CUDA: i64 = 1;

/// A cache of names, each of which is shared by many rows.
#[derive(Default)]
struct Names {
    known: HashSet<Arc<str>>,
    bytes: usize,
}

impl Names {
    fn get(&mut self, name: &str) -> Text {
        if let Some(known) = self.known.get(name) {
            return Text::Shared(Arc::clone(known));
        }
        let name: Arc<str> = name.into();
        self.bytes += name.len() + size_of::<Arc<str>>();
        self.known.insert(Arc::clone(&name));
        Text::Shared(name)
    }
}

/// Converts events to rows and writes them to the recording.
pub(super) struct Converter {
    /// The recording that rows are written to.
    pub(super) recorder: Recorder,
    /// Unix time of the trace's zero, in ns.
    pub(super) base_ns: i64,
    /// Metadata found so far.
    pub(super) metadata: Metadata,
    names: Names,
    first_ns: Option<i64>,
    last_ns: i64,
    /// Number of events that became no row, by phase and category.
    left_out: BTreeMap<(String, String), u64>,
    /// Number of spans whose duration is missing or negative.
    endless_count: u64,
    /// Thread ids in the trace that are not kernel thread ids, and the ids that replace them.
    strange_threads: HashMap<i64, u32>,
}

fn wrong<T>(event: &Event, reason: impl std::fmt::Display) -> Result<T, Failure> {
    Failure::at(event.offset, format!("{reason}, in the event that begins here"))
}

/// Returns an integer of `args`, or `None` if it is missing or negative: a negative number stands for none.
fn unsigned(event: &Event, name: &str) -> Result<Option<u64>, Failure> {
    match event.integer(name) {
        Field::Absent => Ok(None),
        Field::Integer(number) => Ok(u64::try_from(number).ok()),
        Field::Large(number) => Ok(Some(number)),
        Field::Other => wrong(event, format_args!("`{name}` is no integer")),
    }
}

fn signed(event: &Event, name: &str) -> Result<Option<i64>, Failure> {
    match event.integer(name) {
        Field::Absent => Ok(None),
        Field::Integer(number) => Ok(Some(number)),
        Field::Large(number) => wrong(event, format_args!("`{name}` is {number}")),
        Field::Other => wrong(event, format_args!("`{name}` is no integer")),
    }
}

fn device(event: &Event, name: &str) -> Result<Option<i32>, Failure> {
    match signed(event, name)? {
        Some(number) if number >= 0 => match i32::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => wrong(event, format_args!("`{name}` is {number}")),
        },
        _ => Ok(None),
    }
}

fn extents(event: &Event, fields: [Field; 3]) -> Result<[Option<u32>; 3], Failure> {
    let mut found = [None; 3];
    for (place, field) in found.iter_mut().zip(fields) {
        *place = match field {
            Field::Absent => None,
            Field::Integer(number) => u32::try_from(number).ok(),
            _ => None,
        };
        if place.is_none() && field != Field::Absent {
            return wrong(event, "an extent of `grid` or `block` is no integer that can be one");
        }
    }
    Ok(found)
}

/// Returns the direction of a copy, given a name such as `Memcpy HtoD (Pageable -> Device)`.
fn direction(name: &str) -> Option<Direction> {
    Some(match name.strip_prefix("Memcpy ")?.split(' ').next()? {
        "HtoD" | "HtoA" => Direction::HostToDevice,
        "DtoH" | "AtoH" => Direction::DeviceToHost,
        "DtoD" | "AtoD" | "DtoA" | "AtoA" => Direction::DeviceToDevice,
        "HtoH" => Direction::HostToHost,
        "PtoP" => Direction::PeerToPeer,
        _ => return None,
    })
}

/// Returns the name of a function without its version suffixes, such as `_v2` and `_ptsz`.
pub(crate) fn without_version(name: &str) -> &str {
    let mut name = name;
    loop {
        let plain = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
        let plain = match plain.rsplit_once("_v") {
            Some((stem, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => stem,
            _ => plain,
        };
        if plain == name {
            return name;
        }
        name = plain;
    }
}

impl Converter {
    /// Creates a converter that adds `base_ns` to the times of events.
    pub(super) fn new(recorder: Recorder, base_ns: i64) -> Self {
        Self {
            recorder,
            base_ns,
            metadata: Metadata::default(),
            names: Names::default(),
            first_ns: None,
            last_ns: 0,
            left_out: BTreeMap::new(),
            endless_count: 0,
            strange_threads: HashMap::new(),
        }
    }

    /// Takes one event: writes its row, keeps its metadata, or counts it as left out.
    ///
    /// # Errors
    /// Returns an error if a field of the event is missing or invalid, or the row cannot be written.
    pub(super) fn event(&mut self, event: &Event) -> Result<(), Failure> {
        match event.phase.as_str() {
            "X" => self.span(event),
            "i" | "I" => self.instant(event),
            "M" => {
                self.metadata.event(event);
                Ok(())
            }
            "" => wrong(event, "there is no `ph`"),
            _ => {
                self.leave_out(event);
                Ok(())
            }
        }
    }

    fn leave_out(&mut self, event: &Event) {
        let is_full = self.left_out.len() >= MAX_CATEGORIES;
        // Flow arrows consist of two or three events.
        let phase = if matches!(event.phase.as_str(), "s" | "t" | "f") { "arrow" } else { &event.phase };
        let key = (phase.to_owned(), event.category.clone());
        let key = if is_full && !self.left_out.contains_key(&key) {
            ("other".to_owned(), "other".to_owned())
        } else {
            key
        };
        *self.left_out.entry(key).or_default() += 1;
    }

    /// Returns the start of an event and, if it is known, its duration, both in ns.
    fn time(&mut self, event: &Event) -> Result<(i64, Option<i64>), Failure> {
        let ts = Event::nanos(&event.ts).and_then(|ts| ts.checked_add(self.base_ns));
        let Some(ts) = ts.filter(|ts| (0..=TIME_LIMIT_NS).contains(ts)) else {
            let shown = if event.ts.is_empty() { "missing" } else { &event.ts };
            return wrong(event, format_args!("`ts` is {shown}"));
        };
        let dur = match event.dur.as_str() {
            "" => None,
            text => match Event::nanos(text) {
                Some(dur) => Some(dur),
                None => return wrong(event, format_args!("`dur` is {text}")),
            },
        };
        let dur = dur.filter(|dur| *dur >= 0);
        let end = ts.checked_add(dur.unwrap_or(0)).filter(|end| *end <= TIME_LIMIT_NS);
        let Some(end) = end else {
            return wrong(event, format_args!("`dur` is {}", event.dur));
        };
        self.first_ns = Some(self.first_ns.map_or(ts, |first| first.min(ts)));
        self.last_ns = self.last_ns.max(end);
        Ok((ts, dur))
    }

    /// Returns the process id and the thread id of an event on the host, each 0 if it is unknown.
    fn thread(&mut self, event: &Event) -> Result<(u32, u32), Failure> {
        let pid = match event.pid {
            Field::Integer(pid) => u32::try_from(pid).unwrap_or(0),
            _ => 0,
        };
        let tid = match event.tid {
            Field::Integer(tid) => match u32::try_from(tid) {
                Ok(tid) => tid,
                Err(_) => {
                    let count = self.strange_threads.len();
                    match self.strange_threads.entry(tid) {
                        Entry::Occupied(known) => *known.get(),
                        Entry::Vacant(new) if count < MAX_STRANGE_THREADS => {
                            *new.insert(u32::MAX - count as u32)
                        }
                        Entry::Vacant(_) => return wrong(event, "there are too many threads"),
                    }
                }
            },
            _ => 0,
        };
        Ok((pid, tid))
    }

    fn push(&mut self, row: &Row) -> Result<(), Failure> {
        self.recorder.push(row)?;
        if self.names.bytes > NAME_BYTES {
            self.recorder.flush()?;
            self.names = Names::default();
        }
        Ok(())
    }

    fn span(&mut self, event: &Event) -> Result<(), Failure> {
        let (ts, dur) = self.time(event)?;
        self.endless_count += u64::from(dur.is_none());
        let on_device = |op: &'static str| Row::new(ts, Kind::Device, op.into(), 0, 0);
        let name = self.names.get(&event.name);
        let row = match event.category.as_str() {
            "cuda_runtime" | "cuda_driver" => {
                let (pid, tid) = self.thread(event)?;
                let op = self.names.get(without_version(&event.name));
                Row {
                    correlation: unsigned(event, "correlation")?.filter(|number| *number > 0),
                    ..Row::new(ts, Kind::Call, op, pid, tid)
                }
            }
            "kernel" => {
                let [grid_x, grid_y, grid_z] = extents(event, event.grid)?;
                let [block_x, block_y, block_z] = extents(event, event.block)?;
                let row = Row { grid_x, grid_y, grid_z, block_x, block_y, block_z, ..on_device("kernel") };
                self.device_work(event, row)?
            }
            "gpu_memcpy" => {
                let direction = direction(&event.name).map(|direction| direction.name().into());
                self.device_work(event, Row { direction, ..on_device("memcpy") })?
            }
            "gpu_memset" => self.device_work(event, on_device("memset"))?,
            "cuda_sync" => self.device_work(event, on_device("sync"))?,
            "gpu_user_annotation" => self.device_work(event, on_device("annotation"))?,
            "user_annotation" => {
                let (pid, tid) = self.thread(event)?;
                Row { detail: Some(name), ..Row::new(ts, Kind::Mark, "range".into(), pid, tid) }
            }
            category => {
                let (pid, tid) = self.thread(event)?;
                let op = self.names.get(if category.is_empty() { "span" } else { category });
                Row { detail: Some(name), ..Row::new(ts, Kind::Host, op, pid, tid) }
            }
        };
        self.push(&Row { dur, ..row })
    }

    fn device_work(&mut self, event: &Event, row: Row) -> Result<Row, Failure> {
        Ok(Row {
            detail: Some(self.names.get(&event.name)),
            device: device(event, "device")?,
            stream: unsigned(event, "stream")?,
            size_bytes: signed(event, "bytes")?,
            correlation: unsigned(event, "correlation")?.filter(|number| *number > 0),
            ..row
        })
    }

    fn instant(&mut self, event: &Event) -> Result<(), Failure> {
        let (ts, _) = self.time(event)?;
        let (pid, tid) = self.thread(event)?;
        let is_memory = event.name == "[memory]";
        let is_on_gpu = is_memory && signed(event, "Device Type")? == Some(DEVICE_TYPE_CUDA);
        let mut row = if is_on_gpu {
            Row::new(ts, Kind::Alloc, "usage".into(), pid, tid)
        } else {
            let category = if event.category.is_empty() { "instant" } else { &event.category };
            let op = self.names.get(category);
            Row { detail: Some(self.names.get(&event.name)), ..Row::new(ts, Kind::Host, op, pid, tid) }
        };
        if is_memory {
            row.addr = unsigned(event, "Addr")?;
            row.size_bytes = signed(event, "Bytes")?;
            row.device = device(event, "Device Id")?;
            row.allocated_bytes = signed(event, "Total Allocated")?;
            row.reserved_bytes = signed(event, "Total Reserved")?;
        }
        self.push(&row)
    }

    /// Returns the recording, and the metadata of the run.
    pub(super) fn finish(self) -> (Recorder, Run) {
        let mut run = Run {
            producer: "imported from PyTorch's profiler (Kineto)".to_owned(),
            joined_running: true,
            clock: Clock { start_ns: self.first_ns.unwrap_or(0), end_ns: self.last_ns, ..Clock::default() },
            not_captured: vec![
                Run::NO_SCHEDULE.to_owned(),
                "bytes, directions, streams and results of calls; those of the work on the GPU are in the \
                 `device` row with the same `correlation`"
                    .to_owned(),
                "segments of PyTorch's allocator, and what its events before the profile left".to_owned(),
                "whose work it is that a GPU did: the process of `device` rows is 0".to_owned(),
            ],
            ..Run::default()
        };
        self.metadata.finish(&mut run);
        let mut add = |what: String| run.not_captured.push(what);
        for ((phase, category), count) in self.left_out {
            add(match (phase.as_str(), category.as_str()) {
                ("arrow", "ac2g") => {
                    format!("{count} ends of arrows from calls to the GPU: `correlation` says the same")
                }
                ("arrow", _) => format!("{count} ends of arrows {category:?}"),
                _ => format!(
                    "{count} events of category {category:?}, phase {phase:?}: they are not understood"
                ),
            });
        }
        if self.endless_count > 0 {
            add(format!("how long {} spans took: they have no valid length", self.endless_count));
        }
        if !self.strange_threads.is_empty() {
            add(format!(
                "thread ids of {} threads, whose numbers in the trace are not the kernel's; here they are \
                 numbered from {} downwards",
                self.strange_threads.len(),
                u32::MAX
            ));
        }
        (self.recorder, run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_thread_is_found_when_there_are_as_many_as_can_be() {
        let directory = tempfile::tempdir().unwrap();
        let recorder =
            Recorder::create(&directory.path().join("run.parquet"), false, &Run::default()).unwrap();
        let mut converter = Converter::new(recorder, 0);
        let strange = |tid| {
            let mut event = Event::default();
            event.tid = Field::Integer(tid);
            event
        };
        for number in 1..=MAX_STRANGE_THREADS as i64 {
            assert!(converter.thread(&strange(-number)).is_ok());
        }
        assert_eq!(converter.thread(&strange(-1)).ok(), Some((0, u32::MAX)));
        assert!(converter.thread(&strange(i64::MIN)).is_err());
        converter.recorder.discard();
    }
}
