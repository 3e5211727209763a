//! Which process entered collective operations last.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use trace_schema::{Class, Kind, Op};

use crate::{questions::info::ProcessCount, trace::Trace};
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
    hash::HashMap,
};

/// How often a process entered a collective operation after all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// Process ID.
    pub pid: i64,
    /// Number of operations that it entered last.
    pub last_count: i64,
    /// Sum, over those, of the time in nanoseconds since the last but one had entered.
    pub late_ns: i64,
}

/// Collective operations that all processes with such calls entered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Number of processes.
    pub processes_count: usize,
    /// Number of operations.
    pub collectives_count: i64,
    /// Processes that entered any of them last, in the order of their IDs.
    pub late: Vec<Late>,
}

/// Compares entries in the order of time. The n-th call of a function in one process belongs with the n-th in each other. It keeps
/// the operations that not all processes have entered yet.
#[derive(Debug, Default)]
struct Comparing<'a> {
    processes_count: usize,
    /// Number of entries by function and process.
    counts: HashMap<(&'a str, i64), i64>,
    /// By function and number, how many processes have entered an operation, and when the last one did, in nanoseconds.
    open: HashMap<(&'a str, i64), (usize, i64)>,
    late: BTreeMap<i64, Late>,
    collectives_count: i64,
}

impl<'a> Comparing<'a> {
    /// Adds an entry of a process to a function at a time in nanoseconds.
    fn add(&mut self, op: &'a str, pid: i64, ts: i64) {
        let number = self.counts.entry((op, pid)).or_default();
        let key = (op, *number);
        *number += 1;
        let (entered_count, before_ts) = self.open.remove(&key).unwrap_or((0, ts));
        if entered_count + 1 < self.processes_count {
            self.open.insert(key, (entered_count + 1, ts));
            return;
        }
        let sum = self.late.entry(pid).or_insert_with(|| Late { pid, ..Late::default() });
        sum.last_count += 1;
        sum.late_ns = sum.late_ns.saturating_add(ts.saturating_sub(before_ts));
        self.collectives_count += 1;
    }

    fn finish(self) -> Ranks {
        Ranks {
            processes_count: self.processes_count,
            collectives_count: self.collectives_count,
            late: self.late.into_values().collect(),
        }
    }
}

/// Returns the collective functions that a run has calls of, and the number of processes with such calls; `None` if they cannot be
/// compared: there are fewer than two processes, or the numbers of calls differ, so that the n-th need not belong together.
fn comparable(processes: &[ProcessCount]) -> Option<(BTreeSet<&str>, usize)> {
    let is_collective = |of: &&ProcessCount| {
        of.kind == Kind::Call.name()
            && Op::from_name(&of.op).is_some_and(|op| op.class() == Class::Collective)
    };
    let collectives = || processes.iter().filter(is_collective);
    let pids: BTreeSet<i64> = collectives().map(|of| of.pid).collect();
    let ops: BTreeSet<&str> = collectives().map(|of| of.op.as_str()).collect();
    let is_alike = |op: &&str| {
        let mut counts = collectives().filter(|of| of.op == **op).map(|of| of.rows_count);
        let first = counts.next();
        counts.all(|count| Some(count) == first)
            && collectives().filter(|of| of.op == **op).count() == pids.len()
    };
    (pids.len() >= 2 && ops.iter().all(is_alike)).then_some((ops, pids.len()))
}

impl Ranks {
    /// Reads them; `processes` are the numbers of rows of the run.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub async fn read(trace: &Trace, processes: &[ProcessCount]) -> Result<Self, AnalyzeError> {
        let Some((ops, processes_count)) = comparable(processes) else { return Ok(Self::default()) };
        let names: Vec<String> = ops.iter().map(|op| format!("'{op}'")).collect();
        let query = format!(
            "SELECT CAST(pid AS BIGINT) AS pid, CAST(op AS VARCHAR) AS op, ts FROM events WHERE kind = 'call' \
             AND op IN ({}) ORDER BY ts, pid",
            names.join(", ")
        );
        let mut comparing = Comparing { processes_count, ..Comparing::default() };
        let mut batches = trace.sorted(&query);
        while let Some(batch) = batches.try_next().await? {
            let (pids, called) = (integers(&batch, "pid")?, strings(&batch, "op")?);
            let times = integers(&batch, "ts")?;
            for row in 0..batch.num_rows() {
                if let Some(op) = ops.get(called.value(row)).copied() {
                    comparing.add(op, pids.value(row), times.value(row));
                }
            }
        }
        Ok(comparing.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_operation_is_late_by_the_time_since_the_one_before() {
        let mut comparing = Comparing { processes_count: 3, ..Comparing::default() };
        for (pid, ts) in [(1, 0), (2, 5), (1, 20), (3, 30), (3, 50), (2, 52)] {
            comparing.add("ncclAllReduce", pid, ts);
        }
        assert!(comparing.open.is_empty(), "what all have entered is not kept");
        let found = comparing.finish();
        assert_eq!((found.processes_count, found.collectives_count), (3, 2));
        let late = |pid, late_ns| Late { pid, last_count: 1, late_ns };
        assert_eq!(found.late, [late(2, 2), late(3, 25)]);
    }

    #[test]
    fn calls_belong_together_if_each_process_made_as_many() {
        let count = |op: &str, pid, rows_count| ProcessCount {
            rows_count,
            ..ProcessCount::of_test(Kind::Call, op, pid, (0, 9))
        };
        let mut counts = vec![
            count("ncclAllReduce", 1, 3),
            count("ncclAllReduce", 2, 3),
            count("cudaMalloc", 1, 3),
            count("ncclSend", 2, 1),
        ];
        assert_eq!(comparable(&counts), Some((BTreeSet::from(["ncclAllReduce"]), 2)));
        // Of a function that only one process called, no call belongs with one of another process.
        counts.push(count("ncclBroadcast", 1, 3));
        assert_eq!(comparable(&counts), None);
        counts.push(count("ncclBroadcast", 2, 4));
        assert_eq!(comparable(&counts), None);
        assert_eq!(comparable(&counts[..1]), None);
    }
}
