//! `SCHED_EVENTS`: a thread leaves a CPU, and comes back on one.
//!
//! ```text
//! isSchedIn   1        0            1      0
//!             ├─ runs ─┤  off_cpu   ├ runs ┤  off_cpu, open at the end
//! ```

use trace_schema::{Kind, Row};

use super::{Import, thread_of};
use crate::error::AnalyzeError;

pub(super) const TABLE: &str = "SCHED_EVENTS";
const COLUMNS: [&str; 4] = ["start", "cpu", "isSchedIn", "globalTid"];

/// A thread that has left its CPU.
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
    /// Writes the intervals in which threads were off CPU.
    pub(super) fn switches(&mut self) -> Result<(), AnalyzeError> {
        if !self.has(TABLE, &COLUMNS) {
            self.run.not_captured.push(format!(
                "what the scheduler did to threads: there is no table {TABLE} of the known form"
            ));
            return Ok(());
        }
        self.run
            .not_captured
            .push("why a thread was off CPU, who had the CPU, and who woke the thread".to_owned());
        let failed = self.database.failed(TABLE);
        let query = "SELECT rowid, start, cpu, isSchedIn, globalTid FROM SCHED_EVENTS ORDER BY globalTid, start, rowid";
        let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
        {
            let mut statement = self.database.connection.prepare(query).map_err(&failed)?;
            let mut rows = statement.query([]).map_err(&failed)?;
            let mut away: Option<Away> = None;
            let progress = self.database.progress(TABLE);
            while let Some(row) = rows.next().map_err(&failed)? {
                progress.add(1);
                let number = row.get::<_, i64>(0).map_err(&failed)?;
                let bad = |reason: String| AnalyzeError::BadRow {
                    path: self.database.path.clone(),
                    table: TABLE,
                    row: number.to_string(),
                    reason,
                };
                let read = || -> rusqlite::Result<(i64, Option<u32>, bool, i64)> {
                    Ok((row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                };
                let (start, cpu, is_in, thread) = read().map_err(|error| bad(error.to_string()))?;
                let ts = Self::time(self.base_ns, start).ok_or_else(|| bad(format!("start is {start}")))?;
                first_ns = first_ns.min(ts);
                last_ns = last_ns.max(ts);
                // Another thread: where this one was after its last event is open.
                if let Some(open) = away.take_if(|open| open.thread != thread) {
                    self.recorder.push(&open.row(None, None))?;
                }
                match (is_in, away.take()) {
                    (true, Some(open)) => self.recorder.push(&open.row(Some(ts), cpu))?,
                    (true, None) => {}
                    // It left twice: the first time is when it was gone.
                    (false, Some(open)) => away = Some(open),
                    (false, None) => away = Some(Away { thread, ts, cpu }),
                }
            }
            if let Some(open) = away {
                self.recorder.push(&open.row(None, None))?;
            }
        }
        if first_ns <= last_ns {
            self.saw(first_ns, last_ns);
        }
        Ok(())
    }
}
