//! Imports scheduler events from the text output of other tools: `perf script` and `perf sched timehist`;
//! `trace` and `trace_pipe` of ftrace, and `trace-cmd report`.
//!
//! A reader has to know: a `sched_switch` belongs to the thread that leaves and names the one that comes;
//! `sched_waking` runs on the waker's CPU, and `sched_wakeup` may run on another; ftrace's flags tell an
//! interrupt from the thread that it interrupted, and perf's text does not; neither says on which clock its
//! times are; lines are in the order of time, and a line that is not is refused.

mod event;
mod line;
pub(super) mod lines;
pub(super) mod machine;
pub(super) mod state;
#[cfg(test)]
pub(super) mod tests;
mod timehist;

use std::{collections::BTreeMap, io::Read, path::Path};

use trace_schema::Run;
use trace_writer::{Finished, Recorder, WriteError};

use self::{
    lines::{LineError, Lines},
    machine::Machine,
};
use super::{
    compressed,
    importer::{Head, Importer, Job},
    limits::CPUS_COUNT,
};
use analyze_run::error::{AnalyzeError, Place};

/// The event of a new thread's first wakeup, which is not used: the first time that a thread runs does not
/// end an off-CPU interval.
const FIRST_WAKEUP: &str = "sched_wakeup_new";
/// Beginning of the statement that times are on a clock without a relation to Unix time.
const NO_TIME_OF_DAY: &str = "the time of day";
/// Statement that the time of day is known, and not how well.
const TIME_OF_DAY_ERROR: &str = "the error of the time of day";
/// Largest number of other events that are counted by name.
const MAX_OTHERS: usize = 32;

/// The tool that wrote a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `perf script`, or `perf sched timehist`.
    Perf,
    /// ftrace, or `trace-cmd report`.
    Ftrace,
}

impl Importer for Source {
    fn name(&self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Ftrace => "ftrace",
        }
    }

    fn about(&self) -> &'static str {
        match self {
            Self::Perf => {
                "Text of `perf script` with sched events, or of `perf sched timehist`, also with gzip"
            }
            Self::Ftrace => {
                "Text of ftrace (`trace` or `trace_pipe` of tracefs, `trace-cmd report`) with sched events, also \
                 with gzip"
            }
        }
    }

    fn sniff(&self, head: &Head<'_>) -> bool {
        sniff(head.bytes) == Some(*self)
    }

    fn convert(&self, job: &Job<'_>) -> Result<Finished, AnalyzeError> {
        import(*self, job.file, job.out, job.force)
    }
}

/// The reason why a text could not be converted.
enum Failure {
    /// A line is wrong, or the text cannot be read.
    Line(LineError),
    /// The run cannot be written.
    Write(WriteError),
}

impl From<LineError> for Failure {
    fn from(error: LineError) -> Self {
        Self::Line(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

/// Returns the tool that wrote a text that begins with these bytes, or `None` if it is not recognized.
fn sniff(bytes: &[u8]) -> Option<Source> {
    let text = String::from_utf8_lossy(bytes);
    if text.starts_with("# tracer: ") || text.starts_with("cpus=") {
        return Some(Source::Ftrace);
    }
    text.lines().take(1000).find_map(|text| {
        if timehist::is_head(text) {
            return Some(Source::Perf);
        }
        let found = line::parse(text)?;
        let is_perf =
            text.contains(&format!(":{}: ", found.event)) || found.event.starts_with("PERF_RECORD_");
        (is_perf || found.at.cpu.is_some()).then_some(if is_perf { Source::Perf } else { Source::Ftrace })
    })
}

/// Converts a text to a run at `out`. An existing run is replaced only if `force` is set.
///
/// # Errors
/// Returns an error if the text has no context switches, a line is damaged, or the run cannot be written.
fn import(source: Source, path: &Path, out: &Path, force: bool) -> Result<Finished, AnalyzeError> {
    let io = |source| AnalyzeError::Io { path: path.to_owned(), source };
    let (bytes, _) = compressed::open(path).map_err(io)?;
    let recorder = Recorder::create(out, force, &Run::default())?;
    let mut reader = Reader::new(source, Machine::new(recorder, run(source)));
    let read = reader.read(&mut Lines::new(bytes));
    let failed = |failure| match failure {
        Failure::Write(error) => error.into(),
        Failure::Line(LineError::Io(source)) => io(source),
        Failure::Line(LineError::At { line, reason }) => {
            AnalyzeError::unreadable(path, Place::Line(line), reason)
        }
    };
    match read.map_err(failed) {
        Ok(()) if reader.machine.switches() == 0 => {
            let reason = format!("it has no sched_switch events{}", reader.others_said());
            reader.machine.discard();
            Err(AnalyzeError::unreadable(path, Place::WholeFile, reason))
        }
        Ok(()) => Ok(reader.finish()?),
        Err(error) => {
            reader.machine.discard();
            Err(error)
        }
    }
}

/// Returns the metadata that are known before the first line.
fn run(source: Source) -> Run {
    let (producer, clock, losses) = match source {
        Source::Perf => (
            "imported from perf",
            "which clock the times are on: perf's text does not say; its own, unless it was told another (perf record -k)",
            "events that perf lost: its text has them only with --show-lost-events",
        ),
        Source::Ftrace => (
            "imported from ftrace",
            "which clock the times are on: ftrace's text does not say (trace_clock; local, unless it was set)",
            "",
        ),
    };
    Run {
        producer: producer.to_owned(),
        lost_is_counted: source == Source::Ftrace,
        not_captured: [clock, losses]
            .into_iter()
            .filter(|what| !what.is_empty())
            .map(str::to_owned)
            .collect(),
        ..Run::default()
    }
}

/// Returns what has to be added to a time to get Unix time, in ns, from perf's pair of times of one moment:
/// `DATE = SECONDS (TOD) = SECONDS (CLOCK)`.
fn wall_offset_ns(reference: &str) -> Option<i64> {
    let mut times = reference.split(" = ").skip(1).filter_map(|part| line::seconds(part.split(' ').next()?));
    let ((wall_ns, _), (clock_ns, _)) = (times.next()?, times.next()?);
    wall_ns.checked_sub(clock_ns)
}

/// Passes the events of a text's lines to the scheduler's state machine.
struct Reader {
    source: Source,
    machine: Machine,
    /// Number of the events that are not read, by name.
    others: BTreeMap<String, u64>,
    /// Smallest number of digits of a time after the decimal point.
    digits: usize,
    /// Number of switches whose line states another thread than the one that leaves: its ids are of another
    /// PID namespace.
    foreign_count: u64,
    /// Number of events that were overwritten in full buffers before they could be read.
    overwritten_count: u64,
    /// CPU whose buffer began late: its overwritten events are reported as lost before its next event.
    began_late: Option<u32>,
}

impl Reader {
    fn new(source: Source, machine: Machine) -> Self {
        Self {
            source,
            machine,
            others: BTreeMap::new(),
            digits: 9,
            foreign_count: 0,
            overwritten_count: 0,
            began_late: None,
        }
    }

    fn read(&mut self, lines: &mut Lines<impl Read>) -> Result<(), Failure> {
        while lines.read()? {
            let text = lines.text();
            if timehist::is_head(&text) && self.source == Source::Perf && self.machine.switches() == 0 {
                let has_state = text.split_whitespace().any(|word| word == "state");
                drop(text);
                return timehist::read(lines, &mut self.machine, has_state);
            }
            if self.beside(&text, lines)? {
                continue;
            }
            self.line(&text, lines)?;
        }
        Ok(())
    }

    /// Handles a line that is not an event. Returns `false` if the line should be an event.
    fn beside(&mut self, text: &str, lines: &Lines<impl Read>) -> Result<bool, Failure> {
        if let Some(comment) = text.strip_prefix('#') {
            self.comment(comment);
            return Ok(true);
        }
        // Call stacks are indented, and those of ftrace begin with an arrow.
        if text.is_empty() || text.starts_with('\t') || text.starts_with(" => ") {
            return Ok(true);
        }
        let Some((cpu, rest)) = text.strip_prefix("CPU").and_then(|rest| {
            let rest = rest.trim_start_matches([':', ' ']);
            let end = rest.find(' ')?;
            Some((rest[..end].parse::<u32>().ok()?, rest[end..].trim()))
        }) else {
            return Ok(["cpus=", "version = "].iter().any(|start| text.starts_with(start)));
        };
        let words = rest.trim_start_matches('[').trim_end_matches(']');
        let count = words.split(' ').find_map(|word| word.parse().ok());
        match () {
            () if words.contains("LOST") || words.contains("DROPPED") => {
                let ts = self.machine.last_ns().unwrap_or_default();
                if count.is_none() && CPUS_COUNT.value > u64::from(cpu) {
                    let said = format!("how many events CPU {cpu} lost: at least one");
                    let limits = &mut self.machine.run.not_captured;
                    if !limits.contains(&said) {
                        limits.push(said);
                    }
                }
                self.machine.lost(ts, Some(cpu), count.unwrap_or(1));
                Ok(true)
            }
            () if words == "is empty" => Ok(true),
            () => Ok(lines.wrong("it is no event, and nothing else that is known")?),
        }
    }

    /// Takes a comment at the head of a text, as `perf script --header` and ftrace write them.
    fn comment(&mut self, text: &str) {
        let text = text.trim_start_matches('#').trim();
        if let Some(cpu) = text.strip_prefix("CPU ").and_then(|rest| rest.split_once(" buffer started")) {
            self.began_late = cpu.0.parse().ok();
        }
        let Some((name, value)) = text.split_once(':') else { return };
        let (name, value) = (name.trim(), value.trim());
        let run = &mut self.machine.run;
        match name {
            "entries-in-buffer/entries-written" => {
                let words = value.split([' ', '/']).filter_map(|word| word.parse::<u64>().ok());
                if let [kept, written] = words.take(2).collect::<Vec<_>>()[..] {
                    self.overwritten_count = written.saturating_sub(kept);
                }
            }
            "hostname" => value.clone_into(&mut run.host.name),
            "os release" => value.clone_into(&mut run.host.kernel),
            "cpudesc" => value.clone_into(&mut run.host.cpu),
            "nrcpus online" => run.host.cpu_count = value.parse().unwrap_or_default(),
            "cmdline" => run.command = vec![value.to_owned()],
            "clockid" => {
                run.not_captured
                    .retain(|what| !what.starts_with("which clock") && !what.starts_with(NO_TIME_OF_DAY));
                run.not_captured.push(format!("{NO_TIME_OF_DAY}: times are on perf's clock {value}"));
                let clock = value.split(' ').next().unwrap_or_default();
                run.clock.base = format!("CLOCK_{}", clock.to_uppercase());
            }
            "reference time" => {
                if let Some(offset_ns) = wall_offset_ns(value) {
                    run.clock.wall_offset_ns = offset_ns;
                    run.not_captured
                        .retain(|what| !what.starts_with(NO_TIME_OF_DAY) && what != TIME_OF_DAY_ERROR);
                    run.not_captured.push(TIME_OF_DAY_ERROR.to_owned());
                }
            }
            _ => {}
        }
    }

    fn line(&mut self, text: &str, lines: &Lines<impl Read>) -> Result<(), Failure> {
        let Some(found) = line::parse(text) else {
            return Ok(
                lines.wrong("it is no event of the scheduler, nor another: NAME, CPU, time and event")?
            );
        };
        let mut at = found.at;
        let last_ns = self.machine.last_ns();
        if last_ns.is_some_and(|last| last > at.ts) {
            return Ok(lines.wrong("its time is before that of an earlier line: sort the text by time")?);
        }
        if found.event == "PERF_RECORD_LOST" {
            let count = found.fields.rsplit(' ').next().and_then(|count| count.parse().ok());
            let Some(count) = count else {
                return Ok(lines.wrong("how many events were lost is no number")?);
            };
            self.machine.lost(at.ts, None, count);
            return Ok(());
        }
        let event = match event::parse(found.event, found.fields) {
            Some(Ok(event)) => event,
            Some(Err(())) => {
                return Ok(lines.wrong(format!("its fields are of no known form of {}", found.event))?);
            }
            None if found.event == FIRST_WAKEUP => return Ok(()),
            None => {
                if self.others.len() < MAX_OTHERS || self.others.contains_key(found.event) {
                    *self.others.entry(found.event.to_owned()).or_default() += 1;
                } else {
                    *self.others.entry("others".to_owned()).or_default() += 1;
                }
                return Ok(());
            }
        };
        if let Some(cpu) = self.began_late.take_if(|cpu| at.cpu == Some(*cpu)) {
            self.machine.lost(at.ts, Some(cpu), std::mem::take(&mut self.overwritten_count));
        }
        self.digits = self.digits.min(found.digits);
        if let machine::Event::Switch { prev: Some(prev), .. } = event
            && at.tid.is_some_and(|tid| tid != prev.tid)
        {
            self.foreign_count += 1;
        }
        if self.foreign_count > 0 {
            (at.tid, at.pid) = (None, None);
        }
        self.machine.event(&at, &event)?;
        match self.machine.excess() {
            Some(reason) => Ok(lines.wrong(reason)?),
            None => Ok(()),
        }
    }

    /// Returns the names and numbers of the events that are not read, as the end of a sentence.
    fn others_said(&self) -> String {
        let names: Vec<String> =
            self.others.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        if names.is_empty() {
            String::new()
        } else {
            format!("; events that are not read: {}", names.join(", "))
        }
    }

    fn finish(mut self) -> Result<Finished, WriteError> {
        let mut limits = Vec::new();
        let others = self.others_said();
        if let Some(others) = others.strip_prefix("; ") {
            limits.push(others.to_owned());
        }
        if self.digits < 9 {
            let resolution_ns = 10_i64.pow(9 - self.digits as u32);
            limits.push(format!("times finer than {resolution_ns} ns"));
            self.machine.run.clock.resolution_ns = Some(resolution_ns);
        }
        if self.foreign_count > 0 {
            limits.push(
                "processes, and who ended sleeps: threads have other numbers before the time than in the events"
                    .to_owned(),
            );
        }
        if self.overwritten_count > 0 {
            limits
                .push(format!("{} earlier events, which the buffer had no room for", self.overwritten_count));
        }
        self.machine.run.not_captured.extend(limits);
        self.machine.finish()
    }
}
