//! What a run is: where it comes from, what was probed, what was lost, what is in it.

use serde::Serialize;
use trace_schema::Run;

use crate::trace::Trace;
use analyze_run::{
    columns::{integers, strings},
    error::AnalyzeError,
};

/// Rows of one kind and op.
#[derive(Clone, Debug, Serialize)]
pub struct Count {
    pub kind: String,
    pub op: String,
    pub rows_count: i64,
}

/// Answer.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    pub run: String,
    pub rows_count: u64,
    pub size_bytes: u64,
    pub provenance: Run,
    pub counts: Vec<Count>,
    /// What a reader of any figure from this run must know.
    pub warnings: Vec<String>,
}

/// What weakens statements about a run, in words.
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

/// Answers for one run.
///
/// # Errors
/// If its data cannot be read.
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
