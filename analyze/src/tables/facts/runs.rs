//! `_runs`: a table with one row per run: its host, its clock, and how exactly the clock is known.

use analyze_engine::{rows, rows::Rows};
use analyze_run::{coverage::probes_kernel_launches, error::AnalyzeError, run_file::RunFile};
use arrow::array::RecordBatch;

use crate::tables::def::FactDef;

pub(crate) const TABLE: FactDef = FactDef { name: "_runs", rows: fill };

rows! {
    /// A run. `wall_offset_ns` is what the time of day is ahead of the trace clock, and may be off by `wall_error_ns`.
    /// `probes_kernel_launches` is whether launches of kernels can have rows.
    struct RunRow<'a> => RunRows {
        run: &'a str,
        host: &'a str,
        producer: &'a str,
        start_ns: i64,
        end_ns: i64,
        wall_offset_ns: Option<i64>,
        wall_error_ns: Option<i64>,
        is_synchronised: Option<bool>,
        utc_error_ns: Option<i64>,
        probes_kernel_launches: Option<bool>,
    }
}

fn fill(files: &[RunFile]) -> Result<RecordBatch, AnalyzeError> {
    let mut rows = RunRows::new(RunRows::schema());
    for file in files {
        let clock = &file.run.clock;
        let wall = clock.wall_offset();
        rows.push(RunRow {
            run: &file.name,
            host: &file.run.host.name,
            producer: &file.run.producer,
            start_ns: clock.start_ns,
            end_ns: clock.end_ns,
            wall_offset_ns: wall.map(|(offset, _)| offset),
            wall_error_ns: wall.and_then(|(_, error)| error),
            is_synchronised: clock.is_synchronised,
            utc_error_ns: clock.utc_error_ns(),
            probes_kernel_launches: Some(probes_kernel_launches(&file.run)),
        });
    }
    rows.take()
}
