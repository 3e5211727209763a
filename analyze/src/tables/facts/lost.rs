//! `_lost`: a table of the intervals in which `capture` dropped events.

use analyze_engine::{rows, rows::Rows};
use analyze_run::{error::AnalyzeError, run_file::RunFile};
use arrow::array::RecordBatch;

use crate::tables::def::FactDef;

pub(crate) const TABLE: FactDef = FactDef { name: "_lost", rows: fill };

rows! {
    /// An interval in which events of a probe were dropped, in nanoseconds of the trace clock.
    struct LostRow<'a> => LostRows not null {
        run: &'a str,
        probe: &'a str,
        from_ns: i64,
        to_ns: i64,
        lost_count: i64,
    }
}

fn fill(files: &[RunFile]) -> Result<RecordBatch, AnalyzeError> {
    let mut rows = LostRows::new(LostRows::schema());
    for file in files {
        for lost in &file.run.lost {
            rows.push(LostRow {
                run: &file.name,
                probe: &lost.probe,
                from_ns: lost.from_ns,
                to_ns: lost.to_ns,
                lost_count: lost.count as i64,
            });
        }
    }
    rows.take()
}
