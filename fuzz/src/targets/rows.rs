//! Runs whose file is right and whose content need not be: bytes describe metadata and rows, which are written as the recorder
//! writes them. What is behind the decoder of Parquet is reached by this.
//!
//! ```text
//! record   │ kind │ op │ thread │ flags │ step (2), shift │ length (2), shift │ value (4) │ unused (2) │
//! ```
//! The first record describes the run. Every other one is a row, whose time is `step << shift` after that of the one before.

use std::path::PathBuf;

use trace_schema::{Kind, Lost, Op, Row, Run, Stored, TIME_LIMIT_NS, Text, Thread};
use trace_writer::{Recorder, WriteError};

use super::runs::asked;
use crate::{scratch, target::Outcome};

/// Size of a record in bytes.
pub const RECORD_BYTES: usize = 16;
/// Number of records that are read.
const RECORDS_COUNT: usize = 4000;

/// Names of what happened in rows of other kinds than calls, and some that no row has.
const OPS: [&str; 32] = [
    "preempted",
    "sleeping",
    "uninterruptible",
    "throttled",
    "stopped",
    "idle",
    "unknown",
    "run",
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "empty_cache",
    "ipc_collect",
    "usage",
    "state_segment",
    "state_block",
    "range",
    "point",
    "exec",
    "exit",
    "fork",
    "stack",
    "kernel",
    "major_fault",
    "",
    "a name of nobody",
];

/// One record, of which every part is a number.
struct Record<'a>(&'a [u8; RECORD_BYTES]);

impl Record<'_> {
    fn byte(&self, place: usize) -> u8 {
        self.0[place]
    }

    /// Returns the number that stands in two bytes and is shifted by the next one.
    fn scaled(&self, place: usize) -> i64 {
        let number = i64::from(u16::from_le_bytes([self.0[place], self.0[place + 1]]));
        number << (self.0[place + 2] % 46)
    }

    fn value(&self) -> u32 {
        u32::from_le_bytes([self.0[10], self.0[11], self.0[12], self.0[13]])
    }

    fn has(&self, flag: u8) -> bool {
        self.byte(3) & 1 << flag != 0
    }

    /// Returns process and thread.
    fn thread(&self) -> (u32, u32) {
        let pid = 100 * (1 + u32::from(self.byte(2) >> 4) % 3);
        (pid, pid + u32::from(self.byte(2)) % 4)
    }

    fn run(&self) -> Run {
        let (pid, tid) = self.thread();
        let (from_ns, to_ns) = (self.scaled(4).min(TIME_LIMIT_NS), self.scaled(7).min(TIME_LIMIT_NS));
        let mut run = Run {
            producer: if self.has(0) { "inquest capture".to_owned() } else { String::new() },
            joined_running: self.has(1),
            lost_is_counted: self.has(2),
            throttling_is_recorded: self.has(3),
            threads: vec![Thread { pid, tid, comm: "main".to_owned() }],
            ..Run::default()
        };
        (run.clock.start_ns, run.clock.end_ns) = (from_ns.min(to_ns), from_ns.max(to_ns));
        if self.has(4) {
            let count = self.value().into();
            run.lost.push(Lost { probe: "off_cpu".to_owned(), from_ns, to_ns, count });
        }
        if self.has(5) {
            let made_count = Some(self.value().into()).filter(|_| self.has(6));
            run.stored.push(Stored {
                kind: Kind::Call.name().to_owned(),
                from_ns,
                to_ns,
                made_count,
                ..Stored::default()
            });
        }
        run
    }

    fn op(&self, kind: Kind) -> Text {
        let index = usize::from(self.byte(1));
        match kind {
            Kind::Call => Op::ALL[index % Op::ALL.len()].name().into(),
            _ => OPS[index % OPS.len()].into(),
        }
    }

    fn row(&self, last_ns: i64) -> Row {
        let kind = Kind::ALL[usize::from(self.byte(0)) % Kind::ALL.len()];
        let (pid, tid) = self.thread();
        let step = if self.has(1) { -self.scaled(4) } else { self.scaled(4) };
        let ts = if self.has(2) { TIME_LIMIT_NS } else { last_ns.saturating_add(step) };
        let dur = self.scaled(7);
        let some = |flag: u8| self.has(flag).then(|| self.value());
        let text = |flag: u8| self.has(flag).then(|| Text::new(&format!("name {}", self.value() % 16)));
        Row {
            dur: (!self.has(0)).then_some(dur),
            size_bytes: some(3).map(|value| i64::from(value) << (self.byte(14) % 32)),
            addr: some(3).map(|value| u64::from(value) << (self.byte(15) % 32)),
            cpu: some(5).map(|value| value % 8),
            in_cpu: some(5).map(|value| value % 5),
            runnable_ns: some(4).map(|value| dur.min(value.into())),
            syscall: some(4).map(|value| value as i32),
            waker_pid: some(4).map(|value| 100 * (value % 4)),
            waker_tid: some(4).map(|value| 100 + value % 4),
            next_tid: some(5).map(|value| 100 + value % 4),
            stream: some(6).map(u64::from),
            func: some(6).map(u64::from),
            ret: some(6).map(|value| value as i32),
            stack: some(7).map(|value| value % 8),
            detail: text(7),
            direction: self.has(3).then_some(Text::Static("h2d")),
            ..Row::new(ts.clamp(-TIME_LIMIT_NS, TIME_LIMIT_NS), kind, self.op(kind), pid, tid)
        }
    }
}

/// Writes the run; `None` if nothing describes it.
fn write(bytes: &[u8]) -> Result<Option<PathBuf>, WriteError> {
    let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
    let Some((head, rows)) = records.split_first() else { return Ok(None) };
    let run = Record(head).run();
    let out = scratch::absent("described.parquet");
    let mut recorder = Recorder::create(&out, true, &run)?;
    let mut last_ns = run.clock.start_ns;
    for record in rows.iter().take(RECORDS_COUNT) {
        let row = Record(record).row(last_ns);
        last_ns = row.ts;
        recorder.push(&row)?;
    }
    let written = if Record(head).has(7) { recorder.finish_sorted(&run) } else { recorder.finish(&run) };
    written.map(|_| Some(out))
}

/// A run that is described by records.
pub fn rows(bytes: &[u8]) -> Outcome {
    write(bytes).expect("every description can be written").map_or(Outcome::Refused, |out| asked(&out))
}
