//! The state of an import: the source, the recorder, and the span of time and the facts found so far.

use trace_schema::{Run, TIME_LIMIT_NS};
use trace_writer::Recorder;

use super::source::{Cells, Source, Wanted};
use crate::limits::NAMES_COUNT;
use analyze_run::error::AnalyzeError;

/// Returns the process id and the thread id in a `globalTid`.
pub(super) fn thread_of(global: i64) -> (u32, u32) {
    (((global >> 24) & 0xff_ffff) as u32, (global & 0xff_ffff) as u32)
}

/// An import in progress: it converts the tables of a source to rows of a run.
pub(super) struct Import {
    pub(super) source: Box<dyn Source>,
    pub(super) recorder: Recorder,
    /// Unix time of the session's start in ns; 0 if it is unknown.
    pub(super) base_ns: i64,
    pub(super) first_ns: Option<i64>,
    pub(super) last_ns: i64,
    pub(super) run: Run,
}

impl Import {
    /// Returns whether a table exists and has these columns.
    pub(super) fn has(&self, table: &str, columns: &[&str]) -> bool {
        let found = self.source.columns(table).unwrap_or_default();
        columns.iter().all(|column| found.iter().any(|name| name == column))
    }

    /// Returns what `read` makes of each row of a small table.
    pub(super) fn list<T>(
        &self,
        table: &'static str,
        columns: &[&'static str],
        mut read: impl FnMut(&Cells<'_>) -> Result<T, String>,
    ) -> Result<Vec<T>, AnalyzeError> {
        let mut found = Vec::new();
        let wanted = Wanted { table, columns, texts: &["nameId"], by: None };
        self.source.rows(&wanted, &mut |cells| {
            if NAMES_COUNT.is_exceeded_by(found.len() + 1) {
                return Err(NAMES_COUNT.over("the table has more rows").into());
            }
            found.push(read(cells)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Converts a time of the trace to Unix time, both in ns. Returns `None` if it is out of range.
    pub(super) fn time(base_ns: i64, ns: i64) -> Option<i64> {
        base_ns.checked_add(ns).filter(|ts| (0..=TIME_LIMIT_NS).contains(ts))
    }

    pub(super) fn saw(&mut self, ts: i64, end: i64) {
        self.first_ns = Some(self.first_ns.map_or(ts, |first| first.min(ts)));
        self.last_ns = self.last_ns.max(end);
    }
}
