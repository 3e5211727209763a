//! Tables and functions that SQL cannot express, one a file. Quantiles are DataFusion's own exact
//! `percentile_cont` and `median`; there is no other definition in this program.

mod call_table;
pub(crate) mod interval_join;

use std::sync::Arc;

use datafusion::prelude::SessionContext;

use crate::error::AnalyzeError;

/// Registers all of them. `immutable`: `events` does not change, so a derived table is computed once.
pub(crate) fn register(context: &SessionContext, immutable: bool) -> Result<(), AnalyzeError> {
    let calls = call_table::CallTable::new(context, immutable);
    context.register_table(call_table::NAME, Arc::new(calls))?;
    Ok(())
}
