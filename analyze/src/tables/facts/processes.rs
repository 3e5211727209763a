//! `_processes`: a table of the processes that were recorded, with their commands and containers.

use analyze_engine::{rows, rows::Rows};
use analyze_run::{error::AnalyzeError, run_file::RunFile};
use arrow::array::RecordBatch;

use crate::tables::def::FactDef;

pub(crate) const TABLE: FactDef = FactDef { name: "_processes", rows: fill };

rows! {
    /// A process.
    struct ProcessRow<'a> => ProcessRows not null {
        run: &'a str,
        pid: u32,
        parent_pid: u32,
        command: &'a str,
        cgroup: &'a str,
        container_id: &'a str,
        pod_name: &'a str,
    }
}

fn fill(files: &[RunFile]) -> Result<RecordBatch, AnalyzeError> {
    let mut rows = ProcessRows::new(ProcessRows::schema());
    for file in files {
        for process in &file.run.processes {
            rows.push(ProcessRow {
                run: &file.name,
                pid: process.pid,
                parent_pid: process.parent_pid,
                command: &process.command.join(" "),
                cgroup: &process.cgroup,
                container_id: &process.container_id,
                pod_name: &process.pod_name,
            });
        }
    }
    rows.take()
}
