//! What a run is: its provenance, its probes, the events it lost, and the number of rows it contains.

use std::collections::{BTreeMap, HashSet};

use arrow::array::RecordBatch;
use serde::Serialize;
use trace_schema::{Kind, Run};

use crate::trace::Trace;
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
};

/// The number of rows of one event kind and operation.
#[derive(Clone, Debug, Serialize)]
pub struct Count {
    /// Name of the event kind.
    pub kind: String,
    /// Function or operation.
    pub op: String,
    /// Number of rows.
    pub rows_count: i64,
}

/// The description of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Name of the run.
    pub run: String,
    /// Number of rows in all files of the run.
    pub rows_count: u64,
    /// Size of the run's files in bytes.
    pub size_bytes: u64,
    /// The metadata that the recorder wrote.
    pub provenance: Run,
    /// Rows by kind and operation, most frequent operations of each kind first.
    pub counts: Vec<Count>,
    /// Conditions that a reader of any figure from this run must know.
    pub warnings: Vec<String>,
}

/// The kinds and operations that the runs of a trace have rows of. What needs rows that are not there need not read any.
#[derive(Clone, Debug, Default)]
pub struct Present(HashSet<(String, String)>);

impl Present {
    /// Reads them from the rows of all runs.
    ///
    /// # Errors
    /// Returns an error if the rows cannot be read.
    pub async fn of(trace: &Trace) -> Result<Self, AnalyzeError> {
        let mut present = Self::default();
        for batch in trace.batches("SELECT kind, op, count(*) AS n FROM events GROUP BY kind, op").await? {
            let (kinds, ops) = (strings(&batch, "kind")?, strings(&batch, "op")?);
            let rows = 0..batch.num_rows();
            present.0.extend(rows.map(|row| (kinds.value(row).to_owned(), ops.value(row).to_owned())));
        }
        Ok(present)
    }

    /// Takes them from what is known of a run.
    pub fn in_run(info: &Info) -> Self {
        Self(info.counts.iter().map(|count| (count.kind.clone(), count.op.clone())).collect())
    }

    /// Returns whether there is a row of a kind and operation.
    pub fn has(&self, kind: Kind, op: &str) -> bool {
        self.0.contains(&(kind.name().to_owned(), op.to_owned()))
    }
}

/// Describes what weakens statements about a run: lost events, failed probes, and sources not captured.
pub fn warnings(run: &Run) -> Vec<String> {
    let mut warnings = Vec::new();
    match (run.lost_count(), run.lost_is_counted) {
        (0, true) => {}
        (0, false) => warnings.push(
            "this source does not count the events it loses: absence of an event proves nothing".to_owned(),
        ),
        (lost, _) => warnings.push(format!("{lost} events were lost: see the table `lost`")),
    }
    let failed = run.probes.iter().filter(|probe| probe.error.is_some()).count();
    if failed > 0 {
        warnings.push(format!(
            "{failed} probes could not be placed: calls of those functions are not in the run"
        ));
    }
    warnings.extend(run.not_captured.iter().map(|what| format!("not captured: {what}")));
    warnings
}

/// Describes the runs of a trace.
pub async fn run(trace: &Trace) -> Result<Vec<Info>, AnalyzeError> {
    let query = "SELECT run, kind, op, count(*) AS n FROM events GROUP BY run, kind, op ORDER BY run, kind, n DESC, op";
    described(trace, &trace.batches(query).await?)
}

/// The rows of one kind and operation of one process; times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct ProcessCount {
    /// Name of the event kind.
    pub kind: String,
    /// Function or operation.
    pub op: String,
    /// Process ID.
    pub pid: i64,
    /// Number of rows.
    pub rows_count: i64,
    /// Start of the first one.
    pub first_ts: i64,
    /// Start of the last one.
    pub last_ts: i64,
    /// Latest end of one; what did not end counts as its start.
    pub last_end: i64,
}

impl ProcessCount {
    /// Creates the count of two rows of a process, the second of which begins and ends at the last time.
    #[cfg(test)]
    pub(super) fn of_test(kind: Kind, op: &str, pid: i64, (first_ts, last_ts): (i64, i64)) -> Self {
        let (kind, op) = (kind.name().to_owned(), op.to_owned());
        Self { kind, op, pid, rows_count: 2, first_ts, last_ts, last_end: last_ts }
    }
}

/// Describes the only run of a trace, with the numbers of its rows by kind, operation and process.
///
/// # Errors
/// Returns an error if the trace has no run, or cannot be read.
pub async fn with_processes(trace: &Trace) -> Result<(Info, Vec<ProcessCount>), AnalyzeError> {
    let query = "SELECT kind, op, pid, count(*) AS n, min(ts) AS first_ts, max(ts) AS last_ts, \
         max(ts + coalesce(dur, 0)) AS last_end FROM events GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
    let mut processes = Vec::new();
    let mut sums: BTreeMap<(String, String), i64> = BTreeMap::new();
    for batch in &trace.batches(query).await? {
        let (kinds, ops) = (strings(batch, "kind")?, strings(batch, "op")?);
        let whole = |name| integers(batch, name);
        let (pids, counts) = (whole("pid")?, whole("n")?);
        let (firsts, lasts, ends) = (whole("first_ts")?, whole("last_ts")?, whole("last_end")?);
        for row in 0..batch.num_rows() {
            let (kind, op) = (kinds.value(row).to_owned(), ops.value(row).to_owned());
            *sums.entry((kind.clone(), op.clone())).or_default() += counts.value(row);
            processes.push(ProcessCount {
                kind,
                op,
                pid: pids.value(row),
                rows_count: counts.value(row),
                first_ts: firsts.value(row),
                last_ts: lasts.value(row),
                last_end: ends.value(row),
            });
        }
    }
    let info = blank(trace).next();
    let mut info = info.ok_or_else(|| AnalyzeError::Internal("a trace without a run".to_owned()))?;
    info.counts = sums.into_iter().map(|((kind, op), rows_count)| Count { kind, op, rows_count }).collect();
    info.counts.sort_by(|a, b| {
        a.kind.cmp(&b.kind).then(b.rows_count.cmp(&a.rows_count)).then_with(|| a.op.cmp(&b.op))
    });
    Ok((info, processes))
}

/// Describes the runs of a trace without the numbers of their rows.
fn blank(trace: &Trace) -> impl Iterator<Item = Info> {
    trace.files().iter().map(|file| Info {
        run: file.name.clone(),
        rows_count: file.rows_count,
        size_bytes: file.size_bytes,
        provenance: file.run.clone(),
        counts: Vec::new(),
        warnings: warnings(&file.run),
    })
}

/// Describes the runs of a trace, given the numbers of their rows by kind and operation.
fn described(trace: &Trace, batches: &[RecordBatch]) -> Result<Vec<Info>, AnalyzeError> {
    let mut infos: Vec<Info> = blank(trace).collect();
    for batch in batches {
        let (runs, kinds, ops) = (strings(batch, "run")?, strings(batch, "kind")?, strings(batch, "op")?);
        let n = integers(batch, "n")?;
        for row in 0..batch.num_rows() {
            if let Some(info) = infos.iter_mut().find(|info| info.run == runs.value(row)) {
                info.counts.push(Count {
                    kind: kinds.value(row).to_owned(),
                    op: ops.value(row).to_owned(),
                    rows_count: n.value(row),
                });
            }
        }
    }
    Ok(infos)
}
