//! Divides the time of each step by what it was spent on, and makes the rows of `_steps`.

use analyze_engine::{derived_table::Writer, rows};
use analyze_run::error::AnalyzeError;

use super::find::{FoundBy, warm_up_count};
use crate::tables::run_time::STEP_COLUMNS;

rows! {
    /// A step of a process; times are in nanoseconds.
    pub(in crate::tables) struct StepRow<'a> => StepRows {
        run: &'a str,
        pid: u32,
        tid: u32,
        step: i64,
        found_by: &'a str,
        name: &'a str,
        ts: i64,
        dur_ns: i64,
        is_warm_up: bool,
        calls_count: i64,
        launches_count: i64,
        ..parts: [i64; STEP_COLUMNS.len()] = STEP_COLUMNS,
    }
}

/// The steps of a process.
#[derive(Debug)]
pub(in crate::tables) struct Steps<'a> {
    pub(in crate::tables) run: &'a str,
    pub(in crate::tables) pid: u32,
    /// The thread that drives the GPU.
    pub(in crate::tables) tid: u32,
    pub(in crate::tables) found_by: FoundBy,
    pub(in crate::tables) name: &'a str,
    /// Start and end of each step in nanoseconds, in the order of time and without overlap.
    pub(in crate::tables) spans: &'a [(i64, i64)],
}

/// Adds up what the time of each step was spent on, and writes the row of a step once its time has passed.
pub(in crate::tables) struct Times<'a, C> {
    writer: &'a mut Writer<StepRows>,
    steps: Steps<'a>,
    /// Returns the number of calls, and of launches among them, that begin between two times.
    counts: C,
    warm_up_count: usize,
    /// Index of the step that the next time belongs to.
    at: usize,
    /// Time of that step so far.
    parts: [i64; STEP_COLUMNS.len()],
    /// Whether the rows so far were handed on.
    sent: Result<(), AnalyzeError>,
}

impl<'a, C: Fn(i64, i64) -> (i64, i64)> Times<'a, C> {
    /// Makes an account of steps.
    pub(in crate::tables) fn new(writer: &'a mut Writer<StepRows>, steps: Steps<'a>, counts: C) -> Self {
        let warm_up_count = warm_up_count(steps.spans);
        Self { writer, steps, counts, warm_up_count, at: 0, parts: [0; STEP_COLUMNS.len()], sent: Ok(()) }
    }

    /// Adds `[ts, end)`, in nanoseconds, which was spent on one thing: the column of this index. It begins where the one before
    /// ended.
    pub(in crate::tables) fn add(&mut self, ts: i64, end: i64, column: usize) {
        while let Some((from, to)) = self.steps.spans.get(self.at).copied()
            && from < end
        {
            self.parts[column] += (end.min(to) - ts.max(from)).max(0);
            if to > end {
                break;
            }
            self.finish(from, to);
        }
    }

    /// Makes the row of a step.
    fn finish(&mut self, ts: i64, end: i64) {
        let (calls_count, launches_count) = (self.counts)(ts, end);
        self.writer.push(StepRow {
            run: self.steps.run,
            pid: self.steps.pid,
            tid: self.steps.tid,
            step: self.at as i64,
            found_by: self.steps.found_by.name(),
            name: self.steps.name,
            ts,
            dur_ns: end - ts,
            is_warm_up: self.at < self.warm_up_count,
            calls_count,
            launches_count,
            parts: self.parts,
        });
        self.parts = [0; STEP_COLUMNS.len()];
        self.at += 1;
        if self.sent.is_ok() {
            self.sent = self.writer.send(false);
        }
    }

    /// Returns whether the rows were handed on.
    ///
    /// # Errors
    /// Returns an error if nobody reads the rows any more.
    pub(in crate::tables) fn end(self) -> Result<(), AnalyzeError> {
        self.sent
    }
}
