//! Imports traces of Perfetto, as far as the Linux scheduler is concerned: bundles of ftrace events, also
//! compact and compressed; processes and threads, clocks, the machine.
//!
//! A reader has to know: a bundle has the events of one CPU in order, and bundles are in no order; times are
//! on CLOCK_BOOTTIME unless a bundle says otherwise, and clock snapshots relate it to the other clocks; the
//! process of a thread may be stated only at the end. So the file is read twice:
//!
//! ```text
//! survey   processes, clocks, and the first time of each bundle
//! events   bundle 1, bundle 2, …  ─► wait until no later bundle begins before them ─► machine ─► rows
//! ```

mod bundle;
mod survey;
#[cfg(test)]
mod tests;

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    io::Read,
    path::Path,
};

use flate2::read::ZlibDecoder;
use trace_schema::{Clock, ProcessInfo, Run, TIME_LIMIT_NS};
use trace_writer::{Finished, Recorder, WriteError};

use self::{
    bundle::{Bundle, Current, Waiting},
    survey::{Survey, is_foreign},
};
use super::{
    compressed,
    importer::{Head, Importer, Job},
    sched::machine::{Machine, Task},
};
use crate::protobuf::{Fields, ReadError, Stream};
use analyze_run::error::{AnalyzeError, Place};

/// Largest number of events that may wait for earlier ones.
const MAX_WAITING: usize = 1 << 22;
/// Fields of a packet that hold compressed packets.
const DEFLATED: u64 = 50;
const ZSTANDARD: u64 = 133;
/// Largest plausible number of a packet's field: the largest so far, with room for more. Bytes with a larger
/// one are not a packet.
const MAX_FIELD: u64 = 1000;

/// Traces of Perfetto.
pub(super) struct Perfetto;

impl Importer for Perfetto {
    fn name(&self) -> &'static str {
        "perfetto"
    }

    fn about(&self) -> &'static str {
        "Trace of Perfetto (`.pftrace`, `.perfetto-trace`) with ftrace's sched events, also with gzip"
    }

    fn sniff(&self, head: &Head<'_>) -> bool {
        sniff(head.bytes)
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        import(job.file, job.out, job.force)
    }
}

/// The reason why a trace could not be converted.
enum Failure {
    /// The trace is damaged or cannot be read.
    Read(ReadError),
    /// The run cannot be written.
    Write(WriteError),
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

/// Returns whether a file begins with a packet whose field numbers are plausible, as a Perfetto trace does.
fn sniff(bytes: &[u8]) -> bool {
    let mut stream = Stream::new(bytes, 0);
    let is_packet = |mut packet: Fields<'_>| {
        let mut count = 0;
        loop {
            match packet.next() {
                Ok(Some((field, ..))) if field <= MAX_FIELD => count += 1,
                Ok(None) => return count > 0,
                _ => return false,
            }
        }
    };
    match stream.next() {
        Ok(Some((1, packet))) => is_packet(packet),
        // The first packet may be longer than the bytes that are examined.
        Err(ReadError::At { offset: 0, .. } | ReadError::CutOff { offset: 0, .. }) => {
            let Ok(Some((1, ..))) = Fields::new(bytes, 0).next() else {
                return bytes.first() == Some(&0x0a) && begins_long(bytes);
            };
            false
        }
        _ => false,
    }
}

/// Returns whether a first packet that continues beyond the bytes has plausible field numbers.
fn begins_long(bytes: &[u8]) -> bool {
    let after_tag = &bytes[1..];
    let Some(length) = after_tag.iter().position(|byte| byte & 0x80 == 0) else { return false };
    let mut packet = Fields::new(&after_tag[length + 1..], 0);
    let mut count = 0;
    loop {
        match packet.next() {
            Ok(Some((field, ..))) if (1..=MAX_FIELD).contains(&field) => count += 1,
            Ok(_) => return count > 0,
            // The packet is cut off where the bytes end.
            Err(ReadError::CutOff { .. }) => return count > 0,
            Err(ReadError::At { .. } | ReadError::Io(_)) => return false,
        }
    }
}

/// Passes every packet of a stream to `take`, including those in compressed packets.
fn each(source: impl Read, take: &mut dyn FnMut(Fields<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut stream = Stream::new(source, 0);
    while let Some((field, packet)) = stream.next()? {
        if field != 1 {
            continue;
        }
        let mut fields = packet;
        let mut is_plain = true;
        while let Some((field, value, offset)) = fields.next()? {
            match field {
                DEFLATED => {
                    is_plain = false;
                    let inner = value.fields(offset)?;
                    let mut stream = Stream::new(ZlibDecoder::new(inner.bytes()), 0);
                    loop {
                        // Offsets in decompressed bytes are not offsets in the file.
                        match stream.next() {
                            Ok(None) => break,
                            Ok(Some((1, packet))) => {
                                take(packet).map_err(|failure| within(failure, offset))?;
                            }
                            Ok(Some(_)) => {}
                            Err(error) => return Err(within(error.into(), offset)),
                        }
                    }
                }
                ZSTANDARD => {
                    let reason =
                        "packets compressed with Zstandard are not read: record with deflate, or none";
                    return Ok(ReadError::at(offset, reason)?);
                }
                _ => {}
            }
        }
        if is_plain {
            take(packet)?;
        }
    }
    Ok(())
}

/// Changes an error in compressed packets to one at the offset of the packet that holds them.
fn within(failure: Failure, packet: u64) -> Failure {
    match failure {
        Failure::Read(ReadError::At { offset, reason } | ReadError::CutOff { offset, reason }) => {
            Failure::Read(ReadError::At {
                offset: packet,
                reason: format!("in the compressed packets here, at byte {offset} of them: {reason}"),
            })
        }
        other => other,
    }
}

/// Converts a trace to a run at `out`. An existing run is replaced only if `force` is set.
///
/// # Errors
/// Returns an error if the trace has no context switches or is damaged, or the run cannot be written.
fn import(path: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    let failed = |failure| match failure {
        Failure::Write(error) => error.into(),
        Failure::Read(ReadError::Io(source)) => io(source),
        Failure::Read(ReadError::At { offset, reason } | ReadError::CutOff { offset, reason }) => {
            AnalyzeError::unreadable(path, Place::Byte(offset), reason)
        }
    };
    let open = || compressed::open(path).map(|(bytes, _)| bytes).map_err(io);
    let mut survey = Survey::default();
    let mut current = Current::new();
    each(open()?, &mut |packet| Ok(survey.packet(packet, &mut current)?)).map_err(failed)?;
    let recorder = Recorder::create(out, force, &Run::default())?;
    let mut reader = Reader::new(&survey, Machine::new(recorder, run(&survey)));
    let read = open().and_then(|bytes| each(bytes, &mut |packet| reader.packet(packet)).map_err(failed));
    let mut machine = reader.machine;
    match read {
        Ok(()) if machine.switches() == 0 => {
            machine.discard();
            let others = survey.others().join(", ");
            let reason = format!(
                "it has no sched_switch events of ftrace; what is not read: {}. A timeline that `analyze export \
                 perfetto` wrote does not become a run again: `analyze export events` does",
                if others.is_empty() { "nothing" } else { &others }
            );
            Err(AnalyzeError::unreadable(path, Place::WholeFile, reason))
        }
        Ok(()) => {
            for (tid, name) in &survey.names {
                if !machine.is_named(*tid) {
                    machine.name(Task { tid: *tid, comm: name });
                }
            }
            Ok(machine.finish()?)
        }
        Err(error) => {
            machine.discard();
            Err(error)
        }
    }
}

/// Returns the metadata that are known before the first event.
fn run(survey: &Survey) -> Run {
    let mut run = Run {
        producer: "imported from Perfetto".to_owned(),
        host: survey.host.clone(),
        processes: survey
            .commands
            .iter()
            .map(|(pid, command)| ProcessInfo {
                pid: *pid,
                command: command.clone(),
                ..ProcessInfo::default()
            })
            .collect(),
        lost_is_counted: true,
        ..Run::default()
    };
    let others = survey.others();
    if !others.is_empty() {
        run.not_captured.push(format!("what is not read: {}", others.join(", ")));
    }
    run.not_captured.extend(survey.dropped());
    let clock = match (survey.clock, survey.to_boot_ns, survey.offsets()) {
        (0, _, Some(_)) | (_, Some(_), Some(_)) => None,
        (0, _, None) | (_, Some(_), None) => Some("CLOCK_BOOTTIME"),
        (2, None, _) => Some("ftrace's clock global"),
        (3, None, _) => Some("ftrace's clock local"),
        (4, None, _) => Some("CLOCK_MONOTONIC_RAW"),
        _ => Some("a clock that is not told"),
    };
    if let Some(clock) = clock {
        run.not_captured
            .push(format!("the time of day: times are on {clock}, which no snapshot ties to others"));
    } else if let Some(offsets) = survey.offsets() {
        run.clock.wall_offset_ns = offsets.wall_ns.unwrap_or_default();
        run.clock.wall_step_ns = offsets.wall_step_ns;
        run.not_captured.push("the error of the time of day".to_owned());
        if offsets.suspended_ns > 0 {
            run.not_captured.push(format!(
                "when the machine slept for {} ns: times after it are later than on CLOCK_MONOTONIC",
                offsets.suspended_ns
            ));
        } else if survey.clock == 0 {
            run.clock.base = Clock::MONOTONIC.to_owned();
        }
    }
    run
}

/// An event that waits. The order suits a max-heap: the earliest event is the greatest, and of events with
/// equal times the one that was read first.
struct Entry {
    number: u64,
    event: Waiting,
    /// Set if events before this one were lost.
    is_after_loss: bool,
}

impl Entry {
    fn key(&self) -> Reverse<(i64, u64)> {
        Reverse((self.event.at.ts, self.number))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Passes the events of all bundles to the scheduler's state machine in the order of time.
struct Reader {
    machine: Machine,
    current: Current,
    /// Offset that is added to the times of events, in ns.
    offset_ns: i64,
    /// The earliest time of all bundles after each bundle, on the trace's clock in ns.
    rest_from: Vec<i64>,
    bundles: usize,
    waiting: BinaryHeap<Entry>,
    count: u64,
    says_untold: bool,
}

impl Reader {
    fn new(survey: &Survey, mut machine: Machine) -> Self {
        for (tid, pid) in &survey.processes {
            machine.learn(*tid, *pid);
        }
        let mut rest_from = survey.firsts.clone();
        let mut least = i64::MAX;
        for first in rest_from.iter_mut().rev() {
            let own = std::mem::replace(first, least);
            least = least.min(own);
        }
        let to_boot_ns = if survey.clock == 0 { Some(0) } else { survey.to_boot_ns };
        let offset_ns = match (to_boot_ns, survey.offsets()) {
            (Some(to_boot), Some(offsets)) => to_boot.saturating_add(offsets.monotonic_ns),
            (Some(to_boot), None) => to_boot,
            (None, _) => 0,
        };
        Self {
            machine,
            current: Current::new(),
            offset_ns,
            rest_from,
            bundles: 0,
            waiting: BinaryHeap::new(),
            count: 0,
            says_untold: false,
        }
    }

    fn packet(&mut self, mut packet: Fields<'_>) -> Result<(), Failure> {
        if is_foreign(packet)? {
            return Ok(());
        }
        while let Some((field, value, offset)) = packet.next()? {
            if field != 1 {
                continue;
            }
            let bundle = Bundle::read(value.fields(offset)?, &mut self.current)?;
            // A loss is placed before the first event of its bundle.
            let first = bundle.events.iter().map(|event| event.at.ts).min();
            let mut has_lost = bundle.has_lost;
            for event in bundle.events {
                let is_after_loss = has_lost && Some(event.at.ts) == first;
                has_lost &= !is_after_loss;
                self.waiting.push(Entry { number: self.count, event, is_after_loss });
                self.count += 1;
            }
            if self.waiting.len() > MAX_WAITING {
                let reason = "too many events wait for earlier ones: the trace is in no order";
                return Ok(ReadError::at(offset, reason)?);
            }
            let until = self.rest_from.get(self.bundles).copied().unwrap_or(i64::MAX);
            self.bundles += 1;
            self.release(until, offset)?;
        }
        Ok(())
    }

    /// Passes on the events that no later bundle can precede, which are those before `until`.
    fn release(&mut self, until: i64, offset: u64) -> Result<(), Failure> {
        let is_due = |entry: &Entry| entry.event.at.ts < until || until == i64::MAX;
        while let Some(Entry { mut event, is_after_loss, .. }) =
            self.waiting.peek().is_some_and(is_due).then(|| self.waiting.pop()).flatten()
        {
            let ts = event.at.ts.checked_add(self.offset_ns);
            let Some(ts) = ts.filter(|ts| (0..=TIME_LIMIT_NS).contains(ts)) else {
                let reason = format!("a time is {}, and {} to add", event.at.ts, self.offset_ns);
                return Ok(ReadError::at(offset, reason)?);
            };
            event.at.ts = ts;
            if is_after_loss {
                self.machine.lost(ts, event.at.cpu, 1);
                if !std::mem::replace(&mut self.says_untold, true) {
                    let limits = &mut self.machine.run.not_captured;
                    limits.push("how many events were lost each time: at least one".to_owned());
                }
            }
            self.machine.event(&event.at, &event.event())?;
            if let Some(reason) = self.machine.excess() {
                return Ok(ReadError::at(offset, reason)?);
            }
        }
        Ok(())
    }
}
