//! `_steps`: the steps of each process that made CUDA calls, such as those of a training loop or of a decoder, and what the
//! time of each was spent on. The account is that of `run_time`, cut at the borders of the steps.

pub(super) mod find;
pub(super) mod times;

use analyze_engine::rows::Rows;
use trace_schema::Kind;

use super::{def::TableDef, run_time};
use times::StepRows;

pub(crate) const TABLE: TableDef = TableDef {
    name: "_steps",
    needs: &[Kind::Call],
    schema: StepRows::schema,
    make: |source, output| Box::pin(run_time::fill(source, None, Some(output))),
};
