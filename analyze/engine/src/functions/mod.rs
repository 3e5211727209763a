//! Functions that DataFusion lacks, one a file. Quantiles are DataFusion's own exact `percentile_cont` and `median`.

mod count;
mod demangle;
mod document;
mod fmt;
mod histogram;
mod interval_set;
pub mod reference;
mod time_bucket;

use datafusion::{
    logical_expr::{AggregateUDF, ScalarUDF},
    prelude::SessionContext,
};

/// Returns the functions of values.
fn scalars() -> Vec<ScalarUDF> {
    let mut functions = vec![demangle::function(), time_bucket::function()];
    functions.extend(fmt::functions());
    functions.extend(interval_set::functions());
    functions
}

/// Returns the functions of groups.
fn aggregates() -> Vec<AggregateUDF> {
    vec![histogram::function(), interval_set::aggregate()]
}

/// Registers all of them, and a `count` that is quick with few groups.
pub fn register(context: &SessionContext) {
    for function in scalars() {
        context.register_udf(function);
    }
    for function in aggregates() {
        context.register_udaf(function);
    }
    context.register_udaf(count::function());
}
