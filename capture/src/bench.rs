//! `capture bench`: measures the overhead of recording on this machine, with all variants in one run.
//!
//! 1. A call of an empty function: unprobed, with empty probes (the floor), and with the real ones.
//! 2. An event on its way from the ring buffer to the file: CPU time of the recorder.
//! 3. A flood: callers on every CPU, the whole path against a recorder that discards every event.
//!
//! Costs are medians of interleaved rounds; only ratios mean anything on a shared machine.

use std::{
    collections::BTreeMap,
    fmt::Write,
    hint::black_box,
    os::fd::AsRawFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aya::maps::{MapData, RingBuf};
use capture_wire::{cookie, target};
use clap::ValueEnum;
use serde::Serialize;
use trace_schema::{Bytes, Run};
use trace_writer::Recorder;

use crate::{
    caller::Callers,
    clock,
    decode::{self, Event},
    error::CaptureError,
    kernel::{Kernel, Method, Point, PointKind, Setup},
    probes::{self, calls},
    session::wait,
};

const ROUNDS: usize = 9;
const CALLS: u64 = 20_000;
const WARM_UP: u64 = 2_000;
/// Events that one measurement of the reader takes: they fit into the buffer.
const READ_EVENTS: u64 = 250_000;
const FLOOD: Duration = Duration::from_secs(2);
const PACED: Duration = Duration::from_secs(1);

/// The function that is probed. It does nothing, so all that is measured is the probe. It begins as real
/// functions do: the kernel emulates a push, and would need a second, more expensive trap for most other instructions.
#[unsafe(naked)]
extern "C" fn probed(_address: u64, _size: u64) -> u64 {
    core::arch::naked_asm!("push rbp", "mov rbp, rsp", "mov rax, rdi", "pop rbp", "ret")
}

/// A way to probe a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Variant {
    Nothing,
    Floor,
    Entry,
    Call(Method),
}

impl Variant {
    const ALL: [Self; 6] = [
        Self::Nothing,
        Self::Floor,
        Self::Entry,
        Self::Call(Method::Session),
        Self::Call(Method::Multi),
        Self::Call(Method::Single),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no probe",
            Self::Floor => "entry and return, empty programs (baseline)",
            Self::Entry => "entry only, one event",
            Self::Call(Method::Session) => "entry and return, one event, session",
            Self::Call(Method::Multi) => "entry and return, one event, multi",
            Self::Call(Method::Single) => "entry and return, one event, single",
            Self::Call(Method::Auto) => "entry and return, one event",
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Call(method) => method,
            Self::Floor => Method::Single,
            Self::Nothing | Self::Entry => Method::Auto,
        }
    }
}

/// Overhead of one way to probe a call.
#[derive(Debug, Serialize)]
struct CallCost {
    variant: &'static str,
    /// Median over the rounds, in nanoseconds, less the unprobed call.
    cost_ns: f64,
    /// Lowest and highest round, in nanoseconds, less the unprobed call.
    spread_ns: (f64, f64),
    /// `cost_ns` divided by that of empty programs.
    floor_ratio: f64,
}

/// CPU time of one step of the recorder.
#[derive(Debug, Serialize)]
struct ReaderCost {
    what: &'static str,
    cpu_ns_per_event: f64,
}

/// Result of one flood.
#[derive(Debug, Serialize)]
struct Flood {
    what: String,
    buffer_bytes: u32,
    made_count: u64,
    recorded_count: u64,
    lost_count: u64,
    made_per_s: f64,
    recorded_per_s: f64,
    /// Whether `recorded + lost = made`: every lost event was counted.
    exact: bool,
}

/// Results of all measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    cpus: usize,
    calls: Vec<CallCost>,
    reader: Vec<ReaderCost>,
    floods: Vec<Flood>,
}

/// A probed function of this program, and the events that its calls make.
struct Rig {
    kernel: Kernel,
    events: RingBuf<MapData>,
    probe: u32,
}

/// Where [`probed`] lies in this program's file.
fn location() -> Result<(PathBuf, u64), CaptureError> {
    let mut callers = Callers::default();
    let place = callers.place(std::process::id(), probed as *const () as u64);
    let place = place.ok_or(CaptureError::MissingPart("function in this program's own memory map"))?;
    Ok((PathBuf::from("/proc/self/exe"), place.offset))
}

impl Rig {
    fn new(variant: Variant, buffer_bytes: u32) -> Result<Self, CaptureError> {
        let setup = Setup { buffer_bytes, method: variant.method(), ..Setup::default() };
        let (mut kernel, events) = Kernel::load(&setup)?;
        kernel.add_target(std::process::id(), target::RECORD)?;
        let probe = probes::numbered()
            .find(|(_, probe)| probe.symbol == "cuMemFree_v2")
            .map(|(number, _)| number)
            .ok_or(CaptureError::MissingPart("probe to measure with"))?;
        let (path, offset) = location()?;
        let kind = match variant {
            Variant::Nothing => return Ok(Self { kernel, events, probe }),
            Variant::Floor => {
                let refused = [
                    kernel.hook("floor_return", &path, offset, 0)?,
                    kernel.hook("floor_entry", &path, offset, 0)?,
                ];
                return match refused.into_iter().flatten().next() {
                    Some(error) => Err(CaptureError::Multi { what: "the empty probes", error }),
                    None => Ok(Self { kernel, events, probe }),
                };
            }
            Variant::Entry => PointKind::Entry,
            Variant::Call(_) => PointKind::Call,
        };
        let point = Point { offset, cookie: cookie::pack(probe, None, 0), kind };
        match kernel.attach_functions(&path, &[point])?.into_iter().flatten().next() {
            Some(error) => Err(CaptureError::Multi { what: "the probes to measure", error }),
            None => Ok(Self { kernel, events, probe }),
        }
    }

    fn discard(&mut self) -> u64 {
        let mut count = 0;
        while self.events.next().is_some() {
            count += 1;
        }
        count
    }
}

fn call_many(count: u64) {
    for i in 0..count {
        black_box(probed(black_box(0x7f00_0000 + i), 64));
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn call_costs() -> Result<Vec<CallCost>, CaptureError> {
    let mut rounds: BTreeMap<Variant, Vec<f64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for variant in Variant::ALL {
            let mut rig = match Rig::new(variant, 64 << 20) {
                Ok(rig) => rig,
                // This kernel has no such method.
                Err(CaptureError::Multi { .. }) => continue,
                Err(error) => return Err(error),
            };
            call_many(WARM_UP);
            let start = Instant::now();
            call_many(CALLS);
            rounds.entry(variant).or_default().push(start.elapsed().as_nanos() as f64 / CALLS as f64);
            rig.discard();
        }
    }
    let bare = rounds.get_mut(&Variant::Nothing).map_or(0.0, |values| median(values));
    let floor = rounds.get_mut(&Variant::Floor).map_or(f64::NAN, |values| median(values)) - bare;
    let cost = |(variant, mut values): (Variant, Vec<f64>)| {
        let cost_ns = median(&mut values) - bare;
        let ends = (values.first().copied(), values.last().copied());
        CallCost {
            variant: variant.name(),
            cost_ns,
            spread_ns: (ends.0.unwrap_or(f64::NAN) - bare, ends.1.unwrap_or(f64::NAN) - bare),
            floor_ratio: cost_ns / floor,
        }
    };
    Ok(rounds.into_iter().filter(|(variant, _)| *variant != Variant::Nothing).map(cost).collect())
}

/// A recorder of its own in a temporary folder.
struct Sink {
    recorder: Recorder,
    callers: Callers,
    path: PathBuf,
}

impl Sink {
    fn new() -> Result<Self, CaptureError> {
        // With the time, so that nobody can know the name before.
        let name = format!("inquest-bench-{}-{}.parquet", std::process::id(), clock::monotonic_ns());
        let path = std::env::temp_dir().join(name);
        Ok(Self {
            recorder: Recorder::create(&path, false, &Run::default())?,
            callers: Callers::default(),
            path,
        })
    }

    fn drain(&mut self, events: &mut RingBuf<MapData>) -> Result<u64, CaptureError> {
        let mut count = 0;
        while let Some(item) = events.next() {
            let event = decode::decode(&item)?;
            drop(item);
            if let Event::Call(call) = event {
                self.recorder.push_with(|rows| calls::write(&call, false, None, &mut self.callers, rows))?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn finish(self) -> Result<u64, CaptureError> {
        let finished = self.recorder.finish(&Run::default())?;
        // A temporary file that cannot be removed is the system's to clean up.
        let _ = std::fs::remove_file(&self.path);
        Ok(finished.rows_count)
    }
}

fn reader_costs() -> Result<Vec<ReaderCost>, CaptureError> {
    let mut costs: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS.div_ceil(3) {
        let mut rig = Rig::new(Variant::Call(Method::Session), 128 << 20)
            .or_else(|_| Rig::new(Variant::Call(Method::Single), 128 << 20))?;
        let timed = |rig: &mut Rig, work: &mut dyn FnMut(&mut Rig) -> Result<u64, CaptureError>| {
            call_many(READ_EVENTS);
            let start = clock::thread_cpu_ns();
            let count = work(rig)?;
            Ok::<f64, CaptureError>((clock::thread_cpu_ns() - start) as f64 / count.max(1) as f64)
        };
        costs[0].push(timed(&mut rig, &mut |rig| Ok(rig.discard()))?);
        let mut sink = Sink::new()?;
        // The first fill meets memory that nobody has touched yet; a recording does so once.
        call_many(READ_EVENTS);
        sink.drain(&mut rig.events)?;
        sink.recorder.flush()?;
        costs[1].push(timed(&mut rig, &mut |rig| {
            let count = sink.drain(&mut rig.events)?;
            sink.recorder.flush()?;
            Ok(count)
        })?);
        let start = clock::thread_cpu_ns();
        let rows = sink.finish()?;
        costs[2].push((clock::thread_cpu_ns() - start) as f64 / rows.max(1) as f64);
    }
    let what = [
        "ring buffer, events discarded",
        "ring buffer to recording on disk",
        "recording to Parquet, at the end",
    ];
    Ok(what
        .into_iter()
        .zip(&mut costs)
        .map(|(what, values)| ReaderCost { what, cpu_ns_per_event: median(values) })
        .collect())
}

/// Callers on every CPU for a while, each at `per_thread` calls a second or as fast as it can.
fn callers(
    duration: Duration,
    threads: usize,
    per_thread: Option<f64>,
) -> (Vec<thread::JoinHandle<()>>, Arc<AtomicU64>) {
    let made = Arc::new(AtomicU64::new(0));
    let handles = (0..threads)
        .map(|_| {
            let made = Arc::clone(&made);
            thread::spawn(move || {
                let start = Instant::now();
                let mut own = 0u64;
                while start.elapsed() < duration {
                    call_many(100);
                    own += 100;
                    if let Some(rate) = per_thread {
                        let due = Duration::from_secs_f64(own as f64 / rate);
                        thread::sleep(due.saturating_sub(start.elapsed()));
                    }
                }
                made.fetch_add(own, Ordering::Relaxed);
            })
        })
        .collect();
    (handles, made)
}

fn flood(what: String, buffer_bytes: u32, discard: bool, rate: Option<f64>) -> Result<Flood, CaptureError> {
    let mut rig = Rig::new(Variant::Call(Method::Session), buffer_bytes)
        .or_else(|_| Rig::new(Variant::Call(Method::Single), buffer_bytes))?;
    let mut sink = Sink::new()?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let duration = if rate.is_some() { PACED } else { FLOOD };
    let start = Instant::now();
    let (handles, made) = callers(duration, threads, rate.map(|rate| rate / threads as f64));
    let mut recorded = 0;
    loop {
        let done = handles.iter().all(thread::JoinHandle::is_finished);
        recorded += if discard { rig.discard() } else { sink.drain(&mut rig.events)? };
        if done {
            break;
        }
        wait(rig.events.as_raw_fd(), None, Duration::from_millis(50));
    }
    let calling_s = start.elapsed().as_secs_f64();
    if !discard {
        recorded = sink.finish()?;
    }
    let total_s = start.elapsed().as_secs_f64();
    let (made_count, lost_count) = (made.load(Ordering::Relaxed), rig.kernel.lost(rig.probe)?);
    Ok(Flood {
        what,
        buffer_bytes,
        made_count,
        recorded_count: recorded,
        lost_count,
        made_per_s: made_count as f64 / calling_s,
        recorded_per_s: recorded as f64 / total_s,
        exact: recorded + lost_count == made_count,
    })
}

/// Part of the benchmark to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// All of these, in about a minute
    All,
    /// Overhead of a probed call
    Calls,
    /// CPU time of the recorder per event
    Reader,
    /// Call rates at which events begin to be lost
    Floods,
}

/// Runs the measurements of `part`.
///
/// # Errors
/// If this machine cannot trace, or a temporary file cannot be written.
pub(crate) fn run(part: Part) -> Result<Report, CaptureError> {
    let wanted = |one| part == Part::All || part == one;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    Ok(Report {
        cpus,
        calls: if wanted(Part::Calls) { call_costs()? } else { Vec::new() },
        reader: if wanted(Part::Reader) { reader_costs()? } else { Vec::new() },
        floods: if wanted(Part::Floods) { floods()? } else { Vec::new() },
    })
}

fn floods() -> Result<Vec<Flood>, CaptureError> {
    let mut floods = vec![
        flood("every event discarded".to_owned(), 64 << 20, true, None)?,
        flood("whole path to Parquet".to_owned(), 64 << 20, false, None)?,
        flood("whole path to Parquet, tiny buffer".to_owned(), 64 << 10, false, None)?,
    ];
    let most = floods[1].made_per_s;
    for part in [0.25, 0.5, 0.75] {
        let rate = most * part;
        floods.push(flood(format!("whole path at {rate:.0} calls/s"), 64 << 20, false, Some(rate))?);
    }
    Ok(floods)
}

impl Report {
    /// The report as JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).map_or_else(|error| format!("{error}\n"), |json| json + "\n")
    }

    /// The report as text.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!(
            "On {} CPUs. Overhead of a probed call (median; lowest and highest round; ratio to empty programs):\n",
            self.cpus
        );
        // Writing to a string cannot fail.
        for call in &self.calls {
            let (low, high) = call.spread_ns;
            let _ = writeln!(
                text,
                "  {:46} {:7.0} ns  ({low:.0} to {high:.0})  {:.2}x",
                call.variant, call.cost_ns, call.floor_ratio
            );
        }
        text += "CPU time of the recorder per event:\n";
        for reader in &self.reader {
            let _ = writeln!(text, "  {:46} {:7.0} ns", reader.what, reader.cpu_ns_per_event);
        }
        text += "Floods (calls and rows per second; calls made = rows recorded + events lost; exact if they add up):\n";
        for flood in &self.floods {
            let _ = writeln!(
                text,
                "  {:46} {:>8.0} calls/s, {:>8.0} rows/s, buffer {}: {} = {} + {} lost: {}",
                flood.what,
                flood.made_per_s,
                flood.recorded_per_s,
                Bytes(i64::from(flood.buffer_bytes)),
                flood.made_count,
                flood.recorded_count,
                flood.lost_count,
                if flood.exact { "exact" } else { "NOT EXACT" }
            );
        }
        text
    }
}
