//! Tables and functions that SQL cannot express, one per file. Exact quantiles in SQL are DataFusion's own
//! `percentile_cont` and `median`; `analysis::multiset` implements the same definition in Rust.

mod count;
mod demangle;
pub mod derived;
mod document;
mod fmt;
mod histogram;
pub mod interval_join;
mod interval_set;
pub mod memory;
pub mod reference;
pub mod tables;
mod time_bucket;

use std::sync::Arc;

use datafusion::{
    logical_expr::{AggregateUDF, ScalarUDF},
    prelude::SessionContext,
};

use trace_schema::Kind;

use crate::{error::AnalyzeError, trace::RunFile};

/// Returns the kinds of event without which a derived table has no rows, or `None` if the table is not one
/// that Rust derives.
pub fn kinds_of(table: &str) -> Option<&'static [Kind]> {
    let mut tables = tables::NAMES.into_iter().chain(memory::NAMES);
    tables.find(|(name, _)| *name == table).map(|(_, kinds)| kinds)
}

/// Returns the scalar functions.
fn scalars() -> Vec<ScalarUDF> {
    let mut functions = vec![demangle::function(), time_bucket::function()];
    functions.extend(fmt::functions());
    functions.extend(interval_set::functions());
    functions
}

/// Returns the aggregate functions.
fn aggregates() -> Vec<AggregateUDF> {
    vec![histogram::function(), interval_set::aggregate()]
}

/// Registers all functions and tables, and returns the source of the derived tables. `immutable` says that
/// `events` does not change, so that what the tables need is computed only once.
pub fn register(
    context: &SessionContext,
    files: &[RunFile],
    immutable: bool,
) -> Result<Arc<derived::Source>, AnalyzeError> {
    let source = Arc::new(derived::Source::new(context, files, immutable));
    for function in scalars() {
        context.register_udf(function);
    }
    for function in aggregates() {
        context.register_udaf(function);
    }
    context.register_udaf(count::function());
    tables::register(context, &source)?;
    memory::register(context, files)?;
    Ok(source)
}
