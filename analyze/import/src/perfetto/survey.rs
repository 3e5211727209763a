//! What has to be known of a trace before its events are read: who is whose, how clocks relate, in which order its bundles are.

use std::collections::BTreeMap;

use trace_schema::Host;

use super::bundle::{Bundle, Current};
use crate::protobuf::{Fields, ReadError};

/// Clocks as Perfetto numbers them.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
const BOOTTIME: u64 = 6;

/// Fields of a packet that are no content of their own: time, sequence, flags, what was interned, who wrote it.
const ENVELOPE: &[u64] = &[3, 8, 10, 12, 13, 41, 42, 58, 59, 75, 76, 79, 80, 87, 88, 98, 99];
/// What is read, and what says nothing of the machine.
const KNOWN: &[u64] = &[1, 2, 6, 33, 34, 35, 36, 45, 69, 72, 89, 90];
/// Names of frequent packets; others are said by number.
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

/// One reading of the clocks.
#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    real: Option<i64>,
    monotonic: Option<i64>,
    boot: Option<i64>,
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) processes: BTreeMap<u32, u32>,
    /// Names of threads, and command lines of processes.
    pub(super) names: BTreeMap<u32, String>,
    pub(super) commands: BTreeMap<u32, Vec<String>>,
    pub(super) host: Host,
    /// Time of the first event of each bundle; none has one: the largest there is.
    pub(super) firsts: Vec<i64>,
    /// `FtraceClock` of the first bundle, and what to add to its times for CLOCK_BOOTTIME.
    pub(super) clock: u64,
    pub(super) to_boot_ns: Option<i64>,
    snapshots: Option<(Snapshot, Snapshot)>,
    others: BTreeMap<u64, u64>,
    other_events_count: u64,
    /// Packets before which some were dropped.
    dropped_count: u64,
    /// Packets of other machines.
    foreign_count: u64,
}

impl Survey {
    /// Takes a packet.
    pub(super) fn packet(&mut self, mut packet: Fields<'_>, current: &mut Current) -> Result<(), ReadError> {
        if is_foreign(packet)? {
            self.foreign_count += 1;
            return Ok(());
        }
        while let Some((field, value, offset)) = packet.next()? {
            match field {
                1 => self.bundle(&Bundle::read(value.fields(offset)?, current)?),
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
            self.to_boot_ns = Some(boot.wrapping_sub(ftrace));
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
            let (mut id, mut group, mut texts) = (None, None, Vec::new());
            while let Some((field, value, offset)) = fields.next()? {
                let mut text = || -> Result<(), ReadError> {
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
            // The first holds for the events before it; what comes later is told by events.
            self.processes.entry(id).or_insert(group);
            if is_process {
                self.commands.entry(id).or_insert(texts);
            } else if let Some(name) = texts.pop() {
                self.names.entry(id).or_insert(name);
            }
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
                    2 => time = i64::try_from(value.number(offset)?).ok(),
                    // Differences, or another unit: those clocks are none of ours.
                    3 | 4 => is_plain = value.number(offset)? == u64::from(field == 4),
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

    /// What to add to times on CLOCK_BOOTTIME for CLOCK_MONOTONIC, and to those for Unix time: at the first snapshot, and
    /// by how much the last one differs.
    pub(super) fn offsets(&self) -> Option<Offsets> {
        let (first, last) = self.snapshots?;
        let monotonic = |at: Snapshot| Some(at.monotonic? - at.boot?);
        let wall = |at: Snapshot| Some(at.real? - at.monotonic?);
        let wall_ns = wall(first);
        Some(Offsets {
            monotonic_ns: monotonic(first)?,
            suspended_ns: monotonic(first)? - monotonic(last)?,
            wall_ns,
            wall_step_ns: wall(last).zip(wall_ns).map_or(0, |(last, first)| last - first),
        })
    }

    /// Content that is not read, by name and number.
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

    /// What was dropped without a number of events.
    pub(super) fn dropped(&self) -> Option<String> {
        (self.dropped_count > 0)
            .then(|| format!("what was dropped before {} packets of the trace", self.dropped_count))
    }
}

/// How clocks relate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) monotonic_ns: i64,
    /// The machine slept between the snapshots.
    pub(super) suspended_ns: i64,
    pub(super) wall_ns: Option<i64>,
    pub(super) wall_step_ns: i64,
}

/// Whether a packet is of another machine than the one that recorded.
pub(super) fn is_foreign(mut packet: Fields<'_>) -> Result<bool, ReadError> {
    while let Some((field, value, offset)) = packet.next()? {
        if field == 98 {
            return Ok(value.number(offset)? != 0);
        }
    }
    Ok(false)
}
