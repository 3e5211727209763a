//! `_threads`: a table of the threads that were recorded, with their names.

use analyze_engine::{rows, rows::Rows};
use analyze_run::{error::AnalyzeError, run_file::RunFile};
use arrow::array::RecordBatch;

use crate::tables::def::FactDef;

pub(crate) const TABLE: FactDef = FactDef { name: "_threads", rows: fill };

rows! {
    /// A thread.
    struct ThreadRow<'a> => ThreadRows not null {
        run: &'a str,
        pid: u32,
        tid: u32,
        comm: &'a str,
    }
}

fn fill(files: &[RunFile]) -> Result<RecordBatch, AnalyzeError> {
    let mut rows = ThreadRows::new(ThreadRows::schema());
    for file in files {
        for thread in &file.run.threads {
            let (pid, tid, comm) = (thread.pid, thread.tid, thread.comm.as_str());
            rows.push(ThreadRow { run: &file.name, pid, tid, comm });
        }
    }
    rows.take()
}
