//! What a run is: its provenance, its probes, the events it lost, and the number of rows it contains.

use serde::Serialize;
use trace_schema::Run;

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
    let batches = trace
        .batches("SELECT run, kind, op, count(*) AS n FROM events GROUP BY run, kind, op ORDER BY run, kind, n DESC, op")
        .await?;
    let mut infos: Vec<Info> = trace
        .files()
        .iter()
        .map(|file| Info {
            run: file.name.clone(),
            rows_count: file.rows_count,
            size_bytes: file.size_bytes,
            provenance: file.run.clone(),
            counts: Vec::new(),
            warnings: warnings(&file.run),
        })
        .collect();
    for batch in &batches {
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
