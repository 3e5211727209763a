//! Collects what must be known of a trace before its events are read: the processes of threads, how clocks
//! relate, and when each bundle begins.

use std::collections::BTreeMap;

use trace_schema::{Host, TIME_LIMIT_NS};

use super::bundle::{Bundle, Current};
use crate::{
    limits::{ARGUMENTS_COUNT, BUNDLES_COUNT, NAMES_BYTES, THREADS_COUNT},
    protobuf::{Fields, ReadError},
};

/// Ids of clocks in Perfetto's traces.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
const BOOTTIME: u64 = 6;

/// Fields of a packet that are not content: time, sequence, flags, interned data, the writer.
const ENVELOPE: &[u64] = &[3, 8, 10, 12, 13, 41, 42, 58, 59, 75, 76, 79, 80, 87, 88, 98, 99];
/// Fields of a packet that are read, and those that say nothing about the machine.
const KNOWN: &[u64] = &[1, 2, 6, 33, 34, 35, 36, 45, 69, 72, 89, 90];
/// Names of the fields of frequent packets; others are reported by their number.
const NAMES: &[(u64, &str)] = &[
    (5, "chrome_events"),
    (7, "sys_stats"),
    (9, "process_stats"),
    (11, "track_event"),
    (37, "profile_packet"),
    (38, "battery"),
    (39, "android_log"),
    (52, "gpu_counter_event"),
    (53, "gpu_render_stage_event"),
    (60, "track_descriptor"),
    (66, "perf_sample"),
    (67, "cpu_info"),
];

/// One snapshot of the clocks, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    real: Option<i64>,
    monotonic: Option<i64>,
    boot: Option<i64>,
}

/// Facts collected from all packets of a trace.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Process id of each thread, by thread id.
    pub(super) processes: BTreeMap<u32, u32>,
    /// Name of each thread, by thread id.
    pub(super) names: BTreeMap<u32, String>,
    /// Command line of each process, by process id.
    pub(super) commands: BTreeMap<u32, Vec<String>>,
    /// The machine that recorded the trace.
    pub(super) host: Host,
    /// Time of the first event of each bundle, on the trace's clock in ns; `i64::MAX` for a bundle without
    /// events.
    pub(super) firsts: Vec<i64>,
    /// The clock of the first bundle, by its number in `FtraceClock`.
    pub(super) clock: u64,
    /// Offset from that clock to CLOCK_BOOTTIME in ns, if a bundle states it.
    pub(super) to_boot_ns: Option<i64>,
    snapshots: Option<(Snapshot, Snapshot)>,
    /// Size of the names and command lines that are kept, in bytes.
    names_bytes: usize,
    others: BTreeMap<u64, u64>,
    other_events_count: u64,
    /// Number of packets before which others were dropped.
    dropped_count: u64,
    /// Number of packets of other machines.
    foreign_count: u64,
}

impl Survey {
    /// Takes one packet. `current` holds the threads that last came onto the CPUs.
    pub(super) fn packet(&mut self, mut packet: Fields<'_>, current: &mut Current) -> Result<(), ReadError> {
        if is_foreign(packet)? {
            self.foreign_count += 1;
            return Ok(());
        }
        while let Some((field, value, offset)) = packet.next()? {
            match field {
                1 => {
                    if BUNDLES_COUNT.is_exceeded_by(self.firsts.len() + 1) {
                        return ReadError::at(offset, BUNDLES_COUNT.over("the bundles up to here are more"));
                    }
                    self.bundle(&Bundle::read(value.fields(offset)?, current)?);
                }
                2 => self.process_tree(value.fields(offset)?)?,
                6 => self.clocks(value.fields(offset)?)?,
                42 => self.dropped_count += u64::from(value.number(offset)? != 0),
                45 => self.system(value.fields(offset)?)?,
                other if ENVELOPE.contains(&other) || KNOWN.contains(&other) => {}
                other => *self.others.entry(other.min(1000)).or_default() += 1,
            }
        }
        Ok(())
    }

    fn bundle(&mut self, bundle: &Bundle) {
        if self.firsts.is_empty() {
            self.clock = bundle.clock;
        }
        if let ((Some(ftrace), Some(boot)), None) = (bundle.clocks, self.to_boot_ns) {
            self.to_boot_ns = boot.checked_sub(ftrace);
        }
        self.other_events_count += bundle.others_count;
        self.firsts.push(bundle.events.iter().map(|event| event.at.ts).min().unwrap_or(i64::MAX));
    }

    fn process_tree(&mut self, mut tree: Fields<'_>) -> Result<(), ReadError> {
        while let Some((field, value, offset)) = tree.next()? {
            let (is_process, mut fields) = match field {
                1 => (true, value.fields(offset)?),
                2 => (false, value.fields(offset)?),
                _ => continue,
            };
            let start = fields.offset();
            let (mut id, mut group, mut texts) = (None, None, Vec::new());
            while let Some((field, value, offset)) = fields.next()? {
                let mut text = || -> Result<(), ReadError> {
                    if ARGUMENTS_COUNT.is_exceeded_by(texts.len() + 1) {
                        return ReadError::at(
                            offset,
                            ARGUMENTS_COUNT.over("arguments of a process are more"),
                        );
                    }
                    texts.push(String::from_utf8_lossy(value.fields(offset)?.bytes()).into_owned());
                    Ok(())
                };
                match (is_process, field) {
                    (_, 1) => id = u32::try_from(value.number(offset)?).ok(),
                    (true, 3) | (false, 2) => text()?,
                    (false, 3) => group = u32::try_from(value.number(offset)?).ok(),
                    _ => {}
                }
            }
            let Some(id) = id else { continue };
            let Some(group) = (if is_process { Some(id) } else { group }) else { continue };
            // The first entry holds for the events before it; later changes are stated by events.
            self.processes.entry(id).or_insert(group);
            self.keep(0, start)?;
            if is_process && !self.commands.contains_key(&id) {
                self.keep(texts.iter().map(String::len).sum(), start)?;
                self.commands.insert(id, texts);
            } else if !is_process
                && let Some(name) = texts.pop()
                && !self.names.contains_key(&id)
            {
                self.keep(name.len(), start)?;
                self.names.insert(id, name);
            }
        }
        Ok(())
    }

    /// Counts the bytes of a name or a command line, and errs at byte `offset` if there are too many, or too many
    /// threads.
    fn keep(&mut self, bytes: usize, offset: u64) -> Result<(), ReadError> {
        self.names_bytes = self.names_bytes.saturating_add(bytes);
        if NAMES_BYTES.is_exceeded_by(self.names_bytes) {
            return ReadError::at(offset, NAMES_BYTES.over("names and command lines up to here are longer"));
        }
        if THREADS_COUNT.is_exceeded_by(self.processes.len()) {
            return ReadError::at(offset, THREADS_COUNT.over("the threads up to here are more"));
        }
        Ok(())
    }

    fn clocks(&mut self, mut fields: Fields<'_>) -> Result<(), ReadError> {
        let mut found = Snapshot::default();
        while let Some((field, value, offset)) = fields.next()? {
            if field != 1 {
                continue;
            }
            let (mut clock, mut time, mut reading) = (None, None, value.fields(offset)?);
            let mut is_plain = true;
            while let Some((field, value, offset)) = reading.next()? {
                match field {
                    1 => clock = Some(value.number(offset)?),
                    2 => {
                        time = i64::try_from(value.number(offset)?).ok().filter(|time| *time <= TIME_LIMIT_NS)
                    }
                    // An incremental clock, or one with another unit, is not one of the clocks that are used.
                    3 | 4 => is_plain &= value.number(offset)? == u64::from(field == 4),
                    _ => {}
                }
            }
            match clock.filter(|_| is_plain) {
                Some(REALTIME) => found.real = time,
                Some(MONOTONIC) => found.monotonic = time,
                Some(BOOTTIME) => found.boot = time,
                _ => {}
            }
        }
        if found.boot.is_some() && found.monotonic.is_some() {
            self.snapshots = Some(self.snapshots.map_or((found, found), |(first, _)| (first, found)));
        }
        Ok(())
    }

    fn system(&mut self, mut fields: Fields<'_>) -> Result<(), ReadError> {
        while let Some((field, value, offset)) = fields.next()? {
            match field {
                1 => {
                    let mut names = value.fields(offset)?;
                    while let Some((field, value, offset)) = names.next()? {
                        if field == 3 {
                            self.host.kernel =
                                String::from_utf8_lossy(value.fields(offset)?.bytes()).into_owned();
                        }
                    }
                }
                8 => self.host.cpu_count = u32::try_from(value.number(offset)?).unwrap_or_default(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the offsets between CLOCK_BOOTTIME, CLOCK_MONOTONIC and Unix time at the first snapshot, and
    /// how they differ at the last one. Returns `None` if no snapshot has the first two.
    pub(super) fn offsets(&self) -> Option<Offsets> {
        let (first, last) = self.snapshots?;
        let monotonic = |at: Snapshot| Some(at.monotonic? - at.boot?);
        let wall = |at: Snapshot| Some(at.real? - at.monotonic?);
        let walls = wall(first).map(|first| (first, wall(last).map_or(0, |last| last - first)));
        // A clock that was set by more than a run can hold says nothing about the time of day.
        let walls = walls.filter(|(_, step)| step.unsigned_abs() <= TIME_LIMIT_NS.unsigned_abs());
        Some(Offsets {
            monotonic_ns: monotonic(first)?,
            suspended_ns: monotonic(first)? - monotonic(last)?,
            wall_ns: walls.map(|(offset, _)| offset),
            wall_step_ns: walls.map_or(0, |(_, step)| step),
        })
    }

    /// Returns the content that is not read: names or numbers of fields, with how often they occur.
    pub(super) fn others(&self) -> Vec<String> {
        let name = |field: &u64| {
            let known = NAMES.iter().find(|(number, _)| number == field);
            known.map_or_else(|| format!("field {field}"), |(_, name)| (*name).to_owned())
        };
        let mut said: Vec<String> =
            self.others.iter().map(|(field, count)| format!("{} ({count})", name(field))).collect();
        if self.other_events_count > 0 {
            said.push(format!("ftrace events of other kinds ({})", self.other_events_count));
        }
        if self.foreign_count > 0 {
            said.push(format!("packets of other machines ({})", self.foreign_count));
        }
        said
    }

    /// Returns a description of the dropped packets, if there are any. How many events they held is not
    /// known.
    pub(super) fn dropped(&self) -> Option<String> {
        (self.dropped_count > 0)
            .then(|| format!("what was dropped before {} packets of the trace", self.dropped_count))
    }
}

/// Offsets between clocks, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    /// Offset that converts CLOCK_BOOTTIME to CLOCK_MONOTONIC, at the first snapshot.
    pub(super) monotonic_ns: i64,
    /// How long the machine was suspended between the first and the last snapshot.
    pub(super) suspended_ns: i64,
    /// Offset that converts CLOCK_MONOTONIC to Unix time, at the first snapshot.
    pub(super) wall_ns: Option<i64>,
    /// Difference of that offset between the last and the first snapshot.
    pub(super) wall_step_ns: i64,
}

/// Returns whether a packet is from another machine than the one that recorded the trace.
pub(super) fn is_foreign(mut packet: Fields<'_>) -> Result<bool, ReadError> {
    while let Some((field, value, offset)) = packet.next()? {
        if field == 98 {
            return Ok(value.number(offset)? != 0);
        }
    }
    Ok(false)
}
