//! Tables and functions that SQL cannot express, one a file. Quantiles in SQL are DataFusion's own exact
//! `percentile_cont` and `median`; [`crate::analysis::multiset`] has the same definition for Rust.

pub(crate) mod derived;
pub(crate) mod interval_join;
pub(crate) mod memory;
pub(crate) mod tables;

use std::sync::Arc;

use datafusion::prelude::SessionContext;

use crate::{error::AnalyzeError, trace::RunFile};

/// Registers all of them; the source of the derived tables. `immutable`: `events` does not change, so
/// they are computed once.
pub(crate) fn register(
    context: &SessionContext,
    files: &[RunFile],
    immutable: bool,
) -> Result<Arc<derived::Source>, AnalyzeError> {
    let source = Arc::new(derived::Source::new(context, files, immutable));
    tables::register(context, &source)?;
    memory::register(context, files)?;
    Ok(source)
}
