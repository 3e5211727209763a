//! Converts `SCHED_EVENTS`, in which threads leave a CPU and come back on one, to off-CPU intervals.
//!
//! ```text
//! isSchedIn   1        0            1      0
//!             ├─ runs ─┤  off_cpu   ├ runs ┤  off_cpu, open at the end
//! ```

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use trace_schema::{Kind, Row, Run};
use trace_writer::{Recorder, WriteError};

use super::{
    source::{Refused, Wanted},
    state::{Import, thread_of},
};
use crate::limits::THREADS_COUNT;
use analyze_run::error::AnalyzeError;

/// Name of the table of context switches.
pub(super) const TABLE: &str = "SCHED_EVENTS";
/// Largest number of rows that wait for earlier ones.
const MAX_WAITING: usize = 1 << 21;
const COLUMNS: [&str; 4] = ["start", "cpu", "isSchedIn", "globalTid"];

/// A thread that has left its CPU and has not come back yet.
struct Away {
    thread: i64,
    ts: i64,
    cpu: Option<u32>,
}

impl Away {
    fn row(&self, end: Option<i64>, in_cpu: Option<u32>) -> Row {
        let (pid, tid) = thread_of(self.thread);
        Row {
            dur: end.map(|end| end - self.ts),
            cpu: self.cpu,
            in_cpu,
            ..Row::new(self.ts, Kind::OffCpu, "unknown".into(), pid, tid)
        }
    }
}

impl Import {
    /// Writes a row for each interval in which a thread was off CPU.
    pub(super) fn switches(&mut self) -> Result<(), AnalyzeError> {
        if !self.has(TABLE, &COLUMNS) {
            self.run
                .not_captured
                .push(format!("{}: there is no table {TABLE} of the known form", Run::NO_SCHEDULE));
            return Ok(());
        }
        self.run
            .not_captured
            .push("why a thread was off CPU, who had the CPU, and who woke the thread".to_owned());
        let wanted = Wanted { table: TABLE, columns: &COLUMNS, texts: &[], by: Some("start") };
        let mut switches = Switches::default();
        let (recorder, base_ns) = (&mut self.recorder, self.base_ns);
        self.source.rows(&wanted, &mut |cells| {
            let start = cells.required("start")?;
            let switch = Switch {
                ts: Self::time(base_ns, start).ok_or_else(|| format!("start is {start}"))?,
                number: cells.number,
                is_in: cells.required("isSchedIn")? != 0,
                cpu: cells.extent("cpu")?,
                thread: cells.required("globalTid")?,
            };
            switches.wait(switch, recorder)
        })?;
        let span = switches.end(recorder)?;
        if let Some((first_ns, last_ns)) = span {
            self.saw(first_ns, last_ns);
        }
        Ok(())
    }
}

/// One row of the table. The derived order is that of time, then that of the row's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Switch {
    ts: i64,
    number: i64,
    is_in: bool,
    cpu: Option<u32>,
    thread: i64,
}

/// Sorts switches by time and converts them to rows: a switch that comes early in the table waits for those
/// that come late.
#[derive(Default)]
struct Switches {
    waiting: BinaryHeap<Reverse<Switch>>,
    away: HashMap<i64, Away>,
    span: Option<(i64, i64)>,
}

impl Switches {
    fn wait(&mut self, switch: Switch, recorder: &mut Recorder) -> Result<(), Refused> {
        if self.span.is_some_and(|(_, last)| last > switch.ts) {
            return Err(format!("start is before that of more than {MAX_WAITING} earlier rows").into());
        }
        self.waiting.push(Reverse(switch));
        if THREADS_COUNT.is_exceeded_by(self.away.len()) {
            return Err(THREADS_COUNT.over("the table has more threads").into());
        }
        if self.waiting.len() > MAX_WAITING
            && let Some(Reverse(first)) = self.waiting.pop()
        {
            self.take(first, recorder)?;
        }
        Ok(())
    }

    fn take(&mut self, switch: Switch, recorder: &mut Recorder) -> Result<(), WriteError> {
        let Switch { ts, cpu, thread, .. } = switch;
        self.span = Some(self.span.map_or((ts, ts), |(first, _)| (first, ts)));
        if switch.is_in {
            self.away.remove(&thread).map_or(Ok(()), |away| recorder.push(&away.row(Some(ts), cpu)))
        } else {
            // If a thread left twice in a row, it has been off CPU since the first time.
            self.away.entry(thread).or_insert(Away { thread, ts, cpu });
            Ok(())
        }
    }

    /// Writes the waiting switches and the open intervals. Returns the first and the last time of all
    /// switches, in ns.
    fn end(mut self, recorder: &mut Recorder) -> Result<Option<(i64, i64)>, WriteError> {
        while let Some(Reverse(switch)) = self.waiting.pop() {
            self.take(switch, recorder)?;
        }
        let mut open: Vec<Away> = self.away.into_values().collect();
        open.sort_by_key(|away| (away.ts, away.thread));
        open.iter().try_for_each(|away| recorder.push(&away.row(None, None)))?;
        Ok(self.span)
    }
}
