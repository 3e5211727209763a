//! Which process entered collective operations last.

use std::collections::{BTreeMap, BTreeSet};

use trace_schema::{Class, Kind, Op};

use crate::{questions::info::Present, trace::Trace};
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
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

/// Compares entries, given as process, function and time in nanoseconds, in order of time. The n-th call of a function in one
/// process belongs with the n-th in each other. Returns nothing if the numbers of calls differ: then they need not.
fn compared(entries: &[(i64, String, i64)]) -> Ranks {
    let mut counts: BTreeMap<(&str, i64), usize> = BTreeMap::new();
    let mut operations: BTreeMap<(&str, usize), Vec<(i64, i64)>> = BTreeMap::new();
    for (pid, op, ts) in entries {
        let op = op.as_str();
        let number = counts.entry((op, *pid)).or_default();
        operations.entry((op, *number)).or_default().push((*ts, *pid));
        *number += 1;
    }
    let pids: BTreeSet<i64> = entries.iter().map(|(pid, ..)| *pid).collect();
    if pids.len() < 2 || operations.values().any(|entered| entered.len() != pids.len()) {
        return Ranks::default();
    }
    let mut late: BTreeMap<i64, Late> = BTreeMap::new();
    for entered in operations.values() {
        if let [.., (before, _), (last, pid)] = entered.as_slice() {
            let sum = late.entry(*pid).or_insert_with(|| Late { pid: *pid, ..Late::default() });
            sum.last_count += 1;
            sum.late_ns = sum.late_ns.saturating_add(last.saturating_sub(*before));
        }
    }
    Ranks {
        processes_count: pids.len(),
        collectives_count: operations.len() as i64,
        late: late.into_values().collect(),
    }
}

impl Ranks {
    /// Reads them.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub async fn read(trace: &Trace, present: &Present) -> Result<Self, AnalyzeError> {
        let ops = Op::ALL.iter().filter(|op| op.class() == Class::Collective);
        let ops = ops.filter(|op| present.has(Kind::Call, op.name()));
        let ops: Vec<String> = ops.map(|op| format!("'{}'", op.name())).collect();
        if ops.is_empty() {
            return Ok(Self::default());
        }
        let query = format!(
            "SELECT CAST(pid AS BIGINT) AS pid, CAST(op AS VARCHAR) AS op, ts FROM events WHERE kind = 'call' \
             AND op IN ({}) ORDER BY ts, pid",
            ops.join(", ")
        );
        let mut entries = Vec::new();
        for batch in &trace.batches(&query).await? {
            let (pids, ops, times) = (integers(batch, "pid")?, strings(batch, "op")?, integers(batch, "ts")?);
            let rows = 0..batch.num_rows();
            entries.extend(rows.map(|row| (pids.value(row), ops.value(row).to_owned(), times.value(row))));
        }
        Ok(compared(&entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_operation_is_late_by_the_time_since_the_one_before() {
        let entry = |pid, op: &str, ts| (pid, op.to_owned(), ts);
        let mut entries = vec![
            entry(1, "ncclAllReduce", 0),
            entry(2, "ncclAllReduce", 5),
            entry(3, "ncclAllReduce", 30),
            entry(1, "ncclAllReduce", 40),
            entry(3, "ncclAllReduce", 50),
            entry(2, "ncclAllReduce", 52),
        ];
        let found = compared(&entries);
        assert_eq!((found.processes_count, found.collectives_count), (3, 2));
        let late = |pid, late_ns| Late { pid, last_count: 1, late_ns };
        assert_eq!(found.late, [late(2, 2), late(3, 25)]);
        // One process made one call more: which calls belong together is not known.
        entries.push(entry(1, "ncclAllReduce", 60));
        assert_eq!(compared(&entries), Ranks::default());
    }
}
