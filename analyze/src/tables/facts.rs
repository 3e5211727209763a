//! Tables of what the files' metadata and the trace format itself say: `_ops`, `_runs`, `_threads`, `_processes`, `_lost`.

use std::sync::Arc;

use analyze_engine::error::query_error;
use analyze_run::{error::AnalyzeError, run_file::RunFile};
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array};
use datafusion::prelude::SessionContext;
use trace_schema::Op;

/// The names of the tables.
pub const FACTS: [&str; 5] = ["_lost", "_ops", "_processes", "_runs", "_threads"];

fn add(context: &SessionContext, name: &str, rows: RecordBatch) -> Result<(), AnalyzeError> {
    context.register_batch(name, rows).map(drop).map_err(query_error)
}

/// What the files' metadata and the schema crate know, as tables.
pub fn register(context: &SessionContext, files: &[RunFile]) -> Result<(), AnalyzeError> {
    let text = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
    let batch = |columns: Vec<(&str, ArrayRef)>| {
        RecordBatch::try_from_iter(columns).map_err(|error| AnalyzeError::Internal(error.to_string()))
    };
    let ops = Op::ALL;
    let of_ops = |f: fn(&Op) -> &'static str| text(ops.iter().map(|op| f(op).to_owned()).collect());
    add(
        context,
        "_ops",
        batch(vec![
            ("op", of_ops(|op| op.name())),
            ("layer", of_ops(|op| op.layer().name())),
            ("class", of_ops(|op| op.class().name())),
        ])?,
    )?;
    let number = |of: &dyn Fn(&RunFile) -> Option<i64>| {
        Arc::new(files.iter().map(of).collect::<arrow::array::Int64Array>()) as ArrayRef
    };
    let is_synchronised: BooleanArray = files.iter().map(|file| file.run.clock.is_synchronised).collect();
    let runs = RecordBatch::try_from_iter_with_nullable(
        [
            ("run", text(files.iter().map(|file| file.name.clone()).collect())),
            ("host", text(files.iter().map(|file| file.run.host.name.clone()).collect())),
            ("producer", text(files.iter().map(|file| file.run.producer.clone()).collect())),
            ("start_ns", number(&|file| Some(file.run.clock.start_ns))),
            ("end_ns", number(&|file| Some(file.run.clock.end_ns))),
            ("wall_offset_ns", number(&|file| file.run.clock.wall_offset().map(|(offset, _)| offset))),
            ("wall_error_ns", number(&|file| file.run.clock.wall_offset().and_then(|(_, error)| error))),
            ("is_synchronised", Arc::new(is_synchronised) as ArrayRef),
            ("utc_error_ns", number(&|file| file.run.clock.utc_error_ns())),
        ]
        .map(|(name, column)| (name, column, true)),
    );
    add(context, "_runs", runs.map_err(|error| AnalyzeError::Internal(error.to_string()))?)?;
    let threads: Vec<_> = files
        .iter()
        .flat_map(|file| file.run.threads.iter().map(move |thread| (&file.name, thread)))
        .collect();
    add(
        context,
        "_threads",
        batch(vec![
            ("run", text(threads.iter().map(|(run, _)| (*run).clone()).collect())),
            ("pid", Arc::new(UInt32Array::from_iter_values(threads.iter().map(|(_, t)| t.pid)))),
            ("tid", Arc::new(UInt32Array::from_iter_values(threads.iter().map(|(_, t)| t.tid)))),
            ("comm", text(threads.iter().map(|(_, t)| t.comm.clone()).collect())),
        ])?,
    )?;
    let processes: Vec<_> = files
        .iter()
        .flat_map(|file| file.run.processes.iter().map(move |process| (&file.name, process)))
        .collect();
    let of_processes = |f: fn(&trace_schema::ProcessInfo) -> String| {
        text(processes.iter().map(|(_, process)| f(process)).collect())
    };
    add(
        context,
        "_processes",
        batch(vec![
            ("run", text(processes.iter().map(|(run, _)| (*run).clone()).collect())),
            ("pid", Arc::new(UInt32Array::from_iter_values(processes.iter().map(|(_, p)| p.pid)))),
            (
                "parent_pid",
                Arc::new(UInt32Array::from_iter_values(processes.iter().map(|(_, p)| p.parent_pid))),
            ),
            ("command", of_processes(|process| process.command.join(" "))),
            ("cgroup", of_processes(|process| process.cgroup.clone())),
            ("container_id", of_processes(|process| process.container_id.clone())),
            ("pod_name", of_processes(|process| process.pod_name.clone())),
        ])?,
    )?;
    let lost: Vec<_> =
        files.iter().flat_map(|file| file.run.lost.iter().map(move |lost| (&file.name, lost))).collect();
    let of_lost = |f: fn(&trace_schema::Lost) -> i64| {
        Arc::new(arrow::array::Int64Array::from_iter_values(lost.iter().map(|(_, l)| f(l)))) as ArrayRef
    };
    add(
        context,
        "_lost",
        batch(vec![
            ("run", text(lost.iter().map(|(run, _)| (*run).clone()).collect())),
            ("probe", text(lost.iter().map(|(_, l)| l.probe.clone()).collect())),
            ("from_ns", of_lost(|l| l.from_ns)),
            ("to_ns", of_lost(|l| l.to_ns)),
            ("lost_count", of_lost(|l| l.count as i64)),
        ])?,
    )?;
    Ok(())
}
