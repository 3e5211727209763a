//! `_ops`: a table of the functions that a trace can have calls of.

use analyze_engine::{rows, rows::Rows};
use analyze_run::{error::AnalyzeError, run_file::RunFile};
use arrow::array::RecordBatch;
use trace_schema::Op;

use crate::tables::def::FactDef;

pub(crate) const TABLE: FactDef = FactDef { name: "_ops", rows: fill };

rows! {
    /// A function, with the library layer and the class of work that it belongs to.
    struct OpRow<'a> => OpRows not null {
        op: &'a str,
        layer: &'a str,
        class: &'a str,
    }
}

fn fill(_: &[RunFile]) -> Result<RecordBatch, AnalyzeError> {
    let mut rows = OpRows::new(OpRows::schema());
    for op in Op::ALL {
        rows.push(OpRow { op: op.name(), layer: op.layer().name(), class: op.class().name() });
    }
    rows.take()
}
